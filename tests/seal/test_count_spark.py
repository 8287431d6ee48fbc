"""Counts of unsealed rows do not depend on how the rows are divided among tasks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.lakes.lake import Lake, progress, updates
from tidelake.plugins.envelope import form_of
from tidelake.seal import count_spark as counting
from tidelake.seal.count_spark import count_open_times, group_by_time
from tidelake.seal.counts import OpenCounts
from tidelake.store.files import RunFile, write_run
from tidelake.store.layout import DIFF, TIME
from tidelake.store.runs import read_files
from tidelake.store.table_schema import data_fields, updates_schema

pytestmark = pytest.mark.spark


def file(rows: int, low: int | None, high: int | None) -> RunFile:
    return RunFile("a", "run", rows, 0, low, high)


def test_files_whose_times_do_not_overlap_are_counted_by_several_tasks() -> None:
    files = [file(600_000, first, first + 9) for first in (30, 0, 10, 20)]
    groups = group_by_time(files, 2)
    assert groups is not None
    assert [[run_file.time_min for run_file in group] for group in groups] == [[0, 10], [20, 30]]


@pytest.mark.parametrize(
    "files",
    [
        pytest.param([file(600_000, 0, 9), file(600_000, 0, 9)], id="one range"),
        pytest.param([file(600_000, 0, 9), file(600_000, None, None)], id="unknown bounds"),
        pytest.param([file(2_000_000, 0, 9)], id="one big file"),
    ],
)
def test_rows_are_exchanged_if_tasks_would_share_most_times(files: list[RunFile]) -> None:
    assert group_by_time(files, 2) is None


def test_a_few_rows_are_counted_by_one_task_whatever_their_times() -> None:
    assert group_by_time([file(1000, 0, 9), file(1000, None, None)], 2) == [[file(1000, 0, 9), file(1000, None, None)]]


def test_times_that_two_groups_share_are_counted_once(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Copies, two values of a key and conflicts, on both sides of the boundary between two tasks."""
    lake = Lake(tmp_path, spark, "upsert", key="id")
    collection = lake.catalog.open_or_create(lake.settings.collections[0].spec())
    record = collection.entry.record_schema
    random, files = Random(7), []
    for number in range(4):
        rows = [
            {TIME: random.randrange(10 * number, 10 * number + 12), DIFF: random.choice((1, 1, 1, -1))}
            | {"id": random.randrange(5), "price": random.randrange(2)}
            for _ in range(40)
        ]
        schema = pa.schema([field for field in updates_schema(record) if field.name != "_run"])
        files += write_run(collection.paths.updates, f"run-{number}", pa.Table.from_pylist(rows, schema))
    data = [field.name for field in data_fields(record)]

    def read(some: Sequence[RunFile]) -> DataFrame:
        return read_files(spark, collection.paths.updates, some, updates_schema(record))

    def counted(rows_of_a_task: int) -> OpenCounts:
        monkeypatch.setattr(counting, "ROWS_OF_A_TASK_MIN", rows_of_a_task)
        return count_open_times(spark, form_of(collection.entry), data, files, read)

    one_group, two_groups = counted(1000), counted(1)
    groups = group_by_time(files, 2)
    assert groups is not None
    assert len(groups) == 2
    assert two_groups == one_group
    assert one_group.rows == 160
    assert one_group.suspects
    assert set(one_group.by_time) - one_group.suspects


def test_a_seal_does_not_start_a_spark_job(tmp_path: Path, spark: SparkSession) -> None:
    lake = Lake(tmp_path, spark, "upsert", key="id")
    lake.send(updates(((1, 5), 0, 1)), updates(((2, 6), 1, 1)), progress([0], [2], {0: 1, 1: 1}))
    lake.ingest()
    lake.send(updates(((2, 6), 1, 1)), progress([2], [3], {}))
    lake.ingest()
    scheduler = spark.sparkContext._jsc.sc().dagScheduler()
    first = scheduler.nextJobId()
    sealed = lake.seal()
    assert (sealed.upper, sealed.copies_cancelled) == (3, 1)
    assert scheduler.nextJobId() == first


def test_a_tick_leaves_copies_to_the_seal_unless_progress_is_stated_twice(tmp_path: Path, spark: SparkSession) -> None:
    lake = Lake(tmp_path, spark)
    copy, other = updates(((1, 5), 0, 1)), updates(((2, 6), 1, 1))
    lake.send(copy, copy, progress([0], [1], {0: 1}))
    assert lake.ingest().updates_stored == 2
    lake.send(other, other, progress([1], [2], {1: 1}), progress([1], [2], {1: 1}))
    assert lake.ingest().updates_stored == 1
    assert (lake.seal().copies_cancelled, lake.contents(1)) == (1, {(1, 5): 1, (2, 6): 1})
