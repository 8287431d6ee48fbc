"""File topics: their offsets, the gaps, and a bounded range of messages as a DataFrame.

A topic is a folder on a disk or in an object store. It holds Parquet files with the schema of Spark's Kafka source, or
hand-written files named `<partition>.jsonl[.gz]`. Files may appear at any time. Names that start with `.` or `_` are
ignored; everything else is read or refused.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidelake.errors import FolderMissing, MalformedTopic, RepeatedOffset, TopicGap
from tidelake.protocol.intervals import Interval, first_repeated, intervals_of, merge_intervals
from tidelake.settings.object_store import ObjectStorePlace
from tidelake.storage import blobs
from tidelake.storage.arrow import integers
from tidelake.storage.location import Blob, Location, Place
from tidelake.topic.lines import OFFSET_MAX, PARTITION_MAX, gone, is_lines_file, parse_lines, partition_of
from tidelake.topic.recorded_file import covered_offsets
from tidelake.topic.topic import _HEADERS, RAW_SCHEMA, OffsetRange, Record, bounded, by_partition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_BATCH_ROWS = 1_024

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


@dataclass
class _File:
    path: Location
    offsets: dict[int, list[Interval]] = field(default_factory=dict)
    """The offsets in the file, by partition. An offset that occurs twice is in two intervals; the last interval has the
    greatest end."""


_Index = dict[tuple[Location, object], _File]
"""The files of a topic, by location and stamp."""
_remote: dict[Location, _Index] = {}
"""By folder, the indexes of all topics in object stores that this process reads, in the order in which they were last
listed. They are cached because reading a file again takes requests."""
_remote_lock = threading.Lock()
_REMOTE_MAX = 50_000
"""Maximum number of files in `_remote`, unless a single topic has more."""
_READERS = 16
"""Maximum number of files of an object store that are indexed at a time."""


class FileTopic:
    """A topic in a folder. It caches the index of each file, because files never change."""

    def __init__(self, folder: Place | ObjectStorePlace) -> None:
        """Take the folder; nothing is read yet."""
        self.folder = blobs.root_of(folder)
        self.name = self.folder.name
        self.identity = None
        self._local: _Index = {}

    def check_exists(self) -> None:
        """Refuse a topic whose folder is missing or, in an object store, has nothing below it.

        Raises:
            FolderMissing: there is no such folder.
            StoreUnreadable: the object store does not answer.
        """
        is_missing = not blobs.is_folder(self.folder) if self.folder.is_local else blobs.is_empty(self.folder)
        if is_missing:
            raise FolderMissing(self.name, str(self.folder))

    def end_offsets(self) -> dict[int, int]:
        """Return the offset that the next message will have, by partition.

        Raises:
            MalformedTopic: a file is not a valid topic file.
        """
        ends: dict[int, int] = {}
        for file in self._files():
            for partition, intervals in file.offsets.items():
                ends[partition] = max(ends.get(partition, 0), intervals[-1][1])
        return ends

    def held_offsets(self) -> dict[int, Interval]:
        """Return the first offset and the end of each partition; raises the same errors as `end_offsets`."""
        held: dict[int, Interval] = {}
        for file in self._files():
            for partition, intervals in file.offsets.items():
                first, end = held.get(partition, (OFFSET_MAX + 1, 0))
                held[partition] = min(first, *(low for low, _ in intervals)), max(end, intervals[-1][1])
        return held

    def plan(
        self,
        next_offsets: Mapping[int, int],
        messages_max: int,
        accepted: Iterable[tuple[int, int, int]] = (),
    ) -> tuple[OffsetRange, list[TopicGap]]:
        """Return the next range to read, at most `messages_max` offsets, and the gaps that stop it.

        Args:
            next_offsets: by partition, the first offset that has not been read; 0 for a missing partition.
            messages_max: maximum size of the whole range, at least 1.
            accepted: (partition, start, end) of accepted gaps. Offsets in them that no file holds are skipped, so an
                interval may start after the partition's next offset; messages that a file holds are read.

        Raises:
            MalformedTopic: a file is not a valid topic file.
            RepeatedOffset: two messages share an offset that has not been read.
        """
        files = self._files()
        held: dict[int, list[Interval]] = {partition: [] for partition in next_offsets}
        for file in files:
            for partition, intervals_held in file.offsets.items():
                held.setdefault(partition, []).extend(intervals_held)
        accepted_by_partition = by_partition(accepted)
        intervals: dict[int, Interval] = {}
        gaps = []
        for partition in sorted(held):
            here, gap = _next_interval(
                self.name,
                partition,
                next_offsets.get(partition, 0),
                held[partition],
                accepted_by_partition.get(partition, []),
            )
            if here is not None:
                intervals[partition] = here
            if gap is not None:
                gaps.append(gap)
        for partition, wanted in intervals.items():
            _refuse_repeated(self.name, partition, wanted, files)
        return _range_of(bounded(intervals, messages_max), files), gaps

    def range_of(self, intervals: Mapping[int, Interval]) -> OffsetRange:
        """See `Topic.range_of`."""
        return _range_of(intervals, self._files())

    def read(self, spark: SparkSession, offsets: OffsetRange) -> DataFrame:
        """Return the messages of a range.

        Out: partition int, offset bigint, timestamp_ms bigint, key binary, value binary,
             headers array<struct<key string, value binary>>. All but the first two may be null.
        Cost: opens only the files that `offsets` names; lines are read by the driver, which holds the range in memory.
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
        """Yield some columns of the messages of a range, in batches, on the driver.

        In, out: columns of `RAW_SCHEMA` except `timestamp_ms`, always including partition and offset.
        """
        for path in offsets.parquet:
            file = pq.ParquetFile(open_listed(path))
            stored = [name for name in columns if name in file.schema_arrow.names]
            for batch in file.iter_batches(_BATCH_ROWS, columns=stored):
                rows = pa.Table.from_batches([batch])
                for missing in set(columns) - set(stored):
                    kind = _RAW_ARROW.field(missing).type
                    rows = rows.append_column(missing, pa.nulls(rows.num_rows, kind))
                yield rows if offsets.whole_files else rows.filter(_within(rows, offsets))
        if offsets.json_lines:
            yield pa.Table.from_pylist(list(_json_rows(offsets)), schema=_RAW_ARROW).select(list(columns))

    def record_at(self, partition: int, offset: int) -> Record | None:
        """See `Topic.record_at`.

        Raises:
            MalformedTopic: a file is not a valid topic file.
            RepeatedOffset: two messages have this offset.

        Cost: reads the row groups of Parquet files whose statistics allow the offset, and whole hand-written files.
        """
        files, wanted = self._files(), (offset, offset + 1)
        _refuse_repeated(self.name, partition, wanted, files)
        offsets = _range_of({partition: wanted}, files)
        for row in _json_rows(offsets):
            return Record(row["timestamp_ms"], row["key"], row["value"])
        for path in offsets.parquet:
            record = _parquet_record(path, partition, offset)
            if record is not None:
                return record
        return None

    def current_identity(self) -> None:
        """See `Topic.current_identity`. A folder has no identity."""

    def show_offsets(self, collection: str, offsets: Mapping[int, int]) -> None:
        """Do nothing: a folder cannot publish offsets."""

    def _read_parquet(self, spark: SparkSession, offsets: OffsetRange) -> DataFrame:
        from pyspark.sql import functions as F  # imported late: `status` reads topics without Spark

        from tidelake.spark.input_files import missing_file
        from tidelake.spark.session import EXACT_PATHS

        blobs.prepare_spark(spark, self.folder)
        paths = [str(path) for path in offsets.parquet]
        frame = (
            spark.read.options(**EXACT_PATHS)
            .schema(f"key binary, value binary, partition int, offset bigint, timestamp timestamp, headers {_HEADERS}")
            .parquet(*paths)
        )
        missing = missing_file(frame, paths)
        if missing is not None:
            raise gone(offsets.parquet[paths.index(missing)])
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
        if not blobs.is_folder(self.folder):
            raise FolderMissing(self.name, str(self.folder))
        try:
            listing = blobs.list_folder(self.folder, hidden=False)
        except OSError as error:
            raise MalformedTopic(
                error.filename,
                f"cannot be opened: {error.strerror}",
                "restore what the link points to, or remove the link",
            ) from error
        for folder in listing.folders:
            if folder.suffix == ".parquet" or is_lines_file(folder):
                raise MalformedTopic(
                    str(folder),
                    "is a folder with the name of a file",
                    "move its files into the topic's folder, whose subfolders are not read",
                )
        for other in listing.others:
            raise MalformedTopic(
                str(other), "is a pipe, a socket or a device, not a file", "write its output to a file"
            )
        if not (self.folder.is_local or listing.blobs or listing.folders) and blobs.is_empty(self.folder):
            raise FolderMissing(self.name, str(self.folder))
        known = self._local if self.folder.is_local else _remote.get(self.folder, {})
        indexed = {mark: known.get(mark) for mark in ((blob.location, blob.stamp) for blob in listing.blobs)}
        new = [blob for blob in listing.blobs if indexed[blob.location, blob.stamp] is None]
        if self.folder.is_local:
            found = list(map(_index, new))
        else:
            with ThreadPoolExecutor(_READERS) as pool:
                found = list(pool.map(_index, new))
        for blob, file in zip(new, found, strict=True):
            indexed[blob.location, blob.stamp] = file
        index = {mark: file for mark, file in indexed.items() if file is not None}
        files = list(index.values())
        if self.folder.is_local:
            self._local = index
        else:
            _cache(self.folder, index)
        return files


