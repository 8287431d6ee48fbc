"""A store: its files, its tables, the one way to commit, and the catalog."""
