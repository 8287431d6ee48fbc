"""The commit protocol, rule by rule: what is a commit, what is refused, and what loses or damages nothing."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import threading
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from obstore.store import MemoryStore

from tests.lakes.places import store_root
from tests.store.racing import check_race
from tests.store.small_tables import damages
from tidelake.errors import (
    CommitRefused,
    Conflict,
    DamagedLog,
    DamagedTable,
    Fenced,
    Indeterminate,
    InvalidUsage,
    NewerFormat,
)
from tidelake.storage import blobs
from tidelake.storage.location import Location, locate
from tidelake.store import commit, table_log
from tidelake.store.acknowledged import acknowledge_entry, entry_marker, entry_markers, forget_before
from tidelake.store.commit import OpenTable, create_table, maintain
from tidelake.store.dead_notes import DEAD
from tidelake.store.failpoints import on_reach
from tidelake.store.files import DIGEST, RunFile, describe_run, read_rows, write_run
from tidelake.store.followed import forget_all
from tidelake.store.layout import RUN
from tidelake.store.sweep import sweep
from tidelake.store.table_log import LOG, check_log, entry_path, read_entry

SCHEMA = pa.schema([("_time", pa.int64()), ("a", pa.int64()), ("_run", pa.string())])


@pytest.fixture
def table(tmp_path: Path) -> Location:
    """An empty table with an epoch and an upper."""
    create_table(locate(tmp_path) / "t", SCHEMA, {"epoch": 3, "upper": 5})
    return locate(tmp_path) / "t"


def write_rows(table: Location, run: str, times: tuple[int, ...] = (1, 2)) -> list[RunFile]:
    return write_run(table, run, pa.table({"_time": list(times), "a": list(times)}))


def test_a_commit_adds_files_and_moves_values_in_one_entry(table: Location) -> None:
    done = OpenTable(table).commit({"upper": 7, "offset/t/0": 9}, write_rows(table, "r1"))
    opened = OpenTable(table)
    assert (done.version, done.seq, opened.version, opened.seq) == (1, 1, 1, 1)
    assert (opened.value("upper"), opened.value("offset/t/0"), opened.value("never")) == (7, 9, None)
    assert [(file.run, file.rows, file.time_min, file.time_max) for file in opened.files()] == [("r1", 2, 1, 2)]
    assert read_rows(table, opened.files(), SCHEMA)["_run"].to_pylist() == ["r1", "r1"]


def test_the_second_of_two_commits_from_one_state_conflicts(table: Location) -> None:
    first, second = OpenTable(table), OpenTable(table)
    first.commit({"upper": 6})
    with pytest.raises(Conflict, match="version 1"):
        second.commit({"other": 1}, write_rows(table, "r1"))
    assert OpenTable(table).files() == []


def test_an_open_table_can_make_only_one_commit(table: Location) -> None:
    opened = OpenTable(table)
    opened.commit({"upper": 6})
    with pytest.raises(InvalidUsage, match="one commit"):
        opened.commit({"upper": 7})


def test_a_moved_epoch_fences_the_writer(table: Location) -> None:
    OpenTable(table).commit({"epoch": 4})
    with pytest.raises(Fenced):
        OpenTable(table).commit({"upper": 9}, epoch=3)
    assert OpenTable(table).value("upper") == 5


def test_values_never_fall(table: Location) -> None:
    with pytest.raises(InvalidUsage, match="'upper' would fall from 5 to 4"):
        OpenTable(table).commit({"upper": 4})
    with pytest.raises(InvalidUsage, match="'seq' is set by the commit itself"):
        OpenTable(table).commit({"seq": 99})


def test_a_swap_removes_only_the_named_runs(table: Location) -> None:
    for name in ("r1", "r2", "r3"):
        OpenTable(table).commit({}, write_rows(table, name))
    OpenTable(table).commit({"since": 1}, write_rows(table, "m1"), ["r1", "r3"])
    assert sorted(file.run for file in OpenTable(table).files()) == ["m1", "r2"]


def test_a_swap_of_a_run_that_is_not_live_is_refused_before_the_call(table: Location) -> None:
    OpenTable(table).commit({}, write_rows(table, "r1"))
    with pytest.raises(Conflict, match=r"version 2 of .*: the run gone is no longer live"):
        OpenTable(table).commit({}, write_rows(table, "m1"), ["gone"])
    assert [file.run for file in OpenTable(table).files()] == ["r1"]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"_time": [1]}, "does not have the table's schema"),
        ({"_time": [1], "a": ["text"]}, "does not have the table's schema"),
        ({"_time": [1], "a": [1], "more": [1]}, "does not have the table's schema"),
    ],
)
def test_a_file_with_a_different_schema_is_refused(table: Location, columns: dict[str, Any], message: str) -> None:
    (table / "_run=r1").local.mkdir()
    pq.write_table(pa.table(columns), table.local / "_run=r1" / "f.parquet")
    with pytest.raises(InvalidUsage, match=message):
        OpenTable(table).commit({}, describe_run(table, "r1"))
    assert OpenTable(table).version == 0


def test_a_file_that_is_missing_or_has_a_different_number_of_rows_is_refused(table: Location) -> None:
    (file,) = write_rows(table, "r1")
    misstated = RunFile(file.path, file.run, 99, file.bytes, file.time_min, file.time_max)
    with pytest.raises(InvalidUsage, match="2 rows, but its description says 99"):
        OpenTable(table).commit({}, [misstated])
    (table / file.path).local.unlink()
    with pytest.raises(InvalidUsage, match="does not exist"):
        OpenTable(table).commit({}, [file])


def test_a_call_that_raises_after_it_committed_is_a_commit(table: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = OpenTable(table)
    wrap_next_write(monkeypatch, lambda call: (call(), _raise("the checkpoint hook failed")))
    assert opened.commit({"upper": 8}).version == 1
    assert OpenTable(table).value("upper") == 8


def test_a_call_that_raises_and_leaves_nothing_is_indeterminate(
    table: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = OpenTable(table)
    wrap_next_write(monkeypatch, lambda call: _raise("the disk is full"))
    with pytest.raises(Indeterminate, match="the disk is full") as caught:
        opened.commit({"upper": 8})
    assert caught.value.version == 1
    assert OpenTable(table).value("upper") == 5


def test_a_name_in_use_by_our_own_entry_is_a_commit(table: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shared disk may repeat a call that has succeeded, and report that the name is in use."""
    opened = OpenTable(table)

    def in_use(create: Callable[[], object]) -> None:
        create()
        raise FileExistsError

    wrap_next_write(monkeypatch, in_use)
    assert opened.commit({"upper": 8}).version == 1
    assert OpenTable(table).value("upper") == 8