def _cache(folder: Location, index: _Index) -> None:
    """Cache the whole index of a topic. To make room, drop entries of the topics that were listed longest ago."""
    with _remote_lock:
        _remote.pop(folder, None)
        excess = sum(map(len, _remote.values())) + len(index) - _REMOTE_MAX
        for other in list(_remote):
            while excess > 0 and _remote[other]:
                _remote[other].popitem()
                excess -= 1
            if not _remote[other]:
                del _remote[other]
        _remote[folder] = index


def _next_interval(
    topic: str, partition: int, start: int, held: list[Interval], accepted_here: list[Interval]
) -> tuple[Interval | None, TopicGap | None]:
    """Return the first contiguous range of offsets, at or after `start`, that files hold.

    The gap before or after that range is returned as well, or None. Accepted offsets are skipped only if no file holds
    them, because their messages may still appear.
    """
    held, known = merge_intervals(held), merge_intervals([*held, *accepted_here])
    end_of_topic = known[-1][1] if known else 0
    if end_of_topic < start:
        return None, TopicGap(topic, partition, end_of_topic, start, "the topic ends before the next offset to read")
    after = next((high for low, high in known if low <= start < high), start)
    here = next(((max(low, start), high) for low, high in held if start < high and low < after), None)
    gap = None
    if any(low > after for low, _ in held):
        gap_end = next(low for low, _ in known if low > after)
        gap = TopicGap(topic, partition, after, gap_end, "no file holds these offsets")
    return here, gap


