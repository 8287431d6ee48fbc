"""The forms of tables: what rows amount to, what a merge makes of them, and how they may break the envelope.

An envelope says what a statement means, and with it the form: diffs to add up, statements about keys, or change events.
Whatever reads or merges a table asks its form; ingest and seal see statements alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidelake.column_types import column_types
from tidelake.debezium import Interval
from tidelake.delta import events, keyed, positioned
from tidelake.delta.base import rows_with, rows_without
from tidelake.delta.catalog import Collection, Entry
from tidelake.delta.commit import OpenTable
from tidelake.delta.layout import DIFF, TIME
from tidelake.delta.sums import add_up
from tidelake.delta.types import data_fields
from tidelake.delta.values import HAS_BARRIERS, HAS_UNAVAILABLE

Filter = Callable[[DataFrame], DataFrame]

_RESENT_WITHIN_MS = {"upsert": 0, "debezium": 7 * 24 * 3600 * 1000}
"""Raw framing: how long after it was first read a record may come again with its old position.

Of an upsert the position is the tick's own, so what comes again is new. A connector that starts again repeats what it
had not noted as sent."""


class Form(Protocol):
    """What the rows of one collection's table are."""

    @property
    def cancels_copies(self) -> bool:
        """Whether a copy would change what the rows amount to, so that seal has to cancel it."""

    @property
    def breaches_stay(self) -> bool:
        """Whether a breach is one whatever else is stated at its time, so that it may be told at once."""

    @property
    def key_of_values(self) -> Sequence[str] | None:
        """The key's columns where each row states a value of its key, none where diffs add up.

        None where a breach takes more to be seen than rows as they are stored.
        """

    @property
    def makes_base(self) -> bool:
        """Whether what a merge leaves of times that cannot be told apart is a base; see `base`."""

    def contents(self, rows: DataFrame, kept: Sequence[str], where: Filter, base: DataFrame | None = None) -> DataFrame:
        """The contents that rows at or before a time amount to; of a base alone, see `base_contents`.

        In:  the data's columns, _time, _diff.
        Out: `kept`, which are columns of the contents, and _diff, how often a row is there; never 0.

        Args:
            rows: the rows; where a base is given, those beside it.
            kept: some columns of the contents.
            where: applied to whole rows of the contents, as soon as that gives the same.
            base: the rows of the base, all of them earlier; only of a form that makes one.
        """

    def base_contents(self, base: DataFrame, kept: Sequence[str], where: Filter) -> DataFrame:
        """The same of a base that nothing lies beside: its rows as they are. Only of a form that makes one."""

    def merged(self, sealed: DataFrame, through: int, others: Sequence[Interval]) -> DataFrame:
        """What is left of sealed rows when times at or before `through` cannot be told apart any more.

        In, out: the data's columns, _time, _diff.

        Args:
            sealed: rows of the runs that are merged.
            through: the last of those times; -1 where all can be told apart.
            others: from which time to which the runs that are not merged reach.
        """

    def suspect_times(self, unsealed: DataFrame) -> DataFrame | None:
        """The times (_time, unique) at which a key may break the envelope; None where there are no keys."""

    def breaches(self, grouped: DataFrame) -> DataFrame | None:
        """What `keyed.count_breaches` gives, of what `proof.group_statements` gives; None where there are no keys."""


def form_of(collection: Collection) -> Form:
    """The form of a collection's table."""
    entry = collection.entry
    data = [one.name for one in data_fields(entry.record_schema)]
    nullable = frozenset(one.name for one in column_types(entry.record_schema) if one.nullable)
    if entry.positioned:
        return _PositionedForm(shape_of(collection), _RESENT_WITHIN_MS[entry.envelope])
    if entry.envelope == "debezium":
        return _EventForm(
            data_fields(entry.record_schema),
            [one.name for one in contents_fields(entry)],
            entry.key,
            entry.before == "whole",
        )
    if entry.envelope == "upsert":
        return _KeyedForm(data, entry.key, nullable)
    return _SumForm(data, nullable)


