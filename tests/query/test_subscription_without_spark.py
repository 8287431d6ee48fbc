"""Subscriptions that DuckDB reads, over the store of an earlier version, in every form. No JVM is started."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.golden.shown import EXPECTED, unpack
from tests.lakes.held import HeldLake
from tidelake import open_lake
from tidelake.errors import ArgumentRefused, DamagedTable, EngineRefused, PredicateRefused, RowsClosed, UnknownColumn
from tidelake.lake import Lake, LakeCollection
from tidelake.protocol.json_values import identity
from tidelake.protocol.replay import replay_file
from tidelake.query import duckdb_source
from tidelake.read.holding import ReadCapability, acquire
from tidelake.store.layout import DIFF, TIME
from tidelake.store.rows_at import with_numbers

COLLECTIONS: list[str] = list(json.loads(EXPECTED.read_text(encoding="utf-8"))["collections"])


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return open_lake(unpack(tmp_path_factory.mktemp("golden")))


def contents(collection: LakeCollection, as_of: int) -> Counter[str]:
    rows: Counter[str] = Counter()
    for row in with_numbers(collection.rows(as_of, skip_errors=True).rows.table()).to_pylist():
        diff = row.pop(DIFF)
        rows[repr(row)] += diff
    return rows


@pytest.mark.parametrize("name", COLLECTIONS[::4])
def test_a_follower_that_is_killed_gets_each_time_once_and_whole(lake: Lake, name: str) -> None:
    collection, rng = lake.collection(name), Random(name)
    since, token, added = collection.since, None, Counter[str]()
    assert since is not None
    while True:
        subscription = collection.subscribe(
            as_of=since if token is None else token,
            snapshot=token is None,
            skip_errors=True,
            rows_max=rng.choice((1, 10, 1_000_000)),
        )
        batch = subscription.next()
        if batch is None:
            subscription.close()
            break
        if rng.random() < 0.3:  # killed before it has stored the batch
            continue
        assert batch.progress.after == token
        times = []
        for row in with_numbers(batch.updates.table()).to_pylist():
            times.append(row.pop(TIME))
            diff = row.pop(DIFF)
            added[repr(row)] += diff
        assert times == sorted(times)
        assert all(token is None or token < time <= batch.progress.through for time in times)
        assert not (batch.progress.is_empty and times)
        token = batch.progress.through
        subscription.close()
        assert {row: diff for row, diff in added.items() if diff} == contents(collection, token), token
    assert token is not None
    upper = collection.upper
    assert upper is None or token == upper - 1


@pytest.mark.parametrize("name", ["plain", "upsert"])
def test_replaying_the_printed_stream_gives_the_contents(lake: Lake, name: str) -> None:
    collection = lake.collection(name)
    options = ("--json", "--skip-errors", "--config", str(lake.settings.file))
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT_SPARK, "subscribe", name, "--as-of", str(collection.since), *options],
        capture_output=True,
        check=True,
        timeout=120,
    )
    rows: Counter[str] = Counter()
    for output in replay_file(done.stdout.splitlines(), "stream"):
        assert output["errors"] == []
        for data, _, diff in output["updates"]:
            rows[identity(data)] += diff
    shown = collection.rows(skip_errors=True)
    assert sum(rows.values()) == sum(shown.rows.table()[DIFF].to_pylist())
    assert collection.holds() == lake.collection(name).holds()
    assert not any(held.purpose == "tidelake subscribe" for held in collection.holds())


_WITHOUT_SPARK = """
import sys
from tidelake.cli.process import run
try:
    run()
finally:
    loaded = sorted({name.split(".")[0] for name in sys.modules} & {"pyspark", "py4j", "pandas"})
    if loaded:
        raise AssertionError(f"imported {loaded}")
