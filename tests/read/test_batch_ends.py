"""A batch of changes never ends within a time. Only a batch of one time may have more stored rows than requested."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.lakes.held import HeldLake
from tidelake.errors import DamagedTable
from tidelake.protocol.order import INT64_MAX
from tidelake.read.batch_ends import last_time_within, whole_times
from tidelake.storage.location import locate
from tidelake.store.files import RunFile, describe_run
from tidelake.store.layout import RUN, TIME


def test_the_times_of_one_file_are_delivered_in_several_batches(tmp_path: Path) -> None:
    lake = HeldLake.create(tmp_path)
    lake.append((1, 1, 1), (2, 2, 1), (3, 2, 1), (4, 3, 1), (5, 9, 1), upper=12)
    expected = {
        1: [(1, [1]), (2, [2, 3]), (8, [4]), (11, [5])],
        2: [(1, [1]), (2, [2, 3]), (11, [4, 5])],
    }
    for rows_max, batches in expected.items():
        with lake.collection.subscribe(as_of=0, snapshot=False, rows_max=rows_max) as subscription:
            delivered = [(batch.progress.through, batch.updates.table()["id"].to_pylist()) for batch in subscription]
        found = [(through, sorted(ids)) for through, ids in delivered]
        assert found == batches, rows_max
    with lake.collection.subscribe(as_of=0, snapshot=False, rows_max=1, until=2) as subscription:
        assert [batch.progress.through for batch in subscription] == [1, 2]


@pytest.mark.parametrize("seed", range(8))
def test_a_batch_is_as_long_as_it_can_be(tmp_path: Path, seed: int) -> None:
    rng, table, stored, files = Random(seed), locate(tmp_path / "t"), list[int](), list[RunFile]()
    for number in range(rng.randrange(1, 5)):
        run, low = f"r{number}", rng.randrange(20)
        times = [rng.randrange(low, low + rng.choice((1, 3, 20))) for _ in range(rng.randrange(1, 40))]
        times = sorted(times) if rng.random() < 0.5 else times
        folder = tmp_path / "t" / f"{RUN}={run}"
        folder.mkdir(parents=True)
        pq.write_table(pa.table({TIME: pa.array(times, pa.int64())}), folder / "part-0.parquet", row_group_size=7)
        stored += times
        files += describe_run(table, run)
    for _ in range(50):
        after, rows_max = rng.randrange(-1, 40), rng.choice((1, 2, 5, 20, 1_000))
        last = rng.choice((after + 1 + rng.randrange(40), INT64_MAX))
        times = sorted(time for time in stored if after < time <= last)
        end = last_time_within(table, files, after, last, rows_max)
        assert after < end <= last
        inside = sum(time <= end for time in times)
        assert inside <= rows_max or times[0] == end
        assert end == last or sum(time <= end + 1 for time in times) > rows_max


def test_a_damaged_file_is_named_and_a_small_one_is_not_opened(tmp_path: Path) -> None:
    (tmp_path / "t" / f"{RUN}=r").mkdir(parents=True)
    file = tmp_path / "t" / f"{RUN}=r" / "part-0.parquet"
    pq.write_table(pa.table({TIME: pa.array([1, 2, 3], pa.int64())}), file)
    table = locate(tmp_path / "t")
    files = describe_run(table, "r")
    file.write_bytes(b"not parquet")
    assert last_time_within(table, files, 0, 9, 3) == 9
    with pytest.raises(DamagedTable, match="has 11 bytes"):
        last_time_within(table, files, 0, 9, 2)


def test_a_batch_of_whole_files_ends_where_files_end_and_never_inside_a_time() -> None:
    files = [RunFile(f"{low}", f"{low}", rows, 1, low, high) for low, high, rows in ((1, 2, 5), (2, 4, 5), (5, 9, 5))]
    assert [whole_times(files, 0, last, 6) for last in (1, 3, 9)] == [1, 2, 2]
    assert whole_times(files, 0, 9, 10) == 4
    assert whole_times(files, 0, 9, 15) == 9
    assert whole_times(files, 2, 9, 1) == 4
    assert whole_times(files, 4, 9, 1) == 9
    assert whole_times([], 0, 9, 1) == 9
