"""Records full compactions in `proofs/`, because a log forgets its entries after a few hours."""

from __future__ import annotations

import time as clock

import pyarrow as pa

from tidelake.compact.compaction import CompactReport
from tidelake.store.entry import Collection
from tidelake.store.files import write_run
from tidelake.store.layout import PROOFS_SCHEMA
from tidelake.store.proof_log import COMPACTED
from tidelake.store.runs import append_run


def note_compaction(collection: Collection, before: tuple[int, ...], report: CompactReport) -> None:
    """Record what a full compaction did, for `tidelake history`, unless nothing changed.

    Args:
        collection: the collection, with the entry that has the new `since`.
        before: the previous `since`.
        report: what the compaction did.

    Cost: a commit to `proofs/`. Ticks never incur it, because their compactions are not full.
    """
    if not report.merges and before == report.since:
        return
    row = {
        "kind": COMPACTED,
        "lower": before[0] if before else None,
        "upper": report.since[0] if report.since else None,
        "copies": len(report.merged_runs),
        "announced": report.rows_before,
        "counted": report.rows_after,
        "at_ms": int(clock.time() * 1000),
    }
    rows, path = pa.Table.from_pylist([row], schema=PROOFS_SCHEMA), collection.paths.proofs
    append_run(path, "compaction", lambda run: write_run(path, run, rows), collection.entry.epoch)
