"""Checks the predicate of a read: accepts expressions over the columns of the contents, and nothing else.

A read AS OF a time gives the same rows whenever it is repeated. So a predicate must not see a clock, a random number, a
session, a file or a table, and must not call user-defined functions.
It is checked before any row is read. First, as it is written: it may consist only of known operators and functions;
whatever Spark adds later is refused until it is listed here. Second, the size of every value that it computes must have
a bound; see `predicate_growth`. Third, as Spark understands it: Spark's own rules that insert the time or values of the
session must find nothing to replace, because even `day = 'today'` depends on a clock.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from tidelake.errors import PredicateRefused, hint_for_name
from tidelake.read.predicate_growth import FUNCTIONS, problem_of_growth

CHARACTERS_MAX = 100_000
"""Maximum length of a predicate."""

_OPERATORS = """Add And BitwiseAnd BitwiseNot BitwiseOr BitwiseXor CaseWhen Cast Collate Concat
    CreateNamedStruct Divide EqualNullSafe EqualTo GreaterThan GreaterThanOrEqual ILike In IntegralDivide
    IsNotNull IsNotUnknown IsNull IsUnknown LambdaFunction LessThan LessThanOrEqual Like LikeAll LikeAny Literal
    Multiply Not NotLikeAll NotLikeAny Or Overlay RLike Remainder ShiftLeft ShiftRight ShiftRightUnsigned
    StringLocate StringTrim StringTrimLeft StringTrimRight Substring Subtract TimestampAdd TimestampDiff
    UnaryMinus UnaryPositive UnresolvedAttribute UnresolvedCollation UnresolvedExtractValue UnresolvedFunction
    UnresolvedNamedLambdaVariable"""
OPERATORS = frozenset(_OPERATORS.split())
"""The classes of the nodes that Spark's parser builds from accepted syntax."""
_NAMED = {
    "Alias": "gives its result a name, or is incomplete",
    "AggregateExpression": "calls a function over several rows",
    "WindowExpression": "calls a function over several rows",
    **dict.fromkeys(("Exists", "InSubquery", "LateralSubquery", "ListQuery", "ScalarSubquery"), "contains a subquery"),
}
"""How an error describes the refused syntax that people are most likely to write, by the class of its node."""
DATES = frozenset({"date", "timestamp", "timestamp_ntz"})
_WRITTEN_OUT = re.compile(r"""\w+\s*r?(['"])\s*[+-]?[0-9][^\\'"]*\1""", re.IGNORECASE)
"""A date or time in digits. `date 'today'` becomes a date as well; only its text shows that it has no digits."""

VARIABLE = "${"
"""The start of Spark's substitution: `'${env:HOME}'` would become a value from this process's environment."""
_REPLACED = "split such a text: concat('$', '{…')"
_FIX = "compare the columns with values that you write out; docs/reference/python.md says what a predicate may contain"


def check_predicate(spark: SparkSession, where: str, schema: StructType) -> None:
    """Refuse a predicate that is not an expression over these columns, or whose value could depend on anything else.

    Cost: one parse and one analysis on the driver; no rows.

    Raises:
        PredicateRefused: the error says what is wrong.
    """
    if len(where) > CHARACTERS_MAX:
        too_long = f"has {len(where)} characters, more than {CHARACTERS_MAX}"
        raise PredicateRefused(where, too_long, "write a shorter one, or filter the DataFrame")
    if VARIABLE in where:
        raise PredicateRefused(where, f"contains {VARIABLE}, which Spark replaces before it parses", _REPLACED)
    zone = spark.conf.get("spark.sql.session.timeZone")
    if zone != "UTC":
        depends = f"could give different rows here: this session has the time zone {zone}, not UTC"
        raise PredicateRefused(where, depends, "set spark.sql.session.timeZone to UTC, or use start_session()")
    try:
        parsed = spark._jsparkSession.sessionState().sqlParser().parseExpression(where)
        nodes = json.loads(parsed.toJSON())
        problems = chain(
            _problems_of_syntax(spark, parsed, nodes, where, schema.names),
            _problems_of_size(nodes),
            _problems_of_meaning(spark, where, schema),
        )
        problem = next(problems, None)
    except (AnalysisException, ParseException) as error:
        raise _misfit(where, str(error).strip().splitlines()[0], schema.names) from error
    except Py4JJavaError as error:
        if error.java_exception.getClass().getSimpleName() != "StackOverflowError":
            raise
        raise PredicateRefused(where, "is nested too deeply", "write `id in (…)` instead of many `or`") from error
    if problem is not None:
        raise PredicateRefused(where, problem, _FIX)


