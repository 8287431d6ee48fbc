"""Replay of recorded streams through the real jobs: the lines go into a file topic, the answers come from the tables.

Each stream has a plain collection of its own. The jobs run for each line that states a fact, together with the lines
around it that state none; from one run to the next nothing is kept but the tables, as if the process began anew.
"""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pyspark.sql import SparkSession

from tidelake.configuration import Settings, load_settings
from tidelake.delta.catalog import Catalog, Collection
from tidelake.delta.commit import OpenTable
from tidelake.delta.files import read_rows
from tidelake.delta.layout import DIFF, PROGRESS_SCHEMA, TIME, Store
from tidelake.delta.quarantine import quarantine_rows
from tidelake.delta.replay_topic import COLUMN, RECORD, TopicLine, problems_in, read_topic_line
from tidelake.delta.seal import SealReport
from tidelake.delta.types import updates_schema
from tidelake.delta.values import CLOSED, UPPER
from tidelake.errors import CodecError, MalformedMessage, RuleBroken
from tidelake.json_values import parse
from tidelake.message import ANY_WIDTH
from tidelake.order import INT64_MAX
from tidelake.replay import Event, parse_line

TINY = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
}
"""Settings of a session for a handful of rows: adapting plans costs more than it saves. Nothing else differs."""

Job = Callable[[SparkSession, Settings], Any]
"""`jobs.ingest.run` or `jobs.seal.run`; its report has `results` and `errors` by collection."""

Problem = tuple[str, object]
"""What is wrong, and at which time: an error as `replay` prints it."""

_Grounds = dict[tuple[int, str], set[Any]]
"""By time and kind what makes a contradiction: data, data with diffs, or counts."""


@dataclass(frozen=True)
class Pipeline:
    """The two jobs that a stream goes through, and the session that they run in."""

    spark: SparkSession
    ingest: Job
    seal: Job

    @staticmethod
    def of_tiny(spark: SparkSession, ingest: Job, seal: Job) -> Pipeline:
        """Take a session beside the given one, set for a handful of rows."""
        beside = spark.newSession()
        for name, value in TINY.items():
            beside.conf.set(name, value)
        return Pipeline(beside, ingest, seal)

    def run(self, settings: Settings) -> SealReport:
        """Ingest and seal the one collection of these settings; what stopped either of them is raised."""
        for job in (self.ingest, self.seal):
            report = job(self.spark, settings)
            for error in report.errors.values():
                raise error
        (sealed,) = report.results.values()
        assert isinstance(sealed, SealReport)
        return sealed


