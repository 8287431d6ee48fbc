"""Seal: move each collection's upper as far as what is stored proves what was announced."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from pyspark.sql import SparkSession

from jobs.job import Report, log, run_main, run_step
from tidelake.configuration import CollectionSettings, Settings
from tidelake.delta.catalog import Collection
from tidelake.delta.seal import SealReport, seal


def run(spark: SparkSession, settings: Settings) -> Report:
    """Seal every collection.

    Raises:
        ConfigurationError: a setting is wrong; nothing was written.
    """
    return run_step(spark, settings, "seal", seal_one)


def seal_one(spark: SparkSession, collection: Collection, settings: CollectionSettings, report: Report) -> SealReport:
    """Seal one collection; contradictions are in its report and stop nothing before them."""
    sealed = seal(spark, collection)
    if sealed.sealed_by_ingest:
        log.info("nothing to seal: each tick of ingest seals its own time", collection=collection.name)
        return sealed
    log.info(
        "sealed",
        collection=collection.name,
        lower=sealed.lower,
        upper="closed" if sealed.closed else sealed.upper,
        times=sealed.times_sealed,
        copies=sealed.copies_cancelled,
    )
    for error in sealed.contradictions:
        log.error("contradiction", collection=collection.name, kind=error.kind, time=error.time, fact=error.fact())
    return sealed


def main(argv: Sequence[str] | None = None) -> int:
    """Run it from spark-submit or the shell."""
    return run_main(run, __doc__ or "", argv)


if __name__ == "__main__":
    sys.exit(main())
