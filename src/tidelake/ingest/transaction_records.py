"""Turns change events into rows whose time is the commit position of their transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import add
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidelake.decode.debezium.columns import COMMITTED, END, IN_SNAPSHOT, LSN, ORDER, TRANSACTION
from tidelake.decode.debezium.rows import change_rows
from tidelake.decode.debezium.shape import ChangeShape
from tidelake.decode.debezium.transaction_parts import with_ends
from tidelake.ingest.debezium import MARKS, ChangeRecords
from tidelake.plugins.envelope import WrittenRecords
from tidelake.spark.runtime_constant import parameter
from tidelake.store.layout import POSITION, TIME
from tidelake.store.table_schema import data_fields

PARKED = "parked_transaction"
"""The reason of a quarantined event whose transaction was parked by a decision."""
_END_TIME = "_end_time"


@dataclass
class TransactionRecords(ChangeRecords):
    """The change events of a tick, with what is known of their transactions."""

    ends: DataFrame | None = None
    """The transactions whose ENDs were read; see `with_ends`."""
    upper: int = 0
    """The first time that is not sealed."""
    parked: Mapping[str, str] = field(default_factory=dict)
    """The transactions that decisions have parked, each with the reason."""
    abandoned: Sequence[int] = ()
    """The places of abandoned snapshots, whose rows are not stored."""
    late: int = 0
    """Number of events at sealed times, after `write`."""

    @property
    def shape(self) -> ChangeShape:
        """The shape of the events, with their transactions."""
        return replace(super().shape, transactions=True)

    def decoded(self) -> DataFrame:
        """Return the result of `events.read_events`, with _position and _end_time bigint."""
        assert self.ends is not None
        minus_one = F.lit(-1).cast("bigint")
        read = with_ends(self._read(), self.ends, TRANSACTION, F.coalesce(F.col(COMMITTED), minus_one))
        in_snapshot, end = F.col(IN_SNAPSHOT), F.col(END)
        zero, partition = F.lit(0).cast("bigint"), F.col("partition").cast("bigint")
        snapshot_row = F.array(F.col(LSN), zero, partition, F.col("offset"))
        event = F.when(end.isNotNull() & (F.col(ORDER) > 0), F.array(end, F.col(ORDER)))
        position = F.when(in_snapshot, snapshot_row).otherwise(event)
        placed = read.withColumns({POSITION: position, _END_TIME: F.when(in_snapshot, F.col(LSN)).otherwise(end)})
        is_parked = end.isNull() & ~in_snapshot & F.col(TRANSACTION).isin(list(self.parked))
        lacks = F.col(POSITION).isNull() & F.col("_kind").isin("value", "delete", "barrier")
        # Without a position, nobody knows which transaction lacks the event: its time waits.
        reason = F.when(is_parked, F.lit(PARKED)).when(lacks, F.lit("no_position"))
        return placed.withColumns(
            {
                "_reason": F.coalesce("_reason", reason),
                "_detail": F.coalesce("_detail", F.when(lacks, F.coalesce("_error", TRANSACTION))),
            }
        ).drop(END)

    def write(self) -> WrittenRecords:
        """Write the rows at unsealed times as uncommitted runs."""
        files, seen = self._write_known()
        return WrittenRecords(
            files,
            self._values(seen),
            records=seen["records"],
            tombstones=seen["tombstones"],
            quarantined=seen["quarantined"],
            errors=seen["errors"],
        )

    def late_rows(self) -> DataFrame:
        """Return the rows at sealed times, with their places.

        Out: the columns of `late/`.
        """
        place = ("topic", "partition", "offset")
        rows = change_rows(self.decoded().withColumn("_marks", F.lit(0)), self.shape, self._time(), place)
        data = [F.col(f"`{column.name}`") for column in data_fields(self.batch.schemas.table)]
        located = [F.col(name).alias(f"_{name}") for name in place]
        return rows.where(self._is_late(F.col(TIME))).select(TIME, "_diff", *data, *located)

    def _time(self) -> Column:
        return F.col(_END_TIME)

    def _is_late(self, time: Column) -> Column:
        return F.coalesce(time < parameter(self.upper, time), F.lit(False))

    def _is_stored(self) -> Column:
        is_stored = F.col(TIME).isNotNull() & ~self._is_late(F.col(TIME))
        return is_stored & ~F.col(TIME).isin(*self.abandoned) if self.abandoned else is_stored

    def _marks(self) -> Column:
        """Return the marks of a record, as a sum of `MARKS`."""
        good, kind = F.col("_reason").isNull(), F.col("_kind")
        conditions = {
            MARKS["noted"]: ~good | F.col("_error").isNotNull() | (good & self._is_late(F.col(_END_TIME))),
            MARKS["barriers"]: good & (kind == "barrier"),
            MARKS["unavailable"]: good & F.col("_unavailable").isNotNull(),
            MARKS["unread"]: F.col("_unread") if self.plain else F.lit(False),
            MARKS["tombstone"]: kind == "tombstone",
            MARKS["unknown_schema"]: self._has_unknown_schema(),
        }
        marks = [F.when(is_there, F.lit(mark)).otherwise(0) for mark, is_there in conditions.items()]
        return reduce(add, marks)

    def _count_rare(self, any_noted: bool) -> dict[str, Any]:
        """Count the rare facts of noted records; read nothing if no record is noted."""
        good, is_late = F.col("_reason").isNull(), self._is_late(F.col(_END_TIME)) & (F.col("_kind") != "tombstone")
        counts = {
            "quarantined": F.count_if(~good),
            "errors": F.count_if(good & F.col("_error").isNotNull() & ~is_late),
            "late": F.count_if(good & is_late),
        }
        if not any_noted:
            self.late = 0
            return dict.fromkeys(counts, 0)
        (row,) = self.decoded().agg(*(column.alias(name) for name, column in counts.items())).collect()
        self.late = row["late"]
        return dict(row.asDict())
