"""Turns change events into rows with positions, and determines when a repeated snapshot is complete.

Most ticks read their records once. If a JSON event is not plain (see docs/decisions/plain.md), or if a record is
unusable, belongs to a snapshot, or lacks its position, the tick reads all records again, and uses what the first pass
observed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import add
from typing import Any, ClassVar, TypeVar

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidelake.decode.debezium.avro import read_avro_changes
from tidelake.decode.debezium.columns import SCHEMA
from tidelake.decode.debezium.events import UNUSABLE
from tidelake.decode.debezium.fast_json import read_plain_changes
from tidelake.decode.debezium.json import read_changes
from tidelake.decode.debezium.missing_positions import with_positions
from tidelake.decode.debezium.positions import POSTGRESQL, SnapshotStart, position_of
from tidelake.decode.debezium.rows import change_rows
from tidelake.decode.debezium.shape import ChangeShape
from tidelake.errors import ConfigurationError
from tidelake.ingest.judged_schemas import JudgedSchemas, cached_schemas, judge_schemas, values_of_judged
from tidelake.plugins.envelope import RecordBatch, WrittenRecords
from tidelake.protocol.binding import Place
from tidelake.schema.connect import wire_types
from tidelake.schema.evolution import Record
from tidelake.spark.column_cache import cached
from tidelake.spark.observation import Observed
from tidelake.spark.runtime_constant import parameter
from tidelake.store.files import RunFile, discard_run, discard_runs, write_run
from tidelake.store.layout import DIFF, POSITION, RUN, TIME, new_run
from tidelake.store.row_hash import sum_of_rows
from tidelake.store.runs import read_files, write_updates
from tidelake.store.state import HAS_BARRIERS, HAS_ERRORS, HAS_UNAVAILABLE, UPPER

_T = TypeVar("_T")
_SNAPSHOT_LSN = "snapshot/lsn"
"""The LSN of the last snapshot whose rows were read."""
_SNAPSHOT_MS = "snapshot/processed_ms"
"""When the connector started reading that snapshot."""
_SNAPSHOT_ALONE = "snapshot/alone"
"""The LSN of the snapshot that the topic starts with: no earlier rows exist that it could erase."""
_SNAPSHOT_NOTED = "snapshot/noted"
"""The LSN of the snapshot whose last row was read; the ends that the partitions had then are stored as well."""
_SNAPSHOT_DONE = "snapshot/done"
"""The LSN of the snapshot that is complete: every partition was read up to its stored end."""
_POSTGRESQL_POSITION = ("committed", "lsn")
"""The parts of a position before the offset."""
MARKS = {"noted": 1, "barriers": 2, "unavailable": 4, "unread": 8, "tombstone": 16, "unknown_schema": 32}
"""The bits of `_marks`, which a tick combines over all its records."""


@dataclass
class ChangeRecords:
    """The change events of a tick, and what its passes observed."""

    batch: RecordBatch
    starts: list[SnapshotStart] = field(default_factory=list)
    plain: bool = True
    """Whether records are read on the fast path, which is for JSON; false once one of them was not plain."""
    fill: bool = False
    """Whether some records lack a position."""
    schemas: JudgedSchemas = field(default_factory=JudgedSchemas)
    """The judged schemas of messages."""
    erased: Sequence[int] = ()
    """The greatest position below which rows are erased; set only if some records lack a position."""
    marks: ClassVar[Mapping[str, int]] = MARKS
    """The bits of `_marks`."""
    carried: ClassVar[Sequence[str]] = ()
    """The columns of a record that its rows carry along to be counted."""

    @property
    def row(self) -> Record:
        """The columns of a row, with Connect's type names."""
        return self.batch.schemas.values.record

    @property
    def refused_schemas(self) -> Mapping[int, str]:
        """For JSON, why messages are refused, by the hash of their schema; otherwise, empty."""
        return self.batch.schemas.values.writers.refused if self.batch.settings.format == "json" else {}

    @property
    def shape(self) -> ChangeShape:
        """The shape of the events."""
        return ChangeShape(
            wire_types(self.row),
            self.batch.settings.key,
            self.batch.settings.position,
            self.batch.settings.unavailable_value,
            _sorted({**self.schemas.refused, **self.refused_schemas}),
            tuple(sorted(self.schemas.unreadable_keys)),
            _sorted(self.schemas.written),
            _sorted(self.schemas.lengths),
            {name: kind for kind, name in self.batch.settings.metadata.items()},
        )

    def decoded(self) -> DataFrame:
        """Return the result of `events.read_events`, with _position."""
        read = self._positioned().withColumns(_lacking_positions())
        if self.fill:
            width = len(self.batch.settings.position or _POSTGRESQL_POSITION) + 1
            read = with_positions(read, self._stored(), self.batch.settings.key, self.erased, width)
        return read

    def _positioned(self) -> DataFrame:
        """Return the result of `_read`, with the positions that the events themselves state."""
        return self._read().withColumn(POSITION, position_of(self.shape, self.starts))

    def _read(self) -> DataFrame:
        """Return the result of `events.read_events`."""
        if self.batch.settings.format == "json":
            return (
                read_plain_changes(self.batch.raw, self.shape)
                if self.plain
                else read_changes(self.batch.raw, self.shape)
            )
        keys = self.batch.schemas.keys
        return read_avro_changes(
            self.batch.raw, self.shape, self.batch.schemas.values.writers, None if keys is None else keys.writers
        )

    def write(self) -> WrittenRecords:
        """Write the rows as uncommitted runs.

        Raises:
            ConfigurationError: the connector's position is unknown; nothing was written.
        """
        lsn, processed_ms = self.batch.table.value(_SNAPSHOT_LSN), self.batch.table.value(_SNAPSHOT_MS)
        if lsn is not None and processed_ms is not None:
            self.starts = [SnapshotStart(lsn, processed_ms)]
        files, seen = self._write_known()
        known = {start.lsn for start in self.starts}
        if seen["foreign"] is not None or seen["lost"] or not {seen["first_lsn"], seen["last_lsn"]} - {None} <= known:
            discard_runs(self.batch.table.path, files)
            if seen["foreign"] is not None:
                raise self._refusal(seen["foreign"])
            self.fill = seen["lost"] > 0
            self._find_snapshots()
            if self.fill:
                self.erased = self._find_erased()
            files, seen = self._write_once()
        written = WrittenRecords(
            files,
            records=seen["records"],
            tombstones=seen["tombstones"],
            quarantined=seen["quarantined"],
            errors=seen["errors"],
        )
        self._note_snapshot(seen, written)
        written.values |= self._values(seen)
        return written

    def _values(self, seen: Mapping[str, Any]) -> dict[str, int]:
        """Return the values that the commit sets for the kinds of rows, and for the schemas that were judged."""
        kinds = {HAS_BARRIERS: seen["barriers"], HAS_ERRORS: seen["errors"], HAS_UNAVAILABLE: seen["unavailable"]}
        values = {name: 1 for name, is_there in kinds.items() if is_there}
        return values | values_of_judged(self.batch.table, self.row, self.batch.settings.key, self.schemas)

    def _write_known(self) -> tuple[list[RunFile], dict[str, Any]]:
        """Write the run, reading JSON on the fast path first, and judge schemas that were not judged yet.

        The run is written again if a record is not plain, or if a new schema disagrees with the collection's types.
        """
        self.plain = self.batch.settings.format == "json"
        if self.plain:
            self.schemas, has_disagreeing = cached_schemas(self.batch.table, self.row, self.batch.settings.key)
            if has_disagreeing:
                self.schemas = judge_schemas(self.batch.raw, self.row, self.batch.settings.key, self.schemas)
        files, seen = self._write_once()
        while seen["unknown_schema"] or seen["unread"]:
            if seen["unknown_schema"]:
                self.schemas = judge_schemas(self.batch.raw, self.row, self.batch.settings.key, self.schemas)
                if not seen["unread"] and not self.schemas.refused and not self.schemas.written:
                    break
            discard_runs(self.batch.table.path, files)
            self.plain = self.plain and not seen["unread"] and not self.schemas.refused
            files, seen = self._write_once()
        return files, seen

    def _write_once(self) -> tuple[list[RunFile], dict[str, Any]]:
        """Write the run and observe its records; rare facts are counted in another pass."""
        # Rows are counted while they are narrow, because Spark copies each row to count it.
        seen = Observed(
            change_rows(self.decoded().withColumn("_marks", self._marks()), self.shape, self._time(), self.carried),
            F.count("_marks").alias("records"),
            F.count_if(F.col("_marks").bitwiseAND(MARKS["tombstone"]) > 0).alias("tombstones"),
            F.bit_or("_marks").alias("marks"),
            *(column.alias(name) for name, column in self._facts().items()),
        )
        run = new_run("ingest", self.batch.table.seq)
        rows = seen.frame.where(self._is_stored())
        files = write_updates(rows, self.batch.table.path, run, self.batch.table_schema).files
        if not files:
            discard_run(self.batch.table.path, run)
        facts = seen.values()
        marks = facts.pop("marks") or 0
        facts |= {name: bool(marks & mark) for name, mark in self.marks.items()}
        return files, facts | self._count_rare(facts["noted"] and not facts["unread"])

    def _facts(self) -> dict[str, Column]:
        """Return further aggregates over the rows, by name."""
        return {}

    def _time(self) -> Column:
        """Return the time of a record's rows."""
        return parameter(self.batch.time, F.col("offset"))

    def _is_stored(self) -> Column:
        """Return whether a row is stored in the run."""
        return F.col(TIME).isNotNull()

    def _marks(self) -> Column:
        """Return the marks of a record, as a sum of `MARKS`."""
        return _marks_of(self.plain, bool(self.batch.settings.position), self._known_schemas())

    def _count_rare(self, any_noted: bool) -> dict[str, Any]:
        """Count rare facts in another pass. If no record has the mark `noted`, there are none, and nothing is read."""
        good, error = F.col("_reason").isNull(), F.col("_error").isNotNull()
        snapshot = F.when(F.col("_snapshot"), F.col("_lsn"))
        counts = {
            "quarantined": F.count_if(~good),
            "errors": F.count_if(good & error),
            "lost": F.count_if(good & error & F.col(POSITION).isNull()),
        }
        facts = {
            "foreign": F.max(F.when(_is_foreign(bool(self.batch.settings.position)), F.col("_connector"))),
            "first_lsn": F.min(snapshot),
            "last_lsn": F.max(snapshot),
            "ended_lsn": F.max(F.when(F.col("_snapshot") & F.col("_snapshot_ends"), F.col("_lsn"))),
            "processed_ms": F.min("_processed_ms"),
        }
        if not any_noted:
            return dict.fromkeys(counts, 0) | dict.fromkeys(facts)
        (row,) = self.decoded().agg(*(column.alias(name) for name, column in (counts | facts).items())).collect()
        return dict(row.asDict())

    def _known_schemas(self) -> tuple[int, ...] | None:
        """Return the hashes of the judged schemas; None if no message can have a schema that was not judged."""
        if self.batch.settings.format != "json" or self.schemas.complete:
            return None
        return tuple(sorted({*self.schemas.agreed, *self.refused_schemas}))

    def _find_snapshots(self) -> None:
        """Add the snapshots that start in the tick; a handful at most."""
        rows = self._read().where(F.col("_snapshot") & F.col("_processed_ms").isNotNull())
        processed = {start.lsn: start.processed_ms for start in self.starts}
        for row in rows.groupBy("_lsn").agg(F.min("_processed_ms").alias("_at")).collect():
            # Stored values only rise, but another partition may deliver an earlier row later, and clocks may run
            # backwards.
            processed.setdefault(row["_lsn"], max(row["_at"], self.batch.table.value(_SNAPSHOT_MS) or 0))
        self.starts = [SnapshotStart(*start) for start in sorted(processed.items())]

    def _find_erased(self) -> list[int]:
        """Return the greatest position below which a barrier, or a snapshot once it is complete, erases rows."""
        barriers = self._positioned().where(F.col("_kind") == "barrier").select(POSITION)
        if self.batch.table.value(HAS_BARRIERS):
            barriers = barriers.union(self._stored().where(F.col(DIFF) == 0).select(POSITION))
        greatest = barriers.agg(F.max(POSITION).alias("_greatest")).collect()[0]["_greatest"]
        return max([greatest or [], *([start.lsn] for start in self.starts)])

    def _stored(self) -> DataFrame:
        return read_files(self.batch.spark, self.batch.table.path, self.batch.table.files(), self.batch.table_schema)

    def _note_snapshot(self, seen: Mapping[str, Any], written: WrittenRecords) -> None:
        """Note how far the last snapshot was read; once it is complete, erase the rows that it did not repeat."""
        if not self.starts:
            return
        last, values = self.starts[-1], written.values
        values |= {_SNAPSHOT_LSN: last.lsn, _SNAPSHOT_MS: last.processed_ms}
        if (
            (self.batch.table.value(UPPER) or 0) == 0
            and len(self.starts) == 1
            and seen["processed_ms"] >= last.processed_ms
        ):
            values[_SNAPSHOT_ALONE] = last.lsn
        if self.batch.table.value(_SNAPSHOT_DONE) == last.lsn:
            return
        if seen["ended_lsn"] == last.lsn and self.batch.table.value(_SNAPSHOT_NOTED) != last.lsn:
            noted = self._topic_ends()
            values |= {_SNAPSHOT_NOTED: last.lsn} | {_end_value(*place): end for place, end in noted.items()}
        elif self.batch.table.value(_SNAPSHOT_NOTED) == last.lsn:
            # Partitions that no tick has read yet are included; they have no stored end.
            places = {*self.batch.ends, *self._topic_ends()}
            noted = {place: self.batch.table.value(_end_value(*place)) or 0 for place in places}
        else:
            return
        if all(self.batch.ends.get(place, 0) >= end for place, end in noted.items()):
            values[_SNAPSHOT_DONE] = last.lsn
            if last.lsn not in (values.get(_SNAPSHOT_ALONE), self.batch.table.value(_SNAPSHOT_ALONE)):
                values[HAS_BARRIERS] = 1
                written.files += self._write_barrier(last.lsn)

    def _topic_ends(self) -> dict[Place, int]:
        """Return the current ends of the topics, by topic and partition."""
        return {
            (topic.name, partition): end
            for topic in self.batch.topics
            for partition, end in topic.end_offsets().items()
        }

    def _write_barrier(self, lsn: int) -> list[RunFile]:
        """Write a row that erases the rows below a snapshot."""
        schema = pa.schema([column for column in self.batch.table_schema if column.name != RUN])
        row = {TIME: self.batch.time, DIFF: 0, POSITION: [lsn]}
        table = self.batch.table
        rows = pa.Table.from_pylist([row], schema=schema)
        return write_run(table.path, new_run("ingest", table.seq), rows, sum_of_rows(rows))

    def _refusal(self, connector: str) -> ConfigurationError:
        return ConfigurationError(
            "collections.yaml",
            f"collections.{self.batch.settings.name}.position",
            f"the topic {self.batch.settings.topic} is written by the connector '{connector}', and it is not known "
            "which fields of its events give their order",
            "list these fields, the most significant first: `position: [source.file, source.pos, source.row]`",
        )


