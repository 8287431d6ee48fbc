"""The setting `keep_rows`: how long the rows of an append-only collection stay in its contents."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Literal

from tidelake.schema.columns import Column, Primitive, column_types
from tidelake.schema.types import scalar_type
from tidelake.settings.block import Block, Frozen
from tidelake.settings.durations import duration_of

TIME_COLUMN = "_time"
"""The time of a row, which `keep_rows` may name instead of a column."""
_UNITS_US = {"s": 1_000_000, "ms": 1_000, "us": 1}
_FIX = "see docs/guides/keeping-and-forgetting.md"
_DAY_MS = 86_400_000


class RowRetention(Frozen):
    """The rule by which retention removes rows: once the point in time that they state is older than a duration."""

    column: str
    """The column that states the point in time, or `_time`. A row without a value stays."""
    kind: Literal["timestamp", "date", "number"]
    """The contents of the column: timestamps, days, or numbers of units since 1970."""
    unit_us: int = 1
    """The number of microseconds in one of these units."""
    duration: timedelta
    """`for`: how long rows stay."""

    @property
    def duration_ms(self) -> int:
        """The duration in milliseconds."""
        return self.duration // timedelta(milliseconds=1)

    @property
    def step_ms(self) -> int:
        """How far the cut-off must move before old rows are searched for again: 1% of the duration, at most a day."""
        return min(max(self.duration_ms // 100, 1), _DAY_MS)

    def first_kept(self, cutoff_ms: int) -> int:
        """Return the least value that is kept, as the column stores it: in its unit, microseconds, or days.

        A day is kept until all of it is before the cut-off.

        >>> rule = RowRetention(column="at", kind="number", unit_us=1_000_000, duration=timedelta(days=1))
        >>> rule.first_kept(86_400_000), rule.first_kept(86_400_001)
        (86400, 86401)
        >>> RowRetention(column="on", kind="date", duration=timedelta(days=1)).first_kept(86_400_001)
        1
        """
        if self.kind == "date":
            return cutoff_ms // _DAY_MS
        return -(-cutoff_ms * 1_000 // (1 if self.kind == "timestamp" else self.unit_us))


def read_row_retention(
    place: Block, record: Mapping[str, Any], keep: Literal["all"] | int | timedelta, envelope: str, mints_times: bool
) -> RowRetention:
    """Read `keep_rows`.

    Args:
        place: the block.
        record: the columns of the table; empty if they come from the source.
        keep: how long times stay readable.
        envelope: the envelope of the collection.
        mints_times: whether its times are minted.

    Raises:
        ConfigurationError: the rule is not complete, or the collection cannot have it.
    """
    if envelope != "append_only":
        place.fail(
            f"is not allowed for the envelope '{envelope}', whose source states which rows are removed",
            "only append-only collections can have `keep_rows`",
        )
    if not isinstance(place.value, dict):
        place.fail("is not a mapping", "write `keep_rows: {column: created_at, for: 30d}`")
    place.check_keys({"column", "for", "unit"})
    named, lasts, unit = place.child("column"), place.child("for"), place.child("unit")
    duration = duration_of(lasts.value)
    if duration is None:
        problem = "is missing" if lasts.value is None else f"should be a duration, not {lasts.value!r}"
        lasts.fail(problem, "write a number and a unit, such as 12h or 30d")
    if not isinstance(named.value, str):
        named.fail("is missing or not a name", f"name a column, or {TIME_COLUMN}")
    if unit.value is not None and unit.value not in _UNITS_US:
        unit.fail(f"should be one of {', '.join(_UNITS_US)}, not {unit.value!r}", _FIX)
    if named.value == TIME_COLUMN:
        return _by_time(place, unit, duration, keep, mints_times)
    kind = _kind_of(named, dict(record))
    if (kind == "number") != (unit.value is not None):
        unit.fail(
            f"is missing: '{named.value}' holds numbers" if kind == "number" else f"is not allowed for a {kind}",
            "say what the numbers count since 1970: `unit: s`, `ms` or `us`" if kind == "number" else "leave it out",
        )
    return RowRetention(column=named.value, kind=kind, unit_us=_UNITS_US.get(unit.value or "us", 1), duration=duration)


def _by_time(
    place: Block, unit: Block, duration: timedelta, keep: Literal["all"] | int | timedelta, mints_times: bool
) -> RowRetention:
    """Return the rule for `_time`; refuse it if compaction could move the times of rows that must still be kept."""
    if mints_times and unit.value is not None:
        unit.fail("is not allowed: minted times are milliseconds", "leave it out")
    if not mints_times and unit.value is None:
        unit.fail(
            "is missing: the source states the times", "say what a time counts since 1970: `unit: s`, `ms` or `us`"
        )
    unit_us = _UNITS_US["ms" if mints_times else unit.value]
    if isinstance(keep, timedelta):
        is_kept = mints_times and keep >= duration
    else:
        is_kept = keep == "all" or keep * unit_us >= duration // timedelta(microseconds=1)
    if not is_kept:
        enough = "at least as long as `for`" if mints_times else "a distance of times that is at least as long as `for`"
        place.child("column").fail(
            f"is {TIME_COLUMN}, but `keep` lets compaction move times forward before rows are as old as `for` says",
            f"set `keep` to `all` or to {enough}, or name a column of the data; {_FIX}",
        )
    return RowRetention(column=TIME_COLUMN, kind="number", unit_us=unit_us, duration=duration)


def _kind_of(named: Block, record: dict[str, Any]) -> Literal["timestamp", "date", "number"]:
    columns: dict[str, Column] = {}
    if record:
        columns = {column.name: column for column in column_types(record)}
    if named.value not in columns:
        usable = [name for name, column in columns.items() if _time_kind(column) is not None]
        named.fail(
            f"is not a column of the schema: '{named.value}'", f"name one of: {', '.join([*usable, TIME_COLUMN])}"
        )
    kind = _time_kind(columns[named.value])
    if kind is None:
        named.fail(
            f"is '{named.value}', which holds no points in time",
            "name a timestamp, a date, or an integer column with `unit: s`, `ms` or `us`",
        )
    return kind


def _time_kind(column: Column) -> Literal["timestamp", "date", "number"] | None:
    """Return how a column can state a point in time; None if it cannot."""
    if not isinstance(column.type, Primitive):
        return None
    logical = scalar_type(column.type.name, column.type.logical).logical
    if logical in ("timestamp-millis", "timestamp-micros"):
        return "timestamp"
    if logical == "date":
        return "date"
    return "number" if not logical and column.type.name in ("int", "long") else None
