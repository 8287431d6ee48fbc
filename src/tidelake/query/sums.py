"""Sums of diffs in SQL: the contents are the rows whose diffs do not add up to 0. See `tidelake.forms.sums`."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from tidelake.protocol.order import INT64_MAX, INT64_MIN
from tidelake.query.form import Form, matched
from tidelake.query.names import listed, names_of, quoted, with_one_zero
from tidelake.query.reads import Reads, Where
from tidelake.store.entry import Entry
from tidelake.store.files import RunFile
from tidelake.store.layout import DIFF, TIME
from tidelake.store.table_schema import data_fields

_PIECE = 2**62
_REPEATED_MAX = 16
"""Maximum number of times that a value may occur in a column that tells rows apart."""
_TRIED_MAX = 3
"""Maximum number of columns to try; for each, the rows are grouped by its values."""


class SumForm(Form):
    """Diffs of equal rows are summed."""

    is_additive = True

    def __init__(self, entry: Entry) -> None:
        self.fields = data_fields(entry.record_schema)
        self.key = ()

    def contents(self, reads: Reads, at: int, columns: Sequence[str], where: Where | None = None) -> str:
        """Add up diffs. Equal rows satisfy a predicate alike, so it may be applied before they are added up."""
        base, later = reads.divided(at)
        needed = self.needed([*columns], where)

        def kept(files: Sequence[RunFile], diff: int | None = None) -> str:
            stored = [*needed, DIFF] if diff is None or not needed else needed
            shown = DIFF if diff is None else f"{diff}::BIGINT AS {DIFF}"
            rows = reads.rows(stored, at, files=files)
            return f"SELECT {listed([*map(quoted, columns), shown])} FROM ({rows}){_condition(where)}"

        if not base:
            return add_up(kept(later), self.chosen(columns))
        bounds = reads.diffs(base)
        many = kept(base, bounds[0] if bounds is not None and bounds[0] == bounds[1] else None)
        identify_rows = {field.name for field in self.fields} <= set(columns)
        if not identify_rows:
            return add_up(f"{many} UNION ALL {kept(later)}" if later else many, self.chosen(columns))
        if not later:
            return many
        fields = self.chosen(columns)
        are_small = _are_small(bounds) and _add_up_to_little(later, reads.diffs(later))
        # An int64 costs less than the type that DuckDB gives to a sum.
        stored = listed([*map(quoted, columns), "_total::BIGINT AS _total" if are_small else "_total"])
        few = reads.keep(f"SELECT {stored} FROM ({_totals(kept(later), fields)}) WHERE _total <> 0")
        # Neither the base nor the few have two equal rows, so the join repeats no row. It scans the base once.
        both = f"FROM ({many}) b FULL OUTER JOIN {few} f ON {_same_rows(reads, few, fields)}"
        # CASE costs half as much as coalesce: it evaluates a branch for all rows at once.
        taken = listed(
            f"CASE WHEN b.{DIFF} IS NULL THEN f.{name} ELSE b.{name} END AS {name}" for name in map(quoted, columns)
        )
        if are_small:
            total = (
                f"CASE WHEN f._total IS NULL THEN b.{DIFF} WHEN b.{DIFF} IS NULL THEN f._total "
                f"ELSE b.{DIFF} + f._total END"
            )
            return f"SELECT * FROM (SELECT {taken}, {total} AS {DIFF} {both}) WHERE {DIFF} <> 0"
        total = f"coalesce(b.{DIFF}::HUGEINT, 0) + coalesce(f._total, 0)"
        return _in_pieces(f"SELECT {taken}, {total} AS _total {both}", columns)

    def row_updates(self, reads: Reads, after: int, through: int) -> str:
        """Return the stored updates."""
        return reads.rows([field.name for field in self.fields] + [TIME, DIFF], through, after)


def add_up(rows: str, fields: Sequence[pa.Field], by: Sequence[str] = ()) -> str:
    """Sum `_diff` exactly, and drop zeros. A sum beyond int64 becomes several rows that add up to it.

    Args:
        rows: a query with the columns, those in `by`, and _diff.
        fields: the columns.
        by: further columns to group by, none of which has floating-point numbers.
    """
    return _in_pieces(_totals(rows, fields, by), [*(field.name for field in fields), *by])


def _totals(rows: str, fields: Sequence[pa.Field], by: Sequence[str] = ()) -> str:
    keys = [with_one_zero(quoted(field.name), field.type) for field in fields] + [quoted(name) for name in by]
    names = [*(field.name for field in fields), *by]
    columns = listed(f"{key} AS {quoted(name)}" for key, name in zip(keys, names, strict=True))
    places = listed(map(str, range(1, len(names) + 1)))
    return f"SELECT {columns}, sum({DIFF}) AS _total FROM ({rows}) GROUP BY {places}"


def _same_rows(reads: Reads, few: str, fields: Sequence[pa.Field]) -> str:
    """Return the condition that a row `b` of the base equals a row `f` of the few; null equals null.

    In each row of the base, a hash join hashes every column that it compares for equality. If a single column tells
    nearly all of the few apart, only this one is hashed, and the others are compared only in the pairs that it finds.
    """
    names = [field.name for field in fields]
    hashed = _telling(reads, few, fields)
    if hashed is None:
        return matched("b", "f", names)
    # The comparison with `true` keeps the columns from being hashed.
    others = [f"({matched('b', 'f', [name])}) = true" for name in names if name != hashed]
    return " AND ".join([matched("b", "f", [hashed]), *others])


def _telling(reads: Reads, few: str, fields: Sequence[pa.Field]) -> str | None:
    """Return a column whose values hardly repeat among the few rows, preferably of integers; None if none is found."""
    if any(pa.types.is_nested(field.type) for field in fields):
        return None
    integers_first = sorted(fields, key=lambda field: not pa.types.is_integer(field.type))
    names: list[str] = [field.name for field in integers_first]
    for name in names[:_TRIED_MAX]:
        times = f"SELECT count(*) AS _times FROM {few} GROUP BY {quoted(name)}"
        if reads.engine.scalar(f"SELECT coalesce(max(_times), 0) <= {_REPEATED_MAX} FROM ({times})"):
            return name
    return None


def _are_small(bounds: tuple[int, int] | None) -> bool:
    """Return whether the sum of two diffs in these bounds surely fits into an int64; false if they are unknown."""
    return bounds is not None and bounds[0] > -_PIECE and bounds[1] < _PIECE


def _add_up_to_little(files: Sequence[RunFile], bounds: tuple[int, int] | None) -> bool:
    """Return whether `_are_small` is true of the sums of these files' diffs, given the bounds of a single diff."""
    rows = sum(file.rows for file in files)
    return bounds is not None and _are_small((rows * min(bounds[0], 0), rows * max(bounds[1], 0)))


def _in_pieces(totals: str, columns: Sequence[str]) -> str:
    """Turn `_total` into `_diff`, an int64: drop zeros, and divide totals beyond int64 among several rows."""
    fits = f"_total BETWEEN {INT64_MIN} AND {INT64_MAX}"
    sign, number = f"sign(_total) * {_PIECE}::HUGEINT", f"(abs(_total) // {_PIECE})"
    pieces = (
        f"list_append(list_transform(range({number}::BIGINT), lambda piece: ({sign})::BIGINT), "
        f"(_total - sign(_total) * {number} * {_PIECE}::HUGEINT)::BIGINT)"
    )
    unnested = f"unnest(CASE WHEN {fits} THEN [_total::BIGINT] ELSE {pieces} END) AS {DIFF}"
    nonzero = f"SELECT {names_of(columns)}, {unnested} FROM ({totals}) WHERE _total <> 0"
    return f"SELECT * FROM ({nonzero}) WHERE {DIFF} <> 0"


def _condition(where: Where | None) -> str:
    return "" if where is None else f" WHERE ({where.condition}\n)"