def _sorted(by_schema: Mapping[int, _T]) -> dict[int, _T]:
    """Return a mapping in an order that does not depend on the order of messages: it is part of a cache key."""
    return dict(sorted(by_schema.items()))


@cached
def _lacking_positions() -> dict[str, Column]:
    """Return the kind, the error and the reason of a record that lacks a position."""
    lacks = F.col(POSITION).isNull() & F.col("_error").isNull() & F.col("_reason").isNull()
    about_row = lacks & F.col("_kind").isin("value", "delete")
    return {
        "_kind": F.when(about_row, F.lit("value")).otherwise(F.col("_kind")),
        "_error": F.coalesce("_error", F.when(about_row, F.lit(f"{UNUSABLE}no_position"))),
        "_reason": F.coalesce("_reason", F.when(lacks & (F.col("_kind") == "barrier"), F.lit("no_position"))),
    }


@cached
def _marks_of(plain: bool, has_order: bool, known_schemas: tuple[int, ...] | None) -> Column:
    """Return the marks of a record, as a sum of `MARKS`.

    Args:
        plain: whether the record was read on the fast path.
        has_order: whether the settings state the order of events.
        known_schemas: see `has_unknown_schema`.
    """
    good, kind = F.col("_reason").isNull(), F.col("_kind")
    conditions = {
        "noted": ~good | F.col("_error").isNotNull() | F.col("_snapshot") | _is_foreign(has_order),
        "barriers": good & (kind == "barrier"),
        "unavailable": good & F.col("_unavailable").isNotNull(),
        "unread": F.col("_unread") if plain else F.lit(False),
        "tombstone": kind == "tombstone",
        "unknown_schema": has_unknown_schema(known_schemas),
    }
    return sum_of_marks(conditions, MARKS)


def sum_of_marks(conditions: Mapping[str, Column], marks: Mapping[str, int]) -> Column:
    """Return the sum of the marks whose conditions hold."""
    return reduce(add, (F.when(is_there, F.lit(marks[name])).otherwise(0) for name, is_there in conditions.items()))


def _is_foreign(has_order: bool) -> Column:
    """Return whether a record is from a connector whose order of events is unknown."""
    return (F.col("_connector") != POSTGRESQL) & F.lit(not has_order)


def has_unknown_schema(known: tuple[int, ...] | None) -> Column:
    """Return whether a record has a schema that was not judged; the result is never null.

    Args:
        known: the hashes of the judged schemas; None if no record can have a schema that was not judged.
    """
    if known is None:
        return F.lit(False)
    # Generated code takes a list as data, so a new schema does not change the code.
    is_known = F.array_contains(F.array(*(F.lit(hashed).cast("bigint") for hashed in known)), F.col(SCHEMA))
    return F.coalesce(~is_known, F.lit(False)) if known else F.col(SCHEMA).isNotNull()


def _end_value(topic: str, partition: int) -> str:
    return f"snapshot/end/{topic}/{partition}"
