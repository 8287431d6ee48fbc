"""A damaged data file is restored from its topic with the bytes that were committed, or a remedy is named."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
import structlog
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from tests.lakes.lake import NAME, Lake, progress, updates
from tests.lakes.raw_lake import RawLake
from tests.lakes.small_lakes import LAKES
from tests.sweeps import seeds
from tidelake import open_lake
from tidelake.cli.app import app
from tidelake.errors import NotRewritable
from tidelake.ingest.restoration import past_tick
from tidelake.lake import LakeCollection
from tidelake.store import table_log
from tidelake.store.commit import OpenTable, maintain
from tidelake.store.files import HASHED_BYTES_MAX, RunFile
from tidelake.store.table_log import entry_path

pytestmark = pytest.mark.spark

SWEEP_CASES = 25


def appends(root: Path, spark: SparkSession) -> Lake:
    """Reclocked ticks that read two partitions and were written by several Spark tasks."""
    lake = RawLake(root, spark)
    for tick in range(3):
        for partition in range(2):
            rows = ({"id": row, "page": f"page {row * tick}"} for row in range(2_500))
            lake.put(*rows, {"id": "none"}, partition=partition)
        lake.ingest()
    return lake


def stream(root: Path, spark: SparkSession) -> Lake:
    """CDCv2 ticks that were written by several Spark tasks, with copies and rows in the far future."""
    lake = Lake(root, spark)
    for tick in range(2):
        rows = [(row, tick) for row in range(4_500)]
        lake.send(*(updates((row, 2 * tick, 1), (row, 2 * tick + 1, 1), (row, 2 * tick, 1)) for row in rows))
        lake.send(progress([2 * tick], [2 * tick + 2], {2 * tick: 4_500, 2 * tick + 1: 4_500}))
        lake.send(progress([2 * tick], [2 * tick + 1]), updates(((1, 1), 1_000, 1)))
        lake.run()
    return lake


FRESH: dict[str, Callable[[Path, SparkSession], Lake]] = {**LAKES, "appends": appends, "stream": stream}


@pytest.fixture(scope="module", params=FRESH)
def fresh(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Lake:
    """A lake whose runs are not merged."""
    return FRESH[request.param](tmp_path_factory.mktemp(request.param), spark)


def door(lake: Lake) -> LakeCollection:
    return open_lake(lake.file).collection(NAME)


def ingested(lake: Lake) -> list[RunFile]:
    return [file for file in lake.table.files() if file.run.startswith("ingest-")]


def path_of(lake: Lake, file: RunFile) -> Path:
    return (lake.table.path / file.path).local


def flip(path: Path, random: Random) -> None:
    data = bytearray(path.read_bytes())
    bit = random.randrange(8 * len(data))
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)


def ruin(path: Path, random: Random) -> None:
    """Delete a file, flip one of its bits or cut it short."""
    kind = random.choice(("deleted", "flipped", "truncated"))
    if kind == "deleted":
        path.unlink()
    elif kind == "flipped":
        flip(path, random)
    else:
        path.write_bytes(path.read_bytes()[: random.randrange(path.stat().st_size)])


def check_all_come_back(lake: Lake, damaged: list[RunFile], random: Random) -> None:
    """Ruin files, repair them, and check that every file of the collection is as before."""
    good = {file.path: path_of(lake, file).read_bytes() for file in lake.table.files()}
    for file in damaged:
        ruin(path_of(lake, file), random)
    found = {damage.file for damage in door(lake).verify(deep=True).damages}
    assert found == {file.path for file in damaged}
    restored, left = door(lake).repair_files(lake.spark)
    assert (left, {damage.file for damage in restored}) == ([], found)
    assert {file.path: path_of(lake, file).read_bytes() for file in lake.table.files()} == good
    assert door(lake).verify(deep=True).damages == []


@pytest.mark.sweep
@pytest.mark.parametrize("seed", seeds())
def test_every_file_of_ingest_is_restored_byte_by_byte(fresh: Lake, tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    for case in range(SWEEP_CASES):
        lake = fresh.copy(tmp_path / f"case-{case}")
        check_all_come_back(lake, random.sample(ingested(lake), random.randint(1, 2)), random)


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Lake:
    lake = Lake(tmp_path_factory.mktemp("healthy"), spark)
    lake.send(progress([0], [1]))
    for time in range(1, 4):
        lake.send(updates(*(((row, time), time, 1) for row in range(6))), progress([time], [time + 1], {time: 6}))
        lake.run()
    return lake


def why_not(lake: Lake, file: RunFile) -> str:
    """Delete a file, and return why it cannot be recreated."""
    path_of(lake, file).unlink()
    restored, (damage,) = door(lake).repair_files(lake.spark)
    assert (restored, damage.file, damage.is_restorable) == ([], file.path, False)
    assert not path_of(lake, file).exists()
    return damage.remedy


@pytest.mark.sweep
def test_a_file_of_ingest_is_restored_byte_by_byte(healthy: Lake, tmp_path: Path) -> None:
    lake = healthy.copy(tmp_path / "copy")
    folders = {folder.name for folder in lake.table.path.local.iterdir()}
    check_all_come_back(lake, ingested(lake), Random(1))
    assert {folder.name for folder in lake.table.path.local.iterdir()} == folders, "temporary output is discarded"
    assert lake.contents(3) == healthy.contents(3)


def test_the_damaged_bytes_are_set_aside(healthy: Lake, tmp_path: Path) -> None:
    lake = healthy.copy(tmp_path / "copy")
    path = path_of(lake, ingested(lake)[0])
    path.write_bytes(b"nonsense")
    restored, left = door(lake).repair_files(lake.spark)
    assert (len(restored), left) == (1, [])
    (aside,) = path.parent.glob(".damaged-*")
    assert aside.read_bytes() == b"nonsense"


def test_the_command_says_what_it_would_restore_and_restores_it(healthy: Lake, tmp_path: Path) -> None:
    lake = healthy.copy(tmp_path / "copy")
    file = ingested(lake)[0]
    good = path_of(lake, file).read_bytes()
    path_of(lake, file).unlink()
    structlog.reset_defaults()  # as in a new process
    arguments = ["repair", NAME, "--json", "--config", str(lake.file)]
    asked = CliRunner().invoke(app, arguments)
    (damage,) = json.loads(asked.stdout)["left"]
    assert (asked.exit_code, damage["file"], damage["is_restorable"]) == (1, file.path, True)
    assert damage["remedy"] == "is recreated from its topic, if that still has the messages"
    done = CliRunner().invoke(app, [*arguments, "--apply"])
    assert (done.exit_code, json.loads(done.stdout)["left"]) == (0, [])
    assert path_of(lake, file).read_bytes() == good


def test_offsets_that_the_topic_has_lost_are_reported(healthy: Lake, tmp_path: Path) -> None:
    lake = healthy.copy(tmp_path / "copy")
    lines = lake.topic / "0.jsonl"
    lines.write_text("".join(lines.read_text().splitlines(keepends=True)[4:]), encoding="utf-8")
    oldest = min(ingested(lake), key=lambda file: file.reach)
    remedy = why_not(lake, oldest)
    assert f"the offsets 0 to 2 of {NAME}:0, and they cannot be read" in remedy
    assert "from a copy of the store" in remedy


def test_a_file_is_not_restored_from_messages_that_have_changed(healthy: Lake, tmp_path: Path) -> None:
    lake = healthy.copy(tmp_path / "copy")
    lines = lake.topic / "0.jsonl"
    kept = lines.read_text().splitlines(keepends=True)
    lines.unlink()
    lake.send(progress([0], [1]), updates(*(((row, 7), 1, 1) for row in range(6))), at=0)
    with lines.open("a", encoding="utf-8") as file:
        file.writelines(kept[2:])
    oldest = min(ingested(lake), key=lambda file: file.reach)
    assert "the result differs from the committed file" in why_not(lake, oldest)


def test_a_merged_file_can_only_be_restored_from_a_copy(healthy: Lake, tmp_path: Path) -> None:
    lake = healthy.copy(tmp_path / "copy")
    lake.compact()
    (file,) = lake.table.files()
    assert why_not_at_all(lake, file)


def test_a_file_that_a_merge_has_replaced_needs_no_copy(healthy: Lake) -> None:
    with pytest.raises(NotRewritable, match="replaced in the meantime\nhint: nothing needs to be restored: run `tide"):
        past_tick(healthy.table, "_run=ingest-1-0/part-0.parquet")


def test_a_file_comes_back_once_the_settings_name_its_topic_again(tmp_path: Path, spark: SparkSession) -> None:
    lake = RawLake(tmp_path, spark, topic=[NAME, "more"])
    lake.put({"id": 1}, topic="more")
    lake.ingest()
    (file,) = ingested(lake)
    lake.configure(topic=[NAME])
    assert "name it there again, and repeat the repair" in why_not(lake, file)
    lake.configure(topic=[NAME, "more"])
    restored, left = door(lake).repair_files(lake.spark)
    assert ([damage.file for damage in restored], left) == ([file.path], [])


def test_a_tick_whose_entry_is_gone_cannot_be_repeated(
    healthy: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_log, "RETENTION_S", -60)
    lake = healthy.copy(tmp_path / "copy")
    table, oldest = lake.table.path, min(ingested(lake), key=lambda file: file.reach)
    for _ in range(80):
        OpenTable(table).commit({})
        maintain(table)
    assert not entry_path(table, 1).local.exists()
    assert why_not_at_all(lake, oldest)


def why_not_at_all(lake: Lake, file: RunFile) -> bool:
    """Delete a file; return whether it is reported as restorable only from a copy of the store."""
    path_of(lake, file).unlink()
    restored, (damage,) = door(lake).repair_files(lake.spark)
    return not restored and not damage.is_restorable and "from a copy of the store" in damage.remedy


@pytest.mark.sweep
def test_a_large_file_is_restored_too(tmp_path: Path, spark: SparkSession) -> None:
    lake, random = RawLake(tmp_path, spark), Random(3)
    lake.put(*({"id": row, "page": random.randbytes(400).hex()} for row in range(3_500)), {"id": "none"})
    lake.ingest()
    large = [file for file in ingested(lake) if file.bytes > HASHED_BYTES_MAX]
    assert large
    check_all_come_back(lake, large, random)