"""


def test_a_batch_has_the_requested_columns_and_rows(lake: Lake) -> None:
    upsert = lake.collection("upsert")
    with upsert.subscribe(as_of=upsert.since, columns=["shop"], where="shop is not null") as subscription:
        for batch in subscription:
            table = batch.updates.table()
            assert table.column_names == ["shop", TIME, DIFF]
            assert table["shop"].null_count == 0
            assert batch.updates.reader().read_all().num_rows == table.num_rows


def test_rows_that_are_read_too_late_say_so(lake: Lake) -> None:
    upsert = lake.collection("upsert")
    with upsert.subscribe(as_of=upsert.since, rows_max=1, where="shop is not null") as subscription:
        first, second = subscription.next(), subscription.next()
        assert first is not None and second is not None
        assert second.updates.count() == second.updates.table().num_rows
        for read in (first.updates.table, first.updates.reader, first.updates.count):
            with pytest.raises(RowsClosed, match="the next batch was requested, or they were closed"):
                read()
    with pytest.raises(RowsClosed, match=r"the rows of 'upsert' .*\nhint: read the rows of a batch before"):
        list(second.updates.batches([TIME]))


def test_wrong_arguments_are_refused(lake: Lake) -> None:
    upsert = lake.collection("upsert")
    with pytest.raises(ArgumentRefused):
        upsert.subscribe(wait_s=-1)
    with pytest.raises(UnknownColumn), upsert.subscribe(columns=["nobody"]) as subscription:
        subscription.next()
    with pytest.raises(PredicateRefused), upsert.subscribe(where="nobody = 1") as subscription:
        subscription.next()
    with upsert.subscribe(where="cast(shop as int) > 0") as failing:
        batch = failing.next()
        assert batch is not None
        with pytest.raises(PredicateRefused, match="fails: "):
            list(batch.updates.batches([TIME]))


def test_a_hold_that_is_renewed_outlives_its_lease_while_a_batch_is_read(tmp_path: Path) -> None:
    lake = HeldLake.create(tmp_path)
    lake.append((1, 1, 1), (2, 2, 1), upper=3)
    with lake.collection.subscribe(as_of=1, lease=timedelta(milliseconds=1)) as subscription:
        batch = subscription.next()
        (before,) = lake.collection.holds()
        for upper in range(4, 8):
            lake.seal(upper)
            assert lake.compact() == 1
            time.sleep(0.001)
            subscription.renew()
        (held,) = lake.collection.holds()
        assert (held.id, held.pinned_seq) == (before.id, before.pinned_seq)
        assert batch is not None
        assert batch.updates.table()["id"].to_pylist() == [1]
        batch = subscription.next()
        assert batch is not None
        assert (batch.updates.table()["id"].to_pylist(), batch.progress.through) == ([2], 6)


def test_a_renewal_that_is_not_due_or_has_nothing_to_renew_writes_nothing(tmp_path: Path) -> None:
    lake = HeldLake.create(tmp_path, upper=3)
    with lake.collection.subscribe() as subscription:
        before = lake.stored.entry
        subscription.renew()
        assert lake.stored.entry == before
    subscription.renew()
    lake.collection.subscribe(lease=None).renew()
    assert not lake.stored.entry.is_held


def test_a_snapshot_after_the_last_time_to_deliver_is_refused_even_if_that_time_is_sealed_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = HeldLake.create(tmp_path, upper=5)

    def overtaken(*arguments: Any, **more: Any) -> ReadCapability:
        lake.seal(9)
        return acquire(*arguments, **more)

    monkeypatch.setattr("tidelake.read.subscription.acquire", overtaken)
    with pytest.raises(ArgumentRefused, match="until is 6, but must not be before the time of the snapshot, 8"):
        lake.collection.subscribe(until=6)
    assert lake.collection.holds() == []
    with lake.collection.subscribe(until=8) as subscription:
        assert [batch.progress.through for batch in subscription] == [8]


def test_an_envelope_of_another_package_is_refused_at_once(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise EngineRefused("duckdb", "the envelope is another's", "read it with Spark")

    monkeypatch.setattr(duckdb_source, "form_of", refuse)
    upsert = lake.collection("upsert")
    before = upsert.holds()
    with pytest.raises(EngineRefused):
        upsert.subscribe()
    assert upsert.holds() == before


def test_a_batch_from_a_damaged_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    collection = open_lake(unpack(tmp_path)).collection("upsert")
    with collection.subscribe(as_of=collection.since, lease=timedelta(minutes=1)) as subscription:
        batch = subscription.next()
        assert batch is not None
        for file in Path(collection.path, "updates").rglob("*.parquet"):
            file.write_bytes(b"not parquet")
        with pytest.raises(DamagedTable, match=r"has 11 bytes, but [0-9]+ were committed"):
            list(batch.updates.batches([TIME]))
