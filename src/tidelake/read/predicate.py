"""Which predicates a read accepts: expressions over the columns of the contents, and nothing else.

A read AS OF a time gives the same rows whenever it is repeated. So a predicate must not see a clock, a random number, a
session, a file or a table, and must not call user-defined functions. It is checked twice, before any row is read.
First, as it is written: it may consist only of known operators and functions; whatever Spark adds later is refused
until it is listed here. Then, as Spark understands it: Spark's own rules that insert the time or values of the session
must find nothing to replace, because even `day = 'today'` depends on a clock.
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

CHARACTERS_MAX = 100_000
"""Maximum length of a predicate."""

# Left out on purpose: functions that can make a value of any size from a number (`repeat`, `lpad`, `sequence`).
_FUNCTIONS = (
    # comparisons and conditions
    """between coalesce equal_null greatest if ifnull ilike isnan isnotnull isnull least like nanvl nullif nullifzero
    nvl nvl2 regexp regexp_like rlike when zeroifnull"""
    # conversions
    """ bigint binary boolean date decimal double float int smallint string timestamp tinyint typeof"""
    # numbers
    """ abs acos acosh asin asinh atan atan2 atanh bin bit_count bit_get bround cbrt ceil ceiling conv cos cosh cot csc
    degrees div e exp expm1 factorial floor getbit hex hypot ln log log10 log1p log2 mod negative pi pmod positive pow
    power radians rint round sec shiftleft shiftright shiftrightunsigned sign signum sin sinh sqrt tan tanh try_add
    try_divide try_mod try_multiply try_subtract unhex width_bucket"""
    # strings and bytes
    """ ascii base64 bit_length btrim char char_length character_length chr collate collation concat concat_ws contains
    crc32 decode elt encode endswith find_in_set hash initcap instr is_valid_utf8 lcase left len length levenshtein
    locate lower ltrim luhn_check make_valid_utf8 mask md5 octet_length overlay parse_url position regexp_count
    regexp_extract regexp_extract_all regexp_instr regexp_replace regexp_substr replace reverse right rtrim sentences
    sha sha1 sha2 soundex split split_part startswith substr substring substring_index to_binary to_char to_number
    to_varchar translate trim try_to_binary try_to_number try_url_decode try_validate_utf8 ucase unbase64 upper
    url_decode url_encode validate_utf8 xxhash64"""
    # dates and times; without an argument, functions like `unix_timestamp` read the clock, which Spark's rules detect
    """ add_months convert_timezone date_add date_diff date_format date_from_unix_date date_part date_sub date_trunc
    dateadd datediff datepart day dayname dayofmonth dayofweek dayofyear extract from_unixtime from_utc_timestamp hour
    last_day make_date make_dt_interval make_interval make_timestamp make_timestamp_ltz make_timestamp_ntz
    make_ym_interval minute month monthname months_between next_day quarter second timestamp_micros timestamp_millis
    timestamp_seconds to_date to_timestamp to_timestamp_ltz to_timestamp_ntz to_unix_timestamp to_utc_timestamp trunc
    try_make_interval try_make_timestamp try_make_timestamp_ltz try_make_timestamp_ntz try_to_timestamp unix_date
    unix_micros unix_millis unix_seconds unix_timestamp weekday weekofyear year"""
    # lists, structs and JSON
    """ aggregate array array_append array_compact array_contains array_distinct array_except array_intersect array_join
    array_max array_min array_position array_prepend array_remove array_size array_sort array_union arrays_overlap
    arrays_zip cardinality element_at exists filter flatten forall from_json get get_json_object json_array_length
    json_object_keys named_struct reduce size slice sort_array struct to_json transform try_element_at
    zip_with"""
)
FUNCTIONS = frozenset(_FUNCTIONS.split())
"""The functions that a predicate may call: what they return depends on their arguments alone."""

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
    "Alias": "ends with a name, or is cut off",
    "AggregateExpression": "calls a function over several rows",
    "WindowExpression": "calls a function over several rows",
    **dict.fromkeys(("Exists", "InSubquery", "LateralSubquery", "ListQuery", "ScalarSubquery"), "contains a subquery"),
}
"""How an error describes the refused syntax that people are most likely to write, by the class of its node."""
_DATES = frozenset({"date", "timestamp", "timestamp_ntz"})
_WRITTEN_OUT = re.compile(r"""\w+\s*r?(['"])\s*[+-]?[0-9][^\\'"]*\1""", re.IGNORECASE)
"""A date or time in digits. `date 'today'` becomes a date as well; only its text shows that it has no digits."""

_FIX = "compare the columns with values that you write out; docs/reference/python.md says what a predicate may contain"


def check_predicate(spark: SparkSession, where: str, schema: StructType) -> None:
    """Refuse a predicate that is not an expression over these columns, or whose value something else could change.

    Cost: one parse and one analysis on the driver; no rows.

    Raises:
        PredicateRefused: the error says what is wrong.
    """
    if len(where) > CHARACTERS_MAX:
        too_long = f"has {len(where)} characters, more than {CHARACTERS_MAX}"
        raise PredicateRefused(where, too_long, "write a shorter one, or filter the frame")
    zone = spark.conf.get("spark.sql.session.timeZone")
    if zone != "UTC":
        depends = f"could give different rows here: this session has the time zone {zone}, not UTC"
        raise PredicateRefused(where, depends, "set spark.sql.session.timeZone to UTC, or use start_session()")
    try:
        parsed = spark._jsparkSession.sessionState().sqlParser().parseExpression(where)
        problems = chain(
            _problems_of_syntax(spark, parsed, where, schema.names), _problems_of_meaning(spark, where, schema)
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


def _problems_of_syntax(spark: SparkSession, parsed: Any, where: str, names: Sequence[str]) -> Iterator[str]:
    """Yield each problem with a part of the predicate that is not known to be harmless.

    Raises:
        PredicateRefused: the predicate uses a column that does not exist.
    """
    nodes = json.loads(parsed.toJSON())
    for node in nodes:
        kind = node["class"].rpartition(".")[2].partition("$")[0]  # an operator may be an anonymous class
        if kind not in OPERATORS:
            yield _NAMED.get(kind, f"contains {kind}, which is not accepted")
        elif kind == "UnresolvedFunction":
            name = node["nameParts"].strip("[]")
            if name.lower() not in FUNCTIONS:
                yield f"calls '{name}', which is not accepted"
            elif not _is_built_in(spark, name):
                yield f"calls '{name}', which this session has replaced"
    known = {name.lower() for name in names}
    for node in nodes:
        if node["class"].endswith(".UnresolvedAttribute"):
            # Without this, `current_date` and `user` would pass, as functions without parentheses.
            name = node["nameParts"].removeprefix("[").removesuffix("]")
            if not known & {name.lower(), name.lower().partition(", ")[0]}:
                written = name.replace(", ", ".")
                raise _misfit(where, f"'{written}' is not a column", names, written)
    if any(node.get("dataType") in _DATES for node in nodes):
        for text in _dates_of(parsed):
            if not _WRITTEN_OUT.fullmatch(text):
                yield f"contains {text}, which is not a date or time in digits"


def _is_built_in(spark: SparkSession, name: str) -> bool:
    identifier = spark._jvm.org.apache.spark.sql.catalyst.FunctionIdentifier(name)  # type: ignore[union-attr]
    found = spark._jsparkSession.sessionState().functionRegistry().lookupFunction(identifier)
    return bool(found.isDefined() and found.get().getSource() == "built-in")


def _dates_of(parsed: Any) -> Iterator[str]:
    """Yield the text of each literal that is a date or a time."""
    waiting = [parsed]
    while waiting:
        node = waiting.pop()
        if node.getClass().getSimpleName() == "Literal" and node.dataType().typeName() in _DATES:
            origin = node.origin()
            start, stop = origin.startIndex().get(), origin.stopIndex().get()
            yield origin.sqlText().get()[start : stop + 1]
        children = node.children()
        waiting += [children.apply(at) for at in range(children.size())]


def _problems_of_meaning(spark: SparkSession, where: str, schema: StructType) -> Iterator[str]:
    """Yield each problem with what Spark would make of the predicate when it runs it."""
    assert spark._jvm is not None
    rules = spark._jvm.org.apache.spark.sql.catalyst.optimizer
    empty = spark.createDataFrame([], schema).where(where)
    plan = rules.ReplaceExpressions.apply(empty._jdf.queryExecution().analyzed())
    if not rules.ComputeCurrentTime.apply(plan).equals(plan):
        yield "depends on the clock or on the session's time zone"
    if not rules.SpecialDatetimeValues.apply(plan).equals(plan):
        yield "depends on the clock: it uses a word such as 'now' or 'today' as a date or time"
    if not rules.ReplaceCurrentLike(spark._jsparkSession.sessionState().catalogManager()).apply(plan).equals(plan):
        yield "depends on the session"
    # Only inside a lambda: elsewhere, a name that is not a column has already been refused.
    if "->" in where and ".VariableReference" in plan.condition().toJSON():
        yield "depends on the session: it uses a session variable"
    if not plan.deterministic():
        yield "does not have the same value each time"
