"""Histories of processes that hold, read, follow and compact one collection, and what must be true of them."""
