"""The rows that a seal adds to `proofs/`: the counts compared at each time, and each contradiction once."""

from __future__ import annotations

import time as clock
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from tidelake.errors import ConflictingDiff, EnvelopeBreach
from tidelake.seal.counts import OpenCounts, TimeCount
from tidelake.seal.report import SealReport
from tidelake.seal.rulings import Rulings
from tidelake.store.commit import OpenTable
from tidelake.store.entry import Collection
from tidelake.store.failpoints import reach
from tidelake.store.files import write_run
from tidelake.store.layout import PROOFS_SCHEMA, TIME
from tidelake.store.proof_log import read_proof_log
from tidelake.store.runs import append_run
from tidelake.store.transactions import asserted_times

_NOTHING = TimeCount(0)
ASSERTED = "asserted: a snapshot of the table, which is complete if its rows were written before its end"
"""The detail of the proof of a time that nothing announces."""


def record_proof(
    collection: Collection,
    report: SealReport,
    rulings: Rulings,
    announced: dict[int, int],
    counts: OpenCounts,
    settled: Sequence[int],
) -> None:
    """Append the compared counts of each settled time.

    If the process stops before this seal commits, the next seal appends them again.
    """
    asserted = set(asserted_times(OpenTable(collection.paths.updates))) if collection.entry.counts_positions else set()
    rows = []
    for time in settled:
        count = counts.by_time.get(time, _NOTHING)
        row = {
            TIME: time,
            "announced": rulings.counts.get(time, announced.get(time, 0)),
            "counted": count.distinct,
            "copies": count.copies,
            "decision": rulings.reasons.get(time),
            "detail": ASSERTED if time in asserted else None,
        }
        rows.append(_common(report, "sealed") | row)
    _append(collection, "proof", rows)


def record_contradictions(collection: Collection, report: SealReport, counts: OpenCounts) -> None:
    """Note each contradiction once, so that `status` can show it without a JVM."""
    if not report.contradictions:
        return
    noted = {(note["time"], note["detail"]) for note in read_proof_log(collection).blocked}
    rows = []
    for error in report.contradictions:
        detail = f"{error.kind}: {error.fact}"
        if isinstance(error, ConflictingDiff | EnvelopeBreach):
            evidence = counts.by_time.get(int(str(error.time)), _NOTHING).evidence
            detail += f"; its data: {evidence}" if evidence else ""
        if (error.time, detail) not in noted:
            rows.append(_common(report, "blocked") | {TIME: error.time, "detail": detail})
    if rows:
        _append(collection, "blocked", rows)
        reach("seal.after_blocked")


def _common(report: SealReport, kind: str) -> dict[str, Any]:
    """Return the columns that say which seal wrote a note."""
    return {
        "lower": report.lower,
        "upper": report.upper,
        "closed": report.closed,
        "kind": kind,
        "at_ms": int(clock.time() * 1000),
    }


def _append(collection: Collection, kind: str, rows: list[dict[str, Any]]) -> None:
    path, table = collection.paths.proofs, pa.Table.from_pylist(rows, schema=PROOFS_SCHEMA)
    append_run(path, kind, lambda run: write_run(path, run, table), collection.entry.epoch)
