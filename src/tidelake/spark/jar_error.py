"""The error of a wrong or missing jar, apart from the code that fetches jars, so that catching it costs no import."""

from __future__ import annotations


class JarError(Exception):
    """A jar differs from the lock or could not be fetched, or the lock itself is missing or malformed."""
