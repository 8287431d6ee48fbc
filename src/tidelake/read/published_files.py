"""The files of a published table as Spark reads and rewrites them: which a change can touch, and which to merge."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ByteType,
    DataType,
    DateType,
    IntegerType,
    LongType,
    ShortType,
    StructType,
    TimestampType,
)

from tidelake.read.words import counted
from tidelake.spark.input_files import missing_file
from tidelake.spark.session import EXACT_PATHS, VERIFIED_READS
from tidelake.storage import blobs
from tidelake.store.published import Published, PublishedFile, live_files
from tidelake.store.retry import LostRace
from tidelake.store.staged_rows import StagedRows
from tidelake.store.table_log import load_table

SMALL_BYTES = 16 << 20
"""A file below this size is small."""
SMALL_FILES_MAX = 16
"""If a publication would leave more small files than this, it merges them."""
_FILE_BYTES = 64 << 20
"""Approximate maximum size of a rewritten file."""
_PRUNING_COLUMNS_MAX = 8
_WHOLE_NUMBERS = (ByteType, ShortType, IntegerType, LongType)
_ROUNDING_US = 1_000
"""Delta states the least and the greatest timestamp of a file in whole milliseconds."""
PATH = "_path"


class CannotFollow(Exception):
    """The table has to be rebuilt; the text says why."""


@dataclass(frozen=True)
class PublishedTable:
    """One version of a published table, to which changes are to be applied."""

    spark: SparkSession
    staged: StagedRows
    shown: Published
    files: Sequence[PublishedFile]
    schema: StructType

    @classmethod
    def load(cls, spark: SparkSession, staged: StagedRows, shown: Published) -> PublishedTable:
        """Load the version of the table for which rows are staged.

        Raises:
            CannotFollow: a file is missing, has a different size or has no statistics, or the numbers of rows disagree.
            LostRace: another process has published in the meantime.

        Cost: the log is read, and the table's files are listed.
        """
        table = load_table(staged.table)
        if table.version() != staged.version:
            raise LostRace
        files = live_files(table)
        sizes = {blob.location.below(staged.table): blob.size for blob in blobs.list_blobs(staged.table)}
        for file in files:
            if file.path not in sizes:
                raise CannotFollow(f"its file {file.path} is missing")
            if sizes[file.path] != file.size:
                raise CannotFollow(f"its file {file.path} has size {sizes[file.path]} instead of {file.size}")
            if file.rows is None:
                raise CannotFollow(f"its file {file.path} has no statistics")
        found = sum(file.rows or 0 for file in files)
        if found != shown.rows:
            raise CannotFollow(f"its files have {counted(found, 'row')}, but it states {shown.rows:,}")
        return cls(spark, staged, shown, files, StructType.fromJson(json.loads(table.schema().to_json())))

    def read(self, files: Iterable[PublishedFile], columns: Sequence[str], with_path: bool = False) -> DataFrame:
        """Read columns of some files; on request, also the name of each row's file, in `_path`.

        Raises:
            CannotFollow: a file has just disappeared.
        """
        wanted = StructType([self.schema[name] for name in columns])
        paths = [str(self.staged.table / file.path) for file in files]
        if not paths:
            empty = self.spark.createDataFrame([], schema=wanted)
            return empty.withColumn(PATH, F.lit("")) if with_path else empty
        blobs.prepare_spark(self.spark, self.staged.table)
        rows = self.spark.read.options(**VERIFIED_READS, **EXACT_PATHS).schema(wanted).parquet(*paths)
        missing = missing_file(rows, paths)
        if missing is not None:
            raise CannotFollow(f"its file {missing} is missing")
        return rows.withColumn(PATH, F.col("_metadata.file_path")) if with_path else rows

    def files_at(self, paths: Iterable[str]) -> list[PublishedFile]:
        """Return the files that Spark names by these values of `_path`."""
        by_name = {file.path.rpartition("/")[2]: file for file in self.files}
        if len(by_name) != len(self.files):
            raise CannotFollow("two of its files have the same name")
        return [by_name[unquote(path).rpartition("/")[2]] for path in paths]


@dataclass(frozen=True)
class Extent:
    """The ranges of the values of some rows, which rule out files without any of these rows."""

    ranges: Mapping[str, tuple[int, int]]
    """The least and the greatest value of some columns without nulls, as numbers, like `PublishedFile.lowest`."""
    without_nulls: frozenset[str]


def extent_aggregates(schema: StructType) -> dict[str, Column]:
    """Return the aggregates that `extent_of` needs, by name."""
    sums = {f"nulls {field.name}": F.count_if(F.col(f"`{field.name}`").isNull()) for field in schema}
    for field in [field for field in schema if _prunes(field.dataType)][:_PRUNING_COLUMNS_MAX]:
        number = _as_number(F.col(f"`{field.name}`"), field.dataType)
        sums |= {f"min {field.name}": F.min(number), f"max {field.name}": F.max(number)}
    return sums


def extent_of(schema: StructType, sums: Mapping[str, Any]) -> Extent:
    """Return the extent from the values of the aggregates."""
    without_nulls = frozenset(name for name in schema.names if sums[f"nulls {name}"] == 0)
    ranges = {}
    for field in schema:
        least, greatest = sums.get(f"min {field.name}"), sums.get(f"max {field.name}")
        if field.name in without_nulls and least is not None and greatest is not None:
            apart = _ROUNDING_US if isinstance(field.dataType, TimestampType) else 0
            ranges[field.name] = (least - apart, greatest + apart)
    return Extent(ranges, without_nulls)


def _as_number(value: Column, kind: DataType) -> Column:
    if isinstance(kind, TimestampType):
        return F.unix_micros(value)
    return F.unix_date(value) if isinstance(kind, DateType) else value


def _prunes(kind: DataType) -> bool:
    return isinstance(kind, (*_WHOLE_NUMBERS, DateType, TimestampType))


def may_touch(file: PublishedFile, extent: Extent) -> bool:
    """Return whether a file may have a row that is equal, in the columns of an extent, to a row of the extent."""
    return all(
        _overlap(file.lowest.get(name), file.highest.get(name), *bounds) for name, bounds in extent.ranges.items()
    )


def _overlap(lowest: int | None, highest: int | None, least: int, greatest: int) -> bool:
    """Return whether two ranges overlap; true if one is not known."""
    return lowest is None or highest is None or (lowest <= greatest and least <= highest)


def small_files_to_merge(files: Sequence[PublishedFile], rewritten: Iterable[PublishedFile]) -> list[PublishedFile]:
    """Return the small files to merge with the new files: all if there would be too many, otherwise none."""
    gone = {file.path for file in rewritten}
    small = [file for file in files if file.size < SMALL_BYTES and file.path not in gone]
    return small if len(small) + 1 > SMALL_FILES_MAX else []


def number_of_files(size: int, cores: int) -> int:
    """Return how many files to write for rows of this size: few, but at least one per core unless they would be small.

    >>> number_of_files(1 << 20, 2), number_of_files(40 << 20, 2), number_of_files(300 << 20, 2)
    (1, 2, 5)
    """
    return max(1, math.ceil(size / _FILE_BYTES), min(cores, size // SMALL_BYTES))
