"""Compares a collection's contents at a time with the truth: whole rows, as multisets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from examples.demo.topics import LARGE, PERSON
from tidelake.catalog.catalog import Catalog
from tidelake.generator.truth import contents_at, read_truth
from tidelake.read.snapshot import snapshot

PUBLISHED_CONTENTS: dict[int, list[dict[str, Any]]] = {
    4: [{"id": 5, "price": 12, "_diff": 1}],
    5: [{"id": 5, "price": 10, "_diff": 1}],
    6: [],
}
"""The contents of the example according to the protocol's documentation, by time."""

# The recorded PostgreSQL rows have bytes in hex, decimals as text, and times in microseconds.
_AS_RECORDED = {"bin": "lower(hex(bin))", "price": "string(price)", "seen": "unix_micros(seen)", "day": "string(day)"}


@dataclass(frozen=True)
class Comparison:
    """Whether the contents of one collection AS OF one time equal the truth."""

    name: str
    as_of: int
    rows: int
    truth: str
    """The source of the truth."""
    equal: bool


def compare_published(spark: SparkSession, catalog: Catalog) -> Iterator[Comparison]:
    """Compare the published example at the three times that its documentation names."""
    for as_of, expected in PUBLISHED_CONTENTS.items():
        rows = _rows(spark, catalog, "prices", as_of)
        yield Comparison("prices", as_of, len(rows), "documentation", _counted(rows) == _counted(expected))


def compare_capture(spark: SparkSession, catalog: Catalog, as_of: int, expected: list[list[Any]]) -> Comparison:
    """Compare the captured table AS OF the time of a tick with the rows that PostgreSQL had then."""
    frame = snapshot(spark, catalog.find("people"), as_of).contents
    columns = [_AS_RECORDED.get(field["name"], f"`{field['name']}`") for field in PERSON["fields"]]
    rows = [list(row) for row in frame.selectExpr(*columns, "_diff").collect()]
    return Comparison("people", as_of, len(rows), "PostgreSQL", sorted(rows) == sorted([*row, 1] for row in expected))


def compare_large(spark: SparkSession, catalog: Catalog, folder: Path) -> Iterator[Comparison]:
    """Compare each generated collection at three times, including the last one before upper."""
    for name in LARGE:
        upper = read_truth(folder / f"{name}.truth.json").upper
        for as_of in (upper // 3, 2 * upper // 3, upper - 1):
            read = snapshot(spark, catalog.find(name), as_of).contents.toArrow()
            truth = contents_at(folder / f"{name}.truth.parquet", as_of)
            equal = _counted(read.select(truth.schema.names).to_pylist()) == _counted(truth.to_pylist())
            yield Comparison(name, as_of, read.num_rows, "generator", equal)


def _rows(spark: SparkSession, catalog: Catalog, name: str, as_of: int) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = snapshot(spark, catalog.find(name), as_of).contents.toArrow().to_pylist()
    return rows


def _counted(rows: list[dict[str, Any]]) -> Counter[str]:
    return Counter(repr(row) for row in rows)
