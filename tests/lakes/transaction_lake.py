"""A small table with transactions: its topic and the topic of transactions are written by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from tests.lakes.lake import NAME
from tests.lakes.raw_lake import RawLake

EVENTS, MARKS, TABLE = f"shop.public.{NAME}", "shop.transaction", f"public.{NAME}"
ROW = {
    "type": "record",
    "name": "row",
    "fields": [{"name": "id", "type": "long"}, {"name": "price", "type": ["null", "int"]}],
}
Pair = tuple[int, int | None] | None


def row(pair: Pair) -> dict[str, Any] | None:
    return None if pair is None else {"id": pair[0], "price": pair[1]}


def event(transaction: str | None, order: int, before: Pair, after: Pair, previous: int, **more: Any) -> dict[str, Any]:
    """A change event, number `order` in its transaction, after the commit position `previous`."""
    op = "c" if before is None else "d" if after is None else "u"
    source = {"connector": "postgresql", "lsn": previous + order, "sequence": f'["{previous}","{previous + order}"]'}
    source |= {"snapshot": "false", "schema": "public", "table": NAME} | more.pop("source", {})
    named = {"id": f"{transaction}:{previous + order}", "total_order": order, "data_collection_order": order}
    value = {"before": row(before), "after": row(after), "op": op, "ts_ms": 1_000, "source": source}
    value["transaction"] = None if transaction is None else named
    return value | more


def snapshot_row(pair: Pair, lsn: int, which: str = "true") -> dict[str, Any]:
    """A row of an initial snapshot at a log position."""
    source = {"lsn": lsn, "sequence": f'[null,"{lsn}"]', "snapshot": which}
    return event(None, 0, None, pair, 0, op="r", source=source)


def begin(transaction: str, lsn: int) -> dict[str, Any]:
    """The BEGIN of a transaction, at the position of its first event."""
    return {"status": "BEGIN", "id": f"{transaction}:{lsn}", "event_count": None, "data_collections": None}


def end(transaction: str, lsn: int, events: int, **others: int) -> dict[str, Any]:
    """The END of a transaction, with the number of its events in the table and in other tables."""
    counts = {name: count for name, count in {TABLE: events, **others}.items() if count}
    parts = [{"data_collection": name, "event_count": count} for name, count in counts.items()]
    whole = {"event_count": sum(counts.values()), "data_collections": parts, "ts_ms": 1_000}
    return {"status": "END", "id": f"{transaction}:{lsn}", **whole}


class TransactionLake(RawLake):
    """A lake with one table, which has transactions."""

    def __init__(self, root: Path, spark: SparkSession, **more: Any) -> None:
        block: dict[str, Any] = {"framing": "transactions", "envelope": "debezium", "schema": ROW, "key": ["id"]}
        block |= {"topic": EVENTS, "transaction_topic": MARKS}
        (root / "topics" / MARKS).mkdir(parents=True, exist_ok=True)
        super().__init__(root, spark, **(block | more))

    def events(self, *values: dict[str, Any] | None, partition: int = 0) -> None:
        """Append events to the table's topic."""
        self.put(*({"key": "{}", "value": value} for value in values), partition=partition, topic=EVENTS)

    def marks(self, *values: dict[str, Any], partition: int = 0) -> None:
        """Append messages to the topic of transactions."""
        self.put(*({"value": value} for value in values), partition=partition, topic=MARKS)

    def pairs(self, as_of: int | None = None) -> list[tuple[int, int | None]]:
        """The contents AS OF a time."""
        return [(found["id"], found["price"]) for found in self.rows(as_of)]

    def message(self, value: dict[str, Any]) -> str:
        """A value as JSON."""
        return json.dumps(value)
