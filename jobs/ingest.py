"""Ingest: read each collection's topics in bounded ticks; each tick commits its run and its offsets together."""

from __future__ import annotations

import sys
import time as clock
from collections.abc import Sequence
from dataclasses import dataclass, field

from pyspark.sql import SparkSession

from jobs.job import Report, log, run_main, run_step
from tidelake.errors import TopicGap, TopicUnreachable
from tidelake.ingest.tick import ingest_tick
from tidelake.integrity.verification import check_intact
from tidelake.plugins.tick import Counts, TickReport
from tidelake.settings.collection import CollectionSettings
from tidelake.settings.lake import Settings
from tidelake.store.commit import OpenTable
from tidelake.store.entry import Collection
from tidelake.store.state import UPPER, next_offsets
from tidelake.telemetry.steps import observed
from tidelake.topic.open import open_topics
from tidelake.topic.topic import Topic

Offsets = dict[str, dict[int, int]]
"""The next offset by topic and partition."""


@dataclass
class IngestReport(Counts):
    """The sum of all ticks of one run."""

    ticks: int = 0
    idle_ticks: int = 0
    """For reclocked topics: the number of ticks that found nothing new, and moved upper."""
    copies_dropped: int = 0
    gaps: list[TopicGap] = field(default_factory=list)
    partitions_added: list[str] = field(default_factory=list)
    """`TOPIC:PARTITION` of each new partition, read from its start, of a topic that had been read before."""

    def add_tick(self, tick: TickReport) -> None:
        """Add one tick."""
        self.ticks += 1
        self.copies_dropped += tick.copies_dropped
        self.add(tick)


def run(spark: SparkSession, settings: Settings, run_ms: int | None = None) -> Report:
    """Read every topic up to its current end.

    Args:
        spark: the session.
        settings: the settings of the collections.
        run_ms: the time to mint for reclocked collections on a shared timeline, in milliseconds since 1970; by default
            the current time.

    Raises:
        ConfigurationError: a setting is wrong; nothing was written.
    """
    time_ms = int(clock.time() * 1000) if run_ms is None else run_ms

    def step(collection: Collection, settings: CollectionSettings, report: Report) -> IngestReport:
        ingested = report.results[collection.name] = IngestReport()
        drain(spark, collection, settings, ingested, time_ms)
        return ingested

    return run_step(spark, settings, "ingest", step)


@observed("ingest", report="ingested", refreshes=True)
def drain(
    spark: SparkSession,
    collection: Collection,
    settings: CollectionSettings,
    ingested: IngestReport,
    run_ms: int | None = None,
) -> None:
    """Tick until the topics are read up to their current ends. At a gap, stop after the messages before it.

    Messages that arrive in the meantime are left for the next run: otherwise a topic that never pauses would keep seal
    waiting forever.

    Args:
        spark: the session.
        collection: the collection that stores the messages.
        settings: the collection's settings.
        ingested: receives every tick, even if a later one fails.
        run_ms: as for `run`; None if the collection shares its times with no other.

    Raises:
        TopicGap: offsets are missing from a partition.
        DamagedFiles: data files are missing or damaged; nothing was read.
    """
    check_intact(collection)
    topics = open_topics(settings, collection.entry.decisions)
    before = _offsets_of(collection, topics)
    after: Offsets | None = None
    try:
        after = _tick_to_the_ends(spark, collection, settings, topics, ingested, run_ms)
    finally:
        after = after or _offsets_of(collection, topics)
        ingested.partitions_added = _partitions_added(before, after)
        for partition in ingested.partitions_added:
            log.warning("a partition was added", collection=collection.name, partition=partition)
        if after != before:
            _show_offsets(collection.name, topics, after)


def _tick_to_the_ends(
    spark: SparkSession,
    collection: Collection,
    settings: CollectionSettings,
    topics: Sequence[Topic],
    ingested: IngestReport,
    run_ms: int | None,
) -> Offsets | None:
    """Tick to the ends of the topics.

    Returns:
        The next offsets, if the last tick looked them up.
    """
    ends = {topic.name: topic.end_offsets() for topic in topics}
    while True:
        tick = ingest_tick(spark, collection, settings, topics, run_ms)
        if tick is None:
            return None
        if not tick.messages:
            if tick.gaps:
                ingested.gaps = tick.gaps
                raise tick.gaps[0]
            ingested.idle_ticks += 1
            log.info("upper was moved without messages", collection=collection.name)
            return None
        ingested.add_tick(tick)
        table = OpenTable(collection.paths.updates, may_be_stale=True)
        offsets = _offsets_in(table, topics)
        log.info(
            "ingested",
            collection=collection.name,
            tick=ingested.ticks,
            messages=tick.messages,
            updates=tick.updates_stored,
            copies=tick.copies_dropped,
            quarantined=tick.quarantined,
            late=tick.updates_late,
            upper=table.value(UPPER) or 0,
            offsets={topic: dict(sorted(ends.items())) for topic, ends in offsets.items()},
        )
        if not tick.gaps and _has_reached(offsets, ends):
            return offsets


def _has_reached(offsets: Offsets, ends: Offsets) -> bool:
    return all(
        offsets[topic].get(partition, 0) >= end
        for topic, partitions in ends.items()
        for partition, end in partitions.items()
    )


def _offsets_of(collection: Collection, topics: Sequence[Topic]) -> Offsets:
    return _offsets_in(OpenTable(collection.paths.updates, may_be_stale=True), topics)


def _offsets_in(table: OpenTable, topics: Sequence[Topic]) -> Offsets:
    return {topic.name: next_offsets(table, topic.name) for topic in topics}


def _partitions_added(before: Offsets, after: Offsets) -> list[str]:
    """Return the new partitions of topics that had already been read."""
    return [
        f"{topic}:{partition}"
        for topic, partitions in before.items()
        if partitions
        for partition in sorted(set(after[topic]) - set(partitions))
    ]


def _show_offsets(name: str, topics: Sequence[Topic], offsets: Offsets) -> None:
    """Publish, for monitoring, how far a collection has read. A failure is only logged."""
    for topic in topics:
        try:
            topic.show_offsets(name, offsets[topic.name])
        except TopicUnreachable as error:
            log.warning("offsets are not published", collection=name, topic=topic.name, reason=str(error))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the job from spark-submit or the shell."""
    return run_main(run, __doc__ or "", argv)


if __name__ == "__main__":
    sys.exit(main())
