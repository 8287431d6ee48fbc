"""Scripts of commands and answers that run the real jobs on a small lake.

A case is a title and lines. A line is a command, or, after `= `, the answer to the command above it. Commands without
an answer are inputs:

    collection FAMILY [name=value ...]   the collection and its settings; `collection plain` by default
    u [data,time,diff] ...               send a message with updates; data is an id, or [id,price]
    p lower upper time:count ...         send a progress statement; frontiers are [time], or [] if empty
    decide count TIME COUNT              decide how many updates a time has
    decide discard [data,time,diff]      decide that a statement has no effect
    withdraw TIME                        take back the decisions about a time
    hold TIME                            acquire a capability at a time; answers only if it is refused
    release                              drop the capability that was acquired last

These commands are answered:

    seal          ingest the sent messages, and seal; answers with `lower` and `upper`, or with the time at which
                  `upper` is stuck and why
    compact       compact in full; answers with `since` and the number of rows before and after
    compact some  compact within bounds, with the same answer
    read TIME     answers with the contents AS OF a time, each row as [data,count]
    rows          answers with the rows of the table, as [data,time,diff]
    runs          answers with the number of runs in the table
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from pyspark.sql import SparkSession

from tests.lakes.lake import NAME, Lake, progress, updates
from tests.protocol.scripts import read_blocks, split_values
from tidelake import open_lake
from tidelake.compact.compaction import CompactReport, live_runs
from tidelake.errors import TidelakeError
from tidelake.read.holding import ReadCapability
from tidelake.seal.report import SealReport
from tidelake.store.files import read_rows


class Case(NamedTuple):
    """One case of a script."""

    title: str
    lines: list[str]


def read_cases(folder: str) -> Iterator[Case]:
    """The cases of all scripts in a folder below `tests/scripts`."""
    for title, lines in read_blocks(folder):
        yield Case(title, lines)


def replay(root: Path, spark: SparkSession, lines: list[str], open_script: OpenScript | None = None) -> list[str]:
    """Run the commands of a case, and return the case with their answers.

    Args:
        root: a folder for the lake.
        spark: the session.
        lines: the case.
        open_script: opens the lake of the case; by default a lake with the commands above.
    """
    first, *rest = lines
    word, _, described = first.partition(" ")
    family, *options = described.split() if word == "collection" else ["plain"]
    more = {name: yaml.safe_load(value) for name, value in (option.split("=") for option in options)}
    script = (open_script or open_rows)(root, spark, family, more)
    replayed = [first] if word == "collection" else []
    for line in rest if word == "collection" else lines:
        if not line.startswith("= "):
            answer = script.run(line)
            replayed += [line] if answer is None else [line, f"= {answer}"]
    return replayed


def open_rows(root: Path, spark: SparkSession, family: str, more: dict[str, Any]) -> Script:
    """The commands above, on a new lake."""
    return Script(Lake(root, spark, family, **more))


class Script:
    """The commands, on one lake."""

    def __init__(self, lake: Lake) -> None:
        self.lake = lake
        self.held: list[ReadCapability] = []
        lake.catalog.open_or_create(lake.settings.collections[0].spec())

    def run(self, line: str) -> str | None:
        """Run a command; return its answer, or None if it has no answer."""
        word, _, rest = line.partition(" ")
        return self.commands()[word](rest)

    def commands(self) -> dict[str, Callable[[str], str | None]]:
        """The commands by their first word."""
        return {
            "u": self.send_updates,
            "p": self.send_progress,
            "decide": self.decide,
            "withdraw": self.withdraw,
            "hold": self.hold,
            "release": self.release,
            "seal": self.seal,
            "compact": self.compact,
            "read": self.read,
            "rows": self.rows,
            "runs": self.runs,
        }

    def send_updates(self, rest: str) -> None:
        triples = [json.loads(text) for text in split_values(rest)]
        self.lake.send(updates(*((as_data(data), time, diff) for data, time, diff in triples)))

    def send_progress(self, rest: str) -> None:
        lower, upper, *counts = (json.loads(text) for text in split_values(rest))
        self.lake.send(progress(lower, upper, dict(zip(counts[::2], counts[1::2], strict=True))))

    def decide(self, rest: str) -> None:
        kind, _, values = rest.partition(" ")
        if kind == "count":
            time, count = values.split()
            self.lake.decide(time=int(time), count=int(count))
            return
        assert kind == "discard", rest
        data, time, diff = json.loads(values)
        row, price = as_data(data) if isinstance(data, list) else (data, None)
        self.lake.decide(time=time, discard={"data": {"id": row, "price": price}, "diff": diff})

    def withdraw(self, rest: str) -> None:
        self.lake.catalog.withdraw(NAME, int(rest))

    def hold(self, rest: str) -> str | None:
        try:
            self._hold(rest)
        except TidelakeError as error:
            return f"! {type(error).__name__}"
        return None

    def _hold(self, rest: str) -> None:
        self.held.append(open_lake(self.lake.file).collection(NAME).acquire(at=int(rest)))

    def release(self, rest: str) -> None:
        self.held.pop().drop()

    def seal(self, rest: str) -> str:
        return answer_to_seal(self.lake.run())

    def compact(self, rest: str) -> str:
        return answer_to_compaction(self.lake.compact(full=rest != "some"))

    def read(self, rest: str) -> str:
        try:
            contents = self.lake.contents(int(rest))
        except TidelakeError as error:
            return f"! {type(error).__name__}"
        return listed([as_value(data), count] for data, count in contents.items())

    def rows(self, rest: str) -> str:
        table = self.lake.table
        rows = read_rows(table.path, table.files(), table.schema()).to_pylist()
        return listed([as_value((row["id"], row["price"])), row["_time"], row["_diff"]] for row in rows)

    def runs(self, rest: str) -> str:
        return str(len(live_runs(self.lake.table.files())))


def as_data(value: Any) -> Any:
    """The data of a statement, as `tests.lakes.lake.updates` accepts it."""
    return tuple(value) if isinstance(value, list) else value


def as_value(data: tuple[Any, Any]) -> Any:
    """The data of a row, as scripts write it."""
    return data[0] if data[1] is None else list(data)


def listed(values: Any) -> str:
    """Values as JSON, sorted."""
    return " ".join(sorted(json.dumps(value, separators=(",", ":")) for value in values)) or "nothing"


def answer_to_seal(report: SealReport) -> str:
    """The answer to `seal`."""
    upper = "[]" if report.closed else f"[{report.upper}]"
    parts = [f"sealed [{report.lower}] {upper}" if report.committed else f"waits at {upper}"]
    if report.copies_cancelled:
        parts.append(f"{report.copies_cancelled} {'copy' if report.copies_cancelled == 1 else 'copies'}")
    parts += [f"{time} by decision" for time, _ in report.decided_times]
    parts += [describe_wait(*waiting) for waiting in report.waiting_for]
    parts += [f"! {error.kind} {error.time}" for error in report.contradictions]
    return ", ".join(parts)


def describe_wait(time: int, announced: int | None, counted: int) -> str:
    """Say why a time is not sealed: it is not announced, or rows are missing."""
    if announced is None:
        return f"{time} is not announced" + (f" and has {counted}" if counted else "")
    return f"{time} has {counted} of {announced}"


def answer_to_compaction(report: CompactReport) -> str:
    """The answer to `compact`."""
    merged = answer_to_merge(report) if report.merges else "nothing to merge"
    return f"since {list(report.since)}, {merged}"


def answer_to_merge(report: CompactReport) -> str:
    """The numbers of rows before and after a merge."""
    return f"{report.rows_before} {'row' if report.rows_before == 1 else 'rows'} to {report.rows_after}"


OpenScript = Callable[[Path, SparkSession, str, dict[str, Any]], Script]
"""Opens the lake of a case, given a folder, the session, the family and more settings."""
