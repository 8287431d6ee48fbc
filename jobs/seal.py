"""Seal: move each collection's upper as far as the stored updates prove the announced counts."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from pyspark.sql import SparkSession

from jobs.job import Report, log, run_main, run_step
from tidelake.integrity.verification import check_intact
from tidelake.seal.report import SealReport
from tidelake.seal.seal import seal
from tidelake.settings.collection import CollectionSettings
from tidelake.settings.lake import Settings
from tidelake.store.entry import Collection
from tidelake.telemetry.steps import observed


def run(spark: SparkSession, settings: Settings) -> Report:
    """Seal every collection.

    Raises:
        ConfigurationError: a setting is wrong; nothing was written.
    """
    return run_step(spark, settings, "seal", lambda collection, own, _: seal_collection(spark, collection, own))


@observed("seal", refreshes=True)
def seal_collection(
    spark: SparkSession, collection: Collection, settings: CollectionSettings | None = None
) -> SealReport:
    """Seal one collection. Its report lists the contradictions, which keep their own times and later ones unsealed.

    Args:
        spark: the session.
        collection: the collection.
        settings: its settings, which say how long rows are kept; without them, all rows stay.
    """
    check_intact(collection)
    sealed = seal(spark, collection, settings)
    if sealed.left is not None:
        log.info("old rows removed", collection=collection.name, **sealed.left.as_json())
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
        log.error("contradiction", collection=collection.name, kind=error.kind, time=error.time, fact=error.fact)
    return sealed


def main(argv: Sequence[str] | None = None) -> int:
    """Run the job from spark-submit or the shell."""
    return run_main(run, __doc__ or "", argv)


if __name__ == "__main__":
    sys.exit(main())
