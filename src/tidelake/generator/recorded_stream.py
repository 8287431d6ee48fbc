"""Replays recorded streams through the real jobs: lines go into a file topic, and answers come from the tables.

Each stream has a plain collection of its own. The jobs run for each line that states a fact, together with the
surrounding lines that state nothing. Only the tables survive from one run to the next, as if the process had restarted.
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

from tidelake.catalog.catalog import Catalog
from tidelake.errors import CodecError, GeneratorRefused, MalformedMessage
from tidelake.generator.recorded_lines import COLUMN, RECORD, TopicLine, problems_in, read_topic_line
from tidelake.protocol.json_values import parse
from tidelake.protocol.message import ANY_WIDTH
from tidelake.protocol.order import INT64_MAX
from tidelake.protocol.replay import Marker, parse_line
from tidelake.seal.report import SealReport
from tidelake.settings.lake import Settings, load_settings
from tidelake.storage import blobs
from tidelake.storage.location import locate
from tidelake.store.commit import OpenTable
from tidelake.store.entry import Collection
from tidelake.store.files import read_rows
from tidelake.store.layout import DIFF, PROGRESS_SCHEMA, TIME, Store
from tidelake.store.quarantine import quarantine_rows
from tidelake.store.state import CLOSED, UPPER
from tidelake.store.table_schema import updates_schema

TINY = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
}
"""Session settings for a handful of rows: adaptive plans cost more than they save."""

Job = Callable[[SparkSession, Settings], Any]
"""`jobs.ingest.run` or `jobs.seal.run`; its report holds `results` and `errors` by collection."""

Problem = tuple[str, object]
"""A kind and a time: an error as `replay` prints it."""

_Grounds = dict[tuple[int, str], set[Any]]
"""The evidence of contradictions, by time and kind; it consists of data, of data with diffs, or of counts."""


@dataclass(frozen=True)
class Pipeline:
    """The two jobs that process a stream, and their session."""

    spark: SparkSession
    ingest: Job
    seal: Job

    @staticmethod
    def for_tiny_data(spark: SparkSession, ingest: Job, seal: Job) -> Pipeline:
        """Create a pipeline in a new session of the same application, tuned for a handful of rows."""
        session = spark.newSession()
        for name, value in TINY.items():
            session.conf.set(name, value)
        return Pipeline(session, ingest, seal)

    def run(self, settings: Settings) -> SealReport:
        """Ingest and seal the one collection of these settings; raise the error of either job."""
        for job in (self.ingest, self.seal):
            report = job(self.spark, settings)
            for error in report.errors.values():
                raise error
        (sealed,) = report.results.values()
        assert isinstance(sealed, SealReport)
        return sealed


def make_streams(folder: Path, streams: int) -> list[Settings]:
    """Create an empty topic for each stream and one `collections.yaml`, and return the settings of each stream.

    The collections are `stream_1`, `stream_2` and so on; every command that accepts `--config` can read them later.

    Raises:
        GeneratorRefused: the folder exists and is not empty.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise GeneratorRefused(
            f"{folder} is not an empty folder", "a replay starts from nothing: give a folder that does not exist yet"
        )
    names = [f"stream_{number}" for number in range(1, streams + 1)]
    for name in names:
        blobs.make_folder(locate(folder / "topics" / name))
    blocks = {name: {"family": "plain", "topic": name, "schema": RECORD} for name in names}
    document = {"store": "store", "topics": "topics", "data_docs": "data_docs", "collections": blocks}
    file = folder / "collections.yaml"
    file.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
    settings = load_settings(file)
    return [settings.only((name,)) for name in names]


def replay_through(
    pipeline: Pipeline, settings: Settings, lines: Sequence[bytes], file_name: str
) -> Iterator[dict[str, Any]]:
    """Run a recorded stream through ingest and seal; the output is that of `tidelake.protocol.replay.replay_file`.

    Args:
        pipeline: the jobs.
        settings: the settings of the stream's own collection, whose topic is empty.
        lines: the lines without their line breaks.
        file_name: the name of the file in the output.

    Raises:
        GeneratorRefused: the times of the stream are lists of integers; nothing was written.
        TidelakeError: a job failed.
    """
    first_time = first_line_with_a_time(lines, file_name)
    stream = _Stream(pipeline, settings)
    batch: list[TopicLine] = []
    for number, line in enumerate(lines, start=1):
        parsed = read_topic_line(number, line, ANY_WIDTH if number <= first_time else None)
        if parsed.is_fact and any(other.is_fact for other in batch):
            yield from stream.take(batch, file_name)
            batch = []
        batch.append(parsed)
    if batch:
        yield from stream.take(batch, file_name)


def first_line_with_a_time(lines: Sequence[bytes], file_name: str) -> int:
    """Return the number of the first line with a time, which sets the width of all times; or else of the last line.

    Raises:
        GeneratorRefused: the time is a list of integers.
    """
    for number, line in enumerate(lines, start=1):
        try:
            message = parse_line(line)
        except (CodecError, MalformedMessage):
            continue
        if isinstance(message, Marker) or message.width == ANY_WIDTH:
            continue
        if message.width is not None:
            raise GeneratorRefused(
                f"{file_name}, line {number}: a time is a list of {message.width} integers, but the times of a "
                "table are plain integers",
                "replay this file with --engine memory",
            )
        return number
    return len(lines)


