"""Ingest: drain each collection's topic in bounded ticks; every tick is one commit of its run and its offsets."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field

from pyspark.sql import SparkSession

from jobs.job import Report, log, run_main, run_step
from tidelake.configuration import CollectionSettings, Settings
from tidelake.delta.catalog import Collection
from tidelake.delta.raw_tick import raw_tick
from tidelake.delta.tick import TickReport, ingest_tick
from tidelake.delta.topic import open_topics
from tidelake.errors import TopicGap


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
    """Read every topic until it has nothing new.

    Raises:
        ConfigurationError: a setting is wrong; nothing was written.
    """
    return run_step(spark, settings, "ingest", drain)


def drain(spark: SparkSession, collection: Collection, settings: CollectionSettings, report: Report) -> IngestReport:
    """Tick until caught up; a gap in the topic stops the collection after what lies before the gap is in.

    Raises:
        TopicGap: naming the partition and the offsets that are missing.
    """
    topics = open_topics(settings)
    ingested = IngestReport()
    report.results[collection.name] = ingested
    while True:
        if settings.framing == "reclock":
            tick = raw_tick(spark, collection, settings, topics)
        else:
            tick = ingest_tick(spark, collection, settings, topics[0])
        if tick is None:
            return ingested
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
            continue
        ingested.gaps = tick.gaps
        raise tick.gaps[0]


def main(argv: Sequence[str] | None = None) -> int:
    """Run it from spark-submit or the shell."""
    return run_main(run, __doc__ or "", argv)


if __name__ == "__main__":
    sys.exit(main())
