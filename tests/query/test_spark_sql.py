"""SQL in Spark's dialect: queries that are refused before anything is read, and the same rows as from DuckDB."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Literal

import pytest
from pyspark.sql import DataFrame, SparkSession

from jobs import ingest, seal
from tests.cli.commands import call
from tests.golden.shown import unpack
from tests.query.both_engines import check_equal
from tests.query.test_while_ticks_run import ASKED, Bank
from tidelake import open_lake
from tidelake.errors import QueryRefused
from tidelake.lake import Lake
from tidelake.query.confined import CHARACTERS_MAX, Refused
from tidelake.query.spark_confined import frame_of, parse_sql
from tidelake.query.spark_functions import ACCEPTED as FUNCTIONS
from tidelake.read.predicate import is_built_in
from tidelake.settings.lake import load_settings

pytestmark = pytest.mark.spark

ORDERS = "id bigint, shop string, price decimal(10,2), day date, at timestamp, tags array<string>"
SHOPS = "shop string, city string"
TABLES = {"orders": ORDERS, "shops": SHOPS}

ACCEPTED = [
    "select * from orders",
    "table orders",
    "from ORDERS select id where price > 1.5",
    "select city, sum(price) as total from orders join shops using (shop) group by all having total > 1 order by 1",
    "select o.id, s.city from orders o left join shops as s on o.shop = s.shop limit 3 offset 1",
    "select count(distinct shop) filter (where id > 1) as n, max_by(shop, id) as most from orders",
    "select id, row_number() over (partition by shop order by at, id) as n from orders",
    "select sum(id) over (order by id rows between 2 preceding and unbounded following) as n from orders",
    "select first_value(id) over (order by at) as n from orders",
    "select id from orders where shop in (select shop from shops where city like 'O%') and exists (select 1)",
    "select (select max(city) from shops s where s.shop = o.shop) as city from orders o",
    "with o as (select * from orders), p as (select id from o) select * from p union all select id from o",
    "with shops as (select 1 as x) select x from shops",
    "select id from (with o as (select id from orders) select id from o) except select 1",
    "select o.id, t.city from orders o, lateral (select city from shops s where s.shop = o.shop) t",
    "select id, tag from orders lateral view explode(tags) t as tag",
    "select posexplode(tags) as (place, tag) from orders",
    "select * from (select shop, id from orders) pivot (sum(id) for shop in ('a' as a, 'b' as b))",
    "select v.a from orders join (values (1, date '2024-01-01'), (2, null)) as v (a, b) on v.a = id",
    "select shop, day, sum(id) as n from orders group by grouping sets ((shop), (day))",
    "select listagg(shop, ',') within group (order by shop) as shops from orders",
    "select id from orders where day >= '2024-01-01' and at < timestamp '2025-01-01 00:00:00' -- '${env:HOME}'",
    "select '${env:HOME}' as text, current_date.id from orders as current_date",
]

REFUSED = {
    "drop table orders": "is not a query",
    "insert into orders select * from orders": "is not a query",
    "set spark.sql.ansi.enabled = false": "is not a query",
    "with o as (select 1) insert into orders select * from o": "contains InsertIntoStatement",
    "select 1 as x; select 2 as x": "is invalid",
    "selec 1": "is invalid",
    "": "is invalid",
    "select * from parquet.`/etc`": "reads 'parquet./etc', which is not a collection",
    "select * from text.`/etc/passwd`": "reads 'text./etc/passwd'",
    "select id from orders where shop in (select value from text.`/etc/passwd`)": "reads 'text./etc/passwd'",
    "select (select max(value) from csv.`/etc/passwd`) as x": "reads 'csv./etc/passwd'",
    "with o as (select * from json.`/etc`) select * from o": "reads 'json./etc'",
    "select t.value from orders, lateral (select * from text.`/etc/passwd`) t": "reads 'text./etc/passwd'",
    "select id from orders order by (select max(value) from text.`/etc/passwd`)": "reads 'text./etc/passwd'",
    "select * from default.orders": "reads 'default.orders'",
    "select * from orders version as of 1": "reads a table at a version",
    "select * from identifier('orders')": "whose name is computed",
    "select * from range(3)": "contains UnresolvedTableValuedFunction",
    "select * from orders tablesample (10 percent)": "takes a sample",
    "select transform(id) using 'cat' from orders": "runs a program",
    "select reflect('java.lang.System', 'getProperty', 'user.home') as x": "calls 'reflect'",
    "select java_method('java.lang.Math', 'random') as x": "calls 'java_method'",
    "select rand() as x from orders": "calls 'rand'",
    "select id from orders order by uuid()": "calls 'uuid'",
    "select id from orders join shops on rand() > 0.5": "calls 'rand'",
    "select v.a from (values (rand())) as v (a)": "calls 'rand'",
    "select sum(id) over (order by rand()) as n from orders": "calls 'rand'",
    "select my_function(id) as x from orders": "calls 'my_function'",
    "select system.builtin.abs(id) as x from orders": "calls 'system, builtin, abs'",
    "select t from orders lateral view my_generator(tags) v as t": "calls 'my_generator'",
    "select collect_list(id) as ids from orders": "calls 'collect_list'",
    "select listagg(shop) as shops from orders": "calls 'listagg' without an order",
    "select first_value(id) as id from orders": "calls 'first_value' without a window",
    "select any_value(id) as id from orders": "contains AggregateExpression",
    "select sum(id) over w as n from orders window w as (order by rand())": "gives a window a name",
    "select /*+ broadcast(orders) */ id from orders": "contains a hint",
    "select * except (id) from orders": "name the columns",
    "select id from orders where id = :id": "has a parameter",
    "select id from orders where id = ?": "has a parameter",
    "select date 'today' as day": "contains date 'today', which is not a date or time in digits",
    "values (timestamp 'now')": "which is not a date or time in digits",
    "with recursive o as (select 1 as x union all select x + 1 from o) select x from o": "is recursive",
    "select id from orders where id = " + "(" * 5_000 + "1" + ")" * 5_000: "is nested too deeply",
    " " * CHARACTERS_MAX + "select 1 as x": "more than 100000",
    # Found only by Spark's analysis:
    "select nmae from orders": "is invalid",
    "select current_date as day from orders": "depends on the clock",
    "select id from orders where exists (select 1 from shops where day > current_date)": "depends on the clock",
    "with o as (select current_timestamp as t from orders) select * from o": "depends on the clock",
    "select unix_timestamp() as x": "depends on the clock",
    "select current_user as x": "depends on the session",
    "select id from orders where shop in (select user from shops)": "depends on the session",
    "select id from orders where day = 'today'": "depends on the clock",
    "select id from orders where id in (select 1 where cast('now' as timestamp) > at)": "depends on the clock",
}


@pytest.fixture(scope="module")
def frames(spark: SparkSession) -> dict[str, DataFrame]:
    """The tables, without rows."""
    return {name: spark.createDataFrame([], schema) for name, schema in TABLES.items()}


@pytest.mark.parametrize("query", ACCEPTED)
def test_a_query_over_collections_is_accepted(spark: SparkSession, frames: dict[str, DataFrame], query: str) -> None:
    confined = parse_sql(spark, query)
    assert {table.lower() for table in confined.tables} <= set(TABLES)
    assert frame_of(spark, confined, frames).columns


@pytest.mark.parametrize("query", REFUSED)
def test_any_other_query_is_refused_with_an_error_that_says_what_is_wrong(
    spark: SparkSession, frames: dict[str, DataFrame], query: str
) -> None:
    with pytest.raises(Refused) as refused:
        frame_of(spark, parse_sql(spark, query), frames)
    assert REFUSED[query] in refused.value.problem


def test_a_name_is_a_definition_only_where_spark_sees_it_as_one(spark: SparkSession) -> None:
    for query, tables in (
        ("with orders as (select * from orders) select * from orders", {"orders"}),
        ("with a as (select * from b), b as (select 1 as x) select * from a, b", {"b"}),
        ("select * from (with a as (select 1 as x) select * from a) join a", {"a"}),
        ("with a as (select 1 as x) select * from shops where exists (select * from A)", {"shops"}),
        ("select * from stream orders", {"stream"}),
        ("select * from shops where exists (with a as (select 1) select * from a) and 1 in (table a)", {"shops", "a"}),
    ):
        assert set(parse_sql(spark, query).tables) == tables, query


def test_nothing_of_the_callers_session_is_seen_or_changed(spark: SparkSession) -> None:
    mine = spark.newSession()
    mine.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    mine.createDataFrame([(1,)], "secret int").createOrReplaceTempView("shops")
    mine.udf.register("upper", lambda text: "replaced")
    views = mine.sql("show tables").collect()
    orders = mine.createDataFrame([(1, "a")], "id int, shop string")
    query = "select upper(shop) as shop, hour(timestamp '2024-01-01 05:00:00Z') as hour from orders"
    frame = frame_of(mine, parse_sql(mine, query), {"orders": orders})
    assert [tuple(row) for row in frame.collect()] == [("A", 5)]
    assert frame.sparkSession is mine
    assert mine.sql("show tables").collect() == views
    with pytest.raises(Refused, match="is invalid"):
        frame_of(mine, parse_sql(mine, "select * from shops"), {})
    active = SparkSession.getActiveSession()
    assert active is not None
    assert active._jsparkSession.equals(mine._jsparkSession)
    assert spark.range(1).count() == 1


def test_every_accepted_function_is_built_into_spark(spark: SparkSession) -> None:
    assert [name for name in sorted(FUNCTIONS) if not is_built_in(spark._jvm, spark._jsparkSession, name)] == []


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack(tmp_path_factory.mktemp("golden"))


def check_same(spark: SparkSession, lake: Lake, query: str, as_of: int | Literal["latest"] = "latest") -> None:
    """Ask both engines, and compare their rows and the time."""
    ours = lake.query(query, as_of, skip_errors=True)
    theirs = lake.sql(spark, query, as_of, skip_errors=True)
    assert (theirs.time, theirs.timeline, theirs.facts[-1]) == (ours.time, ours.timeline, ours.facts[-1])
    assert set(theirs.collections) == set(ours.collections)
    assert ours.table.num_rows > 1
    check_equal(ours.table, theirs.frame.toArrow(), (query, as_of))


def test_duckdb_and_spark_give_the_same_rows_for_a_join_at_the_same_time(spark: SparkSession, tmp_path: Path) -> None:
    bank = Bank(tmp_path, Random(18))
    for _ in range(4):
        bank.move()
    settings = load_settings(bank.file)
    for job in (ingest, seal):
        job.run(spark, settings)
    lake = open_lake(bank.file, read_only=True)
    joined = "select s.id, s.price, c.price as other, s._diff from savings s join current c on s.id = c.id"
    grouped = (
        "with s as (select id, cast(sum(price * _diff) as bigint) as total, count(*) as n from savings group by id) "
        "select id, total, n from s where total >= (select min(price) from current) or id in (select id from idle)"
    )
    for query in (joined, grouped, ASKED):
        check_same(spark, lake, query)
        check_same(spark, lake, query, 2)


def test_duckdb_and_spark_give_the_same_rows_for_each_type(spark: SparkSession, config: Path) -> None:
    lake = open_lake(config, read_only=True)
    check_same(spark, lake, "select id, name, price, moved_at, day, kind, tags, weight, is_last, raw, _diff from plain")
    check_same(spark, lake, "with d as (select * from debezium) select a.id, b.name from d a join d b on a.id >= b.id")


def test_missing_tables_and_columns_are_refused_as_duckdb_refuses_them(spark: SparkSession, config: Path) -> None:
    lake = open_lake(config, read_only=True)
    for query, problem in (
        ("select * from nobody", "reads 'nobody', which is not a collection"),
        ("select _diff from upsert", "is invalid: "),
        ("select id, id from plain", "gives several columns the name 'id'"),
    ):
        for ask in (lake.query, lambda query: lake.sql(spark, query)):
            with pytest.raises(QueryRefused, match=problem):
                ask(query)
    assert [row.x for row in lake.sql(spark, "select 1 as x").frame.collect()] == [1]


def test_the_command_prints_what_duckdb_prints(spark: SparkSession, config: Path) -> None:
    query = "select id, price, day, raw, tags, weight from plain order by id, name, price, day, raw, weight"
    ask = ("sql", query, "--config", str(config), "--json")
    assert call(*ask, "--engine", "spark") == call(*ask)
    limited = ("sql", query, "--config", str(config), "--limit", "2")
    assert call(*limited, "--engine", "spark") == call(*limited)
    with pytest.raises(QueryRefused, match="fails: "):
        call("sql", "select cast(name as int) as n from plain", "--config", str(config), "--engine", "spark")
