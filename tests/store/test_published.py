"""One commit replaces published rows, no matter who else commits, or where the process stops."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.stops import stop_at
from tidelake.errors import Conflict, DamagedPublication, WrittenRowsMissing
from tidelake.storage import blobs
from tidelake.storage.location import Location, locate
from tidelake.store.dead_notes import DEAD
from tidelake.store.published import RETENTION_S, Published, maintain_published, read_table_state
from tidelake.store.staged_rows import StagedRows
from tidelake.store.table_log import entry_path

NOTE = Published(
    collection="prices",
    collection_id="7f",
    as_of=3,
    since=0,
    upper=4,
    bound_at_ms=1,
    published_at_ms=2,
    proofs_at_ms=0,
    rows=2,
    contents_rows=5,
    columns=("id", "_diff"),
)


@pytest.fixture
def table(tmp_path: Path) -> Location:
    return locate(tmp_path) / "tables/prices"


def stage(table: Location, *ids: int, column: str = "id") -> StagedRows:
    """Rows as Spark would write them; delta-rs does so without a JVM."""
    staged = StagedRows(table)
    write_deltalake(str(staged.folder), pa.table({column: pa.array(ids, pa.int64())}))
    assert staged.take() == len(ids)
    return staged


def publish(table: Location, *ids: int, as_of: int = 3, column: str = "id") -> int:
    note = NOTE.model_copy(update={"as_of": as_of, "rows": len(ids)})
    return stage(table, *ids, column=column).commit("prices", f"as of {as_of}", note)


def rows(table: Location, version: int | None = None, column: str = "id") -> list[int]:
    return sorted(DeltaTable(str(table), version=version).to_pyarrow_table()[column].to_pylist())


def test_a_commit_replaces_rows_columns_comment_and_note_and_nothing_else(table: Location) -> None:
    assert read_table_state(table).shown is None
    assert publish(table, 1, 2) == 0
    before = DeltaTable(str(table)).metadata()
    assert publish(table, 2, 3, 4, as_of=9, column="key") == 1
    after = DeltaTable(str(table)).metadata()
    assert (rows(table, 0), rows(table, 1, "key")) == ([1, 2], [2, 3, 4])
    assert (after.name, before.description, after.description) == ("prices", "as of 3", "as of 9")
    assert (after.id, after.created_time) == (before.id, before.created_time)
    shown = read_table_state(table).shown
    assert shown is not None and (shown.as_of, shown.rows, shown.contents_rows) == (9, 3, 5)
    newest = DeltaTable(str(table)).history(1)[0]
    assert (newest["operation"], newest["operationMetrics"]["numOutputRows"]) == ("WRITE", "3")
    assert json.loads(newest["userMetadata"])["collection_id"] == "7f"
    assert not list(table.local.glob("publish-*/_delta_log"))


def test_rows_whose_entry_cannot_be_read_back_are_reported_as_missing(table: Location) -> None:
    publish(table, 1, 2)
    staged = StagedRows(table)
    write_deltalake(str(staged.folder), pa.table({"id": [3]}))
    blobs.delete(entry_path(staged.folder, 0))
    with pytest.raises(WrittenRowsMissing, match=f"{staged.folder} does not show what was written there"):
        staged.take()
    assert rows(table) == [1, 2]


def test_one_of_two_processes_that_publish_at_the_same_time_succeeds(table: Location) -> None:
    publish(table, 1)
    first, second = stage(table, 2), stage(table, 3)
    first.commit("prices", "", NOTE)
    with pytest.raises(Conflict):
        second.commit("prices", "", NOTE)
    second.discard()
    assert rows(table) == [2]
    early = stage(table, 4)
    early.version = -1  # the folder was still empty when this process looked
    with pytest.raises(Conflict, match="another process published first"):
        early.commit("prices", "", NOTE)
    assert rows(table) == [2]


@pytest.mark.parametrize("place", ["current.after_entry", "current.after_checkpoint"])
def test_a_publication_is_complete_even_if_it_is_interrupted_right_after_its_entry(table: Location, place: str) -> None:
    for number in range(10):
        publish(table, number)

    def work() -> None:
        publish(table, 7, 8, as_of=9)
        maintain_published(table)

    stop_at(place, work)
    assert rows(table) == [7, 8]
    shown = read_table_state(table).shown
    assert shown is not None and shown.as_of == 9
    publish(table, 9, as_of=10)
    maintain_published(table)
    assert rows(table) == [9]


def test_a_table_that_another_engine_tidies_is_still_published_but_not_one_that_it_changes(table: Location) -> None:
    publish(table, 1)
    write_deltalake(str(table), pa.table({"id": [2]}), mode="append")
    assert read_table_state(table).shown is None
    publish(table, 1, 2)
    DeltaTable(str(table)).optimize.compact()
    DeltaTable(str(table)).vacuum(retention_hours=200, dry_run=False)
    shown = read_table_state(table).shown
    assert shown is not None and shown.rows == 2


def test_a_torn_log_is_reported_as_damage_with_its_table(table: Location) -> None:
    publish(table, 1)
    (table.local / "_delta_log" / f"{0:020d}.json").write_text('{"commitInfo": {"oper')
    with pytest.raises(DamagedPublication, match="prices is damaged: the log entry of version 0 is torn"):
        read_table_state(table)


@pytest.mark.parametrize(
    "line",
    ["7", "null", "[]", '"add"', '{"commitInfo": 7}', '{"commitInfo": null}', '{"add": 7}', '{"remove": [null]}'],
)
def test_a_log_line_of_another_shape_is_reported_as_damage_with_its_version(table: Location, line: str) -> None:
    publish(table, 1)
    (table.local / "_delta_log" / f"{1:020d}.json").write_text(line)
    with pytest.raises(DamagedPublication, match="prices is damaged: the log entry of version 1 is not a Delta entry"):
        read_table_state(table)


@pytest.mark.parametrize("line", ["[" * 100_000, '{"commitInfo": {"timestamp": ' + "9" * 10_000 + "}}", "\udcff"])
def test_a_log_line_that_cannot_be_parsed_is_reported_as_damage(table: Location, line: str) -> None:
    publish(table, 1)
    (table.local / "_delta_log" / f"{1:020d}.json").write_text(line, errors="surrogateescape")
    with pytest.raises(DamagedPublication, match="version 1"):
        read_table_state(table)


@pytest.mark.parametrize("note", [7, {"as_of": 3}, [], "[" * 100_000, '{"as_of": 1}'])
def test_metadata_of_another_engine_is_not_a_note(table: Location, note: object) -> None:
    publish(table, 1)
    line = json.dumps({"commitInfo": {"userMetadata": note}})
    (table.local / "_delta_log" / f"{1:020d}.json").write_text(line)
    shown = read_table_state(table).shown
    assert shown is not None and shown.as_of == 3


def test_replaced_files_stay_for_a_week_after_their_replacement(table: Location) -> None:
    def folders() -> list[Path]:
        return sorted(table.local.glob("publish-*"))

    def age(folder: Path) -> None:
        long_ago = time.time() - 2 * RETENTION_S
        for path in (*folder.rglob("*"), folder):
            os.utime(path, (long_ago, long_ago))

    publish(table, 1)
    stage(table, 5)  # a process died here
    publish(table, 2)
    for folder in folders():
        age(folder)  # as if the publisher had renewed these, and then slept for two weeks before its commit
    maintain_published(table)
    maintain_published(table)
    assert len(folders()) == 3 and rows(table, 0) == [1]
    age(table.local / DEAD)
    (table.local / "notes").mkdir()
    age(table.local / "notes")
    maintain_published(table)
    assert len(folders()) == 1 and rows(table) == [2]
    assert (table.local / "notes").is_dir()
    assert read_table_state(table).shown is not None


def test_rows_that_are_staged_for_the_next_version_stay_however_old_they_are(table: Location) -> None:
    publish(table, 1)
    staged = stage(table, 5)
    for path in (*staged.folder.local.rglob("*"), staged.folder.local):
        os.utime(path, (0, 0))
    for _ in range(3):
        maintain_published(table)  # like a process that has slept since it published version 0
        for note in (table.local / DEAD).glob("*"):
            os.utime(note, (0, 0))
    staged.commit("prices", "as of 3", NOTE)
    assert rows(table) == [5]


def test_a_long_log_gets_checkpoints(table: Location) -> None:
    for number in range(12):
        publish(table, number)
        maintain_published(table)
    log = table.local / "_delta_log"
    assert (log / f"{10:020d}.checkpoint.parquet").exists()
    for number in range(10):
        (log / f"{number:020d}.json").unlink()
    assert rows(table) == [11]


def test_replaced_files_are_deleted_a_week_later_even_if_their_folder_has_a_live_one(table: Location) -> None:
    staged = StagedRows(table)
    write_deltalake(str(staged.folder), pa.table({"id": [1]}))
    write_deltalake(str(staged.folder), pa.table({"id": [2]}), mode="append")
    files = DeltaTable(str(staged.folder)).file_uris()
    # Only the first entry is taken, so the other file counts as one that a later publication has replaced.
    staged.take()
    staged.commit("t", "", NOTE)
    for age_s in (0, 0, 8 * 86_400):
        for note in (table.local / DEAD).glob("*.json"):
            os.utime(note, (time.time() - age_s, time.time() - age_s))
        assert len(list(staged.folder.local.glob("*.parquet"))) == 2
        maintain_published(table)
    assert len(list(staged.folder.local.glob("*.parquet"))) == 1 and len(files) == 2
