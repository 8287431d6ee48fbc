"""The seeds of a sweep and its time limit, and the command that repeats a failed case."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Sequence

STARTED = time.monotonic()
_FIRST = "tests/services/"


def seeds() -> range:
    """The seeds of this run: `TIDELAKE_SWEEP_SEEDS` of them, from `TIDELAKE_SWEEP_FIRST_SEED` on; by default seed 0."""
    first = int(os.environ.get("TIDELAKE_SWEEP_FIRST_SEED", "0"))
    return range(first, first + int(os.environ.get("TIDELAKE_SWEEP_SEEDS", "1")))


def command(seed: int, test: str) -> str:
    """The command that repeats a case of a sweep."""
    return f"TIDELAKE_SWEEP_FIRST_SEED={seed} TIDELAKE_SWEEP_SEEDS=1 .venv/bin/pytest -m sweep '{test}'"


def seconds() -> float | None:
    """For how many seconds a run starts new cases, from `TIDELAKE_SWEEP_SECONDS`; None if there is no limit."""
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
