"""Chooses the engine that a command reads with, and starts Spark for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal

from tidelake.cli.progress import shows_progress
from tidelake.cli.render import say

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidelake.lake import LakeCollection
    from tidelake.read.asked import Readable
    from tidelake.settings.lake import Settings


def chosen_engine(collection: LakeCollection, asked: Literal["duckdb", "spark"] | None) -> Literal["duckdb", "spark"]:
    """Return `asked`; if it is None, choose an engine, and if that is Spark, say why on standard error.

    Only for queries that Tidelake builds: their results do not depend on the engine.
    """
    if asked is not None:
        return asked
    from tidelake.query.choice import why_spark

    reason = why_spark(collection.stored())
    if reason is None:
        return "duckdb"
    say(f"{reason}, so Spark reads it; --engine overrides this choice")
    return "spark"


def starting_spark(
    collection: LakeCollection, columns: Sequence[str], check_times: Callable[[Readable], object]
) -> SparkSession:
    """Start Spark for a read of a collection, and say where it logs to.

    A read that the table's log or its columns show to be impossible is refused before Spark starts. A predicate can be
    checked only in a session, and keys in error are found only in the rows.

    Args:
        collection: the collection.
        columns: the columns to read; empty means all.
        check_times: raises if the times cannot be read.

    Raises:
        UnknownCollection: nothing has been ingested yet.
        SinceError, UpperError, ArgumentRefused: as `check_times` raises them.
        UnknownColumn: the collection has no such column.
    """
    from tidelake.read.asked import columns_asked, readable
    from tidelake.store.commit import OpenTable

    stored = collection.stored()
    check_times(readable(stored, OpenTable(stored.paths.updates)))
    columns_asked(stored, [column.name for column in collection.columns], columns)
    return start_spark(collection.lake.settings)


def start_spark(settings: Settings) -> SparkSession:
    """Start Spark for a lake, and say where it logs to."""
    from tidelake.spark.session import LOG, start_session

    if not shows_progress():
        say(f"starting Spark, which logs to {LOG} …")
    return start_session(jar_sets=settings.jar_sets)
