"""Topics, and those in folders: which offsets are there, where they break off, and a bounded range of them as a frame.

A topic is a folder of Parquet files in the shape of Spark's Kafka source, or of hand-written `<partition>.jsonl[.gz]`.
Files may appear at any time; names that start with `.` or `_` are not yet there. Nothing is ever skipped in silence.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidelake.delta.topic_intervals import Interval, first_doubled, intervals_of
from tidelake.delta.topic_lines import OFFSET_MAX, PARTITION_MAX, is_lines_file, parse_lines, partition_of
from tidelake.errors import RuleBroken, TopicGap

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tidelake.configuration import CollectionSettings
    from tidelake.delta.catalog import Decision

COVERED_OFFSETS = "tidelake.offsets"
"""What a recorded Parquet file says of itself: by partition, the first offset that it stands for, and the end."""
TOPIC_IDENTITY = "tidelake.topic_identity"
"""Which topic of its name it was recorded from."""
_BATCH_ROWS = 1_024

_HEADERS = "array<struct<key: string, value: binary>>"
RAW_SCHEMA = f"partition int, offset bigint, timestamp_ms bigint, key binary, value binary, headers {_HEADERS}"
_RAW_ARROW = pa.schema(
    [
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp_ms", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)


@dataclass(frozen=True)
class OffsetRange:
    """What one tick reads: for each partition the offsets from `start` on and before `end`, and the files with them."""

    intervals: Mapping[int, Interval]
    parquet: tuple[Path, ...] = ()
    json_lines: tuple[Path, ...] = ()
    identity: int | None = None
    """Which topic of this name it is of, where names may be used again: never 0."""
    whole_files: bool = False
    """Whether the Parquet files hold nothing else, so that nobody has to look which of their messages are meant."""

    @property
    def messages(self) -> int:
        """How many offsets it spans."""
        return sum(end - start for start, end in self.intervals.values())


@dataclass
class _File:
    path: Path
    offsets: dict[int, list[Interval]] = field(default_factory=dict)
    """By partition; one that the file has twice is in two intervals, and the last has the greatest end."""


class Topic(Protocol):
    """Where messages come from: which offsets there are, and a bounded range of them."""

    @property
    def name(self) -> str:
        """What offsets are kept under."""

    @property
    def identity(self) -> int | None:
        """Which topic of this name it has to be, where somebody has decided so."""

    def end_offsets(self) -> dict[int, int]:
        """For each partition the offset that the next message will have."""

    def plan(
        self,
        next_offsets: Mapping[int, int],
        messages_max: int,
        accepted: Iterable[tuple[int, int, int]] = (),
    ) -> tuple[OffsetRange, list[TopicGap]]:
        """The next range to read, at most `messages_max` offsets, and the gaps that stop it; see `FileTopic.plan`."""

    def read(self, spark: SparkSession, offsets: OffsetRange) -> DataFrame:
        """The messages of a range, in the shape of `RAW_SCHEMA`; all but partition and offset may be null."""

    def batches(self, offsets: OffsetRange, columns: Sequence[str]) -> Iterator[pa.Table] | None:
        """Some columns of the messages of a range, some rows at a time, on the driver; None where only Spark reads."""

    def show_offsets(self, collection: str, offsets: Mapping[int, int]) -> None:
        """Let people see how far a collection has read, where the topic's kind has a place for it and settings ask."""


def open_topics(settings: CollectionSettings, decisions: Sequence[Decision] = ()) -> list[Topic]:
    """The topics that a collection reads, in the order of its settings; nothing is opened, and nobody asked, yet.

    Args:
        settings: the collection's.
        decisions: what was decided about it: which topics to go on with.
    """
    if settings.kafka is not None:
        from tidelake.delta.kafka_client import KafkaCluster  # late: its library is of no use to file topics
        from tidelake.delta.kafka_topic import KafkaTopic

        cluster = KafkaCluster(settings.kafka)
        return [KafkaTopic(cluster, name, decisions) for name in settings.topics]
    return [FileTopic(settings.topics_folder / name) for name in settings.topics]


