"""If a listing lacks files that a cluster's executors have written, nothing is committed, and nothing is lost."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.lakes.lake import Lake, progress, updates
from tests.lakes.raw_lake import RawLake
from tests.lakes.upserts import ITEM, item, prices
from tests.services.faulty_proxy import Fault, FaultyProxy, faulty_proxy
from tests.services.object_store import ObjectStore
from tidelake.errors import WrittenRowsMissing
from tidelake.settings.lake import load_settings
from tidelake.storage.location import Location
from tidelake.store import runs
from tidelake.store.layout import DIFF, RUN, TIME, Store
from tidelake.store.runs import write_frame, write_updates

pytestmark = [pytest.mark.spark, pytest.mark.services]

SCHEMA = pa.schema([(TIME, pa.int64()), (DIFF, pa.int64()), (RUN, pa.string())])
_OBJECT = re.compile(rb"<Contents>.*?</Contents>", re.DOTALL)


@pytest.fixture(autouse=True)
def on_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's tasks put files into the store themselves, and only a listing shows them to this process."""
    monkeypatch.setattr(runs, "runs_here", lambda _: False)


@pytest.fixture
def proxy(object_store: ObjectStore) -> Iterator[FaultyProxy]:
    with faulty_proxy(object_store.endpoint) as running:
        yield running


def without_any(listing: bytes) -> bytes:
    return _OBJECT.sub(b"", listing)


def without_the_last(listing: bytes) -> bytes:
    return listing.replace(_OBJECT.findall(listing)[-1], b"")


def lying(hide: Callable[[bytes], bytes], kind: str, times: int = 10**9) -> Fault:
    """Hide files when this process lists a run of this kind. Spark's own listings are complete."""
    return Fault("GET", rf"list-type=2&prefix=[^&]*_run%3D{kind}-[^&]*$", True, passes=True, changes=hide, times=times)


@pytest.fixture
def table(tmp_path: Path, object_store: ObjectStore, proxy: FaultyProxy) -> Location:
    """The folder of a table behind the proxy."""
    file = tmp_path / "collections.yaml"
    file.write_text(str(object_store.settings(endpoint=proxy.endpoint)), encoding="utf-8")
    return Store(load_settings(file).store).root / "t"


@pytest.mark.sweep
def test_the_files_of_a_run_have_all_rows_that_were_written_or_an_error_says_so(
    table: Location, spark: SparkSession, proxy: FaultyProxy
) -> None:
    rows = spark.range(4, numPartitions=2).selectExpr("id AS _time", "1L AS _diff")

    def written(frame: DataFrame, run: str) -> int:
        return sum(file.rows for file in write_updates(frame, table, run, SCHEMA).files)

    for number, hide in enumerate((without_any, without_the_last)):
        proxy.faults = [lying(hide, "ingest")]
        with pytest.raises(WrittenRowsMissing, match=rf"_run=ingest-{number} .*Spark wrote 4 rows, but the listed"):
            written(rows, f"ingest-{number}")
    with pytest.raises(WrittenRowsMissing, match="the listed files have 2"):
        write_frame(rows, table, "ingest-2", SCHEMA)
    assert proxy.met.total() == 6, "each run is listed twice"
    proxy.faults = [lying(without_any, "ingest", times=1)]
    assert (written(rows, "ingest-3"), proxy.met.total()) == (4, 7)
    assert written(rows.where("_time < 0"), "ingest-4") == 0


@pytest.mark.sweep
def test_a_reclocked_tick_loses_no_record(
    tmp_path: Path, spark: SparkSession, object_store: ObjectStore, proxy: FaultyProxy
) -> None:
    lake = RawLake(tmp_path, spark)
    on_s3(lake, object_store, proxy)
    lake.put({"id": 1, "page": "a"})
    lake.run()
    lake.put({"id": 2, "page": "b"})
    lake.put({"id": 3, "page": "c"}, partition=1)
    before = state_of(lake)
    proxy.faults = [lying(without_any, "ingest")]
    with pytest.raises(WrittenRowsMissing):
        lake.ingest()
    assert proxy.met.total() == 2
    assert state_of(lake) == before, "no offset has moved, and no time was minted"
    proxy.faults = []
    lake.run()
    assert [row["id"] for row in lake.rows()] == [1, 2, 3]


@pytest.mark.sweep
def test_a_tick_of_cdcv2_loses_no_update(
    tmp_path: Path, spark: SparkSession, object_store: ObjectStore, proxy: FaultyProxy
) -> None:
    lake = Lake(tmp_path, spark, lake=object_store.settings(endpoint=proxy.endpoint))
    lake.send(updates(((1, 10), 0, 1)), progress([0], [1], {0: 1}))
    lake.run()
    lake.send(updates(((2, 20), 1, 1)), updates(((3, 30), 1, 1)), progress([1], [2], {1: 2}))
    before = state_of(lake)
    proxy.faults = [lying(without_any, "ingest")]
    with pytest.raises(WrittenRowsMissing):
        lake.ingest()
    assert state_of(lake) == before
    proxy.faults = []
    assert lake.run().upper == 2
    assert lake.contents(1) == {(1, 10): 1, (2, 20): 1, (3, 30): 1}


@pytest.mark.sweep
def test_a_merge_of_rows_with_keys_loses_none(
    tmp_path: Path, spark: SparkSession, object_store: ObjectStore, proxy: FaultyProxy
) -> None:
    lake = RawLake(tmp_path, spark, envelope="upsert", key="id", schema=ITEM)
    on_s3(lake, object_store, proxy)
    for number in range(2):
        lake.put(item(number, 10 * number))
        lake.run()
    before = state_of(lake)
    proxy.faults = [lying(without_any, "merge")]
    with pytest.raises(WrittenRowsMissing):
        lake.compact()
    assert proxy.met.total() == 2
    assert state_of(lake) == before, "the input runs are still live"
    proxy.faults = []
    assert lake.compact().merges == 1
    assert prices(lake.rows()) == {0: 0, 1: 10}


def on_s3(lake: RawLake, object_store: ObjectStore, proxy: FaultyProxy) -> None:
    """Give a lake a store behind the proxy."""
    lake.has_own_store = False
    lake.document |= object_store.settings(endpoint=proxy.endpoint)
    lake.configure()


def state_of(lake: Lake) -> tuple[Any, ...]:
    """The version of the updates, and their files."""
    return lake.table.version, [file.path for file in lake.table.files()]