def _refuse_repeated(topic: str, partition: int, wanted: Interval, files: Iterable[_File]) -> None:
    """Refuse offsets that two messages share: neither message can be preferred."""
    held = [(start, end, str(file.path)) for file in files for start, end in file.offsets.get(partition, ())]
    repeated = first_repeated(held, wanted)
    if repeated is not None:
        offset, path, other = repeated
        where = f"in {path} twice" if path == other else f"in {path} and in {other}"
        raise RepeatedOffset(topic, partition, offset, where)


def _range_of(chosen: Mapping[int, Interval], files: Iterable[_File]) -> OffsetRange:
    """Return a range with the files that hold any of it."""
    needed = [
        file for file in files if any(_overlaps(file, partition, interval) for partition, interval in chosen.items())
    ]
    return OffsetRange(
        chosen,
        tuple(file.path for file in needed if file.path.suffix == ".parquet"),
        tuple(file.path for file in needed if file.path.suffix != ".parquet"),
        whole_files=all(_is_within(file, chosen) for file in needed if file.path.suffix == ".parquet"),
    )


def _overlaps(file: _File, partition: int, wanted: Interval) -> bool:
    return any(start < wanted[1] and wanted[0] < end for start, end in file.offsets.get(partition, []))


def _is_within(file: _File, intervals: Mapping[int, Interval]) -> bool:
    """Return whether all offsets of a file are in these intervals."""
    return all(
        partition in intervals and intervals[partition][0] <= start and end <= intervals[partition][1]
        for partition, held in file.offsets.items()
        for start, end in held
    )


def _within(rows: pa.Table, offsets: OffsetRange) -> pa.ChunkedArray:
    """Return a mask of the messages in a range."""
    inside = pa.chunked_array([pa.repeat(pa.scalar(False), rows.num_rows)])
    for partition, (start, end) in offsets.intervals.items():
        at = pc.and_(pc.greater_equal(rows["offset"], start), pc.less(rows["offset"], end))
        inside = pc.or_(inside, pc.and_(pc.equal(rows["partition"], partition), at))
    return inside


