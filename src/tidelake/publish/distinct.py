"""Proves that stored rows are already consolidated updates, so that nothing has to be added up to publish them.

Adding up costs an exchange of whole rows. Either of two facts makes it unnecessary, and both can be checked without the
rows' data: one merge wrote all rows, and added up equal ones; or each time has as many rows as there were distinct
statements when it was sealed, and each statement has at least one row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tidelake.forms.form import Form
from tidelake.plugins.envelope import form_of
from tidelake.schema.columns import Array, Branches, ColumnType, Struct, column_types
from tidelake.schema.types import Family, scalar_type
from tidelake.settings.terms import framing_terms
from tidelake.store.commit import OpenTable
from tidelake.store.entry import Collection
from tidelake.store.files import RunFile, damage_named, open_parquet
from tidelake.store.layout import MERGE_RUN, TIME
from tidelake.store.proofs import read_proven
from tidelake.store.runs import read_files
from tidelake.store.state import LEFT_AT

_BATCH_ROWS = 131_072


@dataclass(frozen=True)
class Updates:
    """Consolidated updates: the columns of the contents, _time and _diff bigint; all but _diff are unique together."""

    table: str
    """The table that they come from, for errors."""
    rows: DataFrame
    counts: dict[int, int] | None = None
    """The number of updates by time; None if it is not known yet."""


def distinct_rows(
    spark: SparkSession, collection: Collection, table: OpenTable, first: int, through: int, is_initial: bool
) -> Updates | None:
    """Return the stored rows of a range of times if they are already consolidated updates; otherwise None.

    Args:
        spark: the session.
        collection: the collection.
        table: a version of its updates table, in which the whole range is sealed.
        first: the first time.
        through: the last time.
        is_initial: whether rows before `first` belong to the updates at `first`.

    Cost: reads the times of the rows, and the proofs of these times.
    """
    form = form_of(collection.entry, table)
    if not (form.is_additive and form.makes_base):
        return None
    live = [file for file in table.files() if file.reach[0] <= through and (is_initial or file.reach[1] >= first)]
    if is_initial and any(file.reach[0] < first for file in live):
        return None
    runs = {file.run for file in live}
    is_merged = len(runs) == 1 and next(iter(runs)).startswith(MERGE_RUN)
    # Merges may have moved rows to the time of the initial contents; the proof of this time does not cover them.
    are_where_stated = not is_initial or first == 0
    if not live or not (is_merged or (are_where_stated and _may_be_proven(collection, form, table))):
        return None
    counts = _count(table, live, first, through)
    if not is_merged:
        proven = read_proven(collection.paths.proofs, [(first, through + 1)])
        for time, count in counts.items():
            proof = proven.get(time)
            if proof is None or proof.decision is not None or proof.counted != count:
                return None
    rows = read_files(spark, table.path, live, collection.updates_schema())
    # Compare only if needed: Spark compiles the comparison again for each new number.
    if any(file.reach[0] < first for file in live):
        rows = rows.where(F.col(TIME) >= first)
    if any(file.reach[1] > through for file in live):
        rows = rows.where(F.col(TIME) <= through)
    return Updates(str(table.path), rows, counts)


def _count(table: OpenTable, files: Sequence[RunFile], first: int, through: int) -> dict[int, int]:
    """Return the number of rows at each time of a range, in order. Only times are read, on the driver."""
    counts: Counter[int] = Counter()
    for file in files:
        with damage_named(table.path, file):
            for group in open_parquet(table.path, file).iter_batches(_BATCH_ROWS, columns=[TIME]):
                times = group[TIME].to_numpy()
                times = times[(times >= first) & (times <= through)]
                # The rows of a file are in the order of their times, so there are few places where the time changes.
                ends = np.flatnonzero(np.append(times[1:] != times[:-1], True)) if len(times) else times
                for time, number in zip(times[ends].tolist(), np.diff(ends, prepend=-1).tolist(), strict=True):
                    counts[time] += number
    return dict(sorted(counts.items()))


def _may_be_proven(collection: Collection, form: Form, table: OpenTable) -> bool:
    """Return whether each statement has at least one row, so that equal numbers of rows and statements exclude copies.

    Tables with reals are excluded, because zeros and NaNs may be stated in several ways; so are tables from which
    retention has removed rows, because the proofs of the times at which it retracts them do not count the retractions.
    """
    columns = column_types(collection.entry.record_schema)
    is_stored = framing_terms(collection.entry.framing).identifies_by_data and table.value(LEFT_AT) is None
    return is_stored and not any(_has_reals(column.type) for column in columns)


def _has_reals(kind: ColumnType) -> bool:
    match kind:
        case Struct(columns) | Branches(columns):
            return any(_has_reals(column.type) for column in columns)
        case Array(item):
            return _has_reals(item.type)
    return scalar_type(kind.name, kind.logical).family is Family.REAL
