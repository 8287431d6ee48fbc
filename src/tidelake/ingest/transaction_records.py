"""Turns change events into rows whose time is the commit position of their transaction."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NoReturn

import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidelake.decode.debezium.columns import (
    BEGINS_AT,
    BEGINS_SNAPSHOT,
    COMMITTED,
    CONNECTOR,
    END,
    ENDS_SNAPSHOT,
    IN_SNAPSHOT,
    IS_FIRST,
    LSN,
    OPERATION,
    ORDER,
    PROCESSED_MS,
    SNAPSHOT_PLACE,
    TABLE,
    TRANSACTION,
    WAITING,
)
from tidelake.decode.debezium.positions import POSTGRESQL
from tidelake.decode.debezium.rows import change_rows
from tidelake.decode.debezium.shape import ChangeShape
from tidelake.decode.debezium.transaction_parts import with_ends
from tidelake.errors import ConfigurationError
from tidelake.ingest.debezium import MARKS, ChangeRecords, has_unknown_schema, sum_of_marks
from tidelake.plugins.envelope import WrittenRecords
from tidelake.protocol.transactions import Blocked, Cut, Snapshot
from tidelake.settings.transactions import TransactionSettings
from tidelake.spark.conditions import any_of
from tidelake.spark.runtime_constant import parameter
from tidelake.store import quarantine
from tidelake.store.decision import Offsets
from tidelake.store.files import discard_runs, meets, read_file
from tidelake.store.layout import POSITION, TIME
from tidelake.store.table_schema import data_fields

NO_TRANSACTION = "belongs to no transaction: the connector did not have `provide.transaction.metadata=true`"
NO_SNAPSHOT = "is a row of a snapshot that a signal asked for, and such a row does not state its exact log position"
END_TIME = "_end_time"
"""The column with the time of a row of a snapshot, or of an event if the END of its transaction was read."""
_BEFORE = "_before"
"""The column with the previous commit position, as an event states it, if the END of its transaction was read."""
_MARKS = MARKS | {"foreign": 64, "elsewhere": 128, "snapshot_ends": 256, "snapshot_begins": 512, "cut": 1024}


@dataclass
class TransactionRecords(ChangeRecords):
    """The change events of a tick, with what is known of their transactions.

    A tick normally reads its events once. If the END of an event's transaction has not been read, neither this event
    nor any later event of its partition is stored. A later event may already have a time, for example because a
    connector was killed; the tick then discards what it wrote, and reads again without the events that are left out.
    """

    ends: DataFrame | None = None
    """The transactions whose ENDs were read; see `with_ends`."""
    upper: int = 0
    """The first time that is not sealed."""
    parked: Mapping[str, str] = field(default_factory=dict)
    """The transactions that decisions have parked, each with the reason."""
    accepted: Sequence[Offsets] = ()
    """The offsets at which events without a transaction are left out by decision."""
    abandoned: Sequence[int] = ()
    """The log positions of abandoned snapshots, whose rows are not stored."""
    partitions: Sequence[int] = ()
    """The partitions that the tick reads."""
    late: int = 0
    """Set by `write`: the number of events at sealed times."""
    blocked: list[Blocked] = field(default_factory=list)
    """Set by `write`: in each partition, the first event that cannot be read yet; everything after it was left out."""
    before_rest: dict[int, int] = field(default_factory=dict)
    """Set by `write`: for each partition without a blocked event, a commit position; the transactions of all later
    events commit after it, unless an event repeats one that was already read.

    It is known because events come in the order of their commits.
    """
    snapshots: dict[int, Snapshot] = field(default_factory=dict)
    """Set by `write`: the snapshots with rows in the range, by log position."""
    cuts: list[Cut] = field(default_factory=list)
    """Set by `write`: the transactions at unsealed times whose first event is in the range, and comes so late in the
    log that the connector might have skipped changes before it.

    Only the collection that reads this first event can tell; the skipped changes may be of any table.
    """
    marks: ClassVar[Mapping[str, int]] = _MARKS
    carried: ClassVar[Sequence[str]] = ("partition", "offset", WAITING, SNAPSHOT_PLACE, _BEFORE)

    @property
    def shape(self) -> ChangeShape:
        """The shape of the events, with their transactions."""
        return replace(super().shape, transactions=True)

    def decoded(self) -> DataFrame:
        """Return the result of `events.read_events`, with the columns that transactions add.

        These are _position, _end_time bigint, _waiting, _snapshot_place bigint and _before bigint.
        """
        assert self.ends is not None
        # The rows of a snapshot that a signal asks for were read after the log position that they state. Among the
        # rows of snapshots, only these state a previous commit position.
        is_exact = F.col(IN_SNAPSHOT) & F.col(COMMITTED).isNull()
        read = with_ends(self._read().withColumn(IN_SNAPSHOT, is_exact), self.ends)
        in_snapshot, end = F.col(IN_SNAPSHOT), F.col(END)
        zero, partition = F.lit(0).cast("bigint"), F.col("partition").cast("bigint")
        snapshot_row = F.array(F.col(LSN), zero, partition, F.col("offset"))
        event = F.when(end.isNotNull() & (F.col(ORDER) > 0), F.array(end, F.col(ORDER)))
        position = F.when(in_snapshot, snapshot_row).otherwise(event)
        unended = end.isNull() & ~in_snapshot
        is_parked = F.coalesce(F.col(TRANSACTION).isin(list(self.parked)), F.lit(False))
        is_named = F.col(TRANSACTION).isNotNull() | ~self._is_accepted()
        waits = unended & ~is_parked & F.col(OPERATION).isNotNull() & is_named
        waiting = F.struct("offset", TRANSACTION, COMMITTED, PROCESSED_MS, OPERATION)
        placed = read.withColumns(
            {
                POSITION: position,
                END_TIME: F.when(in_snapshot, F.col(LSN)).otherwise(end),
                WAITING: F.when(waits, waiting),
                SNAPSHOT_PLACE: F.when(in_snapshot, F.col(LSN)),
                _BEFORE: F.when(end.isNotNull() & ~in_snapshot, F.col(COMMITTED)),
            }
        )
        lacks = F.col(POSITION).isNull() & F.col("_kind").isin("value", "delete", "barrier")
        # An event that is not waiting and has no position is quarantined; the time of its transaction, if known, is
        # held back.
        is_left_out = unended & F.col(OPERATION).isNotNull() & ~is_named
        reason = (
            F.when(unended & is_parked, F.lit(quarantine.PARKED))
            .when(is_left_out, F.lit(quarantine.NO_TRANSACTION))
            .when(lacks, F.lit("no_position"))
        )
        return placed.withColumns(
            {
                "_reason": F.when(F.col(WAITING).isNull(), F.coalesce("_reason", reason)),
                "_detail": F.coalesce("_detail", F.when(lacks, F.coalesce("_error", TRANSACTION))),
            }
        ).drop(END)

    def _is_accepted(self) -> Column:
        """Return whether a decision leaves out an event without a transaction."""
        return any_of(
            F.col("offset").between(offsets.start, offsets.end - 1)
            & (F.col("partition") == offsets.partition)
            & (F.col("topic") == offsets.topic)
            for offsets in self.accepted
        )

    def write(self) -> WrittenRecords:
        """Write the rows at unsealed times as uncommitted runs.

        Raises:
            ConfigurationError: an event is from another connector, or from another table; nothing was written.
        """
        files, seen = self._write_known()
        while True:
            if seen["foreign"] or seen["elsewhere"]:
                discard_runs(self.batch.table.path, files)
                self._refuse()
            firsts = {place.partition: place.offset for place in self._waiting_in(seen)}
            if not firsts:
                break
            self.blocked += self._waiting_in(seen)
            behind = self._tombstones_behind(firsts) if seen["tombstones"] else 0
            self.batch = replace(self.batch, raw=self.batch.raw.where(~_is_behind(firsts)))
            if all((seen[f"stored_{partition}"] or -1) < first for partition, first in firsts.items()):
                seen["tombstones"] -= behind
                break
            discard_runs(self.batch.table.path, files)
            files, seen = self._write_known()
        waiting = {place.partition for place in self.blocked}
        found = {partition: seen[f"before_{partition}"] for partition in self.partitions if partition not in waiting}
        self.before_rest = {partition: position for partition, position in found.items() if position is not None}
        self.snapshots = self._snapshots_in(seen)
        self.cuts = self._find_cuts() if seen["cut"] else []
        rare = self._count_noted() if seen["noted"] else dict.fromkeys(("quarantined", "errors", "late"), 0)
        self.late = rare["late"]
        return WrittenRecords(
            files,
            self._values(seen | rare),
            records=seen["records"],
            tombstones=seen["tombstones"],
            quarantined=rare["quarantined"],
            errors=rare["errors"],
        )

    def _waiting_in(self, seen: Mapping[str, Any]) -> list[Blocked]:
        """Return the first waiting event of each partition, as a pass has observed it."""
        found = []
        for partition in self.partitions:
            if (text := seen[f"waiting_{partition}"]) is None:
                continue
            event = json.loads(text)
            transaction, reason = event.get(TRANSACTION), ""
            if transaction is None:
                reason = NO_SNAPSHOT if event[OPERATION] == "r" else NO_TRANSACTION
            after, at_ms = event.get(COMMITTED), event.get(PROCESSED_MS)
            found.append(Blocked(partition, event["offset"], reason, transaction, after, at_ms))
        return found

    def _tombstones_behind(self, firsts: Mapping[int, int]) -> int:
        return self.batch.raw.where(_is_behind(firsts) & F.col("value").isNull()).count()

    def _snapshots_in(self, seen: Mapping[str, Any]) -> dict[int, Snapshot]:
        """Return the snapshots with rows in the range; if there are several, their rows are read again."""
        lsn = seen["snapshot_low"]
        if lsn is None:
            return {}
        if lsn == seen["snapshot_high"]:
            marks = seen["snapshot_ends"], seen["snapshot_begins"]
            return {lsn: Snapshot(lsn, seen["snapshot_rows"], *marks)}
        facts = {"rows": F.count(F.lit(1)), "ended": F.max(ENDS_SNAPSHOT), "first_marked": F.max(BEGINS_SNAPSHOT)}
        rows = self.decoded().where(IN_SNAPSHOT).groupBy(SNAPSHOT_PLACE)
        found = rows.agg(*(column.alias(name) for name, column in facts.items())).collect()
        return {row[0]: Snapshot(row[0], row["rows"], row["ended"], row["first_marked"]) for row in found}

    def _is_cut(self) -> Column:
        """Return whether an event is the first of a cut transaction at an unsealed time; null means no.

        See `protocol.transactions.is_cut`.
        """
        begins_at, after = F.col(BEGINS_AT), F.col(COMMITTED)
        is_first = F.col(IS_FIRST) & ~self._is_late(F.col(END_TIME))
        return is_first & (begins_at <= after) & (after < F.col(LSN)) & F.lit(self._settings.captures_publication)

    def _find_cuts(self) -> list[Cut]:
        """Return the transactions that are cut; a handful at most.

        A connector that was killed within a transaction repeats events, and numbers them from 1 again. So a copy
        proves nothing: an event is considered only if it is the first with its number, in this range and in the table.
        """
        events = self.decoded()
        times = [row[0] for row in events.where(self._is_cut()).select(END_TIME).distinct().collect()]
        facts = ("offset", "topic", "partition", TRANSACTION, LSN, BEGINS_AT)
        first = F.min(F.struct(*facts, self._is_cut().alias("is_cut"))).alias("first")
        copies = events.where(F.col(END_TIME).isin(times)).groupBy(END_TIME, ORDER).agg(first)
        found = [(row[ORDER], row[END_TIME], row["first"]) for row in copies.where("first.is_cut").collect()]
        return [
            Cut(time, at[TRANSACTION], at[BEGINS_AT], at["topic"], at["partition"], at["offset"], at[LSN])
            for order, time, at in found
            if not self._has_event(time, order)
        ]

    def _has_event(self, time: int, order: int) -> bool:
        """Return whether the table has the event with this number, of the transaction at this time."""
        table, columns = self.batch.table, [TIME, POSITION]
        rows = (
            read_file(table.path, file, columns, pc.field(TIME) == time)
            for file in table.files()
            if meets(file, [time])
        )
        return any(place[:2] == [time, order] for part in rows for place in part[POSITION].to_pylist())

    def _refuse(self) -> NoReturn:
        """Refuse the events of another connector, or of another table."""
        facts = {
            "connector": F.max(F.when(F.col(CONNECTOR) != POSTGRESQL, F.col(CONNECTOR))),
            "table": F.max(F.when(self._is_elsewhere(), F.col(TABLE))),
        }
        (row,) = self.decoded().agg(*(column.alias(name) for name, column in facts.items())).collect()
        raise refusal_of(self.batch.collection.name, self._settings, row["connector"], row["table"])

    @property
    def _settings(self) -> TransactionSettings:
        assert isinstance(self.batch.settings, TransactionSettings)
        return self.batch.settings

    def _is_elsewhere(self) -> Column:
        return F.col(TABLE) != self._settings.table

    def late_rows(self) -> DataFrame:
        """Return the rows at sealed times, each with its place in the topic.

        Out: the columns of `late/`.
        """
        place = ("topic", "partition", "offset")
        rows = change_rows(self.decoded().withColumn("_marks", F.lit(0)), self.shape, self._time(), place)
        data = [F.col(f"`{column.name}`") for column in data_fields(self.batch.schemas.table)]
        located = [F.col(name).alias(f"_{name}") for name in place]
        return rows.where(self._is_late(F.col(TIME))).select(TIME, "_diff", *data, *located)

    def _time(self) -> Column:
        return F.col(END_TIME)

    def _is_late(self, time: Column) -> Column:
        return F.coalesce(time < parameter(self.upper, time), F.lit(False))

    def _is_stored(self) -> Column:
        is_stored = F.col(TIME).isNotNull() & ~self._is_late(F.col(TIME))
        return is_stored & ~F.col(TIME).isin(*self.abandoned) if self.abandoned else is_stored

    def _marks(self) -> Column:
        """Return the marks of a record, as a sum of `_MARKS`."""
        good, kind = F.col("_reason").isNull(), F.col("_kind")
        is_late = good & self._is_late(F.col(END_TIME))
        is_noted = ~good | F.col("_error").isNotNull() | is_late
        conditions = {
            "noted": is_noted & F.col(WAITING).isNull(),
            "barriers": good & (kind == "barrier"),
            "unavailable": good & F.col("_unavailable").isNotNull(),
            "unread": F.col("_unread") if self.plain else F.lit(False),
            "tombstone": kind == "tombstone",
            "unknown_schema": has_unknown_schema(self._known_schemas()),
            "foreign": F.col(CONNECTOR) != POSTGRESQL,
            "elsewhere": self._is_elsewhere(),
            "snapshot_ends": F.col(IN_SNAPSHOT) & F.col(ENDS_SNAPSHOT),
            "snapshot_begins": F.col(IN_SNAPSHOT) & F.col(BEGINS_SNAPSHOT),
            "cut": self._is_cut(),
        }
        return sum_of_marks(conditions, _MARKS)

    def _facts(self) -> dict[str, Column]:
        place = F.col(SNAPSHOT_PLACE)
        facts = {"snapshot_rows": F.count(place), "snapshot_low": F.min(place), "snapshot_high": F.max(place)}
        for partition in self.partitions:
            here, is_stored = F.col("partition") == partition, F.col(TIME).isNotNull()
            facts[f"waiting_{partition}"] = F.to_json(F.min(F.when(here, F.col(WAITING))))
            facts[f"stored_{partition}"] = F.max(F.when(here & is_stored, F.col("offset")))
            facts[f"before_{partition}"] = F.max(F.when(here, F.col(_BEFORE)))
        return facts

    def _count_rare(self, any_noted: bool) -> dict[str, Any]:
        """Count nothing yet: only `write` knows which events are left out."""
        return {}

    def _count_noted(self) -> dict[str, int]:
        """Count the rare facts of noted records."""
        good, is_late = F.col("_reason").isNull(), self._is_late(F.col(END_TIME)) & (F.col("_kind") != "tombstone")
        counts = {
            "quarantined": F.count_if(~good),
            "errors": F.count_if(good & F.col("_error").isNotNull() & ~is_late),
            "late": F.count_if(good & is_late),
        }
        (row,) = self.decoded().agg(*(column.alias(name) for name, column in counts.items())).collect()
        return dict(row.asDict())


def refusal_of(
    name: str, settings: TransactionSettings, connector: str | None, table: str | None
) -> ConfigurationError:
    """Return the error about events of another connector or, if `connector` is None, of another table."""
    if connector is not None:
        return ConfigurationError(
            "collections.yaml",
            f"collections.{name}.framing",
            f"the topic {settings.topics[0]} is written by the connector '{connector}', whose transactions do not "
            "state commit positions that can be compared",
            "`framing: transactions` reads PostgreSQL's connector; use `framing: reclock` for this topic",
        )
    return ConfigurationError(
        "collections.yaml",
        f"collections.{name}.table",
        f"the topic {settings.topics[0]} has events of the table '{table}', not of '{settings.table}'",
        "correct `table`, or let the connector write each table to a topic of its own: counts are by table",
    )


def _is_behind(firsts: Mapping[int, int]) -> Column:
    """Return whether a message is at or after the first waiting event of its partition."""
    return any_of((F.col("partition") == partition) & (F.col("offset") >= first) for partition, first in firsts.items())