class _Stream:
    """One stream's topic and collection, and what its output has reported so far."""

    def __init__(self, pipeline: Pipeline, settings: Settings) -> None:
        self._pipeline, self._settings = pipeline, settings
        (collection,) = settings.collections
        self._name = collection.name
        self._topic = blobs.root_of(collection.topics_folder) / collection.topics[0] / "0.jsonl"
        self._sent, self._lines = 0, b""
        self._upper, self._closed = 0, False
        self._grounds: _Grounds = {}
        self._written: dict[tuple[int, str], Any] = {}
        """Data as the stream first wrote it, by time and canonical text: equal data can be written differently."""

    def take(self, batch: Sequence[TopicLine], file_name: str) -> Iterator[dict[str, Any]]:
        """Send some lines, of which at most one states a fact, run the jobs, and yield the outcome of each line."""
        by_offset = {self._sent + index: line for index, line in enumerate(line for line in batch if line.is_sent)}
        self._send(by_offset)
        sealed = self._pipeline.run(self._settings)
        collection = Catalog(Store(self._settings.store)).find(self._name)
        refused = {
            by_offset[row["offset"]].number: problems_in(
                row["value"] or b"", row["reason"], by_offset[row["offset"]].width
            )
            for row in quarantine_rows(collection)
            if row["offset"] in by_offset
        }
        fact = next((line for line in batch if line.is_fact), batch[-1])
        if fact.number not in refused:
            self._written = fact.data | self._written
        before, published = self._frontier(), self._advance(collection)
        contradictions = self._new_contradictions(collection, sealed)
        for line in batch:
            errors = [*refused.get(line.number, []), *(contradictions if line is fact else [])]
            yield {
                "file": file_name,
                "line": line.number,
                "frontier": before if line.number < fact.number else self._frontier(),
                "updates": published if line is fact else [],
                "errors": [{"kind": kind, "time": time} for kind, time in errors],
            }

    def _send(self, by_offset: dict[int, TopicLine]) -> None:
        for offset, line in by_offset.items():
            text = None if line.value is None else base64.b64encode(line.value).decode("ascii")
            self._lines += json.dumps({"offset": offset, "value_b64": text}).encode() + b"\n"
        blobs.write(self._topic, self._lines)
        self._sent += len(by_offset)

    def _frontier(self) -> list[int]:
        return [] if self._closed else [self._upper]

    def _advance(self, collection: Collection) -> list[Any]:
        """Read upper from the table, and return the updates that upper passed, ordered by time and canonical text."""
        table = OpenTable(collection.paths.updates)
        lower, was_closed = self._upper, self._closed
        self._upper, self._closed = table.value(UPPER) or 0, bool(table.value(CLOSED))
        if was_closed or self._frontier() == [lower]:
            return []
        last = INT64_MAX if self._closed else self._upper - 1
        diffs: Counter[tuple[int, str]] = Counter()
        for text, time, diff in _rows(collection, table, lower, last):
            diffs[time, text] += diff  # surplus copies and the row that cancels them add up to 0
        return [[self._as_written(time, text), time, diffs[time, text]] for time, text in sorted(diffs)]

    def _as_written(self, time: int, text: str) -> Any:
        return self._written.pop((time, text)) if (time, text) in self._written else parse(text)

    def _new_contradictions(self, collection: Collection, sealed: SealReport) -> list[Problem]:
        """Return the contradictions that have new evidence."""
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
    """Return the evidence that the tables hold for a contradiction."""
    if kind == "conflicting_count":
        return _stated_counts(collection, time)
    diffs_by_text: dict[str, set[int]] = {}
    for text, _, diff in _rows(collection, OpenTable(collection.paths.updates), time, time):
        diffs_by_text.setdefault(text, set()).add(diff)
    if kind == "over_count":
        return set(diffs_by_text)
    return {(text, diff) for text, diffs in diffs_by_text.items() for diff in diffs if len(diffs) > 1}


def _stated_counts(collection: Collection, time: int) -> set[int]:
    """Return the counts announced for an unsealed time; a statement that covers it without listing it announces 0."""
    table = OpenTable(collection.paths.progress)
    counts = set()
    for row in read_rows(collection.paths.progress, table.files(), PROGRESS_SCHEMA).to_pylist():
        if row["lower"] and min(row["lower"]) <= time and not (row["upper"] and min(row["upper"]) <= time):
            counts.add(dict(zip(row["count_times"], row["count_values"], strict=True)).get(time, 0))
    return counts


def _rows(collection: Collection, table: OpenTable, first: int, last: int) -> Iterator[tuple[str, int, int]]:
    """Yield the stored rows whose time is in `[first, last]`: canonical text, time, diff."""
    files = [
        file
        for file in table.files()
        if (file.time_max is None or file.time_max >= first) and (file.time_min is None or file.time_min <= last)
    ]
    names = [COLUMN, TIME, DIFF]
    stored = read_rows(collection.paths.updates, files, updates_schema(RECORD), names)
    columns = (stored[name].to_pylist() for name in names)
    yield from (row for row in zip(*columns, strict=True) if first <= row[1] <= last)
