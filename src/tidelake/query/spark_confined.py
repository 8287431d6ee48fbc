"""Spark's SQL, confined: it reads the lake's collections and calls functions of their values, and nothing else.

A query is parsed and analyzed in a session of its own, which has none of the caller's state: no views, functions,
variables or settings. Spark's own parser says what a text contains; whatever is not known to be harmless is refused,
and the error names it. The plan that was checked is the plan that runs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame, SparkSession

from tidelake.query.answer import first_line
from tidelake.query.confined import CHARACTERS_MAX, Refused
from tidelake.query.spark_functions import ACCEPTED, IN_ORDER, IN_WINDOWS
from tidelake.read.predicate import DATES, OPERATORS, is_built_in, problem_of_dates, problems_of_plan

_DIALECT = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.caseSensitive": "false",
    "spark.sql.legacy.ctePrecedencePolicy": "CORRECTED",
    # By default, the parser evaluates the rows of VALUES, and the checks would not see the calls in these rows.
    "spark.sql.parser.eagerEvalOfUnresolvedInlineTable": "false",
    "spark.sql.parser.quotedRegexColumnNames": "false",
    "spark.sql.session.timeZone": "UTC",
    # By default, `${env:HOME}` would become a value from this process's environment.
    "spark.sql.variable.substitute": "false",
}
"""The settings that determine what a text means; they are the same in every session."""

_OF_PLANS = """Aggregate Distinct Except Filter Generate GlobalLimit Intersect Join LateralJoin LocalLimit Offset
    OneRowRelation Pivot Project Sort SubqueryAlias Union UnresolvedHaving UnresolvedInlineTable UnresolvedRelation
    UnresolvedSubqueryColumnAliases UnresolvedWith Unpivot"""
_PLANS = frozenset(_OF_PLANS.split())
"""The classes of the plans that Spark's parser builds from accepted syntax."""
_OF_EXPRESSIONS = """Alias Cube CurrentRow Exists GroupingSets InSubquery LateralSubquery ListQuery MultiAlias Rollup
    ScalarSubquery SortOrder SpecifiedWindowFrame UnboundedFollowing UnboundedPreceding UnresolvedAlias
    UnresolvedGenerator UnresolvedStar UnspecifiedFrame WindowExpression WindowSpecDefinition"""
_EXPRESSIONS = OPERATORS | frozenset(_OF_EXPRESSIONS.split())
"""The classes of the expressions that Spark's parser builds from accepted syntax."""
_NAMED = {
    "NamedParameter": "has a parameter; write the value out",
    "PosParameter": "has a parameter; write the value out",
    "PlanWithUnresolvedIdentifier": "reads a table whose name is computed",
    "RelationTimeTravel": "reads a table at a version; the time of all tables is chosen with the query",
    "Sample": "takes a sample, which is different each time",
    "ScriptTransformation": "runs a program",
    "UnresolvedHint": "contains a hint, which is not accepted",
    "UnresolvedStarExceptOrReplace": "contains * except, which is not accepted; name the columns",
    "UnresolvedWindowExpression": "gives a window a name, which is not accepted; write it out after `over`",
    "WithWindowDefinition": "gives a window a name, which is not accepted; write it out after `over`",
}
"""How an error describes refused syntax that people are likely to write, by class."""


@dataclass(frozen=True)
class Confined:
    """A query that was accepted."""

    session: Any
    """The session of the JVM in which the query is analyzed."""
    plan: Any
    tables: tuple[str, ...]
    """The names of tables as written, each once; without those that the query defines itself."""


def parse_sql(spark: SparkSession, query: str) -> Confined:
    """Parse a query in Spark's dialect. No table is looked up.

    Raises:
        Refused: it is not one query, or contains something that is not accepted.

    Cost: some calls into the JVM for each part of the query; no rows.
    """
    if len(query) > CHARACTERS_MAX:
        raise Refused(f"has {len(query)} characters, more than {CHARACTERS_MAX}")
    session = spark._jsparkSession.newSession()
    for name, value in _DIALECT.items():
        session.conf().set(name, value)
    with _in_session(spark, session), _invalid():
        plan = session.sessionState().sqlParser().parsePlan(query)
        if _class_of(plan) not in _PLANS and _class_of(plan) not in _NAMED:
            raise Refused("is not a query: only SELECT is accepted")
        return Confined(session, plan, tuple(dict.fromkeys(_tables(spark, session, plan))))