MANY = 6
"""How many commits it takes for a log to forget its first versions, with the fixture `hurried`."""


@pytest.fixture
def any_table(any_store: Path) -> Location:
    """An empty table with an epoch and an upper, on a disk or in an object store."""
    path = store_root(any_store) / "t"
    create_table(path, SCHEMA, {"epoch": 3, "upper": 5})
    return path


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write a checkpoint after every second commit, and delete entries that many others follow, however young."""
    monkeypatch.setattr(commit, "_CHECKPOINT_EVERY_COMMITS", 2)
    monkeypatch.setattr(table_log, "CROWDED_S", -1.0)


def commit_many(table: Location, commits: int = MANY) -> None:
    """Commit as another process would, so often that the log forgets its first versions."""
    forget_all()
    for _ in range(commits):
        OpenTable(table).commit({})
        maintain(table, entries_max=2)


def late_by(table: Location, commits: int = MANY) -> Callable[[Callable[[], object]], None]:
    """Create an entry only after so many other commits that the log has forgotten its version."""

    def late(create: Callable[[], object]) -> None:
        commit_many(table, commits)
        create()

    return late


def too_late(table: Location) -> Any:
    """What a writer raises if its entry came too late: only on a disk does it know that the entry never counted."""
    if table.is_local:
        return pytest.raises(Conflict, match="other commits came first, and were cleaned up")
    return pytest.raises(Indeterminate, match="later entries were cleaned up")


@pytest.mark.everywhere
@pytest.mark.usefixtures("hurried")
def test_an_entry_that_is_created_in_a_gap_is_not_a_commit(
    any_table: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process stops just before it creates an entry; when it continues, the log has forgotten the entry's version."""
    opened = OpenTable(any_table)
    wrap_next_write(monkeypatch, late_by(any_table))
    with too_late(any_table):
        opened.commit({"upper": 8})
    assert not blobs.exists(entry_path(any_table, 1))
    assert (OpenTable(any_table).version, OpenTable(any_table).value("upper")) == (MANY, 5)
    check_log(any_table)


