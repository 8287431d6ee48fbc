"""Verifies that a store holds what was committed, and restores what can be restored without guessing."""
