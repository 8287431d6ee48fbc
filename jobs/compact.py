"""Compact: one commit moves `since` according to the retention rule, and a second commit merges runs."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from pyspark.sql import SparkSession

from jobs.job import Report, log, run_main, run_step
from tidelake.catalog.catalog import Catalog
from tidelake.catalog.handles import read_handles
from tidelake.compact.compaction import CompactReport, merge_runs, move_since
from tidelake.compact.note import note_compaction
from tidelake.compact.small_tables import merge_small_files
from tidelake.errors import DamagedTable
from tidelake.integrity.verification import check_intact
from tidelake.settings.collection import CollectionSettings
from tidelake.settings.lake import Settings
from tidelake.store.entry import Collection
from tidelake.store.failpoints import reach
from tidelake.store.head_start import note_swept, was_swept
from tidelake.store.holds import held_text, oldest_pin
from tidelake.store.layout import BINDINGS_SCHEMA, PROOFS_SCHEMA, QUARANTINE_SCHEMA, TRANSACTIONS_SCHEMA, Store
from tidelake.store.proof_log import read_proof_log
from tidelake.store.sweep import sweep, sweep_names
from tidelake.store.table_schema import late_schema
from tidelake.telemetry.steps import observed

SWEEP_EVERY_S = 3600.0
"""How often ticks sweep the tables of a collection in an object store."""


def run(spark: SparkSession, settings: Settings, full: bool = True) -> Report:
    """Compact every collection: merge all sealed rows, or only within a budget.

    Raises:
        ConfigurationError: a setting is wrong; nothing was written.
    """
    catalog = Catalog(Store(settings.store))

    def step(collection: Collection, settings: CollectionSettings, report: Report) -> CompactReport:
        return compact_collection(spark, catalog, collection, settings, full)

    return run_step(spark, settings, "compact", step)


@observed("compact", refreshes=True)
def compact_collection(
    spark: SparkSession, catalog: Catalog, collection: Collection, settings: CollectionSettings, full: bool
) -> CompactReport:
    """Compact one collection, and remove files that no log lists and no reader can still be using."""
    check_intact(collection)
    _check_undamaged(collection)
    entry = move_since(catalog, collection, settings.keep)
    moved = Collection(entry, collection.paths)
    compacted = merge_runs(spark, moved, full, settings.merge_rows_max)
    compacted.held = held_text(entry)
    if full:
        note_compaction(moved, collection.entry.since, compacted)
    paths = collection.paths
    small_tables = {
        paths.proofs: PROOFS_SCHEMA,
        paths.quarantine: QUARANTINE_SCHEMA,
        paths.late: late_schema(entry.record_schema),
    }
    if entry.mints_times:
        small_tables[paths.bindings] = BINDINGS_SCHEMA
    if entry.counts_positions:
        small_tables[paths.transactions] = TRANSACTIONS_SCHEMA
    for table, schema in small_tables.items():
        merge_small_files(table, schema, entry.epoch)
    store = catalog.store
    # In an object store, a sweep takes a few requests for each table, so most ticks leave it to a later tick.
    if full or store.root.is_local or not was_swept(store, collection.name, SWEEP_EVERY_S):
        for table in (*small_tables, paths.progress, paths.handles, store.catalog):
            compacted.folders_removed += sweep(table)
        compacted.folders_removed += sweep(paths.updates, read_pin=lambda: oldest_pin(read_handles(paths)))
        sweep_names(store, [collection.name])
        note_swept(store, collection.name)
    reach("compact.after_sweep")
    log.info(
        "compacted",
        collection=collection.name,
        since=list(entry.since),
        **({} if compacted.held is None else {"held": compacted.held}),
        merges=compacted.merges,
        runs=compacted.runs_after,
        rows_before=compacted.rows_before,
        rows_after=compacted.rows_after,
    )
    return compacted


def _check_undamaged(collection: Collection) -> None:
    """Refuse to move `since` if a validation found damage: later validations could no longer compare the damaged times.

    Raises:
        DamagedTable: the newest validation found damage at times before upper.
    """
    damaged = read_proof_log(collection).damaged
    if damaged is not None:
        raise DamagedTable(
            str(collection.paths.updates), f"a validation found damage that merges would hide: {damaged}"
        )


def main(argv: Sequence[str] | None = None) -> int:
    """Run a full compaction from spark-submit or the shell."""
    return run_main(run, __doc__ or "", argv)


if __name__ == "__main__":
    sys.exit(main())
