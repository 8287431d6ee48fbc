"""SQL over several collections at one time, in Spark's dialect, for results of any size."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tidelake.errors import QueryRefused
from tidelake.query.answer import first_line
from tidelake.query.confined import Refused
from tidelake.query.spark_confined import Confined, frame_of, parse_sql
from tidelake.query.sql import FIX, collections_named
from tidelake.read.moment import Moment
from tidelake.store.layout import DIFF


@dataclass(frozen=True)
class SparkAnswer:
    """The rows of a query as a DataFrame, and the time at which all of its collections are read."""

    frame: DataFrame
    """The rows, which are not read yet. The frame stays at the versions that the tables had when it was planned."""
    time: int | None
    """The time; pass it as `not_before` to the next query. None if the query names no collection."""
    timeline: str | None
    facts: tuple[str, ...]
    """Why this time was chosen, and what it means, in sentences."""
    collections: tuple[str, ...]


@dataclass(frozen=True)
class SparkQuery:
    """An accepted query, and the collections that it names, spelled as in the settings."""

    text: str
    confined: Confined
    collections: Mapping[str, str]
    """The name of each collection, by its name in the query."""


def checked_sql(spark: SparkSession, query: str, names: Sequence[str]) -> SparkQuery:
    """Check a query, and find the collections that it names. Nothing is opened.

    Args:
        spark: the session.
        query: a SELECT in Spark's dialect.
        names: the names of the lake's collections.

    Raises:
        QueryRefused: the query is not accepted, or names a table that is not a collection; the error says why.
    """
    with _refused(query):
        confined = parse_sql(spark, query)
    return SparkQuery(query, confined, collections_named(query, confined.tables, names))


def sql_answer(spark: SparkSession, query: SparkQuery, moment: Moment | None, skip_errors: bool = False) -> SparkAnswer:
    """Plan a query at a moment of its collections.

    Args:
        spark: the session of the DataFrame.
        query: the query, which can be answered only once.
        moment: the moment; None if the query names no collection.
        skip_errors: leave out keys in error.

    Raises:
        KeysInError: there are keys in error at the time, and `skip_errors` is false.
        QueryRefused: the query is invalid for the columns, or its result depends on more than the rows.

    Cost: one analysis, and a search for keys in error in collections that have stored some; no other rows are read.
    """
    frames = {}
    for name in dict.fromkeys(query.collections.values()):
        assert moment is not None
        contents = moment.snapshot(spark, name, skip_errors=skip_errors).contents
        frames[name] = contents.drop(DIFF) if moment.member(name).collection.entry.key else contents
    with _refused(query.text):
        frame = frame_of(spark, query.confined, frames)
    repeated = [name for name, times in Counter(frame.columns).items() if times > 1]
    if repeated:
        raise QueryRefused(query.text, f"gives several columns the name '{repeated[0]}'", "rename one with `as`")
    if moment is None:
        return SparkAnswer(frame, None, None, ("the query names no collection",), ())
    return SparkAnswer(frame, moment.time, moment.timeline, moment.facts, moment.names)


@contextmanager
def failures(query: str) -> Iterator[None]:
    """Turn a Spark error about values, raised while a query runs, into an error about the query."""
    try:
        yield
    except PySparkException as error:
        if (error.getSqlState() or "").startswith(("21", "22")):
            problem = f"fails: {first_line(error)}"
            raise QueryRefused(query, problem, "correct the expression that fails") from error
        raise


@contextmanager
def _refused(query: str) -> Iterator[None]:
    try:
        yield
    except Refused as refused:
        raise QueryRefused(query, refused.problem, FIX) from refused
