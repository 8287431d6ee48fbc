"""A state of many sealed rows in a store, made without taking it through Avro."""

from __future__ import annotations

from pyspark.sql import functions as F

from benchmarks.bench import Lake
from benchmarks.data import Stream, state_rows
from tidelake.delta.base import BASE
from tidelake.delta.catalog import Catalog
from tidelake.delta.commit import OpenTable
from tidelake.delta.compaction import move_since
from tidelake.delta.layout import DIFF, Store, new_run
from tidelake.delta.runs import write_frame
from tidelake.delta.types import updates_schema
from tidelake.delta.values import UPPER


def seed_state(lake: Lake, name: str, stream: Stream, versions: int = 1) -> None:
    """Put a state there as ingest, seal and one full compaction leave it: a run in the order of time, and its upper.

    Where the collection forgets history, all of the state is its base, and since follows.

    There are no proofs of it, so it cannot be validated; ticks and reads do not look at proofs.

    Args:
        lake: the store; its topic stays empty.
        name: the collection.
        stream: whose state.
        versions: how often each row was stated, each time as a whole; all but the last are history.
    """
    catalog, settings = Catalog(Store(lake.settings.store)), lake.settings.collection(name)
    collection = catalog.open_or_create(settings)
    path = collection.paths.updates
    schema = updates_schema(collection.entry.record_schema, collection.entry.positioned)
    for version in range(versions):
        rows = state_rows(lake.spark, stream).withColumn("_time", F.col("_time") + version * stream.state_times)
        rows = rows.withColumn("quantity", F.col("quantity") + version).withColumn(DIFF, F.lit(1))
        makes_base = settings.keep != "all" and versions == 1
        split_by = [BASE] if makes_base else []
        added = write_frame(rows.withColumn(BASE, F.lit(True)), path, new_run("merge"), schema, split_by)
        upper = (version + 1) * stream.state_times
        OpenTable(path).commit({UPPER: upper}, added, epoch=collection.entry.epoch)
        if makes_base:
            move_since(catalog, collection, settings.keep)
