"""Which predicates a read accepts, and which it refuses before it reads a row."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from tests.lakes.lake import Lake, progress, updates
from tidelake.errors import PredicateRefused
from tidelake.read.predicate import CHARACTERS_MAX, check_predicate
from tidelake.read.predicate_growth import FUNCTIONS
from tidelake.read.snapshot import snapshot

pytestmark = pytest.mark.spark

DDL = (
    "id bigint, name string, price decimal(10,2), weight double, day date, at timestamp, raw binary, paid boolean,"
    "place struct<city: string, zip: struct<code: int>>, tags array<string>, items array<struct<sku: string, n: int>>"
)

ACCEPTED = [
    "true",
    "paid",
    "not paid and (id > 1 or id <= -1) and id <> 3 and id != 4 and id = 5",
    "ID % 2 = 0 and id div 2 > 1 and (id & 3 | 4 ^ ~id) << 1 > 0 and -id < +id",
    "name in ('a', 'b') and id not in (1, 2, null)",
    "name like 'a%' and name not like 'b\\_%' escape '!' and name ilike 'C%' and name rlike '^[a-z]+$'",
    "name like any ('a%', 'b%') and name not like all ('c%', 'd%') and name like all ('%', '_')",
    "id between 1 and 10 and day not between date '2024-01-01' and date '2024-12-31'",
    "case when id > 1 then paid else name = 'x' end and case id when 1 then true end",
    "cast(name as int) > 1 and try_cast(name as date) is null and id::string = '1' and int(price) = 1",
    "coalesce(name, 'x') = 'x' and if(paid, 1, 0) = 1 and nullif(id, 1) is not null and name <=> null",
    "name is distinct from 'a' and paid is true and paid is not unknown",
    "day > '2024-01-31' and at >= timestamp'2024-01-31 12:00:00+01:00' and at < TIMESTAMP \"2025-01-31\"",
    "to_date('2024-01-31') = day and at > to_timestamp('2024-01-31', 'yyyy-MM-dd') and date('2024-01-31') < day",
    "year(day) = 2024 and extract(month from at) = 1 and date_trunc('month', at) = at and dayofweek(day) = 2",
    "day + interval 1 day > date_add(day, 1) and datediff(day, '2024-01-01') > 3 and months_between(day, at) > 1",
    "date_format(at, 'yyyy-MM') = '2024-01' and unix_timestamp(at) > 0 and timestampadd(day, 1, at) > at",
    "place.city = 'Oslo' and place.zip.code = 1 and `place`.`zip`['code'] = 1 and items[0].n > 1",
    "exists(tags, tag -> tag like 'a%') and forall(items, item -> item.n > id) and array_contains(tags, 'x')",
    "size(filter(tags, (tag, at_index) -> at_index > 1 and tag = name)) = 2 and tags[0] = 'a'",
    "aggregate(items, 0, (sum, item) -> sum + item.n, sum -> sum * 2) > 4 and transform(tags, x -> upper(x))[0] = 'A'",
    "name || 'x' = concat(name, 'x') and substring(name from 1 for 2) = 'ab' and trim(both 'x' from name) = 'a'",
    "position('a' in name) = 1 and overlay(name placing 'b' from 1) = 'b' and upper(trim(name)) = lower('A')",
    "(id, name) = (id, upper(name)) and struct(id, name).name = 'a' and named_struct('x', id).x = 1",
    "raw = x'00ff' and sha2(raw, 256) = 'ab' and hex(raw) = '00' and xxhash64(id) % 10 = 3",
    "abs(price) > 1.5bd and round(weight, 2) = 1e-3 and isnan(weight) and price / 3 > 1",
    "get_json_object(name, '$.a') = 'b' and name collate UTF8_LCASE = 'a'",
    "name = 'select current_date, rand()' and name = 'now' and name <> 'today'",
    "replace(replace(replace(name, '-', ''), ' ', '_'), 'ä', 'ae') = 'a' and regexp_replace(name, '(.)-', '$1') = 'a'",
    "aggregate(tags, '', (text, tag) -> concat(text, ',', tag)) = ',a' and array_join(tags, ', ') = 'a, b'",
    "aggregate(items, 0, (most, item) -> greatest(most, item.n)) > 1 and upper(lower(upper(name))) = 'A'",
    "aggregate(items, named_struct('n', 0L, 'of', 0L), (s, i) -> named_struct('n', s.n + i.n, 'of', s.of + 1)).of = 1",
    "from_json(name, 'a int, b array<struct<c: string, d: int>>').b[0].d = 1 and size(split(name, ',')) > 2",
    "exists(items, i -> exists(tags, t -> t = i.sku)) or regexp_count(name, '(?=a)') = 1",
    " and ".join(["concat(name, name, cast(id as string)) <> 'a'"] * 300),
]

REFUSED = [
    ("id in (select 1)", "contains a subquery"),
    ("exists (select 1)", "contains a subquery"),
    ("id = (select count(*) from parquet.`/etc`)", "contains a subquery"),
    ("id not in (select id from text.`/etc/passwd`)", "contains a subquery"),
    ("exists(tags, tag -> tag = (select 'x'))", "contains a subquery"),
    ("case when id in (select 1) then true end", "contains a subquery"),
    ("reflect('java.lang.System', 'getProperty', 'user.home') = 'x'", "calls 'reflect'"),
    ("java_method('java.lang.Math', 'random') > '0.5'", "calls 'java_method'"),
    ("try_reflect('java.lang.Math', 'random') > '0.5'", "calls 'try_reflect'"),
    ("rand() > 0.5", "calls 'rand'"),
    ("RAND(7) > 0.5", "calls 'RAND'"),
    ("`rand`() > 0.5", "calls 'rand'"),
    ("system.builtin.abs(id) > 1", "calls 'system, builtin, abs'"),
    ("exists(tags, tag -> rand() > 0.5)", "calls 'rand'"),
    ("randn() > 0 or uuid() = name", "calls 'randn'"),
    ("shuffle(tags)[0] = 'a'", "calls 'shuffle'"),
    ("monotonically_increasing_id() = 1", "calls 'monotonically_increasing_id'"),
    ("spark_partition_id() = 0", "calls 'spark_partition_id'"),
    ("input_file_name() like '%a%'", "calls 'input_file_name'"),
    ("name = '${env:HOME}'", "contains ${, which Spark replaces before it parses"),
    ("current_date() = day", "calls 'current_date'"),
    ("current_date = day", "'current_date' is not a column"),
    ("at > current_timestamp", "'current_timestamp' is not a column"),
    ("now() > at", "calls 'now'"),
    ("user = name", "'user' is not a column"),
    ("current_user() = name", "calls 'current_user'"),
    ("current_database() = name", "calls 'current_database'"),
    ("current_timezone() = name", "calls 'current_timezone'"),
    ("version() = name", "calls 'version'"),
    ("unix_timestamp() > id", "depends on the clock"),
    ("to_unix_timestamp(at) > unix_timestamp()", "depends on the clock"),
    ("convert_timezone('Europe/Oslo', at) = at", "time zone"),
    ("day = 'today'", "'now' or 'today'"),
    ("day in ('2024-01-01', 'YESTERDAY')", "'now' or 'today'"),
    ("cast('now' as timestamp) > at", "'now' or 'today'"),
    ("to_timestamp(concat('no', 'w')) > at", "'now' or 'today'"),
    ("year('tomorrow') = 2024", "'now' or 'today'"),
    ("day = date 'today'", "contains date 'today'"),
    ("at > timestamp_ltz 'now'", "which is not a date or time in digits"),
    ("cast(at as timestamp_ntz) > timestamp_ntz'tomorrow'", "which is not a date or time in digits"),
    ("at > timestamp/* 2024 */'now'", "which is not a date or time in digits"),
    ("day = date '\\u0074oday'", "which is not a date or time in digits"),
    ("sum(id) > 1", "calls 'sum'"),
    ("any_value(id) = 1", "calls a function over several rows"),
    ("row_number() over (order by id) = 1", "calls a function over several rows"),
    ("explode(tags) = 'a'", "calls 'explode'"),
    ("raise_error('no')", "calls 'raise_error'"),
    ("assert_true(paid) is null", "calls 'assert_true'"),
    ("repeat(name, 2000000000) = 'a'", "calls 'repeat'"),
    ("size(sequence(1, 1000000000)) = 1", "calls 'sequence'"),
    ("replace(" * 10 + "name" + ", 'a', 'aaaaaaaaaa')" * 10 + " = 'a'", "1,000 times as large as its row"),
    ("name = " + "replace(" * 10 + "'a'" + ", 'a', 'aaaaaaaaaa')" * 10, "more than 1,000,000 bytes"),
    ("replace(name, 'a', name) = 'b'", "calls 'replace', which may make a value grow with the square of its row"),
    ("regexp_replace(name, '', name) = 'b'", "grow with the square"),
    (
        "regexp_replace(name, '(?=(.*))', '$1') = 'b'",
        "calls 'regexp_replace', which may make a value grow with the square",
    ),
    ("size(regexp_extract_all(name, '(?=(.*))', 1)) = 2", "calls 'regexp_extract_all'"),
    ("aggregate(tags, name, (text, tag) -> concat(text, text)) = 'b'", "multiplied by 2 for each element of a list"),
    ("reduce(items, tags, (some, item) -> flatten(array(some, some)))[0] = 'b'", "multiplied by 2"),
    ("aggregate(tags, 'a', (s, t) -> aggregate(tags, s, (u, v) -> s || u)) = 'b'", "grow with the square"),
    ("aggregate(tags, '', (text, tag) -> text || name) = 'b'", "calls 'aggregate', which may make a value grow"),
    ("size(transform(tags, tag -> name)) = 1", "calls 'transform', which may make a value grow with the square"),
    ("size(flatten(transform(tags, a -> tags))) = 1", "grow with the square"),
    ("exists(tags, tag -> hex(hex(hex(hex(hex(hex(hex(hex(hex(hex(tag)))))))))) = 'a')", "1,000 times as large"),
    ("array_join(tags, name) = 'b'", "calls 'array_join'"),
    ("concat_ws(name, tags) = 'b'", "calls 'concat_ws'"),
    (f"concat({', '.join(['name'] * 1_001)}) = 'b'", "calls 'concat', which may make a value more than 1,000 times"),
    ("size(flatten(transform(items, i -> transform(tags, t -> t = i.sku)))) > 0", "grow with the square"),
    ("xpath_string(name, 'a') = 'b'", "calls 'xpath_string'"),
    ("identifier('rand')() > 0.5", "ExpressionWithUnresolvedIdentifier"),
    ("rand(seed => 1) > 0.5", "calls 'rand'"),
    ("id > 1 as answer", "gives its result a name"),
    ("nothing_like_it(id)", "calls 'nothing_like_it'"),
    ("nope = 1", "'nope' is not a column"),
    ("_metadata.file_path = 'x'", "'_metadata.file_path' is not a column"),
    ("exists(tags, tag -> other = tag)", "is invalid"),
    ("exists(tags, tag -> user = tag)", "depends on the session"),
    ("exists(tags, tag -> current_date = tag)", "depends on the clock"),
    ("id = 'a' and", "gives its result a name, or is incomplete"),
    ("id = 'a' and (", "is invalid"),
    ("id", "is invalid"),
    ("", "is invalid"),
    ("*", "UnresolvedStar"),
    ("not " * 5_000 + "paid", "is nested too deeply"),
    (f"name = '{'a' * CHARACTERS_MAX}'", f"characters, more than {CHARACTERS_MAX}"),
]


@pytest.fixture(scope="module")
def schema(spark: SparkSession) -> StructType:
    return spark.createDataFrame([], DDL).schema


@pytest.mark.parametrize("where", ACCEPTED)
def test_an_expression_over_the_columns_is_accepted(spark: SparkSession, schema: StructType, where: str) -> None:
    check_predicate(spark, where, schema)


@pytest.mark.parametrize(("where", "problem"), REFUSED, ids=[where[:60] for where, _ in REFUSED])
def test_whatever_depends_on_more_than_the_columns_is_refused_and_the_error_says_why(
    spark: SparkSession, schema: StructType, where: str, problem: str
) -> None:
    with pytest.raises(PredicateRefused) as caught:
        check_predicate(spark, where, schema)
    assert problem in caught.value.problem
    assert str(caught.value).count("\n") == 1


def test_a_column_may_have_the_name_of_a_clock_function(spark: SparkSession) -> None:
    schema = spark.createDataFrame([], "current_date int, user string").schema
    check_predicate(spark, "current_date = 1 and `user` = 'a'", schema)


def test_a_function_that_the_session_has_replaced_is_refused(spark: SparkSession, schema: StructType) -> None:
    session = spark.newSession()
    session.udf.register("soundex", lambda text: text)
    with pytest.raises(PredicateRefused, match="calls 'soundex', which this session has replaced"):
        check_predicate(session, "soundex(name) = 'a'", schema)


def test_a_variable_of_the_session_is_refused(spark: SparkSession, schema: StructType) -> None:
    session = spark.newSession()
    session.sql("declare variable threshold string default 'a'")
    for where in ("name > threshold", "name > session.threshold", "exists(tags, tag -> tag > threshold)"):
        with pytest.raises(PredicateRefused, match=r"is not a column|uses a session variable"):
            check_predicate(session, where, schema)


def test_every_accepted_function_is_built_into_spark_and_belongs_to_a_harmless_group(spark: SparkSession) -> None:
    assert spark._jvm is not None
    infos = spark._jvm.org.apache.spark.sql.api.python.PythonSQLUtils.listBuiltinFunctionInfos()
    groups = {info.getName(): info.getGroup() for info in infos}
    assert set(groups) >= FUNCTIONS
    harmless = {"array", "bitwise", "collection", "conditional", "conversion", "datetime", "hash", "json", "lambda"}
    harmless |= {"math", "predicate", "string", "struct", "url"}
    assert {name for name in FUNCTIONS if groups[name].removesuffix("_funcs") not in harmless} == {"typeof"}


def test_a_predicate_is_refused_before_a_row_is_read(
    tmp_path_factory: pytest.TempPathFactory, spark: SparkSession
) -> None:
    lake = Lake(tmp_path_factory.mktemp("lake"), spark)
    lake.send(updates(*(((number, number), 1, 1) for number in range(20))), progress([0], [5], {1: 20}))
    lake.run()
    for file in lake.collection.paths.updates.local.rglob("*.parquet"):
        file.unlink()
    for where in ("rand() > 0.5", "id in (select 1)", "_diff > 0"):
        with pytest.raises(PredicateRefused):
            snapshot(spark, lake.collection, where=where)


def test_a_session_in_another_time_zone_is_refused(spark: SparkSession, schema: StructType) -> None:
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    with pytest.raises(PredicateRefused, match="this session has the time zone Asia/Tokyo, not UTC"):
        check_predicate(session, ACCEPTED[0], schema)
