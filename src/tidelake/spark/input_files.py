"""Checks that a DataFrame reads every file that it should."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def missing_file(frame: DataFrame, paths: Iterable[str]) -> str | None:
    """Return a path that Spark has left out of a DataFrame; None if the DataFrame reads all paths.

    If a file disappears after Spark has checked that it exists and before Spark has listed it, Spark leaves it out
    without an error. If it disappears later, reading it fails.

    Args:
        frame: a DataFrame that `spark.read` has just returned.
        paths: the paths of single files that were passed to it.

    Cost: a few calls to the JVM, without a job.
    """
    wanted = list(paths)
    found = list(frame._jdf.queryExecution().analyzed().relation().location().inputFiles())
    if len(found) == len(wanted):
        return None
    names = {file.rpartition("/")[2] for file in found}
    return next((path for path in wanted if path.rpartition("/")[2] not in names), wanted[0])
