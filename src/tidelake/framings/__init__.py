"""The built-in framings, one file each. `pyproject.toml` names them as entry points."""
