"""Which keys are in error: those whose newest record could not be decoded. Read without a JVM.

The same question is asked of Spark by `positioned.keys_in_error`, where a read needs an answer at any time.
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

from tidelake.delta.catalog import Collection
from tidelake.delta.commit import OpenTable
from tidelake.delta.layout import DIFF, ERROR, POSITION, TIME
from tidelake.delta.values import HAS_BARRIERS, HAS_ERRORS

KEYS_LOOKED_AT_MAX = 10_000
_NAMED_MAX = 10


@dataclass(frozen=True)
class KeyErrors:
    """The keys in error at the last time.

    Args:
        count: how many; at least so many where `more`.
        more: whether there were more suspects than are looked at.
        first: some of them, each with what is wrong and where it was read.
    """

    count: int = 0
    more: bool = False
    first: list[str] = field(default_factory=list)


def keys_in_error(collection: Collection) -> KeyErrors:
    """Find the keys whose newest row, of all that are stored, has an error.

    Cost: nothing where none was ever stored; the footers of all files where each was healed and merged away; else one
    pass over the key's columns and `_position`.
    """
    table = OpenTable(collection.paths.updates)
    if not table.value(HAS_ERRORS):
        return KeyErrors()
    key = collection.entry.key
    files = [pq.ParquetFile(collection.paths.updates / file.path) for file in table.files()]
    stated = [_rows(file, key, pc.is_valid(pc.field(ERROR))) for file in files if _holds_errors(file)]
    suspects = {_key_of(row, key): row for rows in stated for row in rows}
    looked_at = sorted(suspects, key=repr)[:KEYS_LOOKED_AT_MAX]
    if not looked_at:
        return KeyErrors()
    newest: dict[Hashable, dict[str, Any]] = {}
    # The first value of the key leaves few others; the rest is compared here.
    wanted = _first_value_in([suspects[one] for one in looked_at], files[0].schema_arrow.field(key[0]))
    for row in (row for file in files for row in _rows(file, key, wanted)):
        of_key = _key_of(row, key)
        if of_key in suspects and row[DIFF] and (of_key not in newest or _rank(newest[of_key]) < _rank(row)):
            newest[of_key] = row
    barrier = _greatest_barrier(files, key) if table.value(HAS_BARRIERS) else []
    found = [row for one, row in newest.items() if row[ERROR] is not None and row[POSITION] >= barrier]
    found.sort(key=lambda row: repr(_key_of(row, key)))
    return KeyErrors(len(found), len(suspects) > len(looked_at), [_shown(row, key) for row in found[:_NAMED_MAX]])


def _holds_errors(file: pq.ParquetFile) -> bool:
    """Whether some row may have an error, by the footer alone."""
    at = next(one for one in range(file.metadata.num_columns) if file.metadata.schema.column(one).path == ERROR)
    groups = [file.metadata.row_group(one) for one in range(file.metadata.num_row_groups)]
    counted = [(group.num_rows, group.column(at).statistics) for group in groups]
    return any(found is None or found.null_count != rows for rows, found in counted)


def _rows(file: pq.ParquetFile, key: Sequence[str], where: pc.Expression) -> Iterator[dict[str, Any]]:
    columns = [*key, TIME, DIFF, POSITION, ERROR]
    for batch in file.iter_batches(columns=columns):
        yield from pa.Table.from_batches([batch]).filter(where).to_pylist()


def _greatest_barrier(files: Sequence[pq.ParquetFile], key: Sequence[str]) -> list[int]:
    found = [row[POSITION] for file in files for row in _rows(file, key, pc.field(DIFF) == 0)]
    return max(found, default=[])


def _first_value_in(rows: Iterable[dict[str, Any]], column: pa.Field) -> pc.Expression:
    """Whether a row's first value within a column is that of one of these; all rows where it is a list."""
    path = [column]
    while pa.types.is_struct(path[-1].type):
        path.append(path[-1].type.field(0))
    kind = path[-1].type
    if pa.types.is_nested(kind):
        return pc.scalar(True)
    names = [one.name for one in path]
    values: list[Any] = [_at(row, names) for row in rows]
    values += [-one for one in values if one == 0 and pa.types.is_floating(kind)]
    return pc.field(*names).isin(pa.array(values, kind))


def _at(row: Any, names: Sequence[str]) -> Any:
    for name in names:
        row = None if row is None else row[name]
    return row


def _key_of(row: dict[str, Any], key: Sequence[str]) -> tuple[Hashable, ...]:
    return tuple(_comparable(row[name]) for name in key)


def _comparable(value: Any) -> Hashable:
    """A value that is equal to those which Spark holds to be: NaN to itself, and both zeros.

    >>> _comparable({"x": float("nan"), "y": [0.0]}) == _comparable({"x": float("nan"), "y": [-0.0]})
    True
    """
    if isinstance(value, dict):
        return tuple(_comparable(one) for one in value.values())
    if isinstance(value, list):
        return ("list", *(_comparable(one) for one in value))
    if isinstance(value, float):
        return ("NaN",) if isnan(value) else value + 0.0  # which makes -0.0 the other zero
    return value  # type: ignore[no-any-return]


def _rank(row: dict[str, Any]) -> tuple[Any, ...]:
    return row[POSITION], row[DIFF] > 0, row[TIME]


def _shown(row: dict[str, Any], key: Sequence[str]) -> str:
    named = json.dumps({name: row[name] for name in key}, default=str, ensure_ascii=False, separators=(",", ":"))
    return f"{named}: {row[ERROR]}"