def _misfit(where: str, fact: str, names: Sequence[str], wrong: str = "") -> PredicateRefused:
    hint = hint_for_name(wrong, names, "the columns are those of `tidelake read` without --columns")
    return PredicateRefused(where, f"is invalid: {fact}", hint)


def _problems_of_syntax(
    spark: SparkSession, parsed: Any, nodes: Sequence[Any], where: str, names: Sequence[str]
) -> Iterator[str]:
    """Yield each problem with a part of the predicate that is not known to be harmless.

    Raises:
        PredicateRefused: the predicate uses a column that does not exist.
    """
    for node in nodes:
        kind = node["class"].rpartition(".")[2].partition("$")[0]  # an operator may be an anonymous class
        if kind not in OPERATORS:
            yield _NAMED.get(kind, f"contains {kind}, which is not accepted")
        elif kind == "UnresolvedFunction":
            name = node["nameParts"].strip("[]")
            if name.lower() not in FUNCTIONS:
                yield f"calls '{name}', which is not accepted"
            elif not is_built_in(spark._jvm, spark._jsparkSession, name):
                yield f"calls '{name}', which this session has replaced"
    known = {name.lower() for name in names}
    for node in nodes:
        if node["class"].endswith(".UnresolvedAttribute"):
            # Without this, `current_date` and `user`, which are functions without parentheses, would pass.
            name = node["nameParts"].removeprefix("[").removesuffix("]")
            if not known & {name.lower(), name.lower().partition(", ")[0]}:
                written = name.replace(", ", ".")
                raise _misfit(where, f"'{written}' is not a column", names, written)
    if any(node.get("dataType") in DATES for node in nodes) and (problem := problem_of_dates(parsed)):
        yield problem


def _problems_of_size(nodes: Sequence[Any]) -> Iterator[str]:
    """Yield how a value may become too large; call it only if the syntax has no problems."""
    if problem := problem_of_growth(nodes):
        yield problem


def is_built_in(jvm: Any, session: Any, name: str) -> bool:
    """Return whether a function in a session of the JVM is Spark's own."""
    identifier = jvm.org.apache.spark.sql.catalyst.FunctionIdentifier(name)
    found = session.sessionState().functionRegistry().lookupFunction(identifier)
    return bool(found.isDefined() and found.get().getSource() == "built-in")


def problem_of_dates(parsed: Any) -> str | None:
    """Return the problem if an expression has a date or time that is not written out in digits."""
    for text in _dates_of(parsed):
        if not _WRITTEN_OUT.fullmatch(text):
            return f"contains {text}, which is not a date or time in digits"
    return None


def _dates_of(parsed: Any) -> Iterator[str]:
    """Yield the text of each literal that is a date or a time."""
    waiting = [parsed]
    while waiting:
        node = waiting.pop()
        if node.getClass().getSimpleName() == "Literal" and node.dataType().typeName() in DATES:
            origin = node.origin()
            start, stop = origin.startIndex().get(), origin.stopIndex().get()
            yield origin.sqlText().get()[start : stop + 1]
        children = node.children()
        waiting += [children.apply(at) for at in range(children.size())]


def _problems_of_meaning(spark: SparkSession, where: str, schema: StructType) -> Iterator[str]:
    """Yield each problem with the predicate as Spark would evaluate it."""
    empty = spark.createDataFrame([], schema).where(where)
    plan = empty._jdf.queryExecution().analyzed()
    yield from problems_of_plan(spark._jvm, spark._jsparkSession, plan)
    # A session variable can remain only inside a lambda: elsewhere, a name that is not a column was refused.
    if "->" in where and ".VariableReference" in plan.condition().toJSON():
        yield "depends on the session: it uses a session variable"


def problems_of_plan(jvm: Any, session: Any, analyzed: Any) -> Iterator[str]:
    """Yield each reason why the result of an analyzed plan depends on more than the rows; subqueries are ignored."""
    rules = jvm.org.apache.spark.sql.catalyst.optimizer
    plan = rules.ReplaceExpressions.apply(analyzed)
    if not rules.ComputeCurrentTime.apply(plan).equals(plan):
        yield "depends on the clock or on the session's time zone"
    if not rules.SpecialDatetimeValues.apply(plan).equals(plan):
        yield "depends on the clock: it uses a word such as 'now' or 'today' as a date or time"
    if not rules.ReplaceCurrentLike(session.sessionState().catalogManager()).apply(plan).equals(plan):
        yield "depends on the session"
    if not plan.deterministic():
        yield "does not have the same value each time"
