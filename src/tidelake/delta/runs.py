"""Runs between Spark and a table: write one, read some, and throw away what no log names.

The live files come from the log through delta-rs and Spark reads just those, so a read is pinned to the version it was
planned on, opens no other file, and costs no Spark job over the Delta log.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from tidelake.delta.commit import OpenTable, maintain
from tidelake.delta.files import RunFile, describe_run
from tidelake.delta.kept import kept
from tidelake.delta.layout import POSITION, RUN
from tidelake.delta.stops import reach
from tidelake.delta.types import spark_schema
from tidelake.errors import Conflict

_NO_DICTIONARIES = {f"parquet.enable.dictionary#{POSITION}.list.element": "false"}
"""Of positions: an offset comes once, and what repeats beside it is packed better as it stands."""


@dataclass(frozen=True)
class WrittenRun:
    """A run that is written and not committed, and what was counted on the way."""

    run: str
    files: list[RunFile]
    observed: list[dict[str, int | None]]

    @property
    def counts(self) -> Counter[str]:
        """All that was counted, added up."""
        return Counter({name: self._sum(name) for one in self.observed for name in one})

    def _sum(self, name: str) -> int:
        return sum(one.get(name) or 0 for one in self.observed)

    @property
    def late_offsets(self) -> tuple[int, int] | None:
        """The first and the last offset with an update of a sealed time; None where there is none."""
        offsets = [
            offset
            for one in self.observed
            for offset in (one.get("late_first"), one.get("late_last"))
            if offset is not None
        ]
        return (min(offsets), max(offsets)) if offsets else None


def write_frame(
    frame: DataFrame, table: Path, run: str, schema: pa.Schema, split_by: Sequence[str] = ()
) -> list[RunFile]:
    """Write a frame as one run and describe its files; files without rows are not kept.

    Args:
        frame: has the table's columns, besides those in `split_by`.
        table: the table's folder.
        run: a fresh name.
        schema: the table's schema.
        split_by: columns that part the rows into separate files; they are not stored.
    """
    folder = table / f"{RUN}={run}"
    writer = (
        frame.select(*_stored_columns(spark_schema(schema).json()), *split_by)
        .write.mode("errorifexists")
        .options(**_NO_DICTIONARIES)
    )
    if split_by:
        writer = writer.partitionBy(*split_by)
    writer.parquet(str(folder))
    for checksum in folder.glob("**/.*.crc"):
        checksum.unlink()
    return describe_run(table, run)


@kept
def _stored_columns(schema: str) -> list[Column]:
    """The columns of a table's files, of the types that they have there, which are given as JSON."""
    fields = StructType.fromJson(json.loads(schema))
    return [F.col(f"`{one.name}`").cast(one.dataType).alias(one.name) for one in fields]


def read_files(spark: SparkSession, table: Path, files: Iterable[RunFile], schema: pa.Schema) -> DataFrame:
    """The rows of these files, with the table's columns but `_run`."""
    paths = [str(table / file.path) for file in files]
    wanted = spark_schema(schema)
    if not paths:
        return spark.createDataFrame([], schema=wanted)
    return spark.read.schema(wanted).parquet(*paths)


def append_run(table: Path, files: Sequence[RunFile], epoch: int, attempts_max: int = 64) -> None:
    """Commit files to one of a collection's small tables, again from fresh state after each conflict.

    Raises:
        Conflict: every attempt lost; the files stay, named by no log.
        Fenced: the writer's epoch has moved.
    """
    for attempt in range(attempts_max):
        try:
            OpenTable(table).commit({}, files, epoch=epoch)
        except Conflict:
            if attempt == attempts_max - 1:
                raise
            reach("append.after_conflict")
            continue
        maintain(table)
        return
