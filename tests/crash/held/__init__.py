"""Histories of processes that hold, read, follow and compact one collection, and the validator of these histories."""
