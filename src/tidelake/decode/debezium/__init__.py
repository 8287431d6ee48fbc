"""Decodes Debezium's change events."""
