"""The storage forms: what rows amount to, what a merge makes of them, and how they may break the envelope."""
