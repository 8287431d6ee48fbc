"""Tables of an earlier release are read as they are, and upgraded by a commit that shuts earlier releases out."""

from __future__ import annotations

import json
import os
import secrets
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Schema, Transaction
from deltalake.exceptions import DeltaError
from deltalake.transaction import AddAction
from structlog.testing import capture_logs

from tests.golden.shown import unpack
from tests.stops import Killed, stop_at
from tests.sweeps import swept
from tidelake.catalog.catalog import Catalog
from tidelake.errors import CommitRefused, DamagedLog, DamagedTable
from tidelake.integrity.verification import Verification, repair_log, verify_table
from tidelake.settings.lake import Settings, load_settings
from tidelake.storage.location import Location, locate
from tidelake.store import table_log
from tidelake.store.acknowledged import ACKED, acknowledge_entry, read_markers
from tidelake.store.bring_over import bring_over
from tidelake.store.commit import OpenTable, create_table
from tidelake.store.entry import Entry
from tidelake.store.failpoints import BRING_OVER_FAILPOINTS, on_reach
from tidelake.store.files import write_run
from tidelake.store.format import CATALOG_VERSION, FORMAT_VERSION, REFUSED_PROPERTY
from tidelake.store.layout import Store
from tidelake.store.table_log import LOG, RETENTION_S, entry_path

SCHEMA = pa.schema([("_time", pa.int64()), ("_run", pa.string())])
NO_HOOKS = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
CONFIGURATION = {
    "delta.logRetentionDuration": "interval 6 hours",
    "delta.deletedFileRetentionDuration": "interval 24 hours",
    "delta.dataSkippingNumIndexedCols": "1",
    "delta.checkpointInterval": "1000000",
}


class Earlier:
    """A table that is opened, checked and committed to in the way of Git revision eb8130e, an earlier release."""

    def __init__(self, path: Location) -> None:
        self.path, self.table = path, DeltaTable(str(path))
        self.version = self.table.version()
        self.seq = self.table.transaction_version("seq")
        actions = [json.loads(line) for line in entry_path(path, self.version).local.read_text("utf-8").splitlines()]
        assert [action["txn"]["version"] for action in actions if action.get("txn", {}).get("appId") == "seq"]
        # `OpenTable.__init__` in that revision: `if _FORBIDDEN_PROPERTY in configuration: raise DamagedTable(…)`
        if "delta.setTransactionRetentionDuration" in self.table.metadata().configuration:
            raise DamagedTable(str(path), "the property forgets the table's state")

    def commit(self, upper: int) -> None:
        """Commit a run of one row."""
        assert self.seq is not None
        files = write_run(self.path, f"earlier-{upper}", pa.table({"_time": [upper]}))
        self.table.create_write_transaction(
            [AddAction(file.path, file.bytes, {"_run": file.run}, 0, True, file.statistics()) for file in files],
            mode="append",
            schema=self.table.schema(),
            partition_by=["_run"],
            commit_properties=properties({"upper": upper, "seq": self.seq + 1}),
            post_commithook_properties=NO_HOOKS,
        )

    def maintain(self) -> None:
        """Write a checkpoint, and delete the entries that it replaces."""
        for blob in (self.path.local / LOG).iterdir():
            os.utime(blob, times=(0, time.time() - RETENTION_S - 60))
        self.table.create_checkpoint()
        self.table.cleanup_metadata()


def properties(values: dict[str, int]) -> CommitProperties:
    return CommitProperties(
        custom_metadata={"nonce": secrets.token_hex(16), "last": "seq"},
        max_commit_retries=0,
        app_transactions=[Transaction(name, value) for name, value in values.items()],
    )


@pytest.fixture
def table(tmp_path: Path) -> Location:
    """A table that the earlier release has created and committed to."""
    path = locate(tmp_path) / "t"
    DeltaTable.create(
        str(path),
        schema=Schema.from_arrow(SCHEMA),
        partition_by=["_run"],
        configuration=CONFIGURATION,
        commit_properties=properties({"upper": 0, "seq": 0}),
        post_commithook_properties=NO_HOOKS,
    )
    for upper in (1, 2, 3):
        Earlier(path).commit(upper)
    return path


