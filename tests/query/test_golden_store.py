"""DuckDB reads an earlier version's store, in every form, as Spark did when the store was made. No JVM is started."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from tests.golden.shown import EXPECTED, Shown, unpack
from tests.sweeps import swept
from tidelake import open_lake
from tidelake.errors import (
    ArgumentRefused,
    DamagedTable,
    PredicateRefused,
    QueryRefused,
    SinceError,
    UnknownColumn,
    UpperError,
)
from tidelake.lake import Lake
from tidelake.store.layout import DIFF, TIME
from tidelake.store.rows_at import with_numbers

COLLECTIONS: dict[str, dict[str, Any]] = json.loads(EXPECTED.read_text(encoding="utf-8"))["collections"]


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack(tmp_path_factory.mktemp("golden"))


@pytest.fixture(scope="module")
def lake(config: Path) -> Lake:
    return open_lake(config, read_only=True)


@pytest.mark.parametrize("name", swept(COLLECTIONS, ["append_only", "debezium_summed", "raw_upsert_avro"]))
def test_contents_are_printed_as_spark_printed_them(config: Path, name: str) -> None:
    expected = COLLECTIONS[name]
    had_spark = "pyspark" in sys.modules
    assert Shown(config, name, expected["folder"])._reads() == expected["before"]["reads"]
    assert had_spark or "pyspark" not in sys.modules


def contents(lake: Lake, name: str, as_of: int) -> Counter[str]:
    found: Counter[str] = Counter()
    for row in with_numbers(lake.collection(name).rows(as_of, skip_errors=True).rows.table()).to_pylist():
        diff = row.pop(DIFF)
        found[repr(row)] += diff
    return found


def subtract(later: Counter[str], earlier: Counter[str]) -> dict[str, int]:
    changed = Counter(later)
    changed.subtract(earlier)
    return {row: diff for row, diff in changed.items() if diff}


@pytest.mark.parametrize("name", swept(COLLECTIONS, ["upsert", "debezium_before_key", "raw_append_only_avro"]))
def test_changes_and_differences_add_up_to_the_contents(lake: Lake, name: str) -> None:
    collection = lake.collection(name)
    whole = collection.updates(None, skip_errors=True)
    added: Counter[str] = Counter()
    updates = sorted(with_numbers(whole.rows.table()).to_pylist(), key=lambda row: row[TIME])
    times = sorted({whole.since, whole.through, *(row[TIME] for row in updates)})
    wanted = {time: contents(lake, name, time) for time in times}
    for time in times:
        while updates and updates[0][TIME] <= time:
            row = updates.pop(0)
            del row[TIME]
            diff = row.pop(DIFF)
            added[repr(row)] += diff
        assert subtract(added, wanted[time]) == {}, time
    first, last = (Random(name).choice(times) for _ in range(2))
    found: Counter[str] = Counter()
    for row in with_numbers(collection.rows_between(first, last, skip_errors=True).rows.table()).to_pylist():
        diff = row.pop(DIFF)
        found[repr(row)] += diff
    assert dict(found) == subtract(wanted[last], wanted[first])


@pytest.mark.parametrize("name", swept(COLLECTIONS, ["plain", "debezium", "closed", "raw_upsert_json"]))
def test_a_query_sees_what_a_read_sees(lake: Lake, name: str) -> None:
    answer = lake.query(f"select * from {name}", skip_errors=True)
    assert answer.time is not None
    rows: Counter[str] = Counter()
    for row in with_numbers(answer.table).to_pylist():
        diff = row.pop(DIFF, 1)
        rows[repr(row)] += diff
    assert rows == contents(lake, name, answer.time)
    (count,) = lake.query(f"select count(*) as n from {name.upper()}", answer.time, skip_errors=True).to_pylist()
    assert count == {"n": answer.table.num_rows}


def test_column_aliases_name_the_columns_in_the_collections_order(lake: Lake) -> None:
    (wanted,) = lake.query("select min(shop) as shop, max(article) as article from upsert").to_pylist()
    asked = "select min(article) as shop, max(pieces) as article from upsert u(article, pieces)"
    assert lake.query(asked).to_pylist() == [wanted]


def test_unreadable_contents_are_refused_as_spark_refuses_them(lake: Lake) -> None:
    plain = lake.collection("plain")
    assert plain.since is not None and plain.upper is not None
    for ask in (plain.rows, lambda time: plain.rows_between(time, time), lambda time: plain.updates(time, time)):
        with pytest.raises(SinceError if plain.since > 0 else UpperError):
            ask(plain.since - 1 if plain.since > 0 else plain.upper)
        with pytest.raises(UpperError):
            ask(plain.upper)
    with pytest.raises(ArgumentRefused, match="must not be later than `through`"):
        plain.updates(plain.upper - 1, plain.upper - 2)
    with pytest.raises(UnknownColumn, match="has no column 'nmae'"):
        plain.rows(columns=["nmae"])
    for where, problem in (
        ("nmae = 1", "is invalid"),
        ("id", "is not a condition"),
        (f"{DIFF} > 0", "is invalid"),
        ("_empty.id = 1", "is invalid"),
    ):
        with pytest.raises(PredicateRefused, match=problem):
            plain.rows(where=where)
    for query, problem in (
        ("select * from nobody", "reads 'nobody', which is not a collection"),
        ("select * from 'collections.yaml'", "reads 'collections.yaml'"),
        ("select nmae from plain", "is invalid: "),
        ("select id, id from plain", "gives several columns the name 'id'"),
        ("select cast(name as int) as n from plain", "fails: "),
        ("select unhex('é' || name) as n from plain", r"fails: Invalid Input Error: .*\\xc3"),
        ("select [{'b': '101'::bit}] as b", "gives the column 'b' values of the type BIT, which Arrow does not have"),
        (f"select {'9' * 50} as n", "gives the column 'n' values of the type BIGNUM"),
        ("select time with time zone '10:00:00+01' as t", "values of the type TIME WITH TIME ZONE"),
    ):
        with pytest.raises(QueryRefused, match=problem):
            lake.query(query)


@pytest.mark.parametrize(
    "where",
    [
        "cast(shop as int) > 0",
        "shop like '%' escape '%'",
        "timestamp '2020-01-01 00:00:00' at time zone shop is null",
        "unhex('é' || shop) is null",
        "list_reduce([x for x in [1] if x > length(shop) + 99], lambda a, b: a + b) = 1",
    ],
)
def test_a_predicate_that_fails_for_a_value_is_refused(lake: Lake, where: str) -> None:
    upsert = lake.collection("upsert")
    assert upsert.since is not None and upsert.upper is not None
    first, last = upsert.since, upsert.upper - 1
    with pytest.raises(PredicateRefused, match="fails: "):
        upsert.rows(where=where).rows.table()
    with pytest.raises(PredicateRefused, match="fails: "):
        list(upsert.updates(None, where=where).rows.batches([TIME]))
    with pytest.raises(PredicateRefused, match="fails: "):  # with a key, keys are counted before rows are requested
        upsert.rows_between(first, last, where=where)


def test_rows_are_also_a_stream_and_a_source_of_arrow_data(lake: Lake) -> None:
    found = lake.collection("upsert").rows()
    rows = sorted(map(repr, found.rows.table().to_pylist()))
    assert sorted(map(repr, found.rows.reader().read_all().to_pylist())) == rows
    assert sorted(map(repr, pa.table(found.rows).to_pylist())) == rows
    assert found.rows.count() == len(rows) > 1
    assert len(found.rows.table(1)) == 1
    answer = lake.query("select shop from upsert order by shop limit 2")
    assert pa.table(answer).to_pylist() == answer.to_pylist()


def test_a_file_that_is_not_the_committed_one_is_an_error(tmp_path: Path) -> None:
    lake = open_lake(unpack(tmp_path), read_only=True)
    collection = lake.collection("upsert")
    for file in Path(collection.path, "updates").rglob("*.parquet"):
        file.write_bytes(b"not parquet")
    for ask in (
        lambda: collection.rows().rows.table(),
        lambda: collection.updates(None).rows.table(),
        lambda: lake.query("select count(*) as n from upsert"),
    ):
        with pytest.raises(DamagedTable, match=r"has 11 bytes, but [0-9]+ were committed"):
            ask()


def test_a_read_writes_nothing(tmp_path: Path) -> None:
    config = unpack(tmp_path)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    lake = open_lake(config, read_only=True)
    for name in COLLECTIONS:
        lake.collection(name).rows(skip_errors=True).rows.table()
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before