def frame_of(spark: SparkSession, confined: Confined, frames: Mapping[str, DataFrame]) -> DataFrame:
    """Return the rows of a query as a lazy DataFrame of the caller's session.

    Args:
        spark: the session of the DataFrames.
        confined: the query.
        frames: the rows of each table, by name; all tables of the query are included.

    Raises:
        Refused: the query is invalid for these columns, or its result depends on more than the rows.

    Cost: one analysis; no rows.
    """
    assert spark._jvm is not None
    dataset = spark._jvm.org.apache.spark.sql.classic.Dataset
    with _in_session(spark, confined.session), _invalid():
        for name, frame in frames.items():
            view = dataset.ofRows(confined.session, frame._jdf.queryExecution().analyzed())
            view.createTempView("`" + name.replace("`", "``") + "`")
        analyzed = dataset.ofRows(confined.session, confined.plan).queryExecution().analyzed()
        for part in (analyzed, *_items(analyzed.subqueriesAll())):
            for problem in problems_of_plan(spark._jvm, confined.session, part):
                raise Refused(problem)
    return DataFrame(dataset.ofRows(spark._jsparkSession, analyzed), spark)


@contextmanager
def _in_session(spark: SparkSession, session: Any) -> Iterator[None]:
    """Activate a session of the JVM: the parser and the analyzer take settings from the active session."""
    assert spark._jvm is not None
    sessions = spark._jvm.org.apache.spark.sql.classic.SparkSession
    before = sessions.getActiveSession()
    sessions.setActiveSession(session)
    try:
        yield
    finally:
        if before.isDefined():
            sessions.setActiveSession(before.get())
        else:
            sessions.clearActiveSession()


@contextmanager
def _invalid() -> Iterator[None]:
    """Turn Spark's errors about a text into a refusal."""
    try:
        yield
    except (AnalysisException, ParseException) as error:
        raise Refused(f"is invalid: {first_line(error)}") from error
    except Py4JJavaError as error:
        if error.java_exception.getClass().getSimpleName() != "StackOverflowError":
            raise
        raise Refused("is nested too deeply") from error


def _tables(spark: SparkSession, session: Any, plan: Any) -> Iterator[str]:
    """Check each part of a plan, and yield the names of the tables that it does not define itself."""
    waiting: list[tuple[Any, frozenset[str]]] = [(plan, frozenset())]
    while waiting:
        node, defined = waiting.pop()
        kind = _class_of(node)
        if kind not in _PLANS:
            raise Refused(_NAMED.get(kind, f"contains {kind}, which is not accepted"))
        if kind == "UnresolvedRelation":
            parts = _items(node.multipartIdentifier())
            if node.isStreaming() or len(parts) != 1:
                raise Refused(f"reads '{'.'.join(parts)}', which is not a collection")
            if parts[0].lower() not in defined:
                yield parts[0]
        for expression in _items(node.expressions()):
            _check_expression(spark, session, expression)
        if kind == "UnresolvedWith":
            if node.allowRecursion():
                raise Refused("is recursive, which is not accepted")
            for each in _items(node.innerChildren()):  # as in Spark, a definition sees those before it
                waiting.append((each, defined))
                defined |= {each.alias().lower()}
        else:
            waiting += [(each, defined) for each in _items(node.subqueries())]
        waiting += [(each, defined) for each in _items(node.children())]


def _check_expression(spark: SparkSession, session: Any, expression: Any) -> None:
    nodes = json.loads(expression.toJSON())
    above = ""
    for node in nodes:  # each comes before its children
        kind = _kind(node["class"])
        if kind not in _EXPRESSIONS:
            raise Refused(_NAMED.get(kind, f"contains {kind}, which is not accepted"))
        if kind in ("UnresolvedFunction", "UnresolvedGenerator"):
            written = node["nameParts"].strip("[]") if kind == "UnresolvedFunction" else node["name"]["funcName"]
            name = written.lower()
            if name not in ACCEPTED or "database" in node.get("name", ()):
                raise Refused(f"calls '{written}', which is not accepted")
            if not is_built_in(spark._jvm, session, name):
                raise Refused(f"calls '{written}', which this session has replaced")
            if name in IN_ORDER and not node["orderingWithinGroup"]:
                raise Refused(f"calls '{name}' without an order: write {name}(…) within group (order by …)")
            if name in IN_WINDOWS and above != "WindowExpression":
                raise Refused(f"calls '{name}' without a window: write {name}(…) over (order by …)")
        above = kind
    if any(node.get("dataType") in DATES for node in nodes) and (problem := problem_of_dates(expression)):
        raise Refused(problem)


def _class_of(node: Any) -> str:
    return _kind(node.getClass().getName())


def _kind(name: str) -> str:
    return name.rpartition(".")[2].partition("$")[0]


def _items(found: Any) -> Sequence[Any]:
    return [found.apply(at) for at in range(found.size())]