def contents(table: Location) -> tuple[object, ...]:
    opened = OpenTable(table)
    return opened.value("upper"), sorted(file.run for file in opened.files())


def commit(table: Location, upper: int) -> None:
    OpenTable(table).commit({"upper": upper}, write_run(table, f"r{upper}", pa.table({"_time": [upper]})))


def check_upgraded(table: Location, before: tuple[object, ...]) -> None:
    """Assert that a table is intact and acknowledged, and that this release can use it and the earlier one cannot."""
    assert contents(table) == before
    with pytest.raises(DamagedTable, match="forgets"):
        Earlier(table)
    newest = OpenTable(table).version
    markers, versions = read_markers(table), table_log._versions(table)
    assert markers.newest == newest
    assert set(range(min(markers.entries), newest + 1)) == set(markers.entries)
    found = Verification()
    verify_table(table, True, found)
    assert found.damages == []
    commit(table, 1000)
    assert contents(table)[0] == 1000
    assert OpenTable(table).format == FORMAT_VERSION
    entry_path(table, versions[-1]).local.unlink()
    with pytest.raises(DamagedTable):
        OpenTable(table)


def tree(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_a_reader_leaves_a_table_of_an_earlier_release_as_it_is(table: Location, tmp_path: Path) -> None:
    for step in range(3):
        before = tree(tmp_path)
        assert contents(table) == (step + 3, [f"earlier-{upper}" for upper in range(1, step + 4)])
        create_table(table, SCHEMA)
        verify_table(table, True, found := Verification())
        assert found.damages == []
        assert tree(tmp_path) == before
        Earlier(table).commit(step + 4)  # the earlier release continues alongside readers of this release
        if step == 1:
            Earlier(table).maintain()


@pytest.mark.parametrize("read", [contents, bring_over])
def test_an_earlier_release_may_clean_up_while_the_log_is_read(
    table: Location, monkeypatch: pytest.MonkeyPatch, read: Callable[[Location], object]
) -> None:
    list_versions, listed = table_log._versions, list[int]()
    Earlier(table).table.create_checkpoint()  # the entries that it replaces are still there when the log is listed

    def clean_up_after_listing(path: Location) -> list[int]:
        versions = list_versions(path)
        if not listed:
            listed.extend(versions)
            Earlier(path).maintain()
            assert list_versions(path) != versions
        return versions

    monkeypatch.setattr(table_log, "_versions", clean_up_after_listing)
    read(table)
    assert listed == [0, 1, 2, 3]
    assert contents(table)[0] == 3
    verify_table(table, True, found := Verification())
    assert found.damages == []


def test_nothing_is_committed_to_a_table_before_it_is_upgraded(table: Location) -> None:
    with pytest.raises(CommitRefused, match="has the format of an earlier release"):
        commit(table, 4)


def test_an_earlier_release_that_has_a_table_open_refuses_it_once_it_is_upgraded(table: Location) -> None:
    before, open_before = contents(table), Earlier(table)
    assert bring_over(table)
    with pytest.raises(DeltaError):
        open_before.commit(4)
    assert not bring_over(table)
    check_upgraded(table, before)


def test_an_earlier_release_refuses_a_new_table(tmp_path: Path) -> None:
    create_table(locate(tmp_path) / "t", SCHEMA, {"upper": 0})
    with pytest.raises(DamagedTable, match="forgets"):
        Earlier(locate(tmp_path) / "t")


def test_a_table_that_has_lost_the_property_is_refused(table: Location) -> None:
    bring_over(table)
    log = DeltaTable(str(table))
    log.alter.set_table_properties({REFUSED_PROPERTY: "interval 7 days"}, commit_properties=properties({"seq": 5}))
    with pytest.raises(DamagedTable):
        OpenTable(table)


def test_other_delta_readers_can_read_a_table_that_was_upgraded(table: Location) -> None:
    bring_over(table)
    read = DeltaTable(str(table))
    assert sorted(read.to_pyarrow_table()["_time"].to_pylist()) == [1, 2, 3]
    assert (read.protocol().min_reader_version, read.protocol().min_writer_version) == (1, 2)
    assert (read.transaction_version("upper"), read.transaction_version("seq")) == (3, 4)
    read.create_checkpoint()
    assert DeltaTable(str(table)).transaction_version("upper") == 3


def test_every_entry_of_a_table_that_was_upgraded_is_acknowledged(table: Location) -> None:
    bring_over(table)
    before, entry = contents(table), entry_path(table, 2).local
    entry.write_text(entry.read_text("utf-8").replace('"numRecords', '"munRecords'), "utf-8")
    with pytest.raises(DamagedLog, match="the entry of version 2 is not the one that was acknowledged"):
        OpenTable(table)
    assert len(repair_log(table)) == 1
    assert contents(table) == before


@pytest.mark.parametrize("has_checkpoint", [False, True])
@pytest.mark.parametrize("commits", [1, 3])
def test_a_commit_by_an_earlier_release_during_an_upgrade_is_kept(
    table: Location, has_checkpoint: bool, commits: int
) -> None:
    left = [4, 5, 6][:commits]

    def commit_one(name: str) -> None:
        if name == "format.after_markers" and left:
            Earlier(table).commit(left.pop(0))
            if has_checkpoint:
                Earlier(table).maintain()

    on_reach(commit_one)
    try:
        assert bring_over(table)
    finally:
        on_reach(None)
    assert left == []
    check_upgraded(table, (3 + commits, [f"earlier-{upper}" for upper in range(1, 4 + commits)]))


PLACES = ["format.after_markers", *(f"commit.{place}.t" for place in ("before_call", "after_call", "after_marker"))]


@pytest.mark.parametrize("place", [*PLACES, "format.after_commit"])
def test_an_upgrade_that_is_killed_is_finished_by_the_next_process(table: Location, place: str) -> None:
    before = contents(table)
    stop_at(place, lambda: bring_over(table))
    assert contents(table) == before
    assert bring_over(table) == (place in ("format.after_markers", "commit.before_call.t"))
    check_upgraded(table, before)


@pytest.mark.parametrize("marks", [1, 2, 4])
def test_an_earlier_release_continues_after_an_upgrade_that_was_killed(
    table: Location, monkeypatch: pytest.MonkeyPatch, marks: int
) -> None:
    marked: list[int] = []

    def acknowledge(path: Location, version: int, text: bytes) -> str:
        if len(marked) == marks:
            raise Killed
        marked.append(version)
        return acknowledge_entry(path, version, text)

    with monkeypatch.context() as patched:
        patched.setattr(table_log, "acknowledge_entry", acknowledge)
        stop_at("format.after_markers", lambda: bring_over(table))
    runs = ["earlier-1", "earlier-2", "earlier-3"]
    for upper in range(4, 10):
        Earlier(table).commit(upper)
        runs.append(f"earlier-{upper}")
        if upper in (5, 7):
            Earlier(table).maintain()
        verify_table(table, False, found := Verification())
        assert found.damages == []
        assert contents(table) == (upper, sorted(runs))
    assert list((table.local / ACKED).iterdir())
    assert bring_over(table)
    check_upgraded(table, (9, sorted(runs)))


# --- whole stores ----------------------------------------------------------------------------------------------------


def tables_of(settings: Settings, name: str) -> list[Location]:
    """The catalog, followed by the tables of a collection."""
    catalog = Catalog(Store(settings.store))
    return [catalog.store.catalog, *catalog.find(name).tables]


def others(settings: Settings) -> list[Entry]:
    """The entries of all collections but `raw_upsert_avro`."""
    return [entry for entry in Catalog(Store(settings.store)).entries() if entry.name != "raw_upsert_avro"]


def formats(tables: list[Location]) -> list[int]:
    return [OpenTable(table).format for table in tables]


def open_for_writing(settings: Settings, name: str) -> None:
    spec = next(collection.spec() for collection in settings.collections if collection.name == name)
    Catalog(Store(settings.store)).open_or_create(spec)


def test_a_store_is_upgraded_with_the_catalog_first_and_each_step_is_logged_once(tmp_path: Path) -> None:
    settings = load_settings(unpack(tmp_path))
    tables, reached = tables_of(settings, "raw_upsert_avro"), list[str]()
    untouched = tree(tmp_path)
    entries = [entry.model_dump() for entry in Catalog(Store(settings.store)).entries()]
    assert tree(tmp_path) == untouched

    on_reach(reached.append)
    try:
        with capture_logs() as logs:
            open_for_writing(settings, "raw_upsert_avro")
            open_for_writing(settings, "raw_upsert_avro")
    finally:
        on_reach(None)
    assert [(log["log_level"], log.get("collection"), log.get("tables")) for log in logs] == [
        ("warning", None, ["catalog"]),
        ("warning", None, None),
        ("warning", "raw_upsert_avro", [table.name for table in tables[1:]]),
    ]
    assert logs[1]["names"] == len(entries)
    assert set(BRING_OVER_FAILPOINTS) <= set(reached)
    commits = [name.split(".")[-1] for name in reached if name.startswith("commit.before_call.")]
    of_handles = ["handles"] * len(entries)
    assert commits == ["catalog", "catalog", *of_handles, "catalog", *(table.name for table in tables[1:]), "handles"]
    assert formats(tables) == [CATALOG_VERSION, *[FORMAT_VERSION] * (len(tables) - 1)]
    assert formats(tables_of(settings, "plain"))[1:] == [0] * 5
    for before, after in zip(entries, Catalog(Store(settings.store)).entries(), strict=True):
        raised = {"tables_format": FORMAT_VERSION} if after.name == "raw_upsert_avro" else {}
        assert after.model_dump() == before | raised
    for table in tables:
        with pytest.raises(DamagedTable, match="forgets"):
            Earlier(table)


def test_a_store_whose_upgrade_is_killed_at_any_point_is_upgraded_by_the_next_process(tmp_path: Path) -> None:
    settings = load_settings(unpack(tmp_path))
    tables, lives, left = tables_of(settings, "raw_upsert_avro"), 0, 0
    before = [contents(table) for table in tables[1:]]
    entries = [entry.model_dump() for entry in others(settings)]

    def kill(name: str) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            raise Killed

    is_killed = True
    while is_killed:
        lives += 1
        left = lives  # each process gets one failpoint further than the process before it
        on_reach(kill)
        try:
            open_for_writing(settings, "raw_upsert_avro")
            is_killed = False
        except Killed:
            is_killed = True
        finally:
            on_reach(None)
        assert [contents(table) for table in tables[1:]] == before
        assert formats(tables) == sorted(formats(tables), reverse=True)
        assert [entry.model_dump() for entry in others(settings)] == entries
    for table in tables:
        verify_table(table, True, found := Verification())
        assert found.damages == []


@pytest.mark.parametrize(
    "place", swept(BRING_OVER_FAILPOINTS, ["commit.after_call.catalog", "divide.after_name", "format.after_commit"])
)
def test_a_store_whose_upgrade_is_killed_once_is_upgraded_by_the_next_process(tmp_path: Path, place: str) -> None:
    settings = load_settings(unpack(tmp_path))
    tables = tables_of(settings, "raw_upsert_avro")
    before = [contents(table) for table in tables[1:]]
    stop_at(place, lambda: open_for_writing(settings, "raw_upsert_avro"))
    assert [contents(table) for table in tables[1:]] == before
    open_for_writing(settings, "raw_upsert_avro")
    assert [contents(table) for table in tables[1:]] == before
    assert formats(tables) == [CATALOG_VERSION, *[FORMAT_VERSION] * (len(tables) - 1)]


def test_a_fence_upgrades_a_store_before_it_raises_the_epoch(tmp_path: Path) -> None:
    settings = load_settings(unpack(tmp_path))
    Catalog(Store(settings.store)).fence("plain", None)
    assert formats(tables_of(settings, "plain")) == [CATALOG_VERSION, *[FORMAT_VERSION] * 5]


def test_a_decision_upgrades_the_catalog_and_no_other_table(tmp_path: Path) -> None:
    settings = load_settings(unpack(tmp_path))
    Catalog(Store(settings.store)).update("plain", lambda entry: entry)
    assert formats(tables_of(settings, "plain")) == [CATALOG_VERSION, 0, 0, 0, 0, 0]
