"""Reads rows of contents for the command line, and translates Spark's errors."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame

    from tidelake.query.answer import Answer
    from tidelake.schema.columns import Column, ColumnType


def names_in(columns: str | None) -> list[str]:
    """Return the names in an option, each once.

    >>> names_in(" id, price,id,"), names_in(None)
    (['id', 'price'], [])
    """
    return list(dict.fromkeys(filter(None, map(str.strip, columns.split(","))))) if columns else []


@contextmanager
def spark_errors(step: str, name: str, where: str | None) -> Iterator[None]:
    """Translate Spark's errors: to `PredicateRefused` if the predicate fails on the data, otherwise to `ReadFailed`."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    from tidelake.errors import PredicateRefused, ReadFailed

    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        java = getattr(error, "java_exception", None)
        fact = str(error if java is None else java.toString()).split("\n", maxsplit=1)[0]
        state = (error.getSqlState() or "") if isinstance(error, PySparkException) else ""
        if where is not None and state.startswith(("22", "P0")):  # an error in the data, or `raise_error`
            raise PredicateRefused(
                where, f"fails: {fact}", "write a predicate that is true or false for every row"
            ) from error
        raise ReadFailed(step, name, type(error).__name__, fact) from error


def rows_of(frame: DataFrame, rows_max: int | None) -> list[dict[str, Any]]:
    """Return the rows in order, with all digits of their numbers.

    The JVM sends the rows as JSON, because Python's dates end in the year 9999.
    """
    from pyspark.sql import functions as F

    from tidelake.decode.landing import ROW_TEXT
    from tidelake.protocol.json_values import parse

    names = [f"`{name}`" for name in frame.columns]
    rows = frame.orderBy(*names)
    rows = rows if rows_max is None else rows.limit(rows_max)
    return [parse(row[0]) for row in rows.select(F.to_json(F.struct(*names), ROW_TEXT)).collect()]


def rows_from(answer: Answer, columns: tuple[Column, ...], rows_max: int | None) -> list[dict[str, Any]]:
    """Return the rows of DuckDB's answer as `rows_of` returns those of a DataFrame."""
    from tidelake.query.values import json_rows

    return json_rows(answer.table(rows_max, in_order=True), columns)


def with_bytes(row: dict[str, Any], kinds: dict[str, ColumnType], convert: Callable[[str], Any]) -> dict[str, Any]:
    """Return the row with `convert(base64 text)` in place of all bytes, even within nested columns."""
    from tidelake.schema.columns import map_bytes

    return {name: map_bytes(kinds[name], value, convert) if name in kinds else value for name, value in row.items()}
