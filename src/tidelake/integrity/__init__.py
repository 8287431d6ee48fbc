"""Verifies that a store holds the committed data, and restores whatever can be restored without guessing."""
