"""SQL over several collections at one time, in DuckDB's dialect. Needs no JVM."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.errors import QueryRefused, hint_for_name
from tidelake.query.answer import first_line
from tidelake.query.arrow_types import INTERVAL_HOURS, has_long_interval, missing_type
from tidelake.query.confined import Parsed, Refused, parse_query
from tidelake.query.contents import refuse_errors
from tidelake.query.engine import ENGINE_ERRORS, Engine
from tidelake.query.form import Form
from tidelake.query.forms import form_of
from tidelake.query.names import listed, names_of, quoted
from tidelake.query.reads import Reads, engine_for
from tidelake.read.moment import Moment
from tidelake.store.layout import DIFF

FIX = "write a SELECT over collections of the lake; docs/guides/reading-at-a-time.md says what a query may contain"
_CAST = "cast them, for example to varchar"
_ANSWER = quoted("the query")
"""A name that no collection has."""


@dataclass(frozen=True)
class QueryAnswer:
    """The rows of a query, and the time at which all of its collections were read.

    It is also a source of Arrow data: `pa.table(answer)`, DataFrame libraries, and DuckDB accept it directly.
    """

    table: pa.Table
    """The rows, in the order of the query."""
    time: int | None
    """The time; pass it as `not_before` to the next query. None if the query names no collection."""
    timeline: str | None
    facts: tuple[str, ...]
    """Why this time was chosen, and what it means, in sentences."""
    collections: tuple[str, ...]

    def to_pylist(self) -> list[dict[str, Any]]:
        """Return the rows as Python values.

        Python's times have no 24:00 and no nanoseconds; `table` has such values unchanged.

        Raises:
            OverflowError: a date or timestamp is not within the years 1 to 9999.
        """
        rows: list[dict[str, Any]] = self.table.to_pylist()
        return rows

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return the rows as a stream."""
        return self.table.__arrow_c_stream__(requested_schema)


@dataclass(frozen=True)
class Query:
    """An accepted query, and the collections that it names, spelled as in the settings."""

    text: str
    parsed: Parsed
    collections: Mapping[str, str]
    """The name of each collection, by its name in the query."""


def checked_query(query: str, names: Sequence[str]) -> Query:
    """Check that a query is accepted, and that every table in it is a collection. Nothing is opened.

    Args:
        query: a SELECT.
        names: the names of the lake's collections.

    Raises:
        QueryRefused: the error says what is wrong.
    """
    with Engine() as engine:
        try:
            parsed = parse_query(engine.connection, query)
        except Refused as refused:
            raise QueryRefused(query, refused.problem, FIX) from refused
    return Query(query, parsed, collections_named(query, parsed.tables, names))


def collections_named(query: str, tables: Sequence[str], names: Sequence[str]) -> dict[str, str]:
    """Return the names of the collections that a query reads, as in the settings, by their names in the query.

    Raises:
        QueryRefused: a table is not a collection, or SQL cannot tell two collections apart.
    """
    found: dict[str, str] = {}
    for table in tables:
        same = [name for name in names if name == table] or [name for name in names if name.lower() == table.lower()]
        if len(same) != 1:
            problem = f"reads '{table}', which is not a collection"
            if same:
                problem = f"reads '{table}', which may be {' or '.join(same)}"
            raise QueryRefused(query, problem, hint_for_name(table, names))
        found[table] = same[0]
    if len({name.lower() for name in found.values()}) < len(set(found.values())):
        problem = "reads collections whose names differ only in upper and lower case, which SQL does not distinguish"
        raise QueryRefused(query, problem, "rename one of them, or read them separately")
    return found


