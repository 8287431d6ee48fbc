"""A reclocked topic of Debezium change events."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from tests.lakes.raw_lake import RawLake
from tidelake.errors import KeysInError
from tidelake.forms.key_errors import keys_in_error
from tidelake.read.snapshot import describe_unknown, snapshot

ROW = {
    "type": "record",
    "name": "row",
    "fields": [{"name": "id", "type": "int"}, *({"name": name, "type": ["null", "string"]} for name in ("a", "b"))],
}


class Changes(RawLake):
    """A collection of change events; each new event gets a higher position in the log."""

    def __init__(self, root: Path, spark: SparkSession, **more: Any) -> None:
        super().__init__(root, spark, **{"envelope": "debezium", "key": "id", "schema": ROW, **more})
        self.lsn = 1000

    def event(
        self, op: str, row: tuple[Any, ...] | None = None, before: tuple[Any, ...] | None = None, **more: Any
    ) -> dict[str, Any]:
        """A record with one event in a transaction of its own.

        `more` can set `key`, `lsn`, `committed`, `ts_ms` and fields of `source`.
        """
        self.lsn += 10
        lsn = more.pop("lsn", self.lsn)
        rows = {
            name: None if values is None else dict(zip(("id", "a", "b"), values, strict=False))
            for name, values in (("before", before), ("after", row))
        }
        key = more.pop("key", {"id": (row or before or (None,))[0]})
        committed = more.pop("committed", lsn and lsn - 5)
        processed = more.pop("ts_ms", self.lsn)
        source = {
            "connector": "postgresql",
            "lsn": lsn,
            "sequence": json.dumps([position and str(position) for position in (committed, lsn)]),
        }
        source |= {"snapshot": "false", **more}
        return {"key": key, "value": {**rows, "source": source, "op": op, "ts_ms": processed}}

    def table_of(self, as_of: int | None = None, **more: Any) -> dict[Any, tuple[Any, ...]]:
        """The contents by key."""
        return {row["id"]: (row["a"], row["b"]) for row in self.rows(as_of, **more)}

    def errors(self, as_of: int | None = None) -> dict[Any, str]:
        """The first ten keys in error, with their errors; if `as_of` is given, each error is an empty string."""
        try:
            self.rows(as_of)
        except KeysInError as refused:
            named = {json.loads(key)["id"] for key in refused.keys}
        else:
            named = set()
        if as_of is not None:
            return dict.fromkeys(named, "")
        texts = keys_in_error(self.collection).first
        reasons = {json.loads(text.partition("}: ")[0] + "}")["id"]: text.partition("}: ")[2] for text in texts}
        assert set(reasons) == named, "a read and the status must list the same keys"
        return reasons

    def unknown(self) -> tuple[int, list[str]]:
        """The number of rows with values that were never stated, and their keys and columns."""
        return describe_unknown(snapshot(self.spark, self.collection))
