"""The error of a wrong or missing jar, apart from the code that fetches jars, so that catching it costs no import."""

from __future__ import annotations


class JarError(Exception):
    """The jars on disk differ from the lock and could not be fetched."""