def answer(query: Query, moment: Moment | None, skip_errors: bool = False) -> QueryAnswer:
    """Run a query at a moment of its collections.

    Args:
        query: the query.
        moment: the moment; None if the query names no collection.
        skip_errors: leave out keys in error.

    Raises:
        KeysInError: there are keys in error at the time, and `skip_errors` is false.
        QueryRefused: the query is invalid for the columns, or fails.
        DamagedTable: a file is not what was committed, or cannot be read.

    Cost: for each collection, the needed columns of the files with rows at or before the time.
    """
    members = {name: moment.member(name) for name in query.collections.values()} if moment is not None else {}
    with engine_for(member.table for member in members.values()) as engine:
        for name, member in members.items():
            assert moment is not None
            reads = Reads(engine, member.collection, member.table)
            form = form_of(member.collection, member.table)
            if not skip_errors:
                refuse_errors(reads, form, moment.time)
            _create_view(engine, reads, form, name, query.parsed, moment.time)
        with _failures(query.text):
            rows = _rows(engine, query.text)
    if moment is None:
        return QueryAnswer(rows, None, None, ("the query names no collection",), ())
    return QueryAnswer(rows, moment.time, moment.timeline, moment.facts, moment.names)


def _rows(engine: Engine, query: str) -> pa.Table:
    """Run a query; refuse values that Arrow does not have.

    Cost: the query, once. If it returns intervals, they are also compared with Arrow's longest.
    """
    columns = engine.columns(query)
    repeated = [name for name, times in Counter(name for name, _ in columns).items() if times > 1]
    if repeated:
        raise QueryRefused(query, f"gives several columns the name '{repeated[0]}'", "rename one with `as`")
    for name, kind in columns:
        if missing := missing_type(kind):
            problem = f"gives the column '{name}' values of the type {missing}, which Arrow does not have"
            raise QueryRefused(query, problem, _CAST)
    aliases = [f"_{place}" for place in range(len(columns))]
    may_be_long = {
        name: condition
        for alias, (name, kind) in zip(aliases, columns, strict=True)
        if (condition := has_long_interval(alias, kind))
    }
    if not may_be_long:
        return engine.table(query)
    # The query becomes a view, not a subquery: it may end with a semicolon or a comment.
    engine.run(f"CREATE TEMP VIEW {_ANSWER} ({listed(aliases)}) AS {query}")
    rows = engine.table(f"SELECT {listed([*aliases, *may_be_long.values()])} FROM {_ANSWER}")
    for name, are_long in zip(may_be_long, rows.columns[len(columns) :], strict=True):
        if pc.any(are_long).as_py():
            problem = f"gives the column '{name}' an interval of {INTERVAL_HOURS:,} hours or more"
            raise QueryRefused(query, f"{problem}, which Arrow does not have", _CAST)
    return rows.select(range(len(columns))).rename_columns([name for name, _ in columns])


def _create_view(engine: Engine, reads: Reads, form: Form, name: str, parsed: Parsed, at: int) -> None:
    """Make the contents of a collection readable under its name.

    With a key, each row occurs once. Without a key, `_diff` says how often it occurs, even if the published
    table repeats the row instead: the setting `bag` affects only that table.
    """
    needed = names = [field.name for field in form.fields]
    if form.key and not parsed.takes_all_columns:
        # Only with a key: without one, rows equal in these columns would be added up, and a query would count fewer.
        needed = [column for column in names if column.lower() in parsed.names] or list(form.key)
    rows = form.contents(reads, at, needed)
    shown = names_of(needed) if form.key else names_of([*needed, DIFF])
    engine.run(f"CREATE TEMP VIEW {quoted(name)} AS SELECT {shown} FROM ({rows})")


@contextmanager
def _failures(query: str) -> Iterator[None]:
    try:
        yield
    except (duckdb.BinderException, duckdb.CatalogException, duckdb.ParserException) as error:
        raise QueryRefused(query, f"is invalid: {first_line(error)}", FIX) from error
    except duckdb.OutOfMemoryException as error:
        fix = "select fewer rows, or run it with Spark: lake.sql(spark, …)"
        raise QueryRefused(query, f"needs more memory than there is: {first_line(error)}", fix) from error
    except ENGINE_ERRORS as error:
        raise QueryRefused(query, f"fails: {first_line(error)}", "correct the expression that fails") from error
