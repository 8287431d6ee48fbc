"""What a tick does with change events: rows, positions, and when a snapshot that was taken again is complete.

Most ticks go over their records once. Where a snapshot begins, or a record lacks even its position, they go over them
again, with what the first pass has seen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from tidelake.configuration import CollectionSettings
from tidelake.connect_types import declared_row, travels
from tidelake.delta.catalog import Collection
from tidelake.delta.commit import OpenTable
from tidelake.delta.files import RunFile, discard_run, discard_runs, write_run
from tidelake.delta.layout import DIFF, POSITION, RUN, TIME, new_run
from tidelake.delta.observed import Observed
from tidelake.delta.raw_debezium import POSTGRESQL, ChangeShape, SnapshotStart, change_rows, position_of, read_changes
from tidelake.delta.raw_debezium_avro import Writers, read_avro_changes
from tidelake.delta.raw_envelopes import metadata_of
from tidelake.delta.runs import read_files, write_frame
from tidelake.delta.topic import Topic
from tidelake.delta.types import updates_schema
from tidelake.delta.values import HAS_BARRIERS, HAS_ERRORS, HAS_UNAVAILABLE, UPPER
from tidelake.errors import ConfigurationError
from tidelake.framing.reclock import Place

_SNAPSHOT_LSN = "snapshot/lsn"
"""Where the last snapshot stands that rows were read of."""
_SNAPSHOT_MS = "snapshot/processed_ms"
"""When the connector began to read it."""
_SNAPSHOT_ALONE = "snapshot/alone"
"""The LSN of the snapshot that the topic begins with: there is nothing before it that it could erase."""
_SNAPSHOT_NOTED = "snapshot/noted"
"""The LSN of the snapshot whose last row was read: where the partitions ended then is noted beside it."""
_SNAPSHOT_DONE = "snapshot/done"
"""The LSN of the snapshot that is complete: every partition was read to where it ended then."""


@dataclass
class ChangesWritten:
    """What became of the records of one tick."""

    files: list[RunFile]
    values: dict[str, int]
    """What the commit has to keep."""
    tombstones: int = 0
    quarantined: int = 0
    errors: int = 0
    """Rows of keys in error."""
    unavailable: int = 0
    """Rows that lack the value of a column."""
    records: int = 0
    """All of them, tombstones included."""


@dataclass
class ChangeTick:
    """The part of one tick that knows change events."""

    spark: SparkSession
    collection: Collection
    settings: CollectionSettings
    table: OpenTable
    time: int
    raw: DataFrame
    """The records of the tick, with their topic."""
    topics: Sequence[Topic]
    ends: Mapping[Place, int]
    """By place, the next offset after the tick."""
    starts: list[SnapshotStart] = field(default_factory=list)
    fill: bool = False
    """Whether some records lack a position."""

    @property
    def shape(self) -> ChangeShape:
        """What the events are about."""
        return ChangeShape(
            travels(declared_row(self.settings.value_schema)),
            self.settings.key,
            self.settings.position,
            self.settings.unavailable_value,
            self.settings.refused_schemas,
            metadata_of(self.settings),
        )

    def changes(self) -> DataFrame:
        """What `raw_debezium.read_changes` gives, with _position."""
        read = self._read().withColumn(POSITION, position_of(self.starts))
        if self.fill:
            read = self._filled(read)
        lacks = F.col(POSITION).isNull() & (F.col("_kind") != "tombstone") & F.col("_error").isNull()
        return read.withColumn("_reason", F.coalesce("_reason", F.when(lacks, F.lit("no_position"))))

    def _read(self) -> DataFrame:
        """What `raw_debezium.read_changes` gives."""
        if self.settings.format == "json":
            return read_changes(self.raw, self.shape)
        settings = self.settings
        if settings.encoding == "confluent":
            keys = Writers(by_id=settings.key_schema_ids) if settings.key_schema_ids else None
            values = Writers(settings.value_schema, settings.schema_ids, settings.refused_ids)
            return read_avro_changes(self.raw, self.shape, values, keys)
        bare = Writers(settings.bare_schema or settings.value_schema)
        return read_avro_changes(
            self.raw, self.shape, bare, Writers(settings.key_schema) if settings.key_schema else None
        )

    def write(self) -> ChangesWritten:
        """Write the rows as runs, which no log names yet.

        Raises:
            ConfigurationError: a connector's position is not known; nothing was written.
        """
        lsn, processed_ms = self.table.value(_SNAPSHOT_LSN), self.table.value(_SNAPSHOT_MS)
        if lsn is not None and processed_ms is not None:
            self.starts = [SnapshotStart(lsn, processed_ms)]
        files, seen = self._write_once()
        known = {one.lsn for one in self.starts}
        if seen["foreign"] is not None or seen["lost"] or not {seen["first_lsn"], seen["last_lsn"]} - {None} <= known:
            discard_runs(self.table.path, files)
            if seen["foreign"] is not None:
                raise self._refusal(seen["foreign"])
            self.fill = seen["lost"] > 0
            self._find_snapshots()
            files, seen = self._write_once()
        written = ChangesWritten(
            files, {}, seen["tombstones"], seen["quarantined"], seen["errors"], seen["unavailable"], seen["records"]
        )
        self._note_snapshot(seen, written)
        kinds = {HAS_BARRIERS: seen["barriers"], HAS_ERRORS: seen["errors"], HAS_UNAVAILABLE: seen["unavailable"]}
        written.values |= {name: 1 for name, count in kinds.items() if count}
        return written

    def _write_once(self) -> tuple[list[RunFile], dict[str, Any]]:
        good = F.col("_reason").isNull()
        kind, snapshot = F.col("_kind"), F.when(F.col("_snapshot"), F.col("_lsn"))
        foreign = (F.col("_connector") != POSTGRESQL) & F.lit(not self.settings.position)
        seen = Observed(
            self.changes(),
            F.count(F.lit(1)).alias("records"),
            F.count_if(kind == "tombstone").alias("tombstones"),
            F.count_if(~good).alias("quarantined"),
            F.count_if(good & (kind == "barrier")).alias("barriers"),
            F.count_if(good & F.col("_error").isNotNull()).alias("errors"),
            F.count_if(good & F.col("_unavailable").isNotNull()).alias("unavailable"),
            F.count_if(good & F.col("_error").isNotNull() & F.col(POSITION).isNull()).alias("lost"),
            F.max(F.when(foreign, F.col("_connector"))).alias("foreign"),
            F.min(snapshot).alias("first_lsn"),
            F.max(snapshot).alias("last_lsn"),
            F.max(F.when(F.col("_snapshot") & F.col("_snapshot_ends"), F.col("_lsn"))).alias("ended_lsn"),
            F.min("_processed_ms").alias("processed_ms"),
        )
        run = new_run("ingest")
        files = write_frame(change_rows(seen.frame, self.shape, self.time), self.table.path, run, self._schema)
        if not files:
            discard_run(self.table.path, run)
        return files, seen.values()

    @property
    def _schema(self) -> pa.Schema:
        return updates_schema(self.collection.entry.record_schema, self.collection.entry.positioned)

    def _find_snapshots(self) -> None:
        """Add the snapshots that the tick's records begin; a handful at most."""
        rows = self._read().where(F.col("_snapshot") & F.col("_processed_ms").isNotNull())
        found = {one.lsn: one.processed_ms for one in self.starts}
        for row in rows.groupBy("_lsn").agg(F.min("_processed_ms").alias("_at")).collect():
            found[row["_lsn"]] = min(row["_at"], found.get(row["_lsn"], row["_at"]))
        self.starts = [SnapshotStart(*one) for one in sorted(found.items())]

    def _filled(self, read: DataFrame) -> DataFrame:
        """Put a record that does not even tell its position right behind the one before it in its partition."""
        by_offset = Window.partitionBy("topic", "partition").orderBy("offset")
        before = F.last(POSITION, ignorenulls=True).over(by_offset.rowsBetween(Window.unboundedPreceding, -1))
        after = F.first(POSITION, ignorenulls=True).over(by_offset.rowsBetween(1, Window.unboundedFollowing))
        greatest = self._greatest_position()
        beside = F.coalesce(before, after, F.array(*(F.lit(one).cast("bigint") for one in greatest)))
        own = F.concat(F.slice(beside, F.lit(1), F.size(beside) - 1), F.array(F.col("offset")))
        return read.withColumn(POSITION, F.coalesce(F.col(POSITION), F.when(F.col("_error").isNotNull(), own)))

    def _greatest_position(self) -> list[int]:
        rows = read_files(self.spark, self.table.path, self.table.files(), self._schema)
        found = rows.agg(F.max(POSITION).alias("_greatest")).collect()[0]["_greatest"]
        return [0, 0] if found is None else [*found]

    def _note_snapshot(self, seen: Mapping[str, Any], written: ChangesWritten) -> None:
        """Note how far the last snapshot was read; where it is complete, erase what it has not stated again."""
        if not self.starts:
            return
        last, values = self.starts[-1], written.values
        values |= {_SNAPSHOT_LSN: last.lsn, _SNAPSHOT_MS: last.processed_ms}
        if (self.table.value(UPPER) or 0) == 0 and len(self.starts) == 1 and seen["processed_ms"] >= last.processed_ms:
            values[_SNAPSHOT_ALONE] = last.lsn
        if self.table.value(_SNAPSHOT_DONE) == last.lsn:
            return
        if seen["ended_lsn"] == last.lsn and self.table.value(_SNAPSHOT_NOTED) != last.lsn:
            noted = {(one.name, partition): end for one in self.topics for partition, end in one.end_offsets().items()}
            values |= {_SNAPSHOT_NOTED: last.lsn} | {_end_value(*place): end for place, end in noted.items()}
        elif self.table.value(_SNAPSHOT_NOTED) == last.lsn:
            noted = {place: self.table.value(_end_value(*place)) or 0 for place in self.ends}
        else:
            return
        if all(self.ends.get(place, 0) >= end for place, end in noted.items()):
            values[_SNAPSHOT_DONE] = last.lsn
            if last.lsn not in (values.get(_SNAPSHOT_ALONE), self.table.value(_SNAPSHOT_ALONE)):
                values[HAS_BARRIERS] = 1
                written.files += self._write_barrier(last.lsn)

    def _write_barrier(self, lsn: int) -> list[RunFile]:
        """One row that erases what is below a snapshot."""
        schema = pa.schema([one for one in self._schema if one.name != RUN])
        row = {TIME: self.time, DIFF: 0, POSITION: [lsn]}
        return write_run(self.table.path, new_run("ingest"), pa.Table.from_pylist([row], schema=schema))

    def _refusal(self, connector: str) -> ConfigurationError:
        return ConfigurationError(
            "collections.yaml",
            f"collections.{self.settings.name}.position",
            f"the topic {self.settings.topic} is written by the connector '{connector}', and it is not known which of "
            "its fields order events",
            "name them, the most significant first: `position: [source.file, source.pos, source.row]`",
        )


def _end_value(topic: str, partition: int) -> str:
    return f"snapshot/end/{topic}/{partition}"