@pytest.mark.everywhere
@pytest.mark.usefixtures("hurried")
def test_an_entry_that_was_cleaned_up_before_its_writer_continued_may_be_a_commit(
    any_table: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = OpenTable(any_table)

    def slept(create: Callable[[], object]) -> None:
        create()
        commit_many(any_table)

    wrap_next_write(monkeypatch, slept)
    with pytest.raises(Indeterminate, match="later entries were cleaned up"):
        opened.commit({"upper": 8})
    assert (OpenTable(any_table).version, OpenTable(any_table).value("upper")) == (MANY + 1, 8)
    check_log(any_table)


@pytest.mark.usefixtures("hurried")
def test_a_kill_after_an_entry_was_created_in_a_gap_damages_nothing(
    any_table: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = OpenTable(any_table)
    wrap_next_write(monkeypatch, late_by(any_table))
    late_entry = entry_path(any_table, 1)

    def stop(name: str) -> None:
        if name == f"commit.after_sync.{any_table.name}" and blobs.exists(late_entry):
            raise KeyboardInterrupt

    on_reach(lambda name: stop(name) if OpenTable(any_table).version >= MANY else None)
    try:
        with pytest.raises(KeyboardInterrupt):
            opened.commit({"upper": 8})
    finally:
        on_reach(None)
    assert blobs.exists(late_entry)
    assert (OpenTable(any_table).version, OpenTable(any_table).value("upper")) == (MANY, 5)
    assert damages(any_table) == []
    assert min(version for version, _ in table_log.kept_entries(any_table)) > 1
    commit_many(any_table, 2)
    assert not blobs.exists(late_entry)


def test_an_entry_that_is_cleaned_up_while_its_writer_looks_for_it_is_a_commit(
    any_table: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = OpenTable(any_table)
    reads: list[str] = []

    def slept(create: Callable[[], object]) -> None:
        create()
        commit_many(any_table, 3)
        forget_before(any_table, 2)  # the cleanup deletes the markers first
        monkeypatch.setattr(commit, "read_or_none", read_then_clean_up)

    def read_then_clean_up(location: Location) -> bytes | None:
        text = table_log.read_or_none(location)
        if location.parent.name == LOG:
            reads.append(location.name)
            for version in (1, 2):
                blobs.delete(entry_path(any_table, version))
        return text

    wrap_next_write(monkeypatch, slept)
    assert opened.commit({"upper": 8}).version == 1
    assert reads == [entry_path(any_table, 2).name]


@pytest.mark.usefixtures("hurried")
def test_two_writers_that_come_too_late_both_lose(any_table: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    OpenTable(any_table).commit({})
    first = OpenTable(any_table)
    OpenTable(any_table).commit({})
    second = OpenTable(any_table)

    def stop(name: str) -> None:
        if name == f"commit.after_sync.{any_table.name}":
            raise KeyboardInterrupt

    commit_many(any_table)
    entry = entry_path(any_table, 3)
    monkeypatch.setattr(OpenTable, "_check_newest", lambda _: None)  # both were suspended after this check
    on_reach(stop)
    try:
        with pytest.raises(KeyboardInterrupt):
            second.commit({"upper": 8})
    finally:
        on_reach(None)
    assert blobs.exists(entry)
    with pytest.raises(Conflict, match="other commits came first, and were cleaned up"):
        first.commit({"upper": 9})
    assert not blobs.exists(entry_path(any_table, 2))
    assert damages(any_table) == []


@pytest.mark.usefixtures("hurried")
def test_a_marker_that_comes_after_its_entry_was_cleaned_up_damages_nothing(
    any_table: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = OpenTable(any_table)

    def slept(path: Location, version: int, text: bytes) -> str:
        monkeypatch.setattr(commit, "acknowledge_entry", acknowledge_entry)
        commit_many(any_table)
        return acknowledge_entry(path, version, text)

    monkeypatch.setattr(commit, "acknowledge_entry", slept)
    assert opened.commit({"upper": 8}).version == 1
    assert (OpenTable(any_table).version, OpenTable(any_table).value("upper")) == (MANY + 1, 8)
    assert damages(any_table) == []
    if not any_table.is_local:  # here, the writer does not look at the log again, which would take a request
        assert 1 in entry_markers(any_table)
        commit_many(any_table, 2)
    assert 1 not in entry_markers(any_table)
    assert damages(any_table) == []


def test_an_entry_in_a_table_that_was_deleted_meanwhile_is_not_a_commit(
    any_table: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = OpenTable(any_table)

    def deleted(create: Callable[[], object]) -> None:
        blobs.delete_folder(any_table)
        create()

    wrap_next_write(monkeypatch, deleted)
    with pytest.raises(DamagedTable, match="there is no table"):
        opened.commit({"upper": 8})
    assert not blobs.exists(entry_path(any_table, 1))


def restore(table: Location, version: int) -> None:
    """Change the store as if it had been restored from a copy that ends at an earlier version."""
    forget_all()
    for later in range(version + 1, OpenTable(table).version + 1):
        blobs.delete(entry_path(table, later))
        for digest in entry_markers(table)[later]:
            blobs.delete(entry_marker(table, later, digest))
    forget_all()  # other processes have not seen the later versions


@pytest.mark.parametrize("restored", [1, 2])
def test_an_entry_after_a_version_that_a_restored_store_lacks_is_deleted(restored: int) -> None:
    table = blobs.mount(f"memory://{secrets.token_hex(8)}", MemoryStore()) / "t"
    create_table(table, SCHEMA, {"upper": 5})
    for upper in (6, 7, 8):
        OpenTable(table).commit({"upper": upper})
    opened = OpenTable(table)
    restore(table, restored)
    with pytest.raises(DamagedLog, match="version 3 was acknowledged, but its marker is gone"):
        opened.commit({"upper": 9})
    assert not blobs.exists(entry_path(table, 4))
    assert (OpenTable(table).version, OpenTable(table).value("upper")) == (restored, 5 + restored)
    assert OpenTable(table).commit({"upper": 9}).version == restored + 1
    check_log(table)
    assert damages(table) == []


def test_an_entry_after_a_version_that_a_restored_store_has_committed_again_is_deleted() -> None:
    table = blobs.mount(f"memory://{secrets.token_hex(8)}", MemoryStore()) / "t"
    create_table(table, SCHEMA, {"upper": 5})
    for upper in (6, 7):
        OpenTable(table).commit({"upper": upper})
    opened = OpenTable(table)
    restore(table, 1)
    OpenTable(table).commit({"upper": 8})
    with pytest.raises(Conflict, match="version 2 is no longer the one that was read"):
        opened.commit({"upper": 9})
    assert not blobs.exists(entry_path(table, 3))
    assert (OpenTable(table).version, OpenTable(table).value("upper")) == (2, 8)
    check_log(table)
    assert damages(table) == []


def test_a_writer_that_continues_late_finds_its_commit_in_the_log(
    any_table: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = OpenTable(any_table)

    def slept(create: Callable[[], object]) -> None:
        create()
        commit_many(any_table, 3)

    wrap_next_write(monkeypatch, slept)
    assert opened.commit({"upper": 8}).version == 1
    assert (OpenTable(any_table).version, OpenTable(any_table).value("upper")) == (4, 8)


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, 1.5])
def test_a_value_that_is_not_an_int64_is_refused(table: Location, value: Any) -> None:
    with pytest.raises(CommitRefused, match="is not an int64"):
        OpenTable(table).commit({"other": value})
    assert OpenTable(table).version == 0


def test_true_is_stored_as_one(table: Location) -> None:
    OpenTable(table).commit({"other": True})
    assert DeltaTable(str(table)).transaction_version("other") == 1


def test_a_column_that_a_table_cannot_get_is_refused(table: Location) -> None:
    with pytest.raises(CommitRefused, match="cannot be changed"):
        OpenTable(table).add_columns([pa.field("a", pa.string())])
    assert OpenTable(table).version == 0


def test_an_equal_seq_with_another_nonce_proves_nothing(table: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    opened, other = OpenTable(table), OpenTable(table)
    wrap_next_write(monkeypatch, lambda call: (other.commit({"upper": 6}), _raise("no answer")))
    with pytest.raises(Conflict):
        opened.commit({"upper": 8})
    assert OpenTable(table).value("upper") == 6


@pytest.mark.parametrize("torn", [b"", b'{"commitInfo": {"nonce"', b"\x00" * 64])
def test_a_torn_newest_entry_is_set_aside(table: Location, torn: bytes) -> None:
    OpenTable(table).commit({"upper": 6})
    (table.local / "_delta_log" / f"{2:020d}.json").write_bytes(torn)
    opened = OpenTable(table)
    assert (opened.version, opened.value("upper")) == (1, 6)
    opened.commit({"upper": 7})
    assert OpenTable(table).value("upper") == 7


def test_a_good_entry_that_appears_between_the_check_and_the_move_is_put_back(
    table: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    OpenTable(table).commit({"upper": 6})
    entry = table.local / "_delta_log" / f"{2:020d}.json"
    entry.write_bytes(b"torn")
    replace = os.replace

    def late_replace(source: str, target: str) -> None:
        monkeypatch.setattr(os, "replace", replace)
        OpenTable(table).commit({"upper": 9})  # another process has set it aside and committed
        replace(source, target)

    monkeypatch.setattr(os, "replace", late_replace)
    assert OpenTable(table).value("upper") == 9
    assert entry.exists()


def test_the_retention_of_a_run_begins_when_it_is_swapped_out(table: Location) -> None:
    OpenTable(table).commit({}, write_rows(table, "r1"))
    os.utime(table.local / "_run=r1", (0, 0))
    OpenTable(table).commit({}, write_rows(table, "m1"), ["r1"])
    assert (table / "_run=r1").local.stat().st_mtime > 10**9


def test_a_sweep_leaves_alone_what_is_written_during_the_sweep(table: Location) -> None:
    old = table.local / f"{RUN}=ingest-dead"
    old.mkdir()
    os.utime(old, (0, 0))
    done = threading.Event()

    def write() -> None:
        for number in count():
            folder = table.local / f"{RUN}=ingest-{number}"
            (folder / "_temporary" / "0").mkdir(parents=True)
            shutil.rmtree(folder)
            if done.is_set():
                return

    writer = threading.Thread(target=write)
    writer.start()
    removed = 0
    try:
        for _ in range(100):
            removed += sweep(table)
            for note in (table.local / DEAD).iterdir():
                os.utime(note, (1, 1))
    finally:
        done.set()
        writer.join()
    assert removed == 1
    assert not old.exists()


def test_a_torn_hint_at_the_last_checkpoint_is_ignored(table: Location) -> None:
    (table.local / "_delta_log" / "_last_checkpoint").write_text("{")
    for upper in range(6, 50):
        OpenTable(table).commit({"upper": upper})
    assert maintain(table)
    assert OpenTable(table).value("upper") == 49


def test_a_table_whose_first_entry_is_torn_is_recreated(tmp_path: Path) -> None:
    (tmp_path / "t" / "_delta_log").mkdir(parents=True)
    (tmp_path / "t" / "_delta_log" / f"{0:020d}.json").write_bytes(b'{"protocol":')
    create_table(locate(tmp_path) / "t", SCHEMA, {"upper": 2})
    assert OpenTable(locate(tmp_path) / "t").value("upper") == 2


def test_a_commit_by_another_program_is_noticed(table: Location) -> None:
    OpenTable(table).commit({}, write_rows(table, "r1"))
    DeltaTable(str(table)).delete("a = 1")
    with pytest.raises(DamagedTable, match=r"version 2 \(DELETE\) was committed by something else"):
        OpenTable(table)


def test_a_broken_chain_of_seq_is_noticed(table: Location) -> None:
    for upper in (6, 7, 8):
        OpenTable(table).commit({"upper": upper})
    assert check_log(table) == 4
    entry = table.local / "_delta_log" / f"{3:020d}.json"
    entry.write_text(entry.read_text().replace('"appId":"seq","version":3', '"appId":"seq","version":5'))
    with pytest.raises(DamagedLog, match="the entry of version 3 is not the one that was acknowledged"):
        OpenTable(table)
    with pytest.raises(DamagedTable, match="'seq' is 5 at version 3, but 2 in the entry before it"):
        check_log(table)
    torn = table.local / "_delta_log" / f"{2:020d}.json"
    torn.write_bytes(torn.read_bytes()[:-9])
    with pytest.raises(DamagedTable, match="the entry of version 2 is torn"):
        check_log(table)


def test_missing_state_is_an_error_and_not_zero(tmp_path: Path) -> None:
    from deltalake import write_deltalake

    write_deltalake(str(tmp_path / "foreign"), pa.table({"a": [1], "_run": ["x"]}), partition_by=["_run"])
    with pytest.raises(DamagedTable, match="carries no 'seq'"):
        OpenTable(locate(tmp_path) / "foreign")
    with pytest.raises(DamagedTable, match="the entry of version 0 has no 'seq'"):
        check_log(locate(tmp_path) / "foreign")


def test_a_format_of_a_later_release_is_refused_and_named(table: Location) -> None:
    assert OpenTable(table).value("format") == 2
    OpenTable(table).commit({"format": 6})
    with pytest.raises(NewerFormat, match=r"t was written by a later version of Tidelake, in format 6; .* up to 5"):
        OpenTable(table)


def test_a_table_that_may_forget_its_values_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forgets = "delta.setTransactionRetentionDuration"
    monkeypatch.setitem(commit._CONFIGURATION, forgets, "interval 1 day")
    create_table(locate(tmp_path) / "t", SCHEMA, {"epoch": 3})
    with pytest.raises(DamagedTable, match=f"the property {forgets} makes the table forget"):
        OpenTable(locate(tmp_path) / "t")


def test_values_survive_checkpoints_and_log_cleanup(table: Location) -> None:
    for upper in range(6, 80):
        OpenTable(table).commit({"upper": upper}, write_rows(table, f"r{upper}"))
        maintain(table)
    assert list((table.local / "_delta_log").glob("*.checkpoint.parquet"))
    opened = OpenTable(table)
    assert (opened.value("upper"), opened.value("epoch"), opened.seq, len(opened.files())) == (79, 3, 74, 74)
    for entry in sorted((table.local / "_delta_log").glob("*.json"))[:40]:
        entry.unlink()
    assert OpenTable(table).value("upper") == 79


def test_every_commit_carries_seq_and_its_own_nonce(table: Location) -> None:
    for upper in (6, 7):
        OpenTable(table).commit({"upper": upper})
    entries = [read_entry(table, version) or [] for version in (1, 2)]
    nonces = [next(action["commitInfo"]["nonce"] for action in entry if "commitInfo" in action) for entry in entries]
    seqs = [
        [action["txn"]["version"] for action in entry if action.get("txn", {}).get("appId") == "seq"]
        for entry in entries
    ]
    assert len(set(nonces)) == 2
    assert seqs == [[1], [2]]


def test_racing_processes_lose_no_commit(table: Location) -> None:
    check_race(table, rounds=25)


def test_a_stop_before_the_call_leaves_only_files_that_no_log_names(table: Location) -> None:
    files = write_rows(table, "r1")

    def stop(name: str) -> None:
        if name == f"commit.before_call.{table.name}":
            raise KeyboardInterrupt

    on_reach(stop)
    try:
        with pytest.raises(KeyboardInterrupt):
            OpenTable(table).commit({"upper": 9}, files)
    finally:
        on_reach(None)
    opened = OpenTable(table)
    assert (opened.version, opened.value("upper"), opened.files()) == (0, 5, [])


def _raise(text: str) -> NoReturn:
    raise OSError(text)


def wrap_next_write(monkeypatch: pytest.MonkeyPatch, around: Callable[[Callable[[], object]], object]) -> None:
    """Create the next entry inside `around`, which may raise before or after the entry is created."""
    original = blobs.create
    pending = [around]

    def create(location: Location, data: bytes) -> None:
        if pending and location.parent.name == LOG:
            pending.pop()(lambda: original(location, data))
        else:
            original(location, data)

    monkeypatch.setattr(blobs, "create", create)


def test_statistics_cover_only_the_time_column(table: Location) -> None:
    OpenTable(table).commit({}, write_rows(table, "r1", (4, 9)))
    entry = read_entry(table, 1) or []
    statistics = [json.loads(str(action["add"]["stats"])) for action in entry if "add" in action]
    assert [{name: value for name, value in stated.items() if name != DIGEST} for stated in statistics] == [
        {"numRecords": 2, "minValues": {"_time": 4}, "maxValues": {"_time": 9}, "nullCount": {"_time": 0}}
    ]
