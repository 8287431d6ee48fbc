"""The entries of commits are those that delta-rs would write, and are based on the folder's current contents."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.transaction import AddAction
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.store.small_tables import commit, contents, create
from tidelake.errors import DamagedTable
from tidelake.storage.location import Location, locate
from tidelake.store.commit import OpenTable, maintain
from tidelake.store.entry_text import Stated, entry_of_files
from tidelake.store.files import RunFile, write_run
from tidelake.store.log_copy import next_entry
from tidelake.store.log_state import parsed_entry
from tidelake.store.table_log import SEQ, check_log, settle

_OF_THE_WRITER = {"timestamp", "engineInfo", "clientVersion"}
_OF_NOW = {"modificationTime", "deletionTimestamp"}
_names = st.text(st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1, max_size=8).filter(
    lambda name: name not in (".", "..", SEQ)
)
_int64 = st.integers(-(2**63), 2**63 - 1)
_files = st.builds(
    RunFile,
    path=_names.map(lambda name: f"_run=r-0-{'a' * 24}/{name}.parquet"),
    run=st.just(f"r-0-{'a' * 24}"),
    rows=st.integers(0, 2**40),
    bytes=st.integers(0, 2**40),
    time_min=st.none() | _int64,
    time_max=st.none() | _int64,
    digest=st.none() | st.text("0123456789abcdef", min_size=64, max_size=64),
    whole_digest=st.none() | st.just("f" * 64),
    headers_digest=st.none() | st.just("e" * 64),
    rows_hash=st.none() | st.text("0123456789", max_size=8),
)


def known_facts(text: bytes) -> list[dict[str, Any]]:
    """The actions of an entry without the fields that are null or state who wrote it and when."""
    actions = []
    for action in parsed_entry(text):
        ((kind, body),) = action.items()
        left = _OF_THE_WRITER if kind == "commitInfo" else _OF_NOW
        actions.append({kind: {name: value for name, value in body.items() if value is not None and name not in left}})
    return actions


@settings(deadline=None)
@given(
    files=st.lists(_files, max_size=3, unique_by=lambda file: file.path),
    removes=st.booleans(),
    values=st.dictionaries(_names, _int64, max_size=3),
)
def test_an_entry_states_what_delta_rs_states(
    files: list[RunFile], removes: bool, values: dict[str, int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    table = _table(tmp_path_factory)
    tip, opened = settle(table), OpenTable(table)
    stated = Stated("n", tip.digest or "", {**values, SEQ: 4})
    gone = opened.files()[:2] if removes else []

    def call(copied: DeltaTable) -> None:
        copied.create_write_transaction(
            [AddAction(file.path, file.bytes, {"_run": file.run}, 0, True, file.statistics()) for file in files],
            mode="overwrite" if gone else "append",
            schema=copied.schema(),
            partition_by=["_run"],
            partition_filters=[("_run", "in", [file.run for file in gone])] if gone else None,
            commit_properties=stated.properties(),
        )

    by_delta_rs, ours = known_facts(next_entry(tip, call)), known_facts(entry_of_files(stated, files, gone))
    assert sorted(by_delta_rs, key=json.dumps) == sorted(ours, key=json.dumps)
    assert ours[0].keys() == {"commitInfo"}, "its first line says how it ends"
    assert ours[-1] == {"txn": {"appId": SEQ, "version": 4}}


_made: list[Location] = []


def _table(tmp_path_factory: pytest.TempPathFactory) -> Location:
    """A table that all examples share; none of them changes it."""
    if not _made:
        _made.append(create(locate(tmp_path_factory.mktemp("entries")) / "t"))
    return _made[0]


def test_a_store_that_was_restored_from_a_copy_continues_with_other_commits(tmp_path: Path) -> None:
    table = create(locate(tmp_path) / "t")
    shutil.copytree(tmp_path / "t", tmp_path / "copy")
    commit(table, 4)
    commit(table, 5)
    shutil.rmtree(tmp_path / "t")
    shutil.copytree(tmp_path / "copy", tmp_path / "t")
    for upper in range(4, 8):
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


def test_a_new_column_is_in_the_next_commit(tmp_path: Path) -> None:
    table = create(locate(tmp_path) / "t", commits=33)
    assert maintain(table)
    OpenTable(table).add_columns([pa.field("note", pa.string())])
    for upper in (34, 35):
        opened = OpenTable(table)
        rows = pa.table({"_time": [upper], "note": ["new"]})
        opened.commit({"upper": upper}, write_run(table, f"ingest-{opened.seq}-a", rows))
    assert DeltaTable(str(table)).to_pyarrow_table().column("note").to_pylist().count("new") == 2
    assert check_log(table) == 37


def test_a_table_that_is_deleted_while_it_is_open_gets_no_entry(tmp_path: Path) -> None:
    table = create(locate(tmp_path) / "t")
    opened = OpenTable(table)
    shutil.rmtree(tmp_path / "t")
    with pytest.raises(DamagedTable, match="there is no table"):
        opened.commit({"upper": 9})
    assert not (tmp_path / "t").exists()
