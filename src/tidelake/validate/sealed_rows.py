"""The sealed rows that a validation recounts, found without the log as this process remembers it.

Seals and reads take the list of files from the log that this process follows. If a validation did so too, it would not
notice that other readers see something else.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tidelake.protocol.order import INT64_MAX
from tidelake.spark.runtime_constant import parameter
from tidelake.storage import blobs
from tidelake.store.commit import OpenTable
from tidelake.store.entry import Collection
from tidelake.store.files import HASHED_BYTES_MAX
from tidelake.store.layout import TIME
from tidelake.store.published import PublishedFile, live_files
from tidelake.store.runs import read_paths
from tidelake.store.table_log import load_table


@dataclass(frozen=True)
class SealedRows:
    """The rows that are sealed in one version of a collection's updates table."""

    spark: SparkSession
    collection: Collection
    table: OpenTable
    upper: int
    closed: bool

    @cached_property
    def every(self) -> DataFrame:
        """All sealed rows, as Spark's Delta reader finds them."""
        path = self.collection.paths.updates
        blobs.prepare_spark(self.spark, path)
        rows = self.spark.read.format("delta").option("versionAsOf", self.table.version).load(str(path))
        return rows if self.closed else rows.where(F.col(TIME) < self.upper)

    def since(self, lower: int) -> DataFrame:
        """Read the sealed rows at or after a time, from the files that delta-rs finds.

        Spark's Delta reader would skip files only by literal numbers, for which Spark compiles new code each time.

        Raises:
            DamagedTable: delta-rs cannot read the log.

        Cost: delta-rs reads the log from its newest checkpoint. Spark reads the files that may have such rows.
        """
        path, last = self.collection.paths.updates, INT64_MAX if self.closed else self.upper - 1
        files = [
            file
            for file in live_files(load_table(path, self.table.version))
            if (times := _times_of(file))[1] >= lower and times[0] <= last
        ]
        rows = read_paths(self.spark, path, [file.path for file in files], self.collection.updates_schema())
        partial = [file for file in files if (times := _times_of(file))[0] < lower or times[1] > last]
        if not partial:
            return rows
        time = F.col(TIME)
        if any(file.size > HASHED_BYTES_MAX for file in partial):  # literal numbers skip most of a large file
            return rows.where((time >= lower) & (time <= last))
        return rows.where((time >= parameter(lower, time)) & (time <= parameter(last, time)))


def _times_of(file: PublishedFile) -> tuple[int, int]:
    """The least and the greatest time that the rows can have."""
    return file.lowest.get(TIME, 0), file.highest.get(TIME, INT64_MAX)
