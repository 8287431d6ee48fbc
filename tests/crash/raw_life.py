"""A reclocked lake whose processes are killed, its records, and the contents that each time must have."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from pyspark.sql import SparkSession

from tests.crash.harness import Nursery, collection_of, contents
from tests.lakes.lake import NAME
from tests.lakes.raw_lake import RawLake
from tidelake.protocol.binding import Binding
from tidelake.store.bindings import read_bindings
from tidelake.store.commit import OpenTable
from tidelake.store.files import read_rows
from tidelake.store.layout import DIFF, POSITION, TIME

ENVELOPES = ("append_only", "upsert", "debezium")
_ROW = {
    "type": "record",
    "name": "row",
    "fields": [{"name": "id", "type": "long"}, {"name": "price", "type": ["null", "int"]}],
}


@dataclass(frozen=True)
class _Record:
    """The contents of a record: a row. If rows have keys, a record without a price deletes its key."""

    id: int
    price: int | None
    place: int
    """The record's position in the database's log, which is higher than that of the record before it."""


def _event(record: _Record, after: dict[str, Any] | None) -> dict[str, Any]:
    """The change event for a record."""
    sequence = json.dumps([str(record.place - 5), str(record.place)])
    source = {"connector": "postgresql", "lsn": record.place, "sequence": sequence, "snapshot": "false"}
    before = {"id": record.id, "price": None} if after is None else None
    op = "d" if after is None else "u"
    return {"before": before, "after": after, "source": source, "op": op, "ts_ms": record.place}


class RawLife:
    """A lake, the records that were put into it, and the contents that each time must have."""

    def __init__(self, root: Path, spark: SparkSession, nursery: Nursery, seed: int, envelope: str) -> None:
        self.rng, self.nursery, self.envelope = Random(f"{seed} {envelope}"), nursery, envelope
        key = {} if envelope == "append_only" else {"key": "id"}
        self.lake = RawLake(root, spark, envelope=envelope, schema=_ROW, messages_per_tick_max=9, **key)
        self.records: dict[int, list[_Record | None]] = {0: [], 1: []}
        self.place = 1000

    def put(self) -> None:
        """Append random records to two partitions; None stands for a record that cannot be used."""
        for partition, records in self.records.items():
            for _ in range(self.rng.randrange(5, 12)):
                self.place += 10
                row = _Record(self.rng.randrange(6), self.rng.choice([None, 1, 2, 3]), self.place)
                record = None if self.rng.random() < 0.1 else row
                records.append(record)
                self.lake.put(self._written(record), partition=partition)

    def _written(self, record: _Record | None) -> dict[str, Any]:
        if record is None:
            return {"key": None, "value": "no record"}
        row = {"id": record.id, "price": record.price}
        if self.envelope == "append_only":
            return {"key": {"id": record.id}, "value": row}
        after = None if record.price is None else row  # without a price, the record deletes its key
        value = after if self.envelope == "upsert" else _event(record, after)
        return {"key": {"id": record.id}, "value": value}

    def order(self, steps: tuple[str, ...], who: str = "victim") -> dict[str, Any]:
        return {"config": str(self.lake.file), "said": str(self.lake.root / f"{who}.jsonl"), "steps": steps}

    def check(self) -> None:
        """Check the contents at the time of each valid binding, and that the last binding ends where the topic ends."""
        chain = self.check_read()
        assert chain[-1].ends == {(NAME, partition): len(records) for partition, records in self.records.items()}

    def check_read(self) -> list[Binding]:
        """Check that at each valid binding's time, the contents follow from exactly the records before its offsets.

        Returns:
            The valid bindings.
        """
        collection = collection_of(self.lake)
        table = OpenTable(collection.paths.updates)
        rows = read_rows(collection.paths.updates, table.files(), table.schema()).to_pylist()
        chain = read_bindings(collection, table)
        for binding in chain:
            assert self._contents(rows, binding.time) == self._expected(chain, binding), binding
        return chain

    def _expected(self, chain: list[Binding], last: Binding) -> dict[Any, int]:
        """The contents that result from the records before a binding's offsets."""
        read: list[_Record] = []
        for binding in chain[: chain.index(last) + 1]:
            for (_, partition), end in sorted(binding.ends.items()):
                part = self.records[partition][binding.starts.get((NAME, partition), 0) : end]
                read += [record for record in part if record is not None]
        if self.envelope == "append_only":
            return dict(Counter((record.id, record.price) for record in read))
        if self.envelope == "debezium":
            read.sort(key=lambda record: record.place)  # the database's own order
        newest = {record.id: record.price for record in read}
        return {(key, price): 1 for key, price in newest.items() if price is not None}

    def _contents(self, rows: list[dict[str, Any]], as_of: int) -> dict[Any, int]:
        if self.envelope == "append_only":
            return contents(rows, as_of)
        newest = {row["id"]: row for row in sorted(rows, key=lambda row: row[POSITION]) if row[TIME] <= as_of}
        return {(row["id"], row["price"]): 1 for row in newest.values() if row[DIFF] > 0}
