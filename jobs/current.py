"""Current: rebuild each collection's plain table of the contents before upper, unless data below upper is damaged."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from pyspark.sql import SparkSession

from jobs.job import Report, log, run_main, run_step
from tidelake.read.current import CurrentReport, rebuild_current
from tidelake.settings.lake import Settings
from tidelake.store.entry import Collection
from tidelake.telemetry.steps import observed


def run(spark: SparkSession, settings: Settings) -> Report:
    """Rebuild `current` of every collection.

    Raises:
        ConfigurationError: a setting is wrong; nothing was written.
    """
    return run_step(spark, settings, "current", lambda collection, *_: rebuild_collection(spark, collection))


@observed("current")
def rebuild_collection(spark: SparkSession, collection: Collection) -> CurrentReport:
    """Rebuild `current` of one collection."""
    rebuilt = rebuild_current(spark, collection)
    log.info(
        "current",
        collection=collection.name,
        as_of=rebuilt.as_of,
        rows=rebuilt.rows,
        contents_rows=rebuilt.contents_rows,
        rebuilt=rebuilt.rebuilt,
        path=rebuilt.path,
    )
    return rebuilt


def main(argv: Sequence[str] | None = None) -> int:
    """Run the job from spark-submit or the shell."""
    return run_main(run, __doc__ or "", argv)


if __name__ == "__main__":
    sys.exit(main())
