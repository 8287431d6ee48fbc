"""The tables that stay loaded between the commits of a process, and what makes it load them from scratch."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from tests.store.small_tables import SCHEMA, commit, contents, create
from tidelake.storage.location import Location, locate
from tidelake.store import loaded
from tidelake.store.commit import OpenTable, create_table, maintain
from tidelake.store.files import RunFile, write_run
from tidelake.store.loaded import take
from tidelake.store.table_log import settle


@pytest.fixture
def table(tmp_path: Path) -> Location:
    return create(locate(tmp_path) / "t")


def kept(table: Location) -> DeltaTable | None:
    return take(table, settle(table))


def test_a_commit_keeps_its_table_for_the_next_one(table: Location) -> None:
    found = kept(table)
    assert found is not None
    assert found.version() == OpenTable(table).version == 3
    assert kept(table) is None, "only one caller uses it"


def test_a_kept_table_reads_what_others_have_committed(table: Location) -> None:
    mine, digest = kept(table), settle(table).digest
    assert mine is not None and digest is not None
    commit(table, 4)  # loads the table from scratch, as another process does
    assert kept(table) is not None
    loaded.keep(table, digest, mine, 3)
    commit(table, 5)
    assert contents(table)[:3] == (5, 5, 5)
    found = kept(table)
    assert found is mine and found.version() == 5


def test_a_table_is_loaded_from_scratch_if_its_entry_was_replaced(tmp_path: Path) -> None:
    """A store is restored from a copy, and continues with other commits."""
    table = create(locate(tmp_path) / "t")
    shutil.copytree(tmp_path / "t", tmp_path / "copy")
    commit(table, 4)
    commit(table, 5)
    shutil.rmtree(tmp_path / "t")
    shutil.copytree(tmp_path / "copy", tmp_path / "t")
    for upper in range(4, 8):  # version 4 is now another entry than the one that the kept table ends with
        commit(table, 10 + upper)
    assert contents(table)[:3] == (7, 7, 17)
    runs = {file.run for file in OpenTable(table).files()}
    assert {
        Path(path).parent.name.removeprefix("_run=") for path in DeltaTable(str(tmp_path / "t")).file_uris()
    } == runs


def test_a_link_that_leads_to_a_copy_is_followed(tmp_path: Path) -> None:
    """A store is moved by copying it and changing the link that leads to it."""
    create(locate(tmp_path) / "first" / "t")
    (tmp_path / "store").symlink_to(tmp_path / "first")
    table = locate(tmp_path) / "store" / "t"
    commit(table, 4)
    shutil.copytree(tmp_path / "first", tmp_path / "second")
    (tmp_path / "store").unlink()
    (tmp_path / "store").symlink_to(tmp_path / "second")
    commit(table, 5)
    versions = [OpenTable(locate(tmp_path) / name / "t").version for name in ("first", "second")]
    assert versions == [4, 5]


def test_a_relative_path_is_of_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x").mkdir()
    monkeypatch.chdir(tmp_path / "x")
    table = create(Location("t"))
    shutil.copytree(tmp_path / "x", tmp_path / "y")
    monkeypatch.chdir(tmp_path / "y")
    commit(table, 4)
    versions = [OpenTable(locate(tmp_path) / name / "t").version for name in ("x", "y")]
    assert versions == [3, 4]


def test_an_entry_that_differs_from_the_one_it_was_loaded_with_is_noticed(table: Location) -> None:
    found = kept(table)
    assert found is not None
    loaded.keep(table, "0" * 64, found, 3)
    assert kept(table) is None


def test_a_table_is_loaded_from_scratch_after_a_checkpoint_has_replaced_its_entry(tmp_path: Path) -> None:
    table = create(locate(tmp_path) / "t", commits=31)
    found = kept(table)
    assert found is not None
    for upper in (32, 33):
        commit(table, upper)
    assert maintain(table)
    loaded.keep(table, "0" * 64, found, 31)
    assert kept(table) is None
    commit(table, 34)
    assert contents(table)[:3] == (34, 34, 34)


def test_a_new_column_is_in_the_next_commit(table: Location) -> None:
    OpenTable(table).add_columns([pa.field("note", pa.string())])
    assert kept(table) is None
    for upper in (4, 5):
        opened = OpenTable(table)
        rows = pa.table({"_time": [upper], "note": ["new"]})
        opened.commit({"upper": upper}, write_run(table, f"ingest-{opened.seq}-a", rows))
    assert DeltaTable(str(table)).to_pyarrow_table().column("note").to_pylist().count("new") == 2


def test_large_tables_and_those_not_used_lately_are_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loaded, "_TABLES_MAX", 2)
    tables = [locate(tmp_path) / name for name in "abc"]
    for table in tables:
        create_table(table, SCHEMA)
        OpenTable(table).commit({"upper": 1})
    assert [kept(table) is None for table in tables] == [True, False, False]
    monkeypatch.setattr(loaded, "_FILES_MAX", 0)
    files: list[RunFile] = OpenTable(create(tables[0] / "large")).files()
    assert files
    assert kept(tables[0] / "large") is None, "all kept tables together have more files"
