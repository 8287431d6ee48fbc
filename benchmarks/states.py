"""Seeds a store with a state of many sealed rows, without Avro."""

from __future__ import annotations

from pyspark.sql import functions as F

from benchmarks.bench import Lake
from benchmarks.data import Stream, state_rows
from tidelake.catalog.catalog import Catalog
from tidelake.compact.compaction import move_since
from tidelake.store.base import BASE
from tidelake.store.commit import OpenTable
from tidelake.store.layout import DIFF, Store, new_run
from tidelake.store.runs import write_frame
from tidelake.store.state import UPPER
from tidelake.store.table_schema import updates_schema


def seed_state(lake: Lake, name: str, stream: Stream, versions: int = 1) -> None:
    """Write a state as it is after ingest, seal and full compaction: a run in time order for each version, and upper.

    If the collection forgets history and each row has one version, the whole state becomes its base, and `since` moves.

    The state has no proofs, so it cannot be validated; ticks and reads do not use proofs.

    Args:
        lake: the store; its topic stays empty.
        name: the collection.
        stream: the source of the state.
        versions: the number of versions of each row; all but the last are history.
    """
    catalog, settings = Catalog(Store(lake.settings.store)), lake.settings.collection(name)
    collection = catalog.open_or_create(settings.spec())
    path = collection.paths.updates
    schema = updates_schema(collection.entry.record_schema, collection.entry.positioned)
    for version in range(versions):
        rows = state_rows(lake.spark, stream).withColumn("_time", F.col("_time") + version * stream.state_times)
        rows = rows.withColumn("quantity", F.col("quantity") + version).withColumn(DIFF, F.lit(1))
        makes_base = settings.keep != "all" and versions == 1
        split_by = [BASE] if makes_base else []
        run = new_run("merge", OpenTable(path).seq)
        added = write_frame(rows.withColumn(BASE, F.lit(True)), path, run, schema, split_by)
        upper = (version + 1) * stream.state_times
        OpenTable(path).commit({UPPER: upper}, added, epoch=collection.entry.epoch)
        if makes_base:
            move_since(catalog, collection, settings.keep)
