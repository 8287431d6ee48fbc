"""Describes a Spark or delta-rs failure in one readable line."""

from __future__ import annotations

import re

from py4j.protocol import Py4JJavaError

_ANSWER = re.compile(r"<\?xml.*?<Code>(\w+)</Code>(?:.*?<Message>([^<]*)</Message>)?.*?</Error>", re.DOTALL)
"""The response of an object store to a request that it refuses; it may repeat the request, signature included."""
_OF_OBJECT_STORE = re.compile(r"(software\.amazon\.awssdk\.[\w.]+|fs\.s3a\.AWS\w+|java\.net\.\w+)Exception\b")
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def is_panic(error: BaseException) -> bool:
    """Return whether an error is a panic of an engine written in Rust, which `except Exception` does not catch."""
    return type(error).__name__ == "PanicException"


def is_of_object_store(error: BaseException) -> bool:
    """Return whether Spark failed because an object store refused a request or did not answer, not because of the data.

    >>> is_of_object_store(OSError("Caused by: java.net.ConnectException: Connection refused"))
    True
    """
    return _OF_OBJECT_STORE.search(str(error)) is not None


def engine_fact(error: BaseException) -> str:
    r"""Return the fact in an error: Spark's innermost cause, or all lines joined for other engines.

    The error may also be one of Tidelake's own: then this is its fact, without its hint.

    >>> engine_fact(OSError("Generic error\n   \x1b[31m↳\x1b[0m No space left on device\n"))
    'Generic error: No space left on device'
    >>> engine_fact(OSError("403: <?xml version='1.0'?><Error><Code>AccessDenied</Code><Id>x</Id></Error>"))
    '403: AccessDenied'
    >>> from tidelake.errors import NewerFormat
    >>> engine_fact(NewerFormat("data/store/catalog", 3, 2)).endswith("this version supports formats up to 2")
    True
    """
    if isinstance(fact := getattr(error, "fact", None), str):  # this package is below the errors, and imports none
        return fact
    if isinstance(error, Py4JJavaError):
        cause = error.java_exception
        while cause.getCause() is not None:
            cause = cause.getCause()
        return str(cause.toString()).partition("\n")[0]
    text = _ANSWER.sub(r"\1 \2", _COLOURS.sub("", str(error)))
    lines = (line.strip(" ↳") for line in text.splitlines())
    return ": ".join(line for line in lines if line) or type(error).__name__
