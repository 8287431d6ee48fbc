"""The protocol of a topic: its offsets, and a bounded range of its messages as a DataFrame."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

import pyarrow as pa

from tidelake.errors import TopicGap
from tidelake.protocol.intervals import Interval
from tidelake.storage.location import Location

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_HEADERS = "array<struct<key: string, value: binary>>"


RAW_SCHEMA = f"partition int, offset bigint, timestamp_ms bigint, key binary, value binary, headers {_HEADERS}"


@dataclass(frozen=True)
class OffsetRange:
    """The offsets that one tick reads, `[start, end)` for each partition, and the files that hold them."""

    intervals: Mapping[int, Interval]
    parquet: tuple[Location, ...] = ()
    json_lines: tuple[Location, ...] = ()
    identity: int | None = None
    """Identifies the topic if its name can be reused. Never 0."""
    whole_files: bool = False
    """Whether the Parquet files hold nothing but this range, so that their messages need no filter."""

    @property
    def messages(self) -> int:
        """The number of offsets in the range, which is the maximum number of messages."""
        return sum(end - start for start, end in self.intervals.values())


class Record(NamedTuple):
    """One message of a topic."""

    timestamp_ms: int | None
    key: bytes | None
    value: bytes | None


class Topic(Protocol):
    """A source of messages with offsets."""

    @property
    def name(self) -> str:
        """The name that offsets are stored under."""

    @property
    def identity(self) -> int | None:
        """The identity of the topic that an operator accepted under this name, or None."""

    def check_exists(self) -> None:
        """Refuse a topic that does not exist.

        Raises:
            FolderMissing, TopicMissing: the topic does not exist.
            TopicUnreachable, StoreUnreadable: its brokers or its object store do not answer.

        Cost: one request to an object store, three to Kafka.
        """

    def end_offsets(self) -> dict[int, int]:
        """Return the offset that the next message will have, by partition."""

    def plan(
        self,
        next_offsets: Mapping[int, int],
        messages_max: int,
        accepted: Iterable[tuple[int, int, int]] = (),
    ) -> tuple[OffsetRange, list[TopicGap]]:
        """Return the next range, at most `messages_max` offsets, and the gaps that stop it; see `FileTopic.plan`."""

    def range_of(self, intervals: Mapping[int, Interval]) -> OffsetRange:
        """Return the range of these offsets, which `plan` has found to be readable."""

    def read(self, spark: SparkSession, offsets: OffsetRange) -> DataFrame:
        """Return the messages of a range, in the shape of `RAW_SCHEMA`; all but partition and offset may be null."""

    def batches(self, offsets: OffsetRange, columns: Sequence[str]) -> Iterator[pa.Table] | None:
        """Return batches of some columns of a range's messages, on the driver; None if only Spark can read them."""

    def record_at(self, partition: int, offset: int) -> Record | None:
        """Return the message at an offset, without a JVM; None if the topic has none there.

        Raises:
            SourceError: the topic is missing or malformed, or its brokers do not answer.
        """

    def current_identity(self) -> int | None:
        """Return the identity that the topic of this name has now; None if names are never reused."""

    def show_offsets(self, collection: str, offsets: Mapping[int, int]) -> None:
        """Publish how far a collection has read, if the topic supports it and the settings ask for it."""


def by_partition(intervals: Iterable[tuple[int, int, int]]) -> dict[int, list[Interval]]:
    """Group intervals `(partition, start, end)` by partition.

    >>> by_partition([(0, 3, 5), (1, 0, 1), (0, 7, 9)])
    {0: [(3, 5), (7, 9)], 1: [(0, 1)]}
    """
    by_partition: dict[int, list[Interval]] = {}
    for partition, start, end in intervals:
        by_partition.setdefault(partition, []).append((start, end))
    return by_partition


def bounded(intervals: dict[int, Interval], messages_max: int) -> dict[int, Interval]:
    """Return the same intervals, shortened evenly to at most `messages_max` offsets in total."""
    left, bounded = messages_max, {}
    by_length = sorted(intervals.items(), key=lambda item: item[1][1] - item[1][0])
    for index, (partition, (start, end)) in enumerate(by_length):
        share = min(end - start, -(-left // (len(by_length) - index)))
        if share > 0:
            bounded[partition] = (start, start + share)
            left -= share
    return dict(sorted(bounded.items()))
