"""Scripts of commands and answers for families beyond CDCv2 rows: upsert records, and change events.

They have the commands of `tests.lakes.scripts`, and others that depend on the family and framing of the collection.

Upserts, `collection upsert framing=reclock key=id`; a row is `[id,price]`:

    set [id,price]            a record with a value
    delete ID                 a record with a null value
    broken ID                 a record with a value that cannot be decoded
    keyless [id,price]        a record without a key

Change events as Debezium writes them, `collection debezium framing=reclock`; a row is `[id,a,b]` or shorter:

    create ROW                an event with this row in `after`
    update ROW [from ROW]     an event with the first row in `after`, and the second in `before`
    read ROW                  an event of a snapshot
    delete ID                 an event without a row in `after`
    truncate                  an event that empties the table
    tombstone ID              a record with a null value
    broken ID                 a record with a value that cannot be decoded

Positions in the database's log rise by 10. A command may end with `partition=1`, `lsn=2000`, `key=null`, or a field of
the event's `source`, such as `snapshot=last`. For both kinds of records, these commands are answered:

    tick                      ingest; answers with the number of tombstones, values in error and quarantined messages,
                              if there are any
    contents [TICK] [skip]    answers with the contents now, or after the tick with number TICK (from 1); if there are
                              keys in error, answers with these keys, unless `skip` is given
    compact                   compact in full; answers with the number of rows before and after
    unknown                   for change events only: answers with the values that are null because nobody stated them

Change events over CDCv2, `collection debezium`, with or without `key=id`:

    e [before,after,time] ... send a message with events; a row is [id,price] or null
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from pyspark.sql import SparkSession

from jobs.ingest import IngestReport
from tests.lakes.change_events import EVENT, events, progress
from tests.lakes.changes import Changes
from tests.lakes.lake import Lake
from tests.lakes.raw_lake import RawLake
from tests.lakes.scripts import Script, answer_to_merge, listed
from tests.lakes.upserts import ITEM, gone, item
from tests.protocol.scripts import split_values
from tidelake.errors import KeysInError

BROKEN = "{"
"""A value that is not JSON."""


def open_script(root: Path, spark: SparkSession, family: str, more: dict[str, Any]) -> Script:
    """The commands for a family and framing, on a new lake."""
    if more.get("framing") != "reclock":
        if family == "debezium":
            return EventScript(Lake(root, spark, family, schema=EVENT, **more))
        return Script(Lake(root, spark, family, **more))
    if family == "debezium":
        return ChangeScript(Changes(root, spark, **more))
    return RecordScript(RawLake(root, spark, envelope=family, **{"schema": ITEM, **more}))


class EventScript(Script):
    """The commands for change events over CDCv2."""

    def commands(self) -> dict[str, Callable[[str], str | None]]:
        return super().commands() | {"e": self.send_events}

    def send_events(self, rest: str) -> None:
        self.lake.send(events(*(json.loads(text) for text in split_values(rest))))

    def send_progress(self, rest: str) -> None:
        lower, upper, *counts = (json.loads(text) for text in split_values(rest))
        self.lake.send(progress(lower, upper, dict(zip(counts[::2], counts[1::2], strict=True))))


class RecordScript(Script):
    """The commands for upsert records."""

    lake: RawLake

    def commands(self) -> dict[str, Callable[[str], str | None]]:
        return super().commands() | {
            "set": lambda rest: self.lake.put(item(*json.loads(rest))),
            "delete": lambda rest: self.lake.put(gone(int(rest))),
            "broken": lambda rest: self.lake.put({"key": {"id": int(rest)}, "value": BROKEN}),
            "keyless": lambda rest: self.lake.put(item(*json.loads(rest)) | {"key": None}),
            "tick": self.tick,
            "contents": self.contents,
        }

    def tick(self, rest: str) -> str | None:
        return answer_to_tick(self.lake.ingest())

    def compact(self, rest: str) -> str:
        return answer_to_merge(self.lake.compact())

    def contents(self, rest: str) -> str:
        words = rest.split()
        ticks = [int(word) for word in words if word != "skip"]
        as_of = self.lake.times[ticks[0] - 1].time if ticks else None
        try:
            rows = self.lake.rows(as_of, skip_errors="skip" in words)
        except KeysInError as error:
            return f"! KeysInError {' '.join(error.keys)}"
        return listed(shortened([value for name, value in row.items() if name != "_diff"]) for row in rows)


class ChangeScript(RecordScript):
    """The commands for change events as Debezium writes them."""

    lake: Changes

    def commands(self) -> dict[str, Callable[[str], str | None]]:
        return super().commands() | {
            "create": partial(self.send_event, "c"),
            "update": partial(self.send_event, "u"),
            "read": partial(self.send_event, "r"),
            "delete": partial(self.send_event, "d"),
            "truncate": partial(self.send_event, "t"),
            "tombstone": lambda rest: self.lake.put({"key": {"id": int(rest)}, "value": None}),
            "unknown": self.unknown,
        }

    def send_event(self, operation: str, rest: str) -> None:
        rows, options = rows_and_options(rest)
        partition = options.pop("partition", 0)
        if operation == "r":
            options = {"snapshot": "true", "committed": None} | options
        after, before = (*rows, None, None)[:2]
        if operation == "d":
            after, before = None, after
        if operation == "t":
            options["key"] = None
        self.lake.put(self.lake.event(operation, after, before, **options), partition=partition)

    def unknown(self, rest: str) -> str:
        _, values = self.lake.unknown()
        return "; ".join(values) or "nothing"


def rows_and_options(text: str) -> tuple[list[Any], dict[str, Any]]:
    """The rows of a command, as tuples, and the `name=value` after them."""
    rows, options = [], {}
    for word in split_values(text):
        name, equals, value = word.partition("=")
        if equals:
            options[name] = yaml.safe_load(value)
        elif word != "from":
            row = json.loads(word)
            rows.append(tuple(row) if isinstance(row, list) else (row,))
    return rows, options


def shortened(row: list[Any]) -> list[Any]:
    """A row without the nulls at its end."""
    while len(row) > 1 and row[-1] is None:
        row = row[:-1]
    return row


def answer_to_tick(report: IngestReport) -> str | None:
    """The answer to `tick`; None if the tick only stored rows."""
    tombstones = "tombstone" if report.null_records == 1 else "tombstones"
    counts = {tombstones: report.null_records, "in error": report.values_in_error, **report.reasons}
    return ", ".join(f"{count} {name}" for name, count in counts.items() if count) or None