def shape_of(collection: Collection) -> positioned.Shape:
    """What the rows of a collection in the positioned form are; what they have ever held, as the log says now."""
    entry, table = collection.entry, OpenTable(collection.paths.updates)
    return positioned.Shape(
        tuple(one.name for one in data_fields(entry.record_schema)),
        entry.key,
        barriers=bool(table.value(HAS_BARRIERS)),
        unavailable=bool(table.value(HAS_UNAVAILABLE)),
    )


def takes_all(through: int, others: Sequence[Interval]) -> bool:
    """Whether a merge takes every run that has a row at or before a time.

    Args:
        through: the time.
        others: from which time to which the runs that are not merged reach.
    """
    return not any(first <= through for first, _ in others)


def contents_fields(entry: Entry) -> list[pa.Field]:
    """The columns of a collection's contents: the data's, or those of the row that a change event is about."""
    fields = data_fields(entry.record_schema)
    return events.row_fields(fields) if entry.envelope == "debezium" and not entry.positioned else fields


@dataclass(frozen=True)
class _SumForm:
    """Diffs add up; times move up to since, so that equal data meets and zeros vanish."""

    data: list[str]
    nullable: frozenset[str]
    cancels_copies: bool = True
    breaches_stay: bool = True
    key_of_values: tuple[str, ...] = ()
    makes_base: bool = True

    def contents(self, rows: DataFrame, kept: Sequence[str], where: Filter, base: DataFrame | None = None) -> DataFrame:
        columns = [*(f"`{name}`" for name in kept), DIFF]
        few = where(rows).select(*columns)
        if base is None:
            return add_up(few, kept)
        whole = where(base).select(*columns)
        if not self._tells_rows_apart(kept):
            return add_up(whole.unionByName(few), kept)
        met = add_up(few.unionByName(rows_with(whole, few, kept, self.nullable)), kept)
        return rows_without(whole, few, kept, self.nullable).unionByName(met)

    def base_contents(self, base: DataFrame, kept: Sequence[str], where: Filter) -> DataFrame:
        whole = where(base).select(*(f"`{name}`" for name in kept), DIFF)
        return whole if self._tells_rows_apart(kept) else add_up(whole, kept)

    def _tells_rows_apart(self, kept: Sequence[str]) -> bool:
        """Whether no two rows of the base are the same in these columns; those that differ only elsewhere add up."""
        return set(self.data) <= set(kept)

    def merged(self, sealed: DataFrame, through: int, others: Sequence[Interval]) -> DataFrame:
        moved = F.greatest(F.col(TIME), F.lit(through).cast("bigint"))
        return add_up(sealed.withColumn(TIME, moved), [*self.data, TIME])

    def suspect_times(self, unsealed: DataFrame) -> None:
        return None

    def breaches(self, grouped: DataFrame) -> None:
        return None


@dataclass(frozen=True)
class _KeyedForm:
    """Statements about keys, of which the newest counts; see `keyed`."""

    data: list[str]
    key: tuple[str, ...]
    nullable: frozenset[str]
    cancels_copies: bool = False
    breaches_stay: bool = True
    makes_base: bool = True

    @property
    def key_of_values(self) -> tuple[str, ...]:
        return self.key

    def contents(self, rows: DataFrame, kept: Sequence[str], where: Filter, base: DataFrame | None = None) -> DataFrame:
        # A predicate on values holds for the newest row of a key, so it comes after the newest is found.
        columns = [*(f"`{name}`" for name in kept), DIFF]
        few = where(keyed.keyed_contents(rows, self.key, self.data)).select(*columns)
        if base is None:
            return few
        return _once_each(rows_without(where(base), rows, self.key, self.nullable), kept).unionByName(few)

    def base_contents(self, base: DataFrame, kept: Sequence[str], where: Filter) -> DataFrame:
        return _once_each(where(base), kept)

    def merged(self, sealed: DataFrame, through: int, others: Sequence[Interval]) -> DataFrame:
        return keyed.merged_rows(sealed, self.key, through, takes_all(through, others))

    def suspect_times(self, unsealed: DataFrame) -> DataFrame:
        return keyed.suspect_times(unsealed, self.key, self.data)

    def breaches(self, grouped: DataFrame) -> DataFrame:
        return keyed.count_breaches(grouped.where(~F.col("_discarded")), self.key, self.data)


