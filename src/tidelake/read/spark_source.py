"""Reads the updates of a subscription as Spark DataFrames."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tidelake.read.changes import changes
from tidelake.read.snapshot import snapshot
from tidelake.read.source import Selection
from tidelake.store.commit import OpenTable
from tidelake.store.entry import Collection
from tidelake.store.layout import DIFF, TIME


class SparkSource:
    """See `Source`."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def contents(self, collection: Collection, at: int, selection: Selection) -> DataFrame:
        """Plan a read of the contents."""
        found = snapshot(self._spark, collection, at, **selection.as_arguments()).contents
        names = [f"`{name}`" for name in found.columns if name != DIFF]
        return found.select(*names, F.lit(at).cast("bigint").alias(TIME), DIFF)

    def changes(
        self, collection: Collection, table: OpenTable, after: int, through: int, selection: Selection, in_order: bool
    ) -> DataFrame:
        """Plan a read of changes."""
        found = changes(self._spark, collection, after, through, **selection.as_arguments(), table=table).updates
        return found.orderBy(TIME) if in_order else found

    def release(self) -> None:
        """Do nothing: a lazy DataFrame holds no resources."""
