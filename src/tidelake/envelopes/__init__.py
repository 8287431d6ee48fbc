"""The built-in envelopes, one file each. `pyproject.toml` names them as entry points."""
