"""Which seeds a sweep runs; how a failed case is run again is added to its report by `tests/conftest.py`."""

from __future__ import annotations

import os


def seeds() -> range:
    """The seeds of this run: `TIDELAKE_SWEEP_SEEDS` of them, from `TIDELAKE_SWEEP_FIRST_SEED` on; by default seed 0."""
    first = int(os.environ.get("TIDELAKE_SWEEP_FIRST_SEED", "0"))
    return range(first, first + int(os.environ.get("TIDELAKE_SWEEP_SEEDS", "1")))


def command(seed: int, test: str) -> str:
    """What runs one case of a sweep again."""
    return f"TIDELAKE_SWEEP_FIRST_SEED={seed} TIDELAKE_SWEEP_SEEDS=1 .venv/bin/pytest -m sweep '{test}'"