def _once_each(base: DataFrame, kept: Sequence[str]) -> DataFrame:
    """The rows of a base that has one for each key, as contents."""
    return base.select(*(f"`{name}`" for name in kept), F.lit(1).cast("bigint").alias(DIFF))


class _WithoutBase:
    """Forms whose order is the source's: what comes later may be older than what a merge has left."""

    makes_base = False

    def base_contents(self, base: DataFrame, kept: Sequence[str], where: Filter) -> DataFrame:
        raise AssertionError("there is no base")


@dataclass(frozen=True)
class _PositionedForm(_WithoutBase):
    """Statements about keys in the order of their source; see `positioned`."""

    shape: positioned.Shape
    resent_within: int
    cancels_copies: bool = False
    breaches_stay: bool = True
    key_of_values: None = None

    def contents(self, rows: DataFrame, kept: Sequence[str], where: Filter, base: DataFrame | None = None) -> DataFrame:
        return where(positioned.contents(rows, self.shape)).select(*(f"`{name}`" for name in kept), DIFF)

    def merged(self, sealed: DataFrame, through: int, others: Sequence[Interval]) -> DataFrame:
        return positioned.merged_rows(sealed, self.shape, through, takes_all(through, others), self.resent_within)

    def suspect_times(self, unsealed: DataFrame) -> None:
        return None

    def breaches(self, grouped: DataFrame) -> None:
        return None


@dataclass(frozen=True)
class _EventForm(_WithoutBase):
    """Change events; with a key the newest row counts, without one rows add up. See `events`."""

    fields: list[pa.Field]
    row: list[str]
    key: tuple[str, ...]
    whole_before: bool
    """Whether `before` is the whole row, or just has the key's columns."""
    cancels_copies: bool = True
    key_of_values: None = None

    @property
    def breaches_stay(self) -> bool:
        """Not with whole rows before: an event that is still on its way may cancel one of two rows."""
        return not self.whole_before

    @property
    def _key_before(self) -> tuple[str, ...]:
        return () if self.whole_before else self.key

    def contents(self, rows: DataFrame, kept: Sequence[str], where: Filter, base: DataFrame | None = None) -> DataFrame:
        updates = events.row_updates(rows, self._key_before)
        if not self.key:
            return add_up(where(updates).select(*(f"`{name}`" for name in kept), DIFF), kept)
        by_time = events.added_up_by_key(updates, self.row, self.key)
        return where(keyed.keyed_contents(by_time, self.key, self.row)).select(*(f"`{name}`" for name in kept), DIFF)

    def merged(self, sealed: DataFrame, through: int, others: Sequence[Interval]) -> DataFrame:
        return events.merged_events(sealed, self.fields, self.key, through, others, self._key_before)

    def suspect_times(self, unsealed: DataFrame) -> DataFrame | None:
        if not self.key:
            return None
        if not self.whole_before:
            return events.suspect_times_of_keys(unsealed, self.key)
        return events.suspect_times(unsealed, self.row, self.key)

    def breaches(self, grouped: DataFrame) -> DataFrame | None:
        stated = grouped.where(~F.col("_discarded"))
        if not self.key:
            return None
        if not self.whole_before:
            return events.count_key_breaches(stated, self.key)
        return keyed.count_breaches(events.row_nets(stated, self.row), self.key, self.row)
