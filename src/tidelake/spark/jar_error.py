"""The error about a jar that is missing or differs from the lock, kept apart from the code that fetches jars."""

from __future__ import annotations


class JarError(Exception):
    """A jar differs from the lock or could not be fetched, or the lock itself is missing or malformed."""
