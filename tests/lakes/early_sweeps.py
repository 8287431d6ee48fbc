"""Sweeps that behave as if more time had passed than the clocks say."""

from __future__ import annotations

import time

from tests.lakes.places import write_in_the_past
from tidelake.storage import blobs
from tidelake.storage.location import Location
from tidelake.store.sweep import sweep

_AS_IF_CLOCK_AHEAD_S = -60.0
"""A negative retention: to the sweep, every note and every run is old enough, as if its clock were ahead."""


def sweep_early(table: Location, pinned_seq: int | None = None) -> int:
    """Sweep three times as if the clock were ahead; return the number of folders that were removed."""
    wait_until_older(table)
    # The first sweep announces the folders, the second one confirms that they are dead, and the third one deletes them.
    return sum(sweep(table, retention_s=_AS_IF_CLOCK_AHEAD_S, read_pin=lambda: pinned_seq) for _ in range(3))


def wait_until_older(table: Location) -> None:
    """Wait until the store's clock, which may state only whole seconds, is past the times of all files of the table."""
    now_s = blobs.now_s(table)
    if any(blob.changed_s >= now_s for blob in blobs.list_blobs(table)):
        while blobs.now_s(table) == now_s:
            time.sleep(0.002)


def age(folder: Location, age_s: float) -> None:
    """Set the age of everything in a folder, by the store's clock."""
    for blob in blobs.list_blobs(folder):
        write_in_the_past(blob.location, blobs.read(blob.location), age_s)
