"""The published contents of a collection, as other engines read them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from deltalake import DeltaTable

from tidelake.read.publication import publication_of
from tidelake.storage import blobs
from tidelake.storage.location import Location
from tidelake.store.entry import Collection
from tidelake.store.published import live_files


def table_of(collection: Collection) -> Location:
    """Where a collection is published."""
    published = publication_of(collection)
    assert published is not None, f"{collection.name} is not published"
    return published.table


def rows_of(collection: Collection) -> list[dict[str, Any]]:
    """The published rows, as delta-rs and Arrow read them."""
    table = table_of(collection)
    read = DeltaTable(str(table), storage_options=blobs.delta_options(table)).to_pyarrow_table()
    rows: list[dict[str, Any]] = read.to_pylist()
    return rows


def rows_in_duckdb(collection: Collection) -> list[dict[str, Any]]:
    """The published rows, as DuckDB reads them from the live files."""
    import duckdb

    files = [str(table_of(collection) / path) for path in _live(collection)]
    if not files:
        return []
    read: list[dict[str, Any]] = duckdb.read_parquet(files, union_by_name=True).to_arrow_table().to_pylist()
    return read


def counted(rows: Iterable[dict[str, Any]], text: Callable[[dict[str, Any]], str]) -> dict[str, int]:
    """How many times each row occurs. If rows have a `_diff`, no row may appear twice."""
    found: Counter[str] = Counter()
    for row in rows:
        diff, place = row.pop("_diff", None), text(row)
        assert diff != 0, place
        assert diff is None or place not in found, f"{place} appears twice"
        found[place] += 1 if diff is None else diff
    return dict(found)


def check_shows(collection: Collection, expected: Mapping[str, int], text: Callable[[dict[str, Any]], str]) -> None:
    """Check that delta-rs and DuckDB read these contents."""
    assert counted(rows_of(collection), text) == dict(expected)
    assert counted(rows_in_duckdb(collection), text) == dict(expected)


def _live(collection: Collection) -> list[str]:
    table = table_of(collection)
    return [file.path for file in live_files(DeltaTable(str(table), storage_options=blobs.delta_options(table)))]
