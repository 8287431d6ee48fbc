"""The storage forms: how rows give the contents, how a merge combines them, and how they can break the envelope."""
