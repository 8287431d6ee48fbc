"""The sealed rows that a validation recounts, found without the log as this process remembers it.

A seal or a read takes the list of files from the log that this process follows. If a validation did so too, it would
not notice that other readers see something else.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tidelake.errors import DamagedTable, VersionCleanedUp
from tidelake.protocol.order import INT64_MAX
from tidelake.spark.runtime_constant import parameter
from tidelake.storage import blobs
from tidelake.store.commit import OpenTable
from tidelake.store.entry import Collection
from tidelake.store.files import HASHED_BYTES_MAX
from tidelake.store.layout import TIME
from tidelake.store.published import PublishedFile, live_files
from tidelake.store.runs import read_files
from tidelake.store.table_log import load_table, state_at


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
        path = self.table.path
        blobs.prepare_spark(self.spark, path)
        rows = self.spark.read.format("delta").option("versionAsOf", self.table.version).load(str(path))
        return rows if self.closed else rows.where(F.col(TIME) < self.upper)

    def since(self, lower: int) -> DataFrame:
        """Read the sealed rows at or after a time, from the files that delta-rs finds.

        Spark's Delta reader would skip files only if the filter compared `_time` with literal numbers, and Spark would
        compile new code for these numbers in every validation.

        Raises:
            VersionCleanedUp: the log was cleaned up in the meantime, and no longer has this version.
            DamagedTable: delta-rs cannot read the log, or does not find the same files as this process; or a file is
                missing or is not the committed one.

        Cost: delta-rs reads the log from its newest checkpoint. Spark reads the files that may have such rows; the
            driver reads what `read_files` reads.
        """
        last = INT64_MAX if self.closed else self.upper - 1
        found = {
            file.path: (file.size, *_times_of(file)) for file in self._found() if _meet(_times_of(file), lower, last)
        }
        files = [file for file in self.table.files() if _meet(file.reach, lower, last)]
        followed = {file.path: (file.bytes, *file.reach) for file in files}
        if found != followed:
            differing = sorted(path for path, _ in found.items() ^ followed.items())
            fact = f"delta-rs and Tidelake find different files in the log of version {self.table.version}"
            raise DamagedTable(str(self.table.path), f"{fact}, or describe them differently: {differing[0]}")
        rows = read_files(self.spark, self.table.path, files, self.collection.updates_schema())
        partial = [file for file in files if file.reach[0] < lower or file.reach[1] > last]
        if not partial:
            return rows
        time = F.col(TIME)
        if any(file.bytes > HASHED_BYTES_MAX for file in partial):  # literal numbers skip most of a large file
            return rows.where((time >= lower) & (time <= last))
        return rows.where((time >= parameter(lower, time)) & (time <= parameter(last, time)))

    def _found(self) -> list[PublishedFile]:
        """Return the files that delta-rs finds."""
        path, version = self.table.path, self.table.version
        try:
            return live_files(load_table(path, version))
        except DamagedTable as error:
            if state_at(path, version) is None:
                raise VersionCleanedUp(str(path), version, "the log was cleaned up in the meantime") from error
            raise


def _times_of(file: PublishedFile) -> tuple[int, int]:
    """Return the least and the greatest time that the rows of a file can have."""
    return file.lowest.get(TIME, 0), file.highest.get(TIME, INT64_MAX)


def _meet(times: tuple[int, int], lower: int, last: int) -> bool:
    return times[1] >= lower and times[0] <= last