def make_streams(folder: Path, streams: int) -> list[Settings]:
    """Lay out an empty topic for each stream and a `collections.yaml` that names them, and give the settings of each.

    The collections are `stream_1`, `stream_2` and so on; every command that takes `--config` can look at them later.

    Raises:
        RuleBroken: the folder is there already and holds something.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise RuleBroken(f"{folder} is not an empty folder", "a replay starts afresh: name a folder that is not there")
    names = [f"stream_{number}" for number in range(1, streams + 1)]
    for name in names:
        (folder / "topics" / name).mkdir(parents=True)
    blocks = {name: {"family": "plain", "topic": name, "schema": RECORD} for name in names}
    document = {"store": "store", "topics": "topics", "data_docs": "data_docs", "collections": blocks}
    file = folder / "collections.yaml"
    file.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
    settings = load_settings(file)
    return [settings.only((name,)) for name in names]


def replay_through(
    pipeline: Pipeline, settings: Settings, lines: Sequence[bytes], file_name: str
) -> Iterator[dict[str, Any]]:
    """Run one recorded stream through ingest and seal, and give the same as `tidelake.replay.replay_file`.

    Args:
        pipeline: the jobs.
        settings: of the stream's own collection, whose topic is empty.
        lines: without their line ends.
        file_name: named in the output.

    Raises:
        RuleBroken: the stream has product times; nothing was written.
        TidelakeError: a job has stopped, and says why.
    """
    first_time = first_line_with_a_time(lines, file_name)
    stream = _Stream(pipeline, settings)
    batch: list[TopicLine] = []
    for number, line in enumerate(lines, start=1):
        read = read_topic_line(number, line, ANY_WIDTH if number <= first_time else None)
        if read.is_fact and any(one.is_fact for one in batch):
            yield from stream.take(batch, file_name)
            batch = []
        batch.append(read)
    if batch:
        yield from stream.take(batch, file_name)


def first_line_with_a_time(lines: Sequence[bytes], file_name: str) -> int:
    """The line whose message tells how wide times are, the last where none does.

    Raises:
        RuleBroken: they are products.
    """
    for number, line in enumerate(lines, start=1):
        try:
            message = parse_line(line)
        except (CodecError, MalformedMessage):
            continue
        if isinstance(message, Event) or message.width == ANY_WIDTH:
            continue
        if message.width is not None:
            raise RuleBroken(
                f"{file_name}, line {number}: a time is a product of {message.width} integers; a table has plain ones",
                "replay this file with --engine memory",
            )
        return number
    return len(lines)


class _Stream:
    """One stream's topic and collection, and what was told of them already."""

    def __init__(self, pipeline: Pipeline, settings: Settings) -> None:
        self._pipeline, self._settings = pipeline, settings
        (one,) = settings.collections
        self._name, self._topic = one.name, one.topics_folder / one.topics[0] / "0.jsonl"
        self._sent = 0
        self._upper, self._closed = 0, False
        self._grounds: _Grounds = {}
        self._written: dict[tuple[int, str], Any] = {}
        """By time and canonical text, data as they were first written: one text of several that mean the same."""

    def take(self, batch: Sequence[TopicLine], file_name: str) -> Iterator[dict[str, Any]]:
        """Send some lines, of which one at most states facts, run the jobs, and tell of each what it led to."""
        place = {self._sent + index: one for index, one in enumerate(one for one in batch if one.is_sent)}
        self._send(place)
        sealed = self._pipeline.run(self._settings)
        collection = Catalog(Store(self._settings.store)).find(self._name)
        refused = {
            place[row["offset"]].number: problems_in(row["value"] or b"", row["reason"], place[row["offset"]].width)
            for row in quarantine_rows(collection)
            if row["offset"] in place
        }
        told = next((one for one in batch if one.is_fact), batch[-1])
        if told.number not in refused:
            self._written = told.data | self._written
        before, published = self._frontier(), self._advance(collection)
        contradictions = self._new_contradictions(collection, sealed)
        for one in batch:
            errors = [*refused.get(one.number, []), *(contradictions if one is told else [])]
            yield {
                "file": file_name,
                "line": one.number,
                "frontier": before if one.number < told.number else self._frontier(),
                "updates": published if one is told else [],
                "errors": [{"kind": kind, "time": time} for kind, time in errors],
            }

    def _send(self, place: dict[int, TopicLine]) -> None:
        with self._topic.open("a", encoding="utf-8") as topic:
            for offset, one in place.items():
                text = None if one.value is None else base64.b64encode(one.value).decode("ascii")
                topic.write(json.dumps({"offset": offset, "value_b64": text}) + "\n")
        self._sent += len(place)

    def _frontier(self) -> list[int]:
        return [] if self._closed else [self._upper]

    def _advance(self, collection: Collection) -> list[Any]:
        """Take upper from the table, and give the updates that it has passed, in order of time and canonical text."""
        table = OpenTable(collection.paths.updates)
        lower, was_closed = self._upper, self._closed
        self._upper, self._closed = table.value(UPPER) or 0, bool(table.value(CLOSED))
        if was_closed or self._frontier() == [lower]:
            return []
        last = INT64_MAX if self._closed else self._upper - 1
        diffs: Counter[tuple[int, str]] = Counter()
        for text, time, diff in _rows(collection, table, lower, last):
            diffs[time, text] += diff  # a copy and the row that cancels it
        return [[self._as_written(time, text), time, diffs[time, text]] for time, text in sorted(diffs)]

    def _as_written(self, time: int, text: str) -> Any:
        return self._written.pop((time, text)) if (time, text) in self._written else parse(text)

    def _new_contradictions(self, collection: Collection, sealed: SealReport) -> list[Problem]:
        """The contradictions for which there is more to say than there was."""
        before, self._grounds = self._grounds, {}
        for error in sealed.contradictions:
            time = int(str(error.time))
            self._grounds[time, error.kind] = _grounds(collection, error.kind, time)
        return [
            (kind, time)
            for (time, kind), grounds in sorted(self._grounds.items())
            if not grounds <= before.get((time, kind), set())
        ]


def _grounds(collection: Collection, kind: str, time: int) -> set[Any]:
    """What the tables hold that makes a contradiction."""
    if kind == "conflicting_count":
        return _stated_counts(collection, time)
    stated: dict[str, set[int]] = {}
    for text, _, diff in _rows(collection, OpenTable(collection.paths.updates), time, time):
        stated.setdefault(text, set()).add(diff)
    if kind == "over_count":
        return set(stated)
    return {(text, diff) for text, diffs in stated.items() for diff in diffs if len(diffs) > 1}


def _stated_counts(collection: Collection, time: int) -> set[int]:
    """What the statements around an unsealed time say of it, 0 where they leave it out."""
    table = OpenTable(collection.paths.progress)
    counts = set()
    for row in read_rows(collection.paths.progress, table.files(), PROGRESS_SCHEMA).to_pylist():
        if row["lower"] and min(row["lower"]) <= time and not (row["upper"] and min(row["upper"]) <= time):
            counts.add(dict(zip(row["count_times"], row["count_values"], strict=True)).get(time, 0))
    return counts


def _rows(collection: Collection, table: OpenTable, first: int, last: int) -> Iterator[tuple[str, int, int]]:
    """The stored rows whose time is in `[first, last]`: canonical text, time, diff."""
    files = [
        one
        for one in table.files()
        if (one.time_max is None or one.time_max >= first) and (one.time_min is None or one.time_min <= last)
    ]
    names = [COLUMN, TIME, DIFF]
    stored = read_rows(collection.paths.updates, files, updates_schema(RECORD), names)
    columns = (stored[name].to_pylist() for name in names)
    yield from (row for row in zip(*columns, strict=True) if first <= row[1] <= last)
