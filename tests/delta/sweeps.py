"""What the sweeps here share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def told_how_to_run_again(request: pytest.FixtureRequest, seed: int) -> Iterator[None]:
    """Print the command that runs this very case of a sweep again, if it fails."""
    try:
        yield
    except BaseException:
        again = f".venv/bin/pytest -m sweep '{request.node.nodeid}'"
        print(f"seed {seed}; again: TIDELAKE_SWEEP_FIRST_SEED={seed} TIDELAKE_SWEEP_SEEDS=1 {again}")
        raise
