"""Current: bring each collection's plain table of the contents to upper, unless data below upper is damaged."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence

from pyspark.sql import SparkSession

from jobs.job import Report, log, run_main, run_step
from tidelake.catalog.catalog import Catalog
from tidelake.errors import TidelakeError
from tidelake.read.current import CurrentReport, Wanted, update_current
from tidelake.read.together import times_to_publish
from tidelake.settings.lake import Settings
from tidelake.store.entry import Collection
from tidelake.store.layout import Store
from tidelake.telemetry.steps import observed


def run(
    spark: SparkSession, settings: Settings, rebuild: bool = False, wanted: Mapping[str, Wanted] | None = None
) -> Report:
    """Bring `current` of every collection to upper; collections that share a timeline, to the same time.

    Args:
        spark: the session.
        settings: the settings of the collections.
        rebuild: whether to write all rows, even if nothing has changed.
        wanted: the result of `wanted_tables`, if it is already known.

    Raises:
        ConfigurationError: a setting is wrong; nothing was written.
    """
    of_each = wanted if wanted is not None else wanted_tables(settings, rebuild)
    return run_step(
        spark, settings, "current", lambda collection, own, _: update_collection(spark, collection, of_each[own.name])
    )


def wanted_tables(
    settings: Settings, rebuild: bool = False, is_published: Callable[[str], bool] | None = None
) -> dict[str, Wanted]:
    """Choose what a run publishes for each collection, and AS OF which time.

    Args:
        settings: the settings of the collections.
        rebuild: whether to write all rows.
        is_published: whether the run publishes a collection; by default it publishes all.
    """
    names = {collection.name for collection in settings.collections}
    catalog = Catalog(Store(settings.store))
    times = times_to_publish(settings, catalog, is_published or names.__contains__)
    of_each = {}
    for own in settings.collections:
        skips_errors = own.current is not None and own.current.skip_errors
        chosen = times.get(own.name, (None, ()))
        if isinstance(chosen, TidelakeError):
            of_each[own.name] = Wanted(refused=chosen)
            continue
        through, together = chosen
        of_each[own.name] = Wanted(through, together, rebuild, own.bag, skips_errors)
    return of_each


@observed("current")
def update_collection(spark: SparkSession, collection: Collection, wanted: Wanted) -> CurrentReport:
    """Update `current` of one collection as `wanted` says."""
    done = update_current(spark, collection, wanted)
    log.info("current", collection=collection.name, **done.as_json())
    return done


def main(argv: Sequence[str] | None = None) -> int:
    """Run the job from spark-submit or the shell."""
    return run_main(run, __doc__ or "", argv)


if __name__ == "__main__":
    sys.exit(main())
