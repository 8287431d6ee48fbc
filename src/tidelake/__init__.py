"""Tidelake turns change-data topics into definite Delta tables."""

__version__ = "0.1.0"
