"""A store: its tables, their logs, the one way to commit, and the catalog."""