def _index(blob: Blob) -> _File:
    path = blob.location
    if path.suffix == ".parquet":
        return _File(path, _parquet_offsets(path, blob.size))
    if is_lines_file(path):
        partition = partition_of(path)
        offsets = [row["offset"] for row in parse_lines(path)]
        return _File(path, {partition: intervals_of(np.array(offsets, dtype=np.int64))} if offsets else {})
    raise MalformedTopic(
        str(path),
        "is not a topic file",
        "a topic holds *.parquet and <partition>.jsonl[.gz]; start the names of other files with '_'",
    )


def _parquet_offsets(path: Location, size: int) -> dict[int, list[Interval]]:
    try:
        file = pq.ParquetFile(open_listed(path, size))
        _check_shape(path, file.schema_arrow)
        covered = covered_offsets(path, file)
        if covered is not None:
            return covered
        table = file.read(columns=["partition", "offset"])
    except FileNotFoundError as error:  # an object store reports this only when the file is read
        raise gone(path) from error
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:  # Arrow's errors about contents have no number
            fix = "let this user read the file, or repair its disk or mount"
            raise MalformedTopic(str(path), f"cannot be read: {error}", fix) from error
        raise MalformedTopic(
            str(path),
            f"is not a complete Parquet file: {error}",
            "write to a name that starts with '_', then rename the file",
        ) from error
    if table["partition"].null_count or table["offset"].null_count:
        raise MalformedTopic(str(path), "has a null partition or offset", "every message needs both")
    partitions, offsets = integers(table["partition"]), integers(table["offset"])
    for name, values, most in (("partition", partitions, PARTITION_MAX), ("offset", offsets, OFFSET_MAX)):
        invalid = values[(values < 0) | (values > most)]
        if len(invalid):
            raise MalformedTopic(str(path), f"has the {name} {invalid[0]}", f"a {name} is an integer from 0 to {most}")
    distinct = sorted(table["partition"].unique().to_pylist())
    return {
        partition: intervals_of(offsets if len(distinct) == 1 else offsets[partitions == partition])
        for partition in distinct
    }


def open_listed(path: Location, size: int | None = None) -> pa.NativeFile:
    """Open a topic's Parquet file, which a listing has shown; `size` as for `blobs.open_file`.

    Raises:
        MalformedTopic: the file no longer exists.
    """
    try:
        return blobs.open_file(path, size)
    except FileNotFoundError as error:
        raise gone(path) from error


def _check_shape(path: Location, schema: pa.Schema) -> None:
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
        problem = None
        if name not in schema.names:
            problem = f"column '{name}' is missing"
        elif not fits(schema.field(name).type):
            problem = f"column '{name}' is {schema.field(name).type}, not {kind}"
        if problem is not None:
            raise MalformedTopic(
                str(path),
                f"does not have the schema of Spark's Kafka source: {problem}",
                "that schema has the columns key binary, value binary, topic string, partition int, offset bigint, "
                "timestamp timestamp, headers",
            )


def _are_headers(kind: pa.DataType) -> bool:
    if not pa.types.is_list(kind) or not pa.types.is_struct(kind.value_type):
        return False
    return {field.name: field.type for field in kind.value_type} == {"key": pa.string(), "value": pa.binary()}


def _json_rows(offsets: OffsetRange) -> Iterator[dict[str, Any]]:
    for path in offsets.json_lines:
        partition = partition_of(path)
        start, end = offsets.intervals.get(partition, (0, 0))
        for row in parse_lines(path):
            if start <= row["offset"] < end:
                yield {"partition": partition, **row}


def _parquet_record(path: Location, partition: int, offset: int) -> Record | None:
    """Return the message at an offset of a Parquet file; None if the offset has no record."""
    names = pq.read_schema(open_listed(path)).names
    columns = [name for name in ("timestamp", "key", "value") if name in names]
    place = (pc.field("partition") == partition) & (pc.field("offset") == offset)
    # Partitioning would read columns from the path.
    found = pq.read_table(open_listed(path), columns=columns, filters=place, partitioning=None)
    if not found.num_rows:
        return None
    key = found["key"][0].as_py() if "key" in columns else None
    stamp = None
    if "timestamp" in columns and (units := found["timestamp"].cast(pa.int64())[0].as_py()) is not None:
        stamp = units // (1000 if found["timestamp"].type.unit == "us" else 1)
    return Record(stamp, key, found["value"][0].as_py())
