"""Every type of DuckDB: a query returns its exact values, or an error names the type. No JVM is started."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tidelake.errors import QueryRefused
from tidelake.query.engine import Engine
from tidelake.query.sql import QueryAnswer, answer, checked_query
from tidelake.query.values import query_rows

_NUMBER = "340282366920938463463374607431768211455::uhugeint"
_LONG = "interval '9000000000000 seconds'"

MISSING = ("UHUGEINT", "BIGNUM", "BIT", "TIME WITH TIME ZONE", "GEOMETRY", "VARIANT")
"""The types that Arrow does not have."""

EXTREMES = """(-170141183460469231731687303715884105728)::hugeint, 170141183460469231731687303715884105727::hugeint,
    -99999999999999999999999999999999999999::decimal(38,0), '0.99999999999999999999999999999999999999'::decimal(38,38),
    18446744073709551615::ubigint, '24:00:00'::time, '23:59:59.999999999'::time_ns, '24:00:00'::time_ns,
    '1677-09-22'::timestamp_ns, '2262-04-11 23:47:16.854775806'::timestamp_ns, '294247-01-10 04:00:54'::timestamp_s,
    '290309-12-22 (BC) 00:00:00'::timestamp_ms, 'infinity'::timestamp, '-infinity'::date, '-0.0'::float,
    'nan'::double, 1e-45::float, 'b'::enum('a', 'b'), 'ffffffff-ffff-ffff-ffff-ffffffffffff'::uuid,
    map {date '5881580-07-10': [1]}, row(1, '24:00:00'::time), [interval '2562046 hours'], [1, 2]::int[2],
    interval '-2562046 hours', interval '178956970 years 7 months', interval '-2147483648 days', null,
    9223372036854775807::bigint::union(a bigint, b varchar), {'a': {'b': '12:00'::time}}"""


def _answer(query: str) -> QueryAnswer:
    return answer(checked_query(query, ()), None)


def _answer_unchecked(query: str) -> QueryAnswer:
    """Answer a query that may call `test_all_types`."""
    return answer(replace(checked_query("select 1", ()), text=query), None)


@pytest.mark.parametrize("source", ["test_all_types()", f"(select {EXTREMES})"])
def test_an_answer_has_the_extreme_values_of_every_type_as_duckdb_writes_them(source: str) -> None:
    with Engine() as engine:
        kinds = [kind for _, kind in engine.columns(f"SELECT * FROM {source}")]
        names = [f"_{place}" for place in range(len(kinds))]
        renamed = f"{source} t({', '.join(names)})"
        exact = {name: kind for name, kind in zip(names, kinds, strict=True) if str(kind) not in MISSING}
        table = _answer_unchecked(f"SELECT {', '.join(exact)} FROM {renamed}").table
        engine.add_table("answered", table)
        texts = ", ".join(f"{name}::{kind}::VARCHAR AS {name}" for name, kind in exact.items())
        found, wanted = (engine.table(f"SELECT {texts} FROM {read}").to_pylist() for read in ("answered", renamed))
    for ours, theirs in zip(found, wanted, strict=True):
        assert ours == theirs
    assert len(query_rows(table)) == len(wanted)


@pytest.mark.parametrize("kind", MISSING)
def test_types_that_arrow_does_not_have_are_refused_by_name(kind: str) -> None:
    with pytest.raises(QueryRefused, match=f"the column 'x' values of the type {kind}, which Arrow does not have"):
        _answer(f"select null::{kind} as x")


@pytest.mark.parametrize("value", ["{}", "[{}]", "{{'a': [{}]}}", "map {{1: {}}}", "row(1, {})", "[{}, {}][1:2]"])
def test_values_that_arrow_would_change_are_refused_inside_others_too(value: str) -> None:
    with pytest.raises(QueryRefused, match=r"values of the type UHUGEINT, which Arrow does not have.*\n.*cast them"):
        _answer(f"select {value.format(_NUMBER, _NUMBER)} as x")
    with pytest.raises(QueryRefused, match="an interval of 2,562,047 hours or more, which Arrow does not have"):
        _answer(f"select 1, {value.format(_LONG, _LONG)} as x; -- the end")
    short = _answer(
        f"select i as n, {value.format('to_hours(2562046)', 'null')} as x from range(3) r(i) order by i desc;"
    )
    assert short.table.column_names == ["n", "x"] and short.table["n"].to_pylist() == [2, 1, 0]


def test_only_the_long_ones_of_many_intervals_are_refused() -> None:
    union = "(case when i = 1 then to_hours(i * {})::union(i interval, n int) else 5::union(i interval, n int) end)"
    assert _answer(f"select {union.format(2562046)} as x from range(3) r(i)").table.num_rows == 3
    with pytest.raises(QueryRefused, match="the column 'x' an interval"):
        _answer(f"select {union.format(2562047)} as x from range(3) r(i)")
    both = 'select to_hours(-2562047) as "X", null::interval as y'
    with pytest.raises(QueryRefused, match="the column 'X' an interval"):
        _answer(both)
    assert _answer(both.replace("-2562047", "-2562046")).table.column_names == ["X", "y"]
    with pytest.raises(QueryRefused, match="gives several columns the name 'x'"):
        _answer("select to_days(1) as x, to_days(2) as x")


def test_json_has_the_digits_that_python_has_not() -> None:
    values = {
        "'24:00:00'::time": "24:00:00",
        "'12:00:00.5'::time": "12:00:00.500000",
        "'23:59:59.999999999'::time_ns": "23:59:59.999999999",
        "'2026-01-02 03:04:05.123456789'::timestamp_ns": "2026-01-02T03:04:05.123456789",
        "'2026-01-02 03:04:05.5'::timestamp_ns": "2026-01-02T03:04:05.500000",
        "[date '1970-01-02']::date[1]": ["1970-01-02"],
        "map {timestamp '1970-01-01': time '24:00:00'}": [["1970-01-01T00:00:00.000000", "24:00:00"]],
        "date '10000-01-01'::union(d date, n int)": "+10000-01-01",
        "170141183460469231731687303715884105727::hugeint": 2**127 - 1,
    }
    for value, wanted in values.items():
        assert query_rows(_answer(f"select {value} as x").table) == [{"x": wanted}], value


@pytest.mark.parametrize("kind", ["float", "double"])
def test_a_zero_plus_zero_has_no_sign(kind: str) -> None:
    """docs/guides/reading-at-a-time.md relies on this; an optimizer could remove the addition."""
    values = f"(values ('-0.0'::{kind}), (0), (-1)) v(x)"
    found = _answer(f"select signbit(x) as before, signbit(x + 0.0) as after from {values}").to_pylist()
    assert [(row["before"], row["after"]) for row in found] == [(True, False), (False, False), (True, True)]
