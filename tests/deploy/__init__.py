"""The files in deploy/: linted, and their commands started without containers."""
