"""The way from messages to definite contents, and which files each step writes and opens."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.lakes.lake import NAME, Lake, encode, progress, updates
from tests.sweeps import swept
from tidelake.errors import ArgumentRefused, PredicateRefused, UnknownColumn, UpperError
from tidelake.storage import blobs
from tidelake.storage.location import Location
from tidelake.store.runs import read_files
from tidelake.store.state import UPPER
from tidelake.store.table_schema import updates_schema

pytestmark = pytest.mark.spark

PUBLISHED = (
    updates(((5, 10), 5, 1)),
    updates(((5, 12), 4, 1)),
    updates(((5, 12), 5, -1)),
    updates(((5, 10), 6, -1)),
    progress([0], [3]),
    progress([3], [10], {4: 1, 5: 2, 6: 1}),
)


def test_the_published_example_gives_its_published_result(lake: Lake) -> None:
    lake.send(*PUBLISHED)
    sealed = lake.run()
    assert (sealed.lower, sealed.upper) == (0, 10)
    assert lake.contents(3) == {}
    assert lake.contents(4) == {(5, 12): 1}
    assert lake.contents(5) == {(5, 10): 1}
    assert lake.contents(6) == lake.contents(9) == {}


def test_copies_change_nothing_in_any_tick(lake: Lake) -> None:
    lake.send(PUBLISHED[1], PUBLISHED[1], updates(((5, 12), 4, 1), ((5, 12), 4, 1)))
    lake.ingest()
    lake.send(*PUBLISHED, *reversed(PUBLISHED))
    lake.run()
    assert lake.contents(4) == {(5, 12): 1}
    assert lake.contents(5) == {(5, 10): 1}
    assert lake.table.value(UPPER) == 10
    lake.send(*PUBLISHED)
    late = lake.ingest()
    assert (late.updates_late, late.updates_stored) == (4, 0)
    assert lake.seal().upper == 10
    assert lake.contents(4) == {(5, 12): 1}


def test_nothing_happens_for_an_empty_topic_or_in_a_second_run(lake: Lake) -> None:
    assert lake.ingest().ticks == 0
    assert not lake.seal().committed
    lake.send(*PUBLISHED)
    lake.run()
    version = lake.table.version
    assert lake.ingest().ticks == 0
    assert not lake.seal().committed
    assert lake.table.version == version


def test_reads_before_since_and_at_upper_are_refused_with_the_time(lake: Lake) -> None:
    lake.send(*PUBLISHED)
    lake.run()
    with pytest.raises(UpperError, match=r"time 10 is not before upper \[10\]"):
        lake.contents(10)
    with pytest.raises(ArgumentRefused, match=r"as_of is -1, but must be an integer between 0 and"):
        lake.contents(-1)


@pytest.mark.sweep
def test_a_closed_stream_is_readable_at_every_time_and_accepts_no_update(lake: Lake) -> None:
    last = 2**63 - 1
    lake.send(updates((1, last, 1), (2, 7, 1)), progress([0], [], {7: 1, last: 1}))
    sealed = lake.run()
    assert sealed.closed
    assert lake.contents(7) == {(2, None): 1}
    assert lake.contents(last) == {(2, None): 1, (1, None): 1}
    lake.send(updates((3, last, 1)), progress([0], [9], {7: 5}))
    assert lake.ingest().updates_late == 1
    assert not lake.seal().committed
    assert lake.contents(last) == {(2, None): 1, (1, None): 1}
    lake.compact()
    assert lake.contents(last) == {(2, None): 1, (1, None): 1}


def test_a_statement_beyond_upper_waits_and_upper_may_stop_inside_an_interval(lake: Lake) -> None:
    lake.send(progress([5], [9], {6: 1}), updates((6, 6, 1)))
    assert lake.run().upper == 0
    lake.send(progress([0], [5], {2: 1, 4: 1}), updates((2, 2, 1)))
    assert lake.run().upper == 4
    lake.send(updates((4, 4, 1)))
    assert lake.run().upper == 9


def test_a_seal_without_copies_writes_no_update_rows(lake: Lake) -> None:
    lake.send(*PUBLISHED)
    lake.ingest()
    before = {file.path for file in lake.table.files()}
    sealed = lake.seal()
    assert sealed.committed
    assert {file.path for file in lake.table.files()} == before
    stored = sum(file.rows for file in lake.table.files())
    assert stored == 4


def test_without_copies_each_update_is_written_once(lake: Lake) -> None:
    lake.send(*(updates(*((row, time, 1) for row in range(50))) for time in range(20)))
    lake.send(progress([0], [20], dict.fromkeys(range(20), 50)))
    ingested = lake.ingest()
    lake.seal()
    lake.compact(full=False)
    folder = lake.collection.paths.updates.local
    files = list(folder.glob("_run=*/**/*.parquet"))
    assert sum(pq.read_metadata(file).num_rows for file in files) == ingested.updates_stored == 1000
    assert sum(file.stat().st_size for file in files) == ingested.bytes_stored


def test_a_seal_with_copies_writes_only_rows_that_cancel_them(lake: Lake) -> None:
    lake.send(updates((1, 1, 1), (2, 2, 3)))
    lake.ingest()
    lake.send(updates((1, 1, 1), (2, 2, 3)), updates((2, 2, 3)), progress([0], [3], {1: 1, 2: 1}))
    lake.ingest()
    lake.send(updates((2, 2, 3)))
    lake.ingest()
    sealed = lake.seal()
    assert sealed.copies_cancelled == 4
    written = [file for file in lake.table.files() if file.run.startswith("seal-")]
    rows = read_files(
        lake.spark, lake.collection.paths.updates, written, updates_schema(lake.collection.entry.record_schema)
    )
    assert sorted((row["id"], row["_time"], row["_diff"]) for row in rows.collect()) == [(1, 1, -1), (2, 2, -9)]
    assert lake.contents(2) == {(1, None): 1, (2, None): 3}


def test_a_seal_opens_only_files_that_reach_upper(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[set[str]] = []

    open_file = blobs.open_file

    def spied(location: Location) -> pa.NativeFile:
        opened[-1].add(str(location).partition("/updates/")[2])
        return open_file(location)

    for step in range(3):
        rows = [(row, step * 10 + row % 10, 1) for row in range(100)]
        counts = {step * 10 + digit: 10 for digit in range(10)}
        lake.send(updates(*rows), progress([step * 10], [step * 10 + 10], counts))
        if step == 0:
            lake.send(updates((999, 10**12, 1)))
        lake.ingest()
        opened.append(set())
        with monkeypatch.context() as patched:
            patched.setattr(blobs, "open_file", spied)
            lake.seal()
    rows_of = {file.path: file.rows for file in lake.table.files()}
    # Each seal opened the new run and, of the first tick's files, only the one with the update far in the future.
    assert [sum(rows_of[path] for path in paths if path) for paths in opened] == [101, 101, 101]
    assert opened[1] != opened[0]


@pytest.mark.sweep
def test_a_straggler_in_an_old_run_is_split_off_by_the_next_merge(lake: Lake) -> None:
    rows = [(row, row % 10, 1) for row in range(6000)]
    lake.send(updates((999, 10**12, 1), *rows))  # nothing is announced yet, so no time is known to be far ahead
    lake.ingest()
    assert len(lake.table.files()) == 1
    lake.send(progress([0], [10], dict.fromkeys(range(10), 600)))
    lake.run()
    assert lake.compact(full=False).merges == 1
    assert [file.rows for file in lake.table.files() if (file.time_max or 0) >= 10] == [1]
    assert lake.compact(full=False).merges == 0
    assert len(lake.contents(9)) == 6000


def test_columns_and_predicates_are_pushed_down_to_the_scan_and_equal_rows_are_summed(lake: Lake) -> None:
    from tidelake.read.snapshot import snapshot

    message = updates(((1, 5), 1, 1), ((1, 6), 1, 1), ((2, 5), 1, 1), ((3, 4), 2, 1))
    lake.send(message, progress([0], [3], {1: 3, 2: 1}))
    lake.run()
    price_filters = "IsNotNull(price)", "GreaterThanOrEqual(price,5)"
    time_filters = "IsNotNull(_time)", "LessThanOrEqual(_time,1)"
    both = ", ".join((time_filters[0], price_filters[0], time_filters[1], price_filters[1]))
    # AS OF 2, times need no comparison: the statistics of the files say that no row is later.
    for as_of, pushed in ((1, both), (2, ", ".join(price_filters))):
        found = snapshot(lake.spark, lake.collection, as_of, ["id"], "price >= 5")
        assert sorted((row["id"], row["_diff"]) for row in found.contents.collect()) == [(1, 2), (2, 1)]
        assert f"PushedFilters: [{pushed}]" in found.contents._jdf.queryExecution().toString()
    with pytest.raises(UnknownColumn, match="has no column 'nope'"):
        snapshot(lake.spark, lake.collection, 1, ["nope"])


@pytest.mark.parametrize("where", swept(["_time < 3", "_diff > 0", "_run = 'x'"], ["_time < 3"]))
def test_a_predicate_on_system_columns_is_refused(lake: Lake, where: str) -> None:
    from tidelake.read.snapshot import snapshot

    lake.send(updates((1, 1, 1), (1, 3, -1)), progress([0], [5], {1: 1, 3: 1}))
    lake.run()
    with pytest.raises(PredicateRefused, match="is invalid"):
        snapshot(lake.spark, lake.collection, 4, where=where)


@pytest.mark.sweep
def test_columns_may_have_the_same_names_as_internal_columns_of_seal_and_validate(
    tmp_path: Path, spark: SparkSession
) -> None:
    names = ["diffs", "least", "greatest", "surplus", "effect", "n", "rows", "distinct", "copies", "values", "high"]
    record = {"type": "record", "name": "data", "fields": [{"name": name, "type": "long"} for name in names]}
    lake = Lake(tmp_path, spark, schema=record)
    row = {"data": dict.fromkeys(names, 1), "time": 1, "diff": 1}
    for _ in range(2):
        lake.send(encode([row], record))
        lake.ingest()
    lake.send(encode({"lower": [0], "upper": [2], "counts": [{"time": 1, "count": 1}]}, record))
    assert lake.run().copies_cancelled == 1
    assert not lake.validate(full=True).damaged
    lake.compact()


@pytest.mark.sweep
def test_zero_and_minus_zero_are_one_datum(tmp_path: Path, spark: SparkSession) -> None:
    record = {"type": "record", "name": "data", "fields": [{"name": "d", "type": "double"}]}
    lake = Lake(tmp_path, spark, schema=record)
    for value in (0.0, -0.0, float("nan"), -float("nan")):
        lake.send(encode([{"data": {"d": value}, "time": 1, "diff": 1}], record))
        lake.ingest()
    lake.send(encode({"lower": [0], "upper": [2], "counts": [{"time": 1, "count": 2}]}, record))
    assert lake.run().upper == 2
    assert not lake.validate(full=True).damaged


def test_a_job_heals_a_store_that_was_only_partly_created(lake: Lake) -> None:
    log = lake.store_folder / "catalog" / "_delta_log"
    log.mkdir(parents=True)
    (log / f"{0:020d}.json").write_bytes(b'{"protocol":')
    lake.send(*PUBLISHED)
    assert lake.run().upper == 10


def test_an_engine_error_stops_its_collection_and_is_reported(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    from jobs import seal as job

    def broken(*arguments: object) -> object:
        raise OSError("no space left on device")

    lake.ingest()
    monkeypatch.setattr("jobs.seal.seal", broken)
    report = job.run(lake.spark, lake.settings)
    assert str(report.errors[NAME]).startswith("seal of 'prices' failed: OSError: no space left on device")


@pytest.mark.sweep
def test_sums_beyond_int64_are_exact(lake: Lake) -> None:
    high, low = 2**63 - 1, -(2**63)
    lake.send(updates((1, 1, high), (1, 2, high), (2, 1, low), (2, 2, low), (3, 1, low), (3, 1, low)))
    lake.ingest()
    lake.send(updates((3, 1, low)), progress([0], [3], {1: 3, 2: 2}))
    lake.run()
    expected = {(1, None): 2 * high, (2, None): 2 * low, (3, None): low}
    assert lake.contents(2) == expected
    lake.compact()
    assert lake.contents(2) == expected


def test_the_table_is_an_ordinary_delta_table_for_spark(lake: Lake) -> None:
    lake.send(*PUBLISHED, updates((9, 99, 1)))
    lake.run()
    path = str(lake.collection.paths.updates)
    frame = lake.spark.read.format("delta").load(path)
    assert frame.where(F.col("_time") < 10).count() == 4
    detail = lake.spark.sql(f"describe detail delta.`{path}`").first()
    assert detail is not None
    assert (detail["minReaderVersion"], detail["minWriterVersion"]) == (1, 2)
    assert NAME not in path
