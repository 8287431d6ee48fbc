"""Spark itself: the session, its jars, and what makes small plans fast. Knows nothing about collections."""
