"""Columns that are put together once: that takes round trips to the JVM, and each tick needs the same ones.

A column is a description that nothing changes, and belongs to no frame and no session.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from threading import Lock
from typing import Any, ParamSpec, TypeVar

from pyspark import SparkContext

_KEPT_MAX = 2_000
"""More than a few hundred collections have; then those that were made first make room."""
_Given = ParamSpec("_Given")
_Made = TypeVar("_Made")


def kept(make: Callable[_Given, _Made]) -> Callable[_Given, _Made]:
    """Call a function once for the same arguments, told by their `repr`, for as long as the JVM is the same.

    Args:
        make: gives columns, which nobody may change, from what it is given alone; `repr` has to show all of that.
    """
    made: dict[tuple[Any, str], _Made] = {}
    lock = Lock()

    @wraps(make)
    def look_up(*args: _Given.args, **kwargs: _Given.kwargs) -> _Made:
        key = (SparkContext._gateway, repr((args, kwargs)))
        with lock:
            if key in made:
                return made[key]
            if len(made) >= _KEPT_MAX:
                del made[next(iter(made))]
        found = make(*args, **kwargs)
        with lock:
            made[key] = found
        return found

    return look_up
