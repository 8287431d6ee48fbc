"""The cases of a sweep, its seeds, its time limit, and the command that repeats a failed case."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Protocol

import pytest

STARTED = time.monotonic()
_FIRST = "tests/services/"


def seeds() -> range:
    """The seeds of this run of the tests.

    Their number is `TIDELAKE_SWEEP_SEEDS`, by default 1; the first seed is `TIDELAKE_SWEEP_FIRST_SEED`, by default 0.
    """
    first = int(os.environ.get("TIDELAKE_SWEEP_FIRST_SEED", "0"))
    return range(first, first + int(os.environ.get("TIDELAKE_SWEEP_SEEDS", "1")))


def command(seed: int, test: str) -> str:
    """The command that repeats a case of a sweep."""
    return f"TIDELAKE_SWEEP_FIRST_SEED={seed} TIDELAKE_SWEEP_SEEDS=1 .venv/bin/pytest -m sweep '{test}'"


def seconds() -> float | None:
    """The seconds during which a run may start new cases, from `TIDELAKE_SWEEP_SECONDS`; None if there is no limit."""
    limit = os.environ.get("TIDELAKE_SWEEP_SECONDS")
    return float(limit) if limit else None


def is_over() -> bool:
    """Whether the time of this run is used up."""
    limit = seconds()
    return limit is not None and time.monotonic() - STARTED > limit


def sweep_order(tests: Sequence[str]) -> list[str]:
    """The names in an order that depends on the first seed, so that a run cut short has some cases of every kind.

    Cases that go from a database to a table come first: no others cover as much.
    """

    def place(name: str) -> tuple[bool, bytes]:
        return not name.startswith(_FIRST), hashlib.sha256(f"{seeds().start} {name}".encode()).digest()

    return sorted(tests, key=place)


def swept(
    values: Iterable[Any],
    everyday: Collection[Any],
    ids: Callable[[Any], str] | None = None,
    *,
    unpack: bool = False,
) -> list[Any]:
    """Values to parametrise a test with: those in `everyday` run every day, and all others only in sweeps.

    Args:
        values: all values.
        everyday: some of the values, at least one; together, they cover every property that any of the values has.
        ids: returns the name of a value; without it, pytest names the values.
        unpack: whether each value is a tuple for several parameters.
    """
    values = list(values)
    if not everyday or any(value not in values for value in everyday):
        raise ValueError(f"the values for every day must be some of {values}, not {everyday}")
    return [
        pytest.param(
            *(value if unpack else [value]),
            id=ids(value) if ids else None,
            marks=() if value in everyday else pytest.mark.sweep,
        )
        for value in values
    ]


class Titled(Protocol):
    """A case with a title."""

    @property
    def title(self) -> str: ...


def some_of_each_kind(cases: Iterable[Titled], every: int | None = 3) -> list[Any]:
    """Cases to parametrise a test with: the first of each kind runs every day, and most others only in sweeps.

    The kind of a case is the part of its title before the colon.

    Args:
        cases: all cases.
        every: 3 means that every third case runs every day as well, and None that no others do.
    """
    cases = list(cases)
    first: dict[str, Titled] = {}
    for case in cases:
        first.setdefault(case.title.partition(":")[0], case)
    others = cases[::every] if every is not None else []
    return swept(cases, [*first.values(), *others], ids=lambda case: case.title)
