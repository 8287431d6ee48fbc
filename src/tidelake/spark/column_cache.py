"""A cache of columns: building a column takes round trips to the JVM, and each tick needs the same columns.

A column is an immutable description that does not belong to a DataFrame or a session.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from functools import wraps
from hashlib import sha256
from threading import Lock
from typing import Any, ParamSpec, TypeVar

from pyspark import SparkContext

_ENTRIES_MAX = 1_000
"""Enough for hundreds of collections. The least recently used columns are evicted: any tick may bring new schemas."""
_Arguments = ParamSpec("_Arguments")
_Columns = TypeVar("_Columns")


def cached(build: Callable[_Arguments, _Columns]) -> Callable[_Arguments, _Columns]:
    """Cache a function's results, by JVM and the `repr` of the arguments.

    Args:
        build: builds columns from its arguments alone. Callers must not change the result, and `repr` must show each
            argument in full.
    """
    cache: OrderedDict[tuple[Any, bytes], _Columns] = OrderedDict()
    lock = Lock()

    @wraps(build)
    def look_up(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Columns:
        key = (SparkContext._gateway, sha256(repr((args, kwargs)).encode()).digest())
        with lock:
            if key in cache:
                cache.move_to_end(key)
                return cache[key]
        columns = build(*args, **kwargs)
        with lock:
            cache[key] = columns
            while len(cache) > _ENTRIES_MAX:
                cache.popitem(last=False)
        return columns

    return look_up
