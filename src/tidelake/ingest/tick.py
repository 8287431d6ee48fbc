"""Runs ticks of ingest, and repeats a tick from fresh state if another tick has read the same offsets."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import SparkSession

from tidelake.plugins.framing import framing_of
from tidelake.plugins.tick import TickReport
from tidelake.settings.collection import CollectionSettings
from tidelake.store.entry import Collection
from tidelake.store.retry import ATTEMPTS_MAX, retry_work
from tidelake.topic.topic import Topic


def ingest_tick(
    spark: SparkSession,
    collection: Collection,
    settings: CollectionSettings,
    topics: Sequence[Topic],
    run_ms: int | None = None,
) -> TickReport | None:
    """Read the next bounded range of the topics, and commit it.

    Args:
        spark: the session.
        collection: the collection.
        settings: its settings.
        topics: its topics.
        run_ms: see `Tick.run_ms`.

    Returns:
        The report; None if there is nothing new to read and no gap, and upper was not moved.

    Raises:
        Fenced: the epoch was raised in the meantime.
        Indeterminate: it is unknown whether the commit succeeded; the next tick finds out from the offsets.
    """
    framing = framing_of(settings.framing)
    failure = f"{ATTEMPTS_MAX} ticks in a row lost their offsets to other ticks"

    def work() -> TickReport | None:
        tick = framing.tick(spark, collection, settings, topics)
        tick.run_ms = run_ms
        return tick.run()

    return retry_work(work, collection.paths.updates, failure)
