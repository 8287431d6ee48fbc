"""Log entries and checkpoints that a power loss truncated before they were acknowledged are set aside."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from tests.crash.harness import Nursery
from tests.crash.lives import Lives
from tests.sweeps import seeds
from tidelake.errors import DamagedTable
from tidelake.storage.location import Location, locate
from tidelake.store.acknowledged import ACKED
from tidelake.store.commit import OpenTable, create_table, maintain
from tidelake.store.failpoints import TABLES
from tidelake.store.files import RunFile, write_run
from tidelake.store.table_log import check_log

SCHEMA = pa.schema([("_time", pa.int64()), ("_run", pa.string())])


def write_one_row(path: Location, name: str) -> list[RunFile]:
    return write_run(path, name, pa.table({"_time": [1]}))


def entry_of(path: Location, version: int) -> Path:
    return path.local / "_delta_log" / f"{version:020d}.json"


def forget_acknowledgement(path: Location, version: int) -> None:
    """Remove the marker of an entry, as if the writer had died before it could acknowledge the entry."""
    for marker in (path.local / ACKED).glob(f"{version:020d}-*.json"):
        marker.unlink()


@pytest.fixture
def table(tmp_path: Path) -> Location:
    """A table whose newest entry swaps two runs for a third, and changes two values."""
    path = locate(tmp_path) / "t"
    create_table(path, SCHEMA, {"upper": 1})
    for name in "ab":
        OpenTable(path).commit({"offset/t/0": 1}, write_one_row(path, name))
    OpenTable(path).commit({"upper": 5, "since": 2}, write_one_row(path, "c"), ["a", "b"])
    return path


def test_an_entry_is_set_aside_wherever_it_was_truncated(table: Location) -> None:
    entry = entry_of(table, 3)
    whole = entry.read_bytes()
    lines = [index for index, byte in enumerate(whole) if byte == ord("\n")]
    assert len(lines) == 6
    cuts = {0, 1, len(whole) - 1, *range(0, len(whole), 97), *(line + more for line in lines for more in (-1, 0, 1))}
    forget_acknowledgement(table, 3)
    for cut in sorted(cuts):
        for tail in (b"", b"\0" * 64):
            entry.write_bytes(whole[:cut] + tail)
            opened = OpenTable(table)
            assert (opened.version, opened.value("upper"), opened.value("since")) == (2, 1, None), cut
            assert sorted(file.run for file in opened.files()) == ["a", "b"], cut
    entry.write_bytes(whole)
    assert OpenTable(table).value("upper") == 5
    assert check_log(table) == 4


def test_a_table_is_recreated_wherever_its_first_entry_was_truncated(tmp_path: Path) -> None:
    path = locate(tmp_path) / "t"
    create_table(path, SCHEMA, {"upper": 3, "epoch": 2})
    whole = entry_of(path, 0).read_bytes()
    for cut in [index for index, byte in enumerate(whole) if byte == ord("\n")]:
        entry_of(path, 0).write_bytes(whole[:cut])
        forget_acknowledgement(path, 0)
        create_table(path, SCHEMA, {"upper": 3, "epoch": 2})
        opened = OpenTable(path)
        assert (opened.value("upper"), opened.value("epoch"), opened.seq) == (3, 2, 0), cut


def test_an_entry_of_another_engine_is_never_set_aside(table: Location) -> None:
    DeltaTable(str(table)).delete("_time = 1")
    with pytest.raises(DamagedTable, match="was committed by something else"):
        OpenTable(table)
    assert entry_of(table, 4).exists()


def _hint(log: Path) -> Path:
    return log / "_last_checkpoint"


def _newest(log: Path) -> Path:
    return max(log.glob("*.checkpoint.parquet"))


def _tear_and_forget(log: Path) -> None:
    _newest(log).write_bytes(b"PAR1")
    _hint(log).unlink()


@pytest.mark.parametrize(
    "damage",
    [
        lambda log: _newest(log).write_bytes(b""),
        lambda log: _newest(log).write_bytes(_newest(log).read_bytes()[:1000]),
        lambda log: _newest(log).write_bytes(b"\0" * _newest(log).stat().st_size),
        lambda log: _newest(log).unlink(),
        _tear_and_forget,
        lambda log: (_newest(log).write_bytes(b"PAR1"), _hint(log).write_bytes(b"")),
    ],
    ids=["empty", "truncated", "zeros", "gone", "no hint", "empty hint"],
)
@pytest.mark.parametrize("checkpoints", [1, 2])
def test_a_checkpoint_that_cannot_be_read_is_set_aside(
    table: Location, checkpoints: int, damage: Callable[[Path], object]
) -> None:
    for upper in range(10, 10 + 32 * checkpoints):
        OpenTable(table).commit({"upper": upper})
        maintain(table)
    log = table.local / "_delta_log"
    assert len(list(log.glob("*.checkpoint.parquet"))) == checkpoints
    before = OpenTable(table)
    damage(log)
    after = OpenTable(table)
    assert (after.version, after.seq, after.value("since")) == (before.version, before.seq, 2)
    assert [file.run for file in after.files()] == ["c"]
    after.commit({"upper": 1000})
    assert OpenTable(table).value("upper") == 1000


def test_an_unreadable_checkpoint_whose_entries_are_gone_is_reported_as_damage(table: Location) -> None:
    for upper in range(10, 10 + 40):
        OpenTable(table).commit({"upper": upper})
        maintain(table)
    log = table.local / "_delta_log"
    checkpoint = _newest(log)
    for version in range(int(checkpoint.name[:20])):
        entry_of(table, version).unlink()
    checkpoint.write_bytes(checkpoint.read_bytes()[:1000])
    with pytest.raises(
        DamagedTable, match="the checkpoint of version 31 is damaged, and entries that it covers are gone"
    ):
        OpenTable(table)
    assert checkpoint.exists()


@pytest.mark.spark
@pytest.mark.sweep
@pytest.mark.parametrize("seed", seeds())
def test_torn_entries_in_every_table_do_not_stop_a_tick(
    tmp_path: Path, spark: SparkSession, nursery: Nursery, seed: int
) -> None:
    Lives(tmp_path, spark, nursery, seed).tear(TABLES)
