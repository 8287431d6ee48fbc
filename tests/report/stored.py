"""A collection whose tables are written directly, without a topic and without a JVM."""

from __future__ import annotations

import time as clock
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.expectations.reports import settings
from tidelake.catalog.catalog import Catalog
from tidelake.read.status import read_status
from tidelake.report.facts import Facts, read_facts
from tidelake.settings.collection import CollectionSettings
from tidelake.storage.location import Location
from tidelake.store.commit import OpenTable
from tidelake.store.entry import Collection
from tidelake.store.files import write_run
from tidelake.store.layout import (
    PROGRESS_SCHEMA,
    PROOFS_SCHEMA,
    QUARANTINE_SCHEMA,
    TIME,
    Store,
    new_run,
)
from tidelake.store.state import SEALED_AT_MS, UPPER
from tidelake.validate.validation import ValidateReport

NAME = "prices"


class Stored:
    """A collection with the columns `id` and `price`."""

    def __init__(self, root: Path, **more: Any) -> None:
        self.rows = 0
        self.settings: CollectionSettings = settings("plain").model_copy(update=more)
        self.catalog = Catalog(Store(root / "store"))
        self.catalog.open_or_create(self.settings.spec())

    @property
    def collection(self) -> Collection:
        return self.catalog.find(NAME)

    def seal(self, announced: Mapping[int, int], upper: int, hours_ago: float = 0) -> None:
        """Write the proofs of these times, and move upper."""
        at_ms = int((clock.time() - 3600 * hours_ago) * 1000)
        rows = [
            {TIME: time, "kind": "sealed", "announced": count, "counted": count, "copies": 1, "at_ms": at_ms}
            for time, count in announced.items()
        ]
        self._append(self.collection.paths.proofs, "proof", pa.Table.from_pylist(rows, schema=PROOFS_SCHEMA))
        OpenTable(self.collection.paths.updates).commit({UPPER: upper, SEALED_AT_MS: at_ms})

    def arrive(self, *times: int) -> None:
        """Write a row at each of these times; no two rows are equal."""
        ids = range(self.rows, self.rows + len(times))
        self.rows += len(times)
        columns: dict[str, Any] = {TIME: times, "_diff": [1] * len(times), "id": ids, "price": [1] * len(times)}
        schema = self.collection.updates_schema()
        rows = pa.table({name: columns[name] for name in schema.names if name in columns})
        fields = pa.schema([field for field in schema if field.name in columns])
        self._append(self.collection.paths.updates, "ingest", rows.cast(fields))

    def announce(self, lower: int, upper: int, counts: Mapping[int, int]) -> None:
        """Write a pending progress statement."""
        row = {
            "topic": NAME,
            "partition": 0,
            "offset": 0,
            "lower": [lower],
            "upper": [upper],
            "count_times": list(counts),
            "count_values": list(counts.values()),
        }
        self._append(self.collection.paths.progress, "pending", pa.Table.from_pylist([row], schema=PROGRESS_SCHEMA))

    def refuse(self, messages: Iterable[bytes], reason: str = "undecodable", detail: str | None = None) -> None:
        """Write messages to the quarantine, at offsets from 0 onwards."""
        rows = [
            {"topic": NAME, "partition": 0, "offset": at, "reason": reason, "detail": detail, "value": value}
            for at, value in enumerate(messages)
        ]
        schema = QUARANTINE_SCHEMA
        self._append(self.collection.paths.quarantine, "quarantine", pa.Table.from_pylist(rows, schema=schema))

    def facts(self, validated: ValidateReport | None = None) -> Facts:
        """The facts that a report would show now."""
        return read_facts(self.collection, self.settings, read_status(self.collection), validated)

    def _append(self, table: Location, kind: str, rows: pa.Table) -> None:
        opened = OpenTable(table)
        run = new_run(kind, opened.seq)
        opened.commit({}, write_run(table, run, rows))
