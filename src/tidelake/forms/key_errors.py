"""Finds, without a JVM, the keys in error: those whose newest record cannot be used.

`positioned.keys_in_error` finds them with Spark, AS OF any time.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import isnan
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidelake.store.commit import OpenTable
from tidelake.store.entry import Collection
from tidelake.store.files import open_parquet, read_footer
from tidelake.store.layout import DIFF, ERROR, POSITION, TIME
from tidelake.store.state import HAS_BARRIERS, HAS_ERRORS

KEYS_EXAMINED_MAX = 10_000
_NAMED_MAX = 10


@dataclass(frozen=True)
class KeyErrors:
    """The keys whose newest stored row has an error.

    Args:
        count: the number of keys; if `has_more`, a lower bound.
        has_more: whether more than `KEYS_EXAMINED_MAX` keys have a stored error; the rest of them were not examined.
        first: some of the keys, each with its error.
        rows: for each key in error, the time of its newest row, followed by the numbers of that row's position.
    """

    count: int = 0
    has_more: bool = False
    first: list[str] = field(default_factory=list)
    rows: frozenset[tuple[int, ...]] = frozenset()


def keys_in_error(collection: Collection) -> KeyErrors:
    """Find the keys whose newest stored row has an error.

    Cost: nothing if no error was ever stored; the footers of all files if merges have dropped every error; otherwise
    up to three passes over the key's columns and four others.
    """
    table = OpenTable(collection.paths.updates)
    if not table.value(HAS_ERRORS):
        return KeyErrors()
    key = collection.entry.key
    path, live = collection.paths.updates, table.files()
    holders = [open_parquet(path, file) for file in live if _holds_errors(read_footer(path, file))]
    stated = [_rows(file, key, pc.is_valid(pc.field(ERROR))) for file in holders]
    suspects = {_key_of(row, key): row for rows in stated for row in rows}
    examined = sorted(suspects, key=repr)[:KEYS_EXAMINED_MAX]
    if not examined:
        return KeyErrors()
    files = [open_parquet(path, file) for file in live]
    newest: dict[Hashable, dict[str, Any]] = {}
    # Filtering by the key's first column lets few other rows through; the whole key is compared here.
    wanted = _first_value_in([suspects[suspect] for suspect in examined], files[0].schema_arrow.field(key[0]))
    for row in (row for file in files for row in _rows(file, key, wanted)):
        row_key = _key_of(row, key)
        if row_key in suspects and row[DIFF] and (row_key not in newest or _rank(newest[row_key]) < _rank(row)):
            newest[row_key] = row
    barrier = _greatest_barrier(files, key) if table.value(HAS_BARRIERS) else []
    errors = [row for row in newest.values() if row[ERROR] is not None and row[POSITION] >= barrier]
    errors.sort(key=lambda row: repr(_key_of(row, key)))
    return KeyErrors(
        len(errors),
        len(suspects) > len(examined),
        [_shown(row, key) for row in errors[:_NAMED_MAX]],
        frozenset((row[TIME], *row[POSITION]) for row in errors),
    )


def _holds_errors(footer: pq.FileMetaData) -> bool:
    """Return whether, judging by its footer alone, a file may have a row with an error."""
    place = next(column for column in range(footer.num_columns) if footer.schema.column(column).path == ERROR)
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    counted = [(group.num_rows, group.column(place).statistics) for group in groups]
    return any(statistics is None or statistics.null_count != rows for rows, statistics in counted)


def _rows(file: pq.ParquetFile, key: Sequence[str], where: pc.Expression) -> Iterator[dict[str, Any]]:
    columns = [*key, TIME, DIFF, POSITION, ERROR]
    for batch in file.iter_batches(columns=columns):
        yield from pa.Table.from_batches([batch]).filter(where).to_pylist()


def _greatest_barrier(files: Sequence[pq.ParquetFile], key: Sequence[str]) -> list[int]:
    positions = [row[POSITION] for file in files for row in _rows(file, key, pc.field(DIFF) == 0)]
    return max(positions, default=[])


def _first_value_in(rows: Iterable[dict[str, Any]], column: pa.Field) -> pc.Expression:
    """Return a filter for the rows that have the same value in a column as one of these rows.

    Of a struct, only the first field is compared; a list is not compared, so all rows pass.
    """
    path = [column]
    while pa.types.is_struct(path[-1].type):
        path.append(path[-1].type.field(0))
    kind = path[-1].type
    if pa.types.is_nested(kind):
        return pc.scalar(True)
    names = [field.name for field in path]
    values: list[Any] = [_at(row, names) for row in rows]
    values += [-value for value in values if value == 0 and pa.types.is_floating(kind)]
    return pc.field(*names).isin(pa.array(values, kind))


def _at(row: Any, names: Sequence[str]) -> Any:
    for name in names:
        row = None if row is None else row[name]
    return row


def _key_of(row: dict[str, Any], key: Sequence[str]) -> tuple[Hashable, ...]:
    return tuple(_comparable(row[name]) for name in key)


def _comparable(value: Any) -> Hashable:
    """Make a value comparable as Spark compares it: NaN equals itself, and both zeros are equal.

    >>> _comparable({"x": float("nan"), "y": [0.0]}) == _comparable({"x": float("nan"), "y": [-0.0]})
    True
    """
    if isinstance(value, dict):
        return tuple(_comparable(item) for item in value.values())
    if isinstance(value, list):
        return ("list", *(_comparable(item) for item in value))
    if isinstance(value, float):
        return ("NaN",) if isnan(value) else value + 0.0  # turns -0.0 into 0.0
    return value  # type: ignore[no-any-return]


def _rank(row: dict[str, Any]) -> tuple[Any, ...]:
    return row[POSITION], row[DIFF] > 0, row[TIME]


def _shown(row: dict[str, Any], key: Sequence[str]) -> str:
    named = json.dumps({name: row[name] for name in key}, default=str, ensure_ascii=False, separators=(",", ":"))
    return f"{named}: {row[ERROR]}"
