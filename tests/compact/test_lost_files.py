"""A lost file that no topic can restore is reported with the lost rows; reads that do not need it still work."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.lakes.lake import NAME, Lake, progress, updates
from tidelake import open_lake
from tidelake.errors import DamagedFiles, DamagedTable
from tidelake.lake import LakeCollection
from tidelake.store.files import RunFile
from tidelake.store.layout import begun_at

pytestmark = pytest.mark.spark

ROWS = 6


@pytest.fixture(scope="module")
def compacted(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Lake:
    """Compacted after time 4: times 0 to 3 are merged, and nothing before 3 can be read; 5 and 6 came later."""
    lake = Lake(tmp_path_factory.mktemp("compacted"), spark, keep=2)
    for time in range(7):
        rows = (((row, time), time, 1) for row in range(ROWS))
        lake.send(updates(*rows), progress([time], [time + 1], {time: ROWS}))
        lake.run()
        if time == 4:
            lake.compact()
    return lake


def door(lake: Lake) -> LakeCollection:
    return open_lake(lake.file).collection(NAME)


def lose(lake: Lake, kind: str) -> RunFile:
    """Delete the first file of the newest run of a kind."""
    files = [file for file in lake.table.files() if file.run.startswith(f"{kind}-")]
    lost = max(files, key=lambda file: (begun_at(file.run), -file.reach[0]))
    (lake.table.path / lost.path).local.unlink()
    return lost


def check_what_needs_no_rows(lake: Lake, lost: RunFile) -> None:
    """Check that all questions except those about rows are still answered, and that nothing is written."""
    collection = door(lake)
    status = collection.status()
    assert status is not None
    assert lost.path in (status.damaged or "")
    assert (collection.since, collection.upper, collection.columns[0].name) == (3, 7, "id")
    assert (collection.decisions, collection.quarantine(), collection.late().contradictions) == ((), [], 0)
    assert collection.explain(6).time == 6
    assert len(collection.history(limit=1).events) == 1
    for write in (lake.ingest, lake.seal, lake.compact):
        with pytest.raises(DamagedFiles, match=Path(lost.path).name):
            write()
    assert not lake.current().ok
    assert any(lost.path in mismatch for mismatch in lake.validate(full=True).mismatches)


def test_a_lost_merged_file_is_reported_with_its_times_and_every_read_fails(compacted: Lake, tmp_path: Path) -> None:
    lake = compacted.copy(tmp_path / "copy")
    lost = lose(lake, "merge")
    assert lost.reach == (3, 3)
    (damage,) = door(lake).verify().damages
    assert (damage.file, damage.is_restorable) == (lost.path, False)
    assert damage.lost == "24 rows at time 3: every read needs them"
    assert "a merge wrote it, so it is not known which offsets of the topic would recreate it" in damage.remedy
    assert "from a copy of the store" in damage.remedy
    restored, left = door(lake).repair_files(lake.spark)
    assert (restored, left) == ([], [damage])
    for as_of in (3, 4, 6):
        with pytest.raises(DamagedTable, match="is missing"):
            lake.contents(as_of)
    check_what_needs_no_rows(lake, lost)


def test_reads_before_the_times_of_a_lost_file_still_work(compacted: Lake, tmp_path: Path) -> None:
    lake = compacted.copy(tmp_path / "copy")
    lost = lose(lake, "ingest")
    assert lost.reach == (6, 6)
    (damage,) = door(lake).verify().damages
    assert damage.lost == f"{ROWS} rows at time 6: reads AS OF an earlier time do not need them"
    expected: Callable[[int], dict[object, int]] = compacted.contents
    for as_of in (3, 4, 5):
        assert lake.contents(as_of) == expected(as_of)
    with pytest.raises(DamagedTable, match="is missing"):
        lake.contents(6)
    check_what_needs_no_rows(lake, lost)
