"""Reads what a tick has to know about change events before it decodes their rows: their transactions and snapshots."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidelake.decode.debezium.columns import (
    AFTER,
    BEGINS_SNAPSHOT,
    CONNECTOR,
    END,
    END_ID,
    END_LOWER,
    ENDS_SNAPSHOT,
    IN_SNAPSHOT,
    OPERATION,
    PARTS,
    PLACE_IN_LOG,
    PROCESSED,
    TABLE,
    TRANSACTION,
)
from tidelake.decode.debezium.positions import begins_snapshot, ends_snapshot, first_of, is_snapshot_row

_SOURCE = ("connector", "lsn", "sequence", "snapshot", "schema", "table")
_EVENT = (
    f"transaction: struct<id: string>, source: struct<{', '.join(f'{name}: string' for name in _SOURCE)}>, "
    "op: string, ts_ms: string"
)
_PLACE = ("topic", "partition", "offset")


def read_parts(raw: DataFrame) -> DataFrame:
    """Read the parts of change events in JSON, with or without an embedded schema.

    In:  topic, partition, offset, value binary.
    Out: the same without value, _transaction string (its id, or null), _connector, _snapshot, _snapshot_ends boolean,
         and the columns above. Tombstones, and records that are not change events, are left out.
    """
    parsed = F.from_json(F.col("value").cast("string"), f"struct<{_EVENT}, payload: struct<{_EVENT}>>")
    read = raw.select(*_PLACE, parsed.alias(PARTS))

    def part(path: str) -> Column:
        return F.coalesce(F.col(f"{PARTS}.payload.{path}"), F.col(f"{PARTS}.{path}"))

    source = {name: part(f"source.{name}") for name in _SOURCE}
    op = part("op")
    events = read.where(op.isin("c", "u", "d", "t", "r"))
    return events.select(
        *_PLACE,
        F.substring_index(part("transaction.id"), ":", 1).alias(TRANSACTION),
        source["connector"].alias(CONNECTOR),
        is_snapshot_row(source["snapshot"], op, source["lsn"]).alias(IN_SNAPSHOT),
        begins_snapshot(source["snapshot"]).alias(BEGINS_SNAPSHOT),
        ends_snapshot(source["snapshot"]).alias(ENDS_SNAPSHOT),
        F.coalesce(first_of(source["sequence"]), F.lit(-1).cast("bigint")).alias(AFTER),
        source["lsn"].try_cast("bigint").alias(PLACE_IN_LOG),
        F.concat(source["schema"], F.lit("."), source["table"]).alias(TABLE),
        part("ts_ms").try_cast("bigint").alias(PROCESSED),
        op.alias(OPERATION),
    )


def with_ends(events: DataFrame, ends: DataFrame, transaction: str, after: Column) -> DataFrame:
    """Add the commit position of each event's transaction as _end; null if its END was not read.

    In:  events with the column `transaction`; `ends` has id string, lower bigint, lsn bigint, as `commit_ranges`
         returns them: at most one row fits an event.
    """
    renamed = F.broadcast(
        ends.select(F.col("id").alias(END_ID), F.col("lower").alias(END_LOWER), F.col("lsn").alias(END))
    )
    fits = (F.col(transaction) == F.col(END_ID)) & (after >= F.col(END_LOWER)) & (after < F.col(END))
    return events.join(renamed, fits, "left").drop(END_ID, END_LOWER)
