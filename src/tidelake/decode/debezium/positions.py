"""The position of a change event: its place in the source's own order.

For PostgreSQL, it begins with the end of the transaction that was committed just before the event's own
(`source.sequence`). The event's log position (`source.lsn`) follows: transactions overlap in the log, but arrive
whole, in the order of their commits. Events read after a snapshot come after the snapshot, even if they were written
earlier. See docs/decisions/positions.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F

from tidelake.decode.debezium.columns import (
    BEGINS_SNAPSHOT,
    BROKEN,
    COMMITTED,
    CONNECTOR,
    DECLARED,
    ENDS_SNAPSHOT,
    EVENT,
    IN_SNAPSHOT,
    IS_FIRST,
    LSN,
    OPERATION,
    ORDER,
    PROCESSED_MS,
    TABLE,
    TRANSACTION,
)
from tidelake.decode.debezium.shape import ChangeShape
from tidelake.spark.column_cache import cached
from tidelake.spark.conditions import all_of

POSTGRESQL = "postgresql"
_IN_SNAPSHOT = ("true", "first", "first_in_data_collection", "last_in_data_collection", "last")
_SNAPSHOT_BEGINS = ("first", "first_in_data_collection")
_SNAPSHOT_ENDS = ("last_in_data_collection", "last")


@dataclass(frozen=True)
class SnapshotStart:
    """An initial snapshot: its log position, and when the connector began to read it, in milliseconds since 1970."""

    lsn: int
    processed_ms: int


@cached
def position_of(shape: ChangeShape, snapshots: Sequence[SnapshotStart]) -> Column:
    """Return the position of an event, from the columns of `position_columns`; null if the event has none.

    Args:
        shape: the shape of the events. If it declares positions, only those are used: other positions are not
            comparable with them.
        snapshots: the known initial snapshots; events processed since the connector began to read a snapshot come
            after it.
    """
    if shape.position:
        return F.concat(F.col(DECLARED), F.array(F.col("offset")))
    snapshot_lsn = F.greatest(
        F.lit(None).cast("bigint"),
        F.lit(None).cast("bigint"),
        *(F.when(F.col(PROCESSED_MS) >= snapshot.processed_ms, F.lit(snapshot.lsn)) for snapshot in snapshots),
    )
    committed = F.greatest(F.coalesce(F.col(COMMITTED), snapshot_lsn, F.col(LSN)), snapshot_lsn)
    streamed = F.array(committed, F.col(LSN), F.col("offset"))
    snapshot_row = F.array(F.col(LSN), F.lit(0).cast("bigint"), F.col("offset"))
    source = F.when(F.col(LSN).isNotNull(), F.when(F.col(IN_SNAPSHOT), snapshot_row).otherwise(streamed))
    return F.when(F.col(CONNECTOR) == POSTGRESQL, source)


def position_columns(shape: ChangeShape) -> list[Column]:
    """Return an event's columns for its position and for the end of a snapshot."""
    source = F.col(f"{EVENT}.source")
    return [
        source["connector"].alias(CONNECTOR),
        first_of(source["sequence"]).alias(COMMITTED),
        source["lsn"].try_cast("bigint").alias(LSN),
        _is_of_snapshot(shape).alias(IN_SNAPSHOT),
        ends_snapshot(source["snapshot"]).alias(ENDS_SNAPSHOT),
        F.col(f"{EVENT}.ts_ms").try_cast("bigint").alias(PROCESSED_MS),
        _declared_position(shape).alias(DECLARED),
        *(_transaction_columns() if shape.transactions else []),
    ]


def _transaction_columns() -> list[Column]:
    transaction, source, op = F.col(f"{EVENT}.transaction"), F.col(f"{EVENT}.source"), F.col(f"{EVENT}.op")
    is_broken = F.col(BROKEN).isNotNull()
    return [
        F.substring_index(transaction["id"], ":", 1).alias(TRANSACTION),
        transaction["data_collection_order"].try_cast("bigint").alias(ORDER),
        (transaction["total_order"] == "1").alias(IS_FIRST),
        begins_snapshot(source["snapshot"]).alias(BEGINS_SNAPSHOT),
        F.concat(source["schema"], F.lit("."), source["table"]).alias(TABLE),
        F.when(is_broken & transaction["id"].isNotNull(), F.lit("broken"))
        .when(~is_broken & op.isin("c", "u", "d", "t", "r"), op)
        .alias(OPERATION),
    ]


def _is_of_snapshot(shape: ChangeShape) -> Column:
    """Return whether an event is a row of a snapshot with a log position; other snapshots erase nothing."""
    if shape.position:
        return F.lit(False)
    source = F.col(f"{EVENT}.source")
    return is_snapshot_row(source["snapshot"], F.col(f"{EVENT}.op"), source["lsn"])


def is_snapshot_row(snapshot: Column, op: Column, lsn: Column) -> Column:
    """Return whether an event states a row of a snapshot with a log position; the result is never null."""
    is_row = snapshot.isin(*_IN_SNAPSHOT) & (op == "r") & lsn.try_cast("bigint").isNotNull()
    return F.coalesce(is_row, F.lit(False))


def ends_snapshot(snapshot: Column) -> Column:
    """Return whether an event is the last of a snapshot of a table, or of all tables; the result is never null."""
    return F.coalesce(snapshot.isin(*_SNAPSHOT_ENDS), F.lit(False))


def begins_snapshot(snapshot: Column) -> Column:
    """Return whether an event is marked as the first of a snapshot of a table, or of all tables.

    The result is never null.
    """
    return F.coalesce(snapshot.isin(*_SNAPSHOT_BEGINS), F.lit(False))


def first_of(sequence: Column) -> Column:
    """Return the first number of `source.sequence`, a list of strings; null if it has none."""
    text = F.substring_index(F.substring_index(sequence, '"', 2), '"', -1)
    number = text.try_cast("bigint")
    # A cast ignores spaces around the number. A pattern would take 5% of the tick's time; this comparison takes 2%.
    return F.when(sequence.startswith('["') & (number.cast("string") == text), number)


def _declared_position(shape: ChangeShape) -> Column:
    """Return the numbers in the declared fields; null if one is missing, or if no fields are declared.

    The number in a string like `binlog.000012` is its last digits.
    """
    if not shape.position:
        return F.lit(None).cast("array<bigint>")
    numbers = []
    for path in shape.position:
        text = F.col(f"{EVENT}.{path}")
        digits = F.regexp_extract(text, r"([0-9]+)$", 1)
        numbers.append(F.coalesce(text.try_cast("bigint"), digits.try_cast("bigint")))
    return F.when(all_of(number.isNotNull() for number in numbers), F.array(*numbers))
