"""Compact: let since follow the retention rule, in a commit of its own; only then merge runs, in a second commit."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from pyspark.sql import SparkSession

from jobs.job import Report, log, run_main, run_step
from tidelake.configuration import CollectionSettings, Settings
from tidelake.delta.catalog import Catalog, Collection
from tidelake.delta.compaction import CompactReport, merge_runs, move_since, sweep
from tidelake.delta.layout import BINDINGS_SCHEMA, PROOFS_SCHEMA, QUARANTINE_SCHEMA, Store
from tidelake.delta.stops import reach
from tidelake.delta.tidy import merge_small_files
from tidelake.delta.types import late_schema


def run(spark: SparkSession, settings: Settings, full: bool = True) -> Report:
    """Compact every collection: everything that is sealed, or bounded merges only.

    Raises:
        ConfigurationError: a setting is wrong; nothing was written.
    """
    store = Store(settings.store)

    def step(spark: SparkSession, collection: Collection, one: CollectionSettings, report: Report) -> CompactReport:
        return compact_one(spark, Catalog(store), collection, one, full)

    return run_step(spark, settings, "compact", step)


def compact_one(
    spark: SparkSession, catalog: Catalog, collection: Collection, settings: CollectionSettings, full: bool
) -> CompactReport:
    """Compact one collection, and remove what no log names and no reader can still be using."""
    entry = move_since(catalog, collection, settings.keep)
    compacted = merge_runs(spark, Collection(entry, collection.paths), entry.since, full, settings.merge_rows_max)
    paths = collection.paths
    merge_small_files(paths.proofs, PROOFS_SCHEMA, entry.epoch)
    merge_small_files(paths.quarantine, QUARANTINE_SCHEMA, entry.epoch)
    merge_small_files(paths.late, late_schema(entry.record_schema), entry.epoch)
    bindings = [paths.bindings] if entry.framing == "reclock" else []
    for path in bindings:
        merge_small_files(path, BINDINGS_SCHEMA, entry.epoch)
    for table in (
        *bindings,
        paths.updates,
        paths.progress,
        paths.proofs,
        paths.quarantine,
        paths.late,
        catalog.store.catalog,
    ):
        sweep(table, compacted)
    reach("compact.after_sweep")
    log.info(
        "compacted",
        collection=collection.name,
        since=list(entry.since),
        merges=compacted.merges,
        runs=compacted.runs_after,
        rows_before=compacted.rows_before,
        rows_after=compacted.rows_after,
    )
    return compacted


def main(argv: Sequence[str] | None = None) -> int:
    """Run a full compaction from spark-submit or the shell."""
    return run_main(run, __doc__ or "", argv)


if __name__ == "__main__":
    sys.exit(main())
