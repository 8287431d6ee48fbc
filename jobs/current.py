"""Current: rebuild each collection's plain table of the contents before upper, unless something below it is damaged."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from pyspark.sql import SparkSession

from jobs.job import Report, log, run_main, run_step
from tidelake.configuration import CollectionSettings, Settings
from tidelake.delta.catalog import Collection
from tidelake.delta.current import CurrentReport, rebuild_current


def run(spark: SparkSession, settings: Settings) -> Report:
    """Rebuild `current` of every collection.

    Raises:
        ConfigurationError: a setting is wrong; nothing was written.
    """
    return run_step(spark, settings, "current", rebuild_one)


def rebuild_one(spark: SparkSession, collection: Collection, one: CollectionSettings, report: Report) -> CurrentReport:
    """Rebuild one."""
    rebuilt = rebuild_current(spark, collection)
    log.info("current", collection=collection.name, as_of=rebuilt.as_of, rows=rebuilt.rows, rebuilt=rebuilt.rebuilt)
    return rebuilt


def main(argv: Sequence[str] | None = None) -> int:
    """Run it from spark-submit or the shell."""
    return run_main(run, __doc__ or "", argv)


if __name__ == "__main__":
    sys.exit(main())
