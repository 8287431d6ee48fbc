"""Describes a failure of Spark or delta-rs in one readable line."""

from __future__ import annotations

import re

from py4j.protocol import Py4JJavaError

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def is_panic(error: BaseException) -> bool:
    """Whether an error is a panic of an engine written in Rust, which `except Exception` does not catch."""
    return type(error).__name__ == "PanicException"


def engine_fact(error: BaseException) -> str:
    r"""Return the fact in an engine's error: Spark's innermost cause, or all lines joined for other engines.

    >>> engine_fact(OSError("Generic error\n   \x1b[31m↳\x1b[0m No space left on device\n"))
    'Generic error: No space left on device'
    """
    if isinstance(error, Py4JJavaError):
        cause = error.java_exception
        while cause.getCause() is not None:
            cause = cause.getCause()
        return str(cause.toString()).partition("\n")[0]
    lines = (line.strip(" ↳") for line in _COLOURS.sub("", str(error)).splitlines())
    return ": ".join(line for line in lines if line) or type(error).__name__
