"""Lakes whose rows are kept for a while, with clocks that a test moves."""

from __future__ import annotations

import time as clock
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.lakes.lake import encode
from tidelake.storage import blobs

DAY_MS = 86_400_000
EVENT: dict[str, Any] = {
    "type": "record",
    "name": "event",
    "fields": [{"name": "id", "type": "long"}, {"name": "at", "type": ["null", "long"]}],
}
"""`at` is in milliseconds."""
KEPT_A_DAY = {"column": "at", "for": "1d", "unit": "ms"}
NOW_MS = int(clock.time() * 1000)


def events(*rows: tuple[int, int | None, int, int]) -> bytes:
    """An update message, from (id, at, time, diff)."""
    return encode([{"data": {"id": row, "at": at}, "time": time, "diff": diff} for row, at, time, diff in rows], EVENT)


@contextmanager
def clocks_at(now_ms: int, store_ms: int | None = None) -> Iterator[None]:
    """Stop this machine's clock and the store's at the given times."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clock, "time", lambda: now_ms / 1000)
        patch.setattr(blobs, "now_s", lambda folder: (now_ms if store_ms is None else store_ms) / 1000)
        yield
