"""A store: its tables, their logs, and how commits are made."""
