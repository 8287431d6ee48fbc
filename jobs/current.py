"""Current: rebuild each collection's plain table of the contents before upper, unless data below upper is damaged."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from pyspark.sql import SparkSession

from jobs.job import Report, log, run_main, run_step
from tidelake.read.current import CurrentReport, update_current
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
    done = update_current(spark, collection)
    log.info("current", collection=collection.name, **done.as_json())
    return done


def main(argv: Sequence[str] | None = None) -> int:
    """Run the job from spark-submit or the shell."""
    return run_main(run, __doc__ or "", argv)


if __name__ == "__main__":
    sys.exit(main())
