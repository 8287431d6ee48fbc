"""Logs that a process follows in an object store, and what makes it stop following them. No JVM is started."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction

from tests.services.object_store import ObjectStore
from tidelake.errors import CommitRefused, Conflict, DamagedLog, DamagedTable
from tidelake.storage import blobs
from tidelake.storage.location import Location, locate
from tidelake.store import followed, put_files
from tidelake.store.acknowledged import ACKED, entry_markers
from tidelake.store.commit import OpenTable, create_table
from tidelake.store.files import read_rows, write_run
from tidelake.store.followed import forget_all, known, remember
from tidelake.store.log_copy import next_entry
from tidelake.store.put_files import forget_files
from tidelake.store.retry import retry_commit
from tidelake.store.table_log import BEFORE, LAST, SEQ, check_log, entry_path

pytestmark = pytest.mark.services

SCHEMA = pa.schema([("_time", pa.int64()), ("a", pa.int64()), ("_run", pa.string())])


@pytest.fixture
def table(object_store: ObjectStore) -> Iterator[Location]:
    """An empty table with an upper."""
    made = locate(f"s3://{object_store.create_bucket()}/store") / "t"
    create_table(made, SCHEMA, {"upper": 5})
    forget_all()
    yield made
    forget_all()


def commit_by_another_process(table: Location, upper: int) -> None:
    """Commit without letting this process follow the commit."""
    seen = known(table)
    OpenTable(table).commit({"upper": upper})
    remember(table, seen)


def test_a_process_sees_what_another_one_has_committed(table: Location) -> None:
    for upper in (6, 7):
        commit_by_another_process(table, upper)
    assert OpenTable(table, may_be_stale=True).value("upper") == 5
    assert OpenTable(table).value("upper") == 7
    assert OpenTable(table, may_be_stale=True).version == 2


def test_a_commit_from_a_stale_state_conflicts_and_the_next_state_is_fresh(table: Location) -> None:
    commit_by_another_process(table, 6)
    with pytest.raises(Conflict):
        OpenTable(table, may_be_stale=True).commit({"upper": 7})
    assert OpenTable(table, may_be_stale=True).value("upper") == 6
    commit_by_another_process(table, 8)
    stale = OpenTable(table, may_be_stale=True)
    done = retry_commit(stale, lambda opened: opened.commit({"upper": 9}), "lost")
    assert (done.version, check_log(table)) == (3, 4)


def test_an_entry_that_its_writer_did_not_acknowledge_is_finished_after_the_first_conflict(table: Location) -> None:
    tip = known(table).tip

    def call(copied: DeltaTable) -> None:
        properties = CommitProperties(
            custom_metadata={"nonce": "n", BEFORE: tip.digest or ""} | LAST,
            app_transactions=[Transaction("upper", 6), Transaction(SEQ, 1)],
        )
        copied.create_write_transaction([], "append", copied.schema(), ["_run"], commit_properties=properties)

    blobs.create(entry_path(table, 1), next_entry(tip, call))
    assert OpenTable(table).value("upper") == 5
    with pytest.raises(Conflict):
        OpenTable(table).commit({"upper": 7})
    assert OpenTable(table).value("upper") == 6
    assert list(entry_markers(table)) == [0, 1]


def test_an_entry_that_does_not_follow_the_chain_is_reported_as_damage(table: Location) -> None:
    assert OpenTable(table).version == 0
    commit_by_another_process(table, 6)
    text = blobs.read(entry_path(table, 1)).replace(b'"version":6', b'"version":9')
    blobs.write(entry_path(table, 1), text)
    with pytest.raises(DamagedLog, match="the entry of version 1 is not the one that was acknowledged"):
        OpenTable(table)


def test_a_version_whose_entry_was_lost_is_never_acknowledged_again(table: Location) -> None:
    commit_by_another_process(table, 6)
    blobs.delete(entry_path(table, 1))
    with pytest.raises(DamagedLog, match="version 1 was acknowledged before, but its entry was lost"):
        OpenTable(table, may_be_stale=True).commit({"upper": 7})
    assert len(entry_markers(table)[1]) == 1
    with pytest.raises(DamagedLog):
        OpenTable(table)


def test_a_marker_that_is_gone_is_written_again_if_the_next_entry_proves_it(table: Location) -> None:
    for upper in (6, 7):
        OpenTable(table).commit({"upper": upper})
    (lost,) = [name for name in blobs.list_names(table / ACKED) if name.startswith(f"{1:020d}-")]
    (newest,) = [name for name in blobs.list_names(table / ACKED) if name.startswith(f"{2:020d}-")]
    blobs.delete(table / ACKED / newest)
    assert OpenTable(table).value("upper") == 7
    blobs.delete(table / ACKED / lost)
    forget_all()
    assert OpenTable(table).value("upper") == 7
    assert {lost, newest} <= set(blobs.list_names(table / ACKED))


def test_another_table_in_the_same_place_is_not_mistaken_for_the_previous_one(table: Location) -> None:
    OpenTable(table).commit({"upper": 6})
    blobs.delete_folder(table)
    create_table(table, SCHEMA, {"upper": 1})
    opened = OpenTable(table)
    assert (opened.version, opened.value("upper")) == (0, 1)


def test_threads_of_one_process_lose_no_commit(table: Location) -> None:
    def add(worker: int) -> None:
        for _ in range(3):
            retry_commit(
                OpenTable(table, may_be_stale=True),
                lambda opened: opened.commit({"total": (opened.value("total") or 0) + 1}),
                "lost",
            )

    with ThreadPoolExecutor(3) as threads:
        list(threads.map(add, range(3)))
    assert OpenTable(table).value("total") == 9
    assert check_log(table) == 10


def test_a_process_forgets_logs_and_files_beyond_a_bound(table: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followed, "_KEPT_BYTES_MAX", 10)
    monkeypatch.setattr(put_files, "_BYTES_MAX", 10)
    files = write_run(table, "r1", pa.table({"_time": [1], "a": [2]}))
    OpenTable(table).commit({}, files)
    assert put_files.bytes_of(table / files[0].path, files[0].digest) is None
    opened = OpenTable(table, may_be_stale=True)
    assert read_rows(table, opened.files(), SCHEMA)["a"].to_pylist() == [2]


def test_a_file_that_this_process_did_not_put_is_checked_before_the_commit(table: Location) -> None:
    files = write_run(table, "r1", pa.table({"_time": [1], "a": [2]}))
    blobs.delete(table / files[0].path)
    forget_files()
    with pytest.raises(CommitRefused, match="does not exist"):
        OpenTable(table).commit({}, files)
    others = write_run(table, "r2", pa.table({"_time": [1], "a": [2]}))
    forget_files()
    blobs.write(table / others[0].path, b"other bytes")
    with pytest.raises(DamagedTable):
        OpenTable(table).commit({}, others)
    wrong = write_run(table, "r3", pa.table({"_time": [1], "b": [2]}))
    with pytest.raises(CommitRefused, match="does not have the table's schema"):
        OpenTable(table).commit({}, wrong)


def test_cached_bytes_are_used_only_with_the_committed_digest(table: Location) -> None:
    files = write_run(table, "r1", pa.table({"_time": [1], "a": [2]}))
    location = table / files[0].path
    assert put_files.bytes_of(location, files[0].digest) == blobs.read(location)
    assert put_files.bytes_of(location, "0" * 64) is None
