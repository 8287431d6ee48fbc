"""Chooses the engine that a command reads with, and starts Spark for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from tidelake.cli.progress import shows_progress
from tidelake.cli.render import say

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidelake.lake import LakeCollection
    from tidelake.settings.lake import Settings


def chosen_engine(collection: LakeCollection, asked: Literal["duckdb", "spark"] | None) -> Literal["duckdb", "spark"]:
    """Return the engine that reads a collection; if it is not the default, say why on standard error.

    Only for queries that Tidelake builds: their results do not depend on the engine.
    """
    if asked is not None:
        return asked
    from tidelake.query.choice import why_spark

    reason = why_spark(collection.stored())
    if reason is None:
        return "duckdb"
    say(f"{reason}, so Spark reads it; --engine duckdb reads it here")
    return "spark"


def starting_spark(collection: LakeCollection) -> SparkSession:
    """Start Spark for a collection, and say where it logs to."""
    return start_spark(collection.lake.settings)


def start_spark(settings: Settings) -> SparkSession:
    """Start Spark for a lake, and say where it logs to."""
    from tidelake.spark.session import LOG, start_session

    if not shows_progress():
        say(f"starting Spark, which logs to {LOG} …")
    return start_session(jar_sets=settings.jar_sets)
