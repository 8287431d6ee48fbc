"""Spark reads a file of a run only if it is the one that was committed."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.lakes.lake import Lake, progress, updates
from tidelake.errors import DamagedTable

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Lake:
    """Two runs with one file each, in which everything is sealed."""
    lake = Lake(tmp_path_factory.mktemp("swapped"), spark)
    for time in (1, 2):
        lake.send(updates(*((100 * time + row, time, 1) for row in range(50))))
        lake.ingest()
    lake.send(progress([0], [9], {1: 50, 2: 50}))
    lake.run()
    return lake


def data_files(lake: Lake) -> list[Path]:
    folder = lake.table.path.local
    return sorted(folder / file.path for file in lake.table.files())


@pytest.mark.parametrize("damage", ["swapped", "stale footer", "truncated", "appended"])
def test_a_file_other_than_the_committed_one_is_never_read(prepared: Lake, tmp_path: Path, damage: str) -> None:
    lake = prepared.copy(tmp_path / "lake")
    first, second = data_files(lake)[:2]
    one, other = first.read_bytes(), second.read_bytes()
    match damage:
        case "swapped":
            first.write_bytes(other)
            second.write_bytes(one)
        case "stale footer":
            changed = bytearray(one)
            changed[-40] ^= 2
            first.write_bytes(changed)
        case "truncated":
            first.write_bytes(one[:-1])
        case "appended":
            first.write_bytes(one + b"PAR1")
    with pytest.raises(DamagedTable, match=r"were committed|is not the one that was committed"):
        lake.contents(2)
