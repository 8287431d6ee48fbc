"""A store: its tables, their logs, and the one way to commit."""
