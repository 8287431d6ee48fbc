"""The metadata columns that a table may have besides the data of its records."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F


def metadata_column(kind: str) -> Column:
    """Return a record's metadata: its `topic`, `partition`, `offset`, or `timestamp`."""
    return F.timestamp_millis("timestamp_ms") if kind == "timestamp" else F.col(kind)
