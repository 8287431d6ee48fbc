"""What a tick does with change events: rows, positions, and when a snapshot that was taken again is complete.

Most ticks go over their records once. Where one is not plainly written, cannot be used, is of a snapshot, or lacks even
its position, they go over them again, with what the pass before has seen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from tidelake.configuration import CollectionSettings
from tidelake.connect_types import declared_row, travels
from tidelake.delta.catalog import Collection
from tidelake.delta.commit import OpenTable
from tidelake.delta.files import RunFile, discard_run, discard_runs, write_run
from tidelake.delta.judged_schemas import JudgedSchemas, judge_schemas, schemas_agreed, values_of_judged
from tidelake.delta.layout import DIFF, POSITION, RUN, TIME, new_run
from tidelake.delta.observed import Observed
from tidelake.delta.raw_debezium import (
    POSTGRESQL,
    SCHEMA,
    UNUSABLE,
    ChangeShape,
    SnapshotStart,
    change_rows,
    position_of,
)
from tidelake.delta.raw_debezium_avro import Writers, read_avro_changes
from tidelake.delta.raw_debezium_json import read_changes
from tidelake.delta.raw_debezium_places import with_places
from tidelake.delta.raw_debezium_plain import read_plain_changes
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
_POSTGRESQL_POSITION = ("committed", "lsn")
"""What a position is made of, but for the offset."""
_MARKS = {"noted": 1, "barriers": 2, "unavailable": 4, "unread": 8, "tombstone": 16, "unknown_schema": 32}
"""What a tick asks of all its records together: a bit each."""


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
    plain: bool = True
    """Whether, as far as was seen, every record is plainly written."""
    fill: bool = False
    """Whether some records lack a position."""
    schemas: JudgedSchemas = field(default_factory=JudgedSchemas)
    """What is known of the schemas that messages have with them."""
    erased: Sequence[int] = ()
    """The greatest position that something is erased below; only where some records lack one."""

    @property
    def shape(self) -> ChangeShape:
        """What the events are about."""
        return ChangeShape(
            travels(declared_row(self.settings.value_schema)),
            self.settings.key,
            self.settings.position,
            self.settings.unavailable_value,
            {**self.schemas.refused, **self.settings.refused_schemas},
            self.schemas.unreadable_keys,
            self.schemas.written,
            self.schemas.lengths,
            metadata_of(self.settings),
        )

    def changes(self) -> DataFrame:
        """What `raw_debezium.told` gives, with _position."""
        read = self._told()
        lacks = F.col(POSITION).isNull() & F.col("_error").isNull() & F.col("_reason").isNull()
        about_row = lacks & F.col("_kind").isin("value", "delete")
        read = read.withColumns(
            {
                "_kind": F.when(about_row, F.lit("value")).otherwise(F.col("_kind")),
                "_error": F.coalesce("_error", F.when(about_row, F.lit(f"{UNUSABLE}no_position"))),
                "_reason": F.coalesce("_reason", F.when(lacks & (F.col("_kind") == "barrier"), F.lit("no_position"))),
            }
        )
        if self.fill:
            width = len(self.settings.position or _POSTGRESQL_POSITION) + 1
            read = with_places(read, self._stored(), self.settings.key, self.erased, width)
        return read

    def _told(self) -> DataFrame:
        """The same with the positions that the events tell themselves."""
        return self._read().withColumn(POSITION, position_of(self.shape, self.starts))

    def _read(self) -> DataFrame:
        """What `raw_debezium.told` gives."""
        if self.settings.format == "json":
            return read_plain_changes(self.raw, self.shape) if self.plain else read_changes(self.raw, self.shape)
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
        files, seen = self._write_known()
        known = {one.lsn for one in self.starts}
        if seen["foreign"] is not None or seen["lost"] or not {seen["first_lsn"], seen["last_lsn"]} - {None} <= known:
            discard_runs(self.table.path, files)
            if seen["foreign"] is not None:
                raise self._refusal(seen["foreign"])
            self.fill = seen["lost"] > 0
            self._find_snapshots()
            if self.fill:
                self.erased = self._find_erased()
            files, seen = self._write_once()
        written = ChangesWritten(
            files, {}, seen["tombstones"], seen["quarantined"], seen["errors"], records=seen["records"]
        )
        self._note_snapshot(seen, written)
        kinds = {HAS_BARRIERS: seen["barriers"], HAS_ERRORS: seen["errors"], HAS_UNAVAILABLE: seen["unavailable"]}
        written.values |= {name: 1 for name, is_there in kinds.items() if is_there}
        written.values |= values_of_judged(self.table, self.settings, self.schemas)
        return written

    def _write_known(self) -> tuple[list[RunFile], dict[str, Any]]:
        """Write the run with every schema known, plainly where all records can be read so."""
        self.plain = self.settings.format == "json"
        if self.plain:
            self.schemas, has_others = schemas_agreed(self.table, self.settings)
            if has_others:
                self.schemas = judge_schemas(self.raw, self.settings, self.schemas)
        files, seen = self._write_once()
        while seen["unknown_schema"] or seen["unread"]:
            if seen["unknown_schema"]:
                self.schemas = judge_schemas(self.raw, self.settings, self.schemas)
                if not seen["unread"] and not self.schemas.refused and not self.schemas.written:
                    break
            discard_runs(self.table.path, files)
            self.plain = self.plain and not seen["unread"] and not self.schemas.refused
            files, seen = self._write_once()
        return files, seen

    def _write_once(self) -> tuple[list[RunFile], dict[str, Any]]:
        """Write the run, and say what was seen on the way; what most ticks have none of is counted in another pass."""
        # Counted where rows are narrow, as each is copied for it.
        seen = Observed(
            change_rows(self.changes().withColumn("_marks", self._marks()), self.shape, self.time),
            F.count("_marks").alias("records"),
            F.count_if(F.col("_marks").bitwiseAND(_MARKS["tombstone"]) > 0).alias("tombstones"),
            F.bit_or("_marks").alias("marks"),
        )
        run = new_run("ingest")
        files = write_frame(seen.frame.where(F.col(TIME).isNotNull()), self.table.path, run, self._schema)
        if not files:
            discard_run(self.table.path, run)
        found = seen.values()
        marks = found.pop("marks") or 0
        found |= {name: bool(marks & mark) for name, mark in _MARKS.items()}
        return files, found | self._counted(found["noted"] and not found["unread"])

    def _marks(self) -> Column:
        """What is to be said of a record, as a sum of `_MARKS`."""
        good, kind = F.col("_reason").isNull(), F.col("_kind")
        found = {
            "noted": ~good | F.col("_error").isNotNull() | F.col("_snapshot") | self._is_foreign(),
            "barriers": good & (kind == "barrier"),
            "unavailable": good & F.col("_unavailable").isNotNull(),
            "unread": F.col("_unread") if self.plain else F.lit(False),
            "tombstone": kind == "tombstone",
            "unknown_schema": self._has_unknown_schema(),
        }
        marks = [F.when(is_there, F.lit(_MARKS[name])).otherwise(0) for name, is_there in found.items()]
        return reduce(lambda one, other: one + other, marks)

    def _counted(self, anything: bool) -> dict[str, Any]:
        """What is to be said of records that are noted; nothing is read where there are none."""
        good, error = F.col("_reason").isNull(), F.col("_error").isNotNull()
        snapshot = F.when(F.col("_snapshot"), F.col("_lsn"))
        counts = {
            "quarantined": F.count_if(~good),
            "errors": F.count_if(good & error),
            "lost": F.count_if(good & error & F.col(POSITION).isNull()),
        }
        facts = {
            "foreign": F.max(F.when(self._is_foreign(), F.col("_connector"))),
            "first_lsn": F.min(snapshot),
            "last_lsn": F.max(snapshot),
            "ended_lsn": F.max(F.when(F.col("_snapshot") & F.col("_snapshot_ends"), F.col("_lsn"))),
            "processed_ms": F.min("_processed_ms"),
        }
        if not anything:
            return dict.fromkeys(counts, 0) | dict.fromkeys(facts)
        (row,) = self.changes().agg(*(one.alias(name) for name, one in (counts | facts).items())).collect()
        return dict(row.asDict())

    def _has_unknown_schema(self) -> Column:
        """Whether a record has a schema with it that was not looked at; never null."""
        if self.settings.format != "json" or self.schemas.complete:
            return F.lit(False)
        known = sorted({*self.schemas.agreed, *self.settings.refused_schemas})
        # A list goes to generated code as data, so that a schema more does not make it other code.
        is_known = F.array_contains(F.array(*(F.lit(one).cast("bigint") for one in known)), F.col(SCHEMA))
        return F.coalesce(~is_known, F.lit(False)) if known else F.col(SCHEMA).isNotNull()

    def _is_foreign(self) -> Column:
        """Whether a record is of a connector whose order of events is not known."""
        return (F.col("_connector") != POSTGRESQL) & F.lit(not self.settings.position)

    @property
    def _schema(self) -> pa.Schema:
        return updates_schema(self.collection.entry.record_schema, self.collection.entry.positioned)

    def _find_snapshots(self) -> None:
        """Add the snapshots that the tick's records begin; a handful at most."""
        rows = self._read().where(F.col("_snapshot") & F.col("_processed_ms").isNotNull())
        found = {one.lsn: one.processed_ms for one in self.starts}
        for row in rows.groupBy("_lsn").agg(F.min("_processed_ms").alias("_at")).collect():
            # What is noted only rises: of another partition an earlier row may come later, and clocks go back.
            found.setdefault(row["_lsn"], max(row["_at"], self.table.value(_SNAPSHOT_MS) or 0))
        self.starts = [SnapshotStart(*one) for one in sorted(found.items())]

    def _find_erased(self) -> list[int]:
        """The greatest position that something is erased below: by a barrier, or by a snapshot once it is complete."""
        told = self._told().where(F.col("_kind") == "barrier").select(POSITION)
        if self.table.value(HAS_BARRIERS):
            told = told.union(self._stored().where(F.col(DIFF) == 0).select(POSITION))
        greatest = told.agg(F.max(POSITION).alias("_greatest")).collect()[0]["_greatest"]
        return max([greatest or [], *([one.lsn] for one in self.starts)])

    def _stored(self) -> DataFrame:
        return read_files(self.spark, self.table.path, self.table.files(), self._schema)

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
            noted = self._topic_ends()
            values |= {_SNAPSHOT_NOTED: last.lsn} | {_end_value(*place): end for place, end in noted.items()}
        elif self.table.value(_SNAPSHOT_NOTED) == last.lsn:
            # Of partitions that no tick has read yet, too: they are in none of the ends.
            places = {*self.ends, *self._topic_ends()}
            noted = {place: self.table.value(_end_value(*place)) or 0 for place in places}
        else:
            return
        if all(self.ends.get(place, 0) >= end for place, end in noted.items()):
            values[_SNAPSHOT_DONE] = last.lsn
            if last.lsn not in (values.get(_SNAPSHOT_ALONE), self.table.value(_SNAPSHOT_ALONE)):
                values[HAS_BARRIERS] = 1
                written.files += self._write_barrier(last.lsn)

    def _topic_ends(self) -> dict[Place, int]:
        """By place, where the topics end now."""
        return {(one.name, partition): end for one in self.topics for partition, end in one.end_offsets().items()}

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
