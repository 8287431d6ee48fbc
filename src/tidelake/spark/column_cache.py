"""A cache of columns: building a column takes round trips to the JVM, and each tick needs the same columns.

A column is an immutable description that does not belong to a DataFrame or a session.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from threading import Lock
from typing import Any, ParamSpec, TypeVar

from pyspark import SparkContext

_ENTRIES_MAX = 2_000
"""Enough for a few hundred collections; when it is full, the oldest entries are evicted."""
_Arguments = ParamSpec("_Arguments")
_Columns = TypeVar("_Columns")


def cached(build: Callable[_Arguments, _Columns]) -> Callable[_Arguments, _Columns]:
    """Cache a function's result for each JVM and the `repr` of its arguments.

    Args:
        build: builds columns from its arguments alone. Callers must not change the result, and `repr` must show each
            argument in full.
    """
    cache: dict[tuple[Any, str], _Columns] = {}
    lock = Lock()

    @wraps(build)
    def look_up(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Columns:
        key = (SparkContext._gateway, repr((args, kwargs)))
        with lock:
            if key in cache:
                return cache[key]
            if len(cache) >= _ENTRIES_MAX:
                del cache[next(iter(cache))]
        columns = build(*args, **kwargs)
        with lock:
            cache[key] = columns
        return columns

    return look_up
