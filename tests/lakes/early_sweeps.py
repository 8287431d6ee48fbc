"""Sweeps that come days later than the clocks say."""

from __future__ import annotations

from tests.lakes.places import write_in_the_past
from tidelake.compact.compaction import CompactReport, sweep
from tidelake.storage import blobs
from tidelake.storage.location import Location

_AS_IF_CLOCK_AHEAD_S = -60.0
"""A negative retention: to the sweep, every note and every run is old enough, as if its clock were ahead."""


def sweep_early(table: Location, report: CompactReport | None = None) -> int:
    """Sweep twice as if the clock were ahead; return the number of folders that were removed."""
    report = report or CompactReport()
    before = report.folders_removed
    for _ in range(2):  # the first one notes what the second one deletes
        sweep(table, report, retention_s=_AS_IF_CLOCK_AHEAD_S)
    return report.folders_removed - before


def age(folder: Location, age_s: float) -> None:
    """Let everything in a folder be of this age by the store's clock."""
    for blob in blobs.list_blobs(folder):
        write_in_the_past(blob.location, blobs.read(blob.location), age_s)
