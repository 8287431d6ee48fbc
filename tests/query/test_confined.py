"""Queries and predicates may contain only what is listed; errors name what is refused. No JVM is started."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tidelake.query.confined import CHARACTERS_MAX, Refused, parse_predicate, parse_query
from tidelake.query.engine import Engine
from tidelake.query.functions import ACCEPTED
from tidelake.query.functions import BY_NAME as FUNCTIONS_BY_NAME


@pytest.fixture
def engine() -> Iterator[Engine]:
    with Engine() as engine:
        yield engine


QUERIES = {
    "select * from a join b using (id) left join c on a.x = c.x": ("a", "b", "c"),
    "with few as (select id from a limit 5) select count(*) from few, b": ("a", "b"),
    "select x, sum(y) filter (where y > 0) from a group by rollup(x) having count(*) > 1 order by 2 desc": ("a",),
    "select id, lag(y) over (partition by x order by id) from a qualify row_number() over (order by id) < 3": ("a",),
    "from a select list(x order by x), string_agg(y, ',' order by y)": ("a",),
    "select * from a where exists (select 1 from b where b.id = a.id) and date_trunc('day', t) > date '2020-01-01'": (
        "a",
        "b",
    ),
    "select * from range(3) r(i), unnest([1, 2]) u(j)": (),
    "select list_transform(l, lambda x: x + 1), s.city, {'a': 1}, l[1:2] from a union all select 1, 2, 3, 4;": ("a",),
    "select list(x order by x) over (), sum(y) over (partition by x), lag(x) over w from a window w as (order by x)": (
        "a",
    ),
    "select sum(x) over (order by y rows 1 preceding), row_number() over (order by y) from a": ("a",),
    "select rank() over (), max(x) over (rows between unbounded preceding and unbounded following) from a": ("a",),
    "values (1), (2)": (),
    "unpivot a on x, y into name n value v": ("a",),
}


SCOPES = {
    "with a as (select * from a where x) select * from a": ("a",),
    "select * from (with a as (select 1) select * from a) n, a": ("a",),
    "with n as (select * from b), b as (select 1) select * from n, b": ("b",),
    "with recursive n as (select 1 as i union all select i + 1 from N where i < 3) select * from n": (),
    "with recursive a as (select i from a union all select i + 1 from a where i < 3) select * from a": ("a",),
    "with n as (select 1), m as (select * from n) select * from m where 1 in (from n) order by (from n)": (),
    "select * from a where exists (with _stored_0 as (select 1) from _stored_0) and 1 in (from _stored_0)": (
        "a",
        "_stored_0",
    ),
    'with "_\u212aept_0" as (select 1) select * from _kept_0': ("_kept_0",),
}
"""A name means a collection unless a `with` around it defines it; a letter that only looks like k is not a k."""


@pytest.mark.parametrize(("query", "tables"), (QUERIES | SCOPES).items())
def test_queries_over_collections_are_accepted(engine: Engine, query: str, tables: tuple[str, ...]) -> None:
    assert set(parse_query(engine.connection, query).tables) == set(tables)


BY_NAME = {
    "list_aggregate([1, 2, 3], 'reservoir_quantile', 0.5) = 2": "calls 'reservoir_quantile', which is not accepted",
    "list_aggr([1, 2, 3], 'approx_quantile', 0.5) = 2": "calls 'approx_quantile'",
    "array_aggregate([1, 2], $$mode$$) = 1": "calls 'mode'",
    "array_aggr([1, 2], 'MODE') = 1": "calls 'MODE'",
    "aggregate([1, 2], 'any_value') = 1": "calls 'any_value'",
    "[1, 2].list_aggr('first') = 1": "calls 'first'",
    "list_aggr(function_name := 'last', list := [1]) = 1": "calls 'last'",
    "list_aggr([1], Function_Name := 'last') = 1": "calls 'last'",
    "list_transform([[1]], lambda l: list_aggregate(l, 'bitstring_agg')) = 1": "calls 'bitstring_agg'",
    "list_aggr([1, 2], 'res' || 'ervoir_quantile', 0.5) = 1": "calls 'list_aggr' with a computed function: write ",
    "list_aggr([1, 2], 'sum'::varchar) = 1": "with a computed function",
    "list_aggr([1, 2], name) = 1": "with a computed function",
    "list_aggr([1, 2], null) = 1": "with a computed function",
    "list_aggr([1, 2]) = 1": "with a computed function",
}


@pytest.mark.parametrize(("where", "problem"), BY_NAME.items())
def test_a_function_that_a_text_names_is_refused_like_a_call(engine: Engine, where: str, problem: str) -> None:
    with pytest.raises(Refused) as refused:
        parse_query(engine.connection, f"select {where} from a")
    assert problem in refused.value.problem
    with pytest.raises(Refused) as refused:
        parse_predicate(engine.connection, where)
    assert problem in refused.value.problem


def test_columns_unpacked_into_arguments_do_not_hide_the_name_of_a_function(engine: Engine) -> None:
    with pytest.raises(Refused, match="with a computed function"):
        parse_query(engine.connection, "select list_aggr(*columns(*), 'sum') from a")


@pytest.mark.parametrize("call", ["aggregate(l, 'sum')", "[l].list_aggr('String_Agg', '-')", "list_aggr(l, 'max', x)"])
def test_an_accepted_function_may_be_named_by_a_text(engine: Engine, call: str) -> None:
    assert parse_predicate(engine.connection, f"{call} = 1").names <= {"l", "x"}


def test_every_function_that_takes_the_name_of_a_function_is_known(engine: Engine) -> None:
    found = "SELECT DISTINCT function_name FROM duckdb_functions() WHERE list_contains(parameters, 'function_name')"
    assert {name for (name,) in engine.connection.execute(found).fetchall()} & ACCEPTED == FUNCTIONS_BY_NAME


REFUSED = {
    "select random()": "calls 'random'",
    "select now()": "calls 'now'",
    "select current_date": "uses 'current_date', which depends on the clock or the session",
    'select "user" from a': "uses 'user'",
    "select age(t) from a": "calls 'age'",
    "select getenv('HOME')": "calls 'getenv'",
    "select getvariable('x')": "calls 'getvariable'",
    "select current_setting('threads')": "calls 'current_setting'",
    "select * from read_csv('/etc/passwd')": "calls 'read_csv'",
    "select * from read_text('/etc/passwd')": "calls 'read_text'",
    "select * from glob('/*')": "calls 'glob'",
    "select * from query('select 1')": "calls 'query'",
    "select * from query_table('a')": "calls 'query_table'",
    "select * from duckdb_settings()": "calls 'duckdb_settings'",
    "select * from information_schema.tables": "reads 'information_schema.tables', which is not a collection",
    "select * from system.main.a": "reads 'system.main.a'",
    "select system.main.abs(1)": "functions and types must be written without one",
    "select any_value(x) from a": "calls 'any_value'",
    "select list(x) from a": "calls 'list' without an order",
    "select list(x) over (partition by y) from a": "calls 'list' without an order",
    "select lag(x) over w from a window w as (partition by y)": "calls 'lag' without an order",
    "select row_number() over () from a": "calls 'row_number' without an order",
    "select sum(x) over (rows unbounded preceding) from a": "calls 'sum' over rows without an order",
    "select array(select x from a)": "calls 'array_agg' without an order",
    "select * from a tablesample 10%": "takes a sample",
    "select * from a using sample 5": "takes a sample",
    "select * from a positional join b": "joins rows by their positions",
    "select * from a at (version => 1)": "reads a table at a version",
    "select $1": "has a parameter",
    "select ?": "has a parameter",
    "select 1; select 2": "has several statements",
    "": "is empty",
    "select from": "is invalid: ",
    "describe a": "contains show ref",
    "summarize a": "contains show ref",
    "show tables": "contains show ref",
    **dict.fromkeys(
        (
            "copy a to 'x'",
            "attach 'x'",
            "install httpfs",
            "load httpfs",
            "pragma version",
            "set threads = 1",
            "create table x as select 1",
            "insert into a values (1)",
            "explain select 1",
            "call foo()",
            "pivot a on x using sum(y)",
            "export database 'x'",
        ),
        "is not a query: only SELECT is accepted",
    ),
    f"select a{'.b' * 100} from a": "has a name of 101 parts, more than 100",
    f"select {'1 + ' * CHARACTERS_MAX} 1": "characters, more than 100000",
}


@pytest.mark.parametrize(("query", "problem"), REFUSED.items())
def test_everything_else_is_refused_by_name(engine: Engine, query: str, problem: str) -> None:
    with pytest.raises(Refused) as refused:
        parse_query(engine.connection, query)
    assert problem in refused.value.problem


@pytest.mark.parametrize(
    ("where", "names"),
    [
        ("a > 1 -- x", {"a"}),
        ("a is not distinct from null and b in (1, 2) or c like 'x%'", {"a", "b", "c"}),
        ("case when a then b end", {"a", "b"}),
        ("place.city = 'x' and list_contains(l, 1)", {"place", "city", "l"}),
    ],
)
def test_a_predicate_is_a_condition_on_columns(engine: Engine, where: str, names: set[str]) -> None:
    assert parse_predicate(engine.connection, where).names == names


@pytest.mark.parametrize(
    ("where", "problem"),
    [
        ("1 = 1) or (1 = 1", "is invalid"),
        ("a, b", "is more than one condition"),
        ("a b", "gives its result a name"),
        ("a from t", "is more than a condition"),
        ("a order by 1", "is more than a condition"),
        ("true group by 1", "is more than a condition"),
        ("a limit 1", "is more than a condition"),
        ("a union select true", "is more than a condition"),
        ("a in (select 1)", "contains a subquery"),
        ("sum(a) > 1", "calls a function over several rows"),
        ("rank() over () = 1", "calls a function over several rows"),
        ("#1", "refers to a column by its position"),
        ("*", "contains *"),
        ("random() > 0.5", "calls 'random'"),
        ("repeat(name, 1000000) = ''", "calls 'repeat', whose result has no bound"),
        ("a; drop table x", "only SELECT is accepted"),
        ("", "is invalid"),
    ],
)
def test_a_predicate_cannot_be_anything_else(engine: Engine, where: str, problem: str) -> None:
    with pytest.raises(Refused) as refused:
        parse_predicate(engine.connection, where)
    assert problem in refused.value.problem


def test_a_column_named_user_or_current_date_is_a_column_in_a_predicate(engine: Engine) -> None:
    where = "\"user\" = 'ann' and Current_Date is null"
    with pytest.raises(Refused, match="uses 'Current_Date', which depends on the clock"):
        parse_predicate(engine.connection, where, ["user"])
    columns = ["USER", "current_date"]
    assert parse_predicate(engine.connection, where, columns).names == {"user", "current_date"}
    assert engine.scalar(f"SELECT ({where}) FROM (SELECT 'ann' AS user, NULL AS current_date)") is True


_ZONE = """+ - century date_diff date_part date_sub date_trunc datediff datepart datesub datetrunc day dayname
    dayofmonth dayofweek dayofyear decade era generate_series hour isodow isoyear julian last_day make_timestamptz
    microsecond millennium millisecond minute month monthname quarter range second strftime time_bucket timezone
    week weekday weekofyear year yearweek"""
ZONE = frozenset(_ZONE.split())
"""Functions whose value also depends on the time zone of the session, which is always UTC."""


def test_every_accepted_function_exists_and_has_the_same_value_each_time(engine: Engine) -> None:
    stabilities: dict[str, set[str | None]] = {}
    rows = engine.connection.execute("SELECT function_name, stability FROM duckdb_functions()").fetchall()
    for name, stability in rows:
        stabilities.setdefault(name, set()).add(stability)
    window = {"unnest"}
    assert {name for name in ACCEPTED if name not in stabilities} <= window
    other = {name: stabilities.get(name, set()) - {"CONSISTENT", None} for name in ACCEPTED}
    assert {name for name, found in other.items() if found} == ZONE
    assert all(other[name] == {"CONSISTENT_WITHIN_QUERY"} for name in ZONE)


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM read_text('/etc/hostname')",
        "COPY (SELECT 1) TO '/tmp/tidelake-copied'",
        "INSTALL httpfs",
        "SET enable_external_access = true",
        "SET threads = 1",
        "ATTACH '/tmp/tidelake.duckdb'",
        "SELECT * FROM engine",
    ],
)
def test_the_engine_itself_cannot_reach_anything_outside(engine: Engine, statement: str) -> None:
    import duckdb

    with pytest.raises(duckdb.Error):
        engine.connection.execute(statement).fetchall()
