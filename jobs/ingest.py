"""Ingest: drain each collection's topic in bounded ticks; every tick is one commit of its run and its offsets."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field

from pyspark.sql import SparkSession

from jobs.job import Report, log, run_main, run_step
from tidelake.configuration import CollectionSettings, Settings
from tidelake.delta.catalog import Collection
from tidelake.delta.commit import OpenTable
from tidelake.delta.position import next_offsets
from tidelake.delta.raw_tick import raw_tick
from tidelake.delta.tick import TickReport, ingest_tick
from tidelake.delta.topic import Topic, open_topics
from tidelake.errors import TopicGap, TopicUnreachable

Offsets = dict[str, dict[int, int]]
"""By topic and partition, an offset."""


@dataclass
class IngestReport:
    """All ticks of one run, added up."""

    ticks: int = 0
    messages: int = 0
    null_records: int = 0
    quarantined: int = 0
    progress_statements: int = 0
    updates_read: int = 0
    updates_stored: int = 0
    updates_late: int = 0
    copies_dropped: int = 0
    bytes_stored: int = 0
    values_in_error: int = 0
    reasons: dict[str, int] = field(default_factory=dict)
    gaps: list[TopicGap] = field(default_factory=list)
    partitions_added: list[str] = field(default_factory=list)
    """`TOPIC:PARTITION` of those that a topic has got since it was first read; they are read from their beginning."""

    def add(self, tick: TickReport) -> None:
        """Add one tick."""
        self.ticks += 1
        for name in ("messages", "null_records", "quarantined", "progress_statements", "updates_read"):
            setattr(self, name, getattr(self, name) + getattr(tick, name))
        for name in ("updates_stored", "updates_late", "copies_dropped", "bytes_stored", "values_in_error"):
            setattr(self, name, getattr(self, name) + getattr(tick, name))
        for reason, count in tick.reasons.items():
            self.reasons[reason] = self.reasons.get(reason, 0) + count


def run(spark: SparkSession, settings: Settings) -> Report:
    """Read every topic up to the end that it has now.

    Raises:
        ConfigurationError: a setting is wrong; nothing was written.
    """
    return run_step(spark, settings, "ingest", drain)


def drain(spark: SparkSession, collection: Collection, settings: CollectionSettings, report: Report) -> IngestReport:
    """Tick up to the ends that the topics have now; a gap stops the collection after what lies before it is in.

    What comes meanwhile is left for the next run: a topic that never pauses would keep seal waiting for ever.

    Raises:
        TopicGap: naming the partition and the offsets that are missing.
    """
    topics = open_topics(settings, collection.entry.decisions)
    ingested = IngestReport()
    report.results[collection.name] = ingested
    before = _offsets_of(collection, topics)
    after: Offsets | None = None
    try:
        after = _tick_until_caught_up(spark, collection, settings, topics, ingested)
    finally:
        after = after or _offsets_of(collection, topics)
        ingested.partitions_added = _partitions_added(before, after)
        for one in ingested.partitions_added:
            log.warning("a partition was added", collection=collection.name, partition=one)
        if after != before:
            _show_offsets(collection.name, topics, after)
    return ingested


def _tick_until_caught_up(
    spark: SparkSession,
    collection: Collection,
    settings: CollectionSettings,
    topics: Sequence[Topic],
    ingested: IngestReport,
) -> Offsets | None:
    """Tick; return how far the topics are read, where that was looked up already."""
    ends = {one.name: one.end_offsets() for one in topics}
    while True:
        if settings.framing == "reclock":
            tick = raw_tick(spark, collection, settings, topics)
        else:
            tick = ingest_tick(spark, collection, settings, topics[0])
        if tick is None:
            return None
        if tick.messages:
            ingested.add(tick)
            log.info(
                "ingested",
                collection=collection.name,
                tick=ingested.ticks,
                messages=tick.messages,
                updates=tick.updates_stored,
                copies=tick.copies_dropped,
                quarantined=tick.quarantined,
                late=tick.updates_late,
            )
            read = _offsets_of(collection, topics)
            if not tick.gaps and _are_reached(ends, read):
                return read
            continue
        ingested.gaps = tick.gaps
        raise tick.gaps[0]


def _are_reached(ends: Offsets, read: Offsets) -> bool:
    return all(read[topic].get(one, 0) >= end for topic, of_topic in ends.items() for one, end in of_topic.items())


def _offsets_of(collection: Collection, topics: Sequence[Topic]) -> Offsets:
    table = OpenTable(collection.paths.updates)
    return {one.name: next_offsets(table, one.name) for one in topics}


def _partitions_added(before: Offsets, after: Offsets) -> list[str]:
    """The partitions that came to a topic of which others were read before."""
    return [f"{topic}:{one}" for topic, read in before.items() if read for one in sorted(set(after[topic]) - set(read))]


def _show_offsets(name: str, topics: Sequence[Topic], offsets: Offsets) -> None:
    """Let monitoring see how far a collection has read; that it cannot be shown stops nothing."""
    for one in topics:
        try:
            one.show_offsets(name, offsets[one.name])
        except TopicUnreachable as error:
            log.warning("offsets are not shown", collection=name, topic=one.name, reason=str(error))


def main(argv: Sequence[str] | None = None) -> int:
    """Run it from spark-submit or the shell."""
    return run_main(run, __doc__ or "", argv)


if __name__ == "__main__":
    sys.exit(main())