class FileTopic:
    """One topic in a folder; remembers what it has read of each file, as files never change."""

    def __init__(self, folder: Path) -> None:
        """Name the folder; nothing is read yet."""
        self.folder = folder
        self.name = folder.name
        self.identity = None
        self._known: dict[tuple[Path, int, int], _File] = {}

    def end_offsets(self) -> dict[int, int]:
        """For each partition the offset that the next message will have.

        Raises:
            RuleBroken: a file is not of the shape of a topic.
        """
        ends: dict[int, int] = {}
        for file in self._files():
            for partition, intervals in file.offsets.items():
                ends[partition] = max(ends.get(partition, 0), intervals[-1][1])
        return ends

    def plan(
        self,
        next_offsets: Mapping[int, int],
        messages_max: int,
        accepted: Iterable[tuple[int, int, int]] = (),
    ) -> tuple[OffsetRange, list[TopicGap]]:
        """The next range to read, at most `messages_max` offsets, and the gaps that stop it.

        Args:
            next_offsets: by partition, the first offset that was not read yet; 0 where there is none.
            messages_max: the bound of the whole range, at least 1.
            accepted: (partition, start, end) of gaps that an operator gave up. They are stepped over where no file
                holds them, so that an interval may start after its next offset; messages that are there are read.

        Raises:
            RuleBroken: a file is not of the shape of a topic, or an offset that was not read yet is there twice.
        """
        files = self._files()
        held: dict[int, list[Interval]] = {partition: [] for partition in next_offsets}
        for file in files:
            for partition, held_here in file.offsets.items():
                held.setdefault(partition, []).extend(held_here)
        given_up = by_partition(accepted)
        intervals: dict[int, Interval] = {}
        gaps = []
        for partition in sorted(held):
            here, gap = _next_interval(
                self.name, partition, next_offsets.get(partition, 0), held[partition], given_up.get(partition, [])
            )
            if here is not None:
                intervals[partition] = here
            if gap is not None:
                gaps.append(gap)
        for partition, wanted in intervals.items():
            _refuse_doubled(self.name, partition, wanted, files)
        taken = bounded(intervals, messages_max)
        needed = [file for file in files if any(_overlaps(file, partition, one) for partition, one in taken.items())]
        return (
            OffsetRange(
                taken,
                tuple(file.path for file in needed if file.path.suffix == ".parquet"),
                tuple(file.path for file in needed if file.path.suffix != ".parquet"),
                whole_files=all(_is_within(file, taken) for file in needed if file.path.suffix == ".parquet"),
            ),
            gaps,
        )

    def read(self, spark: SparkSession, offsets: OffsetRange) -> DataFrame:
        """The messages of a range.

        Out: partition int, offset bigint, timestamp_ms bigint, key binary, value binary,
             headers array<struct<key string, value binary>>. All but the first two may be null.
        Cost: opens only the files that `offsets` names; `json_lines` are read by the driver, within the range's bound.
        """
        parts = [self._read_parquet(spark, offsets)] if offsets.parquet else []
        if offsets.json_lines:
            rows = list(_json_rows(offsets))
            table = pa.Table.from_pylist(rows, schema=_RAW_ARROW)
            parts.append(spark.createDataFrame(table, schema=RAW_SCHEMA))
        if not parts:
            return spark.createDataFrame([], schema=RAW_SCHEMA)
        return parts[0] if len(parts) == 1 else parts[0].unionAll(parts[1])

    def batches(self, offsets: OffsetRange, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Some columns of the messages of a range, some rows at a time, on the driver.

        In, out: columns of `RAW_SCHEMA` but `timestamp_ms`; partition and offset are always there.
        """
        for path in offsets.parquet:
            file = pq.ParquetFile(path)
            stored = [name for name in columns if name in file.schema_arrow.names]
            for batch in file.iter_batches(_BATCH_ROWS, columns=stored):
                rows = pa.Table.from_batches([batch])
                for missing in set(columns) - set(stored):
                    kind = _RAW_ARROW.field(missing).type
                    rows = rows.append_column(missing, pa.nulls(rows.num_rows, kind))
                yield rows if offsets.whole_files else rows.filter(_within(rows, offsets))
        if offsets.json_lines:
            yield pa.Table.from_pylist(list(_json_rows(offsets)), schema=_RAW_ARROW).select(list(columns))

    def show_offsets(self, collection: str, offsets: Mapping[int, int]) -> None:
        """Nothing: a folder has no place for it."""

    def _read_parquet(self, spark: SparkSession, offsets: OffsetRange) -> DataFrame:
        from pyspark.sql import functions as F  # late: `status` reads topics without Spark

        frame = spark.read.schema(
            f"key binary, value binary, partition int, offset bigint, timestamp timestamp, headers {_HEADERS}"
        ).parquet(*(str(path) for path in offsets.parquet))
        if not offsets.whole_files:
            wanted = F.lit(False)
            for partition, (start, end) in offsets.intervals.items():
                inside = (F.col("offset") >= start) & (F.col("offset") < end)
                wanted = wanted | ((F.col("partition") == partition) & inside)
            frame = frame.where(wanted)
        return frame.select(
            "partition", "offset", F.unix_millis("timestamp").alias("timestamp_ms"), "key", "value", "headers"
        )

    def _files(self) -> list[_File]:
        if not self.folder.is_dir():
            raise RuleBroken(
                f"the topic '{self.name}' has no folder {self.folder}", "create it, or mend the topic's name"
            )
        files = []
        for path in sorted(self.folder.iterdir()):
            if path.name.startswith((".", "_")):
                continue
            try:
                status = path.stat()
            except OSError as error:
                raise RuleBroken(
                    f"{path} cannot be opened: {error.strerror}", "restore what the link points to, or remove it"
                ) from error
            if path.is_dir():
                if path.suffix == ".parquet" or is_lines_file(path):
                    raise RuleBroken(
                        f"{path} is a folder with the name of a file",
                        "move its files into the topic's folder: folders in it are not read",
                    )
                continue
            mark = (path, status.st_size, status.st_mtime_ns)
            if mark not in self._known:
                self._known[mark] = _index(path)
            files.append(self._known[mark])
        return files


def by_partition(intervals: Iterable[tuple[int, int, int]]) -> dict[int, list[Interval]]:
    """Intervals `(partition, start, end)`, by partition.

    >>> by_partition([(0, 3, 5), (1, 0, 1), (0, 7, 9)])
    {0: [(3, 5), (7, 9)], 1: [(0, 1)]}
    """
    found: dict[int, list[Interval]] = {}
    for partition, start, end in intervals:
        found.setdefault(partition, []).append((start, end))
    return found


def merge_intervals(intervals: Iterable[Interval]) -> list[Interval]:
    """The same offsets as disjoint intervals that do not touch, in order.

    >>> merge_intervals([(5, 9), (0, 2), (2, 4), (8, 10)])
    [(0, 4), (5, 10)]
    """
    merged: list[Interval] = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged


def _next_interval(
    topic: str, partition: int, start: int, held: list[Interval], given_up: list[Interval]
) -> tuple[Interval | None, TopicGap | None]:
    """The first offsets from `start` on that files hold without a break, and the gap that comes next or at once.

    What was given up is stepped over only where no file holds it: such messages may come back.
    """
    held, known = merge_intervals(held), merge_intervals([*held, *given_up])
    end_of_topic = known[-1][1] if known else 0
    if end_of_topic < start:
        return None, TopicGap(topic, partition, end_of_topic, start, "the topic ends before what was read already")
    after = next((high for low, high in known if low <= start < high), start)
    here = next(((max(low, start), high) for low, high in held if start < high and low < after), None)
    gap = None
    if any(low > after for low, _ in held):
        beyond = next(low for low, _ in known if low > after)
        gap = TopicGap(topic, partition, after, beyond, "no file holds these offsets")
    return here, gap


def _refuse_doubled(topic: str, partition: int, wanted: Interval, files: Iterable[_File]) -> None:
    """Refuse offsets that two messages have, of which nobody can say which is meant."""
    held = [(start, end, file.path) for file in files for start, end in file.offsets.get(partition, ())]
    doubled = first_doubled(held, wanted)
    if doubled is not None:
        offset, path, other = doubled
        where = f"in {path} twice" if path == other else f"in {path} and in {other}"
        raise RuleBroken(
            f"the offset {offset} of partition {partition} of the topic '{topic}' is {where}",
            "an offset is one message: take the copy away, or give the other message an offset of its own",
        )


def bounded(intervals: dict[int, Interval], messages_max: int) -> dict[int, Interval]:
    """The same intervals cut so that together they span at most `messages_max` offsets, shared out evenly."""
    left, bounded = messages_max, {}
    by_length = sorted(intervals.items(), key=lambda one: one[1][1] - one[1][0])
    for index, (partition, (start, end)) in enumerate(by_length):
        share = min(end - start, -(-left // (len(by_length) - index)))
        if share > 0:
            bounded[partition] = (start, start + share)
            left -= share
    return dict(sorted(bounded.items()))


def _overlaps(file: _File, partition: int, wanted: Interval) -> bool:
    return any(start < wanted[1] and wanted[0] < end for start, end in file.offsets.get(partition, []))


def _is_within(file: _File, taken: Mapping[int, Interval]) -> bool:
    """Whether all that a file holds lies in these intervals."""
    return all(
        partition in taken and taken[partition][0] <= start and end <= taken[partition][1]
        for partition, held in file.offsets.items()
        for start, end in held
    )


def _within(rows: pa.Table, offsets: OffsetRange) -> pa.ChunkedArray:
    """Which messages are in a range."""
    inside = pa.chunked_array([pa.repeat(pa.scalar(False), rows.num_rows)])
    for partition, (start, end) in offsets.intervals.items():
        at = pc.and_(pc.greater_equal(rows["offset"], start), pc.less(rows["offset"], end))
        inside = pc.or_(inside, pc.and_(pc.equal(rows["partition"], partition), at))
    return inside


def _index(path: Path) -> _File:
    if path.suffix == ".parquet":
        return _File(path, _parquet_offsets(path))
    if is_lines_file(path):
        partition = partition_of(path)
        offsets = [row["offset"] for row in parse_lines(path)]
        return _File(path, {partition: intervals_of(np.array(offsets, dtype=np.int64))} if offsets else {})
    raise RuleBroken(
        f"{path} is not a file of a topic",
        "a topic holds *.parquet and <partition>.jsonl[.gz]; start other names with '_'",
    )


def _parquet_offsets(path: Path) -> dict[int, list[Interval]]:
    try:
        file = pq.ParquetFile(path)
        _check_shape(path, file.schema_arrow)
        covered = _covered_offsets(path, file.schema_arrow)
        if covered is not None:
            return covered
        table = file.read(columns=["partition", "offset"])
    except (pa.ArrowException, OSError) as error:
        raise RuleBroken(
            f"{path} is not a whole Parquet file: {error}", "write to a name that starts with '_', then rename"
        ) from error
    if table["partition"].null_count or table["offset"].null_count:
        raise RuleBroken(f"{path} has a null partition or offset", "every message has both")
    partitions, offsets = table["partition"].to_numpy(), table["offset"].to_numpy()
    for name, values, most in (("partition", partitions, PARTITION_MAX), ("offset", offsets, OFFSET_MAX)):
        beyond = values[(values < 0) | (values > most)]
        if len(beyond):
            raise RuleBroken(f"{path} has the {name} {beyond[0]}", f"a {name} is 0 to {most}")
    found = sorted(table["partition"].unique().to_pylist())
    return {one: intervals_of(offsets if len(found) == 1 else offsets[partitions == one]) for one in found}


def _covered_offsets(path: Path, schema: pa.Schema) -> dict[int, list[Interval]] | None:
    """What a recording says that it stands for, offsets without a record included; None where a file says nothing."""
    said = (schema.metadata or {}).get(COVERED_OFFSETS.encode())
    if said is None:
        return None
    try:
        return {int(one): [(int(start), int(end))] for one, (start, end) in json.loads(said).items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise RuleBroken(f"{path} does not say what it stands for: {error}", "record the topic again") from error


def _check_shape(path: Path, schema: pa.Schema) -> None:
    wanted = {
        "value": (pa.types.is_binary, "binary"),
        "partition": (pa.types.is_int32, "int32"),
        "offset": (pa.types.is_int64, "int64"),
    }
    if "key" in schema.names:
        wanted["key"] = (pa.types.is_binary, "binary")
    if "timestamp" in schema.names:
        wanted["timestamp"] = (lambda kind: pa.types.is_timestamp(kind) and kind.unit != "ns", "timestamp in us or ms")
    if "headers" in schema.names:
        wanted["headers"] = (_are_headers, "a list of key string, value binary")
    for name, (fits, kind) in wanted.items():
        if name not in schema.names or not fits(schema.field(name).type):
            found = schema.field(name).type if name in schema.names else "missing"
            raise RuleBroken(
                f"{path} is not in the shape of Spark's Kafka source: column '{name}' is {found}, not {kind}",
                "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, headers",
            )


def _are_headers(kind: pa.DataType) -> bool:
    if not pa.types.is_list(kind) or not pa.types.is_struct(kind.value_type):
        return False
    return {one.name: one.type for one in kind.value_type} == {"key": pa.string(), "value": pa.binary()}


def _json_rows(offsets: OffsetRange) -> Iterator[dict[str, Any]]:
    for path in offsets.json_lines:
        partition = partition_of(path)
        start, end = offsets.intervals.get(partition, (0, 0))
        for row in parse_lines(path):
            if start <= row["offset"] < end:
                yield {"partition": partition, **row}
