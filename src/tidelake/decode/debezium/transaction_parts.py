"""Finds the commit position of each change event's transaction, which only the transaction's END states."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidelake.decode.debezium.columns import BEGINS_AT, COMMITTED, END, END_ID, END_LOWER, TRANSACTION


def with_ends(events: DataFrame, ends: DataFrame) -> DataFrame:
    """Add _end, the commit position of each event's transaction (null if its END was not read), and _begins_at.

    In:  events with _transaction and _committed; `ends` has begins_at bigint (what the BEGIN states, or null), and
         id string, lower bigint, lsn bigint, as `commit_ranges` returns them: at most one row matches an event.
    """
    names = {"id": END_ID, "lower": END_LOWER, "lsn": END, "begins_at": BEGINS_AT}
    renamed = F.broadcast(ends.select(*(F.col(name).alias(alias) for name, alias in names.items())))
    after: Column = F.coalesce(F.col(COMMITTED), F.lit(-1).cast("bigint"))
    fits = (F.col(TRANSACTION) == F.col(END_ID)) & (after >= F.col(END_LOWER)) & (after < F.col(END))
    return events.join(renamed, fits, "left").drop(END_ID, END_LOWER)
