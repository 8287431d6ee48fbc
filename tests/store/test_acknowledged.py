"""Acknowledged entries cannot vanish or change silently: any damage to a log is reported, and entries are restored."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pyarrow as pa
import pytest
from structlog.testing import capture_logs

from tests.store import small_tables
from tests.store.small_tables import SCHEMA, commit, contents, create
from tidelake.errors import Conflict, DamagedLog, DamagedTable, Indeterminate
from tidelake.integrity.verification import Verification, repair_log, verify_table
from tidelake.storage import blobs
from tidelake.storage.location import Location, locate
from tidelake.store import acknowledged, table_log
from tidelake.store.acknowledged import ACKED, Markers, read_markers
from tidelake.store.commit import OpenTable, create_table, maintain
from tidelake.store.failpoints import FAILPOINTS, on_reach
from tidelake.store.table_log import LOG, Tip, acknowledge_newest_checkpoint, check_log, load_table

FLIPS = 300


def entry_of(table: Location, version: int) -> Path:
    return table.local / LOG / f"{version:020d}.json"


def marker_of(table: Location, version: int) -> Path:
    (marker,) = (table.local / ACKED).glob(f"{version:020d}-*.json")
    return marker


def damages(table: Location) -> list[tuple[str, bool]]:
    return [(damage.problem, damage.is_restorable) for damage in small_tables.damages(table)]


def forget_before(entry: Path) -> None:
    """Rewrite an entry as earlier releases wrote it, without the SHA-256 of the entry before it."""
    actions = [json.loads(line) for line in entry.read_text("utf-8").splitlines()]
    for action in actions:
        action.get("commitInfo", {}).pop("before", None)
    entry.write_text("".join(json.dumps(action) + "\n" for action in actions), "utf-8")


@pytest.fixture
def table(tmp_path: Path) -> Location:
    return create(locate(tmp_path) / "t")


@pytest.mark.parametrize("version", [0, 1, 3])
def test_any_flipped_bit_of_an_entry_is_reported_as_damage_and_the_entry_is_restored(
    table: Location, version: int
) -> None:
    before, entry, random = contents(table), entry_of(table, version), Random(version)
    whole = entry.read_bytes()
    for _ in range(FLIPS // 3):
        bit = random.randrange(8 * len(whole))
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        entry.write_bytes(damaged)
        with pytest.raises(DamagedLog, match=f"the entry of version {version} is not the one that was acknowledged"):
            OpenTable(table)
        entry.write_bytes(whole)
    entry.write_bytes(damaged)
    assert damages(table) == [("is not the one that was acknowledged", True)]
    assert [damage.file for damage in repair_log(table)] == [f"{LOG}/{version:020d}.json"]
    assert contents(table) == before
    assert damages(table) == []
    assert [aside.read_bytes() for aside in entry.parent.glob(".damaged-*")] == [damaged]


@pytest.mark.parametrize("version", [0, 2, 3])
@pytest.mark.parametrize("damage", [Path.unlink, lambda entry: entry.write_bytes(entry.read_bytes()[:-1])])
def test_an_entry_that_is_deleted_or_cut_is_restored(
    table: Location, version: int, damage: Callable[[Path], object]
) -> None:
    before = contents(table)
    damage(entry_of(table, version))
    with pytest.raises(DamagedLog):
        OpenTable(table)
    with pytest.raises(DamagedLog):
        create_table(table, SCHEMA, {"upper": 0})
    assert len(repair_log(table)) == 1
    assert contents(table) == before


def test_a_whole_log_that_is_deleted_is_restored(table: Location) -> None:
    before = contents(table)
    for version in range(4):
        entry_of(table, version).unlink()
    with pytest.raises(DamagedLog, match="version 3 was acknowledged, but its entry is missing"):
        OpenTable(table)
    assert len(repair_log(table)) == 4
    assert contents(table) == before


def test_a_lost_marker_of_an_entry_before_a_checkpoint_is_reported_and_restored(table: Location) -> None:
    load_table(table).create_checkpoint()
    acknowledge_newest_checkpoint(table)
    commit(table, 4)
    before, marker = contents(table), marker_of(table, 1)
    marker.unlink()
    assert contents(table) == before, "no reader needs it"
    assert damages(table) == [("is missing", True)]
    assert [damage.file for damage in repair_log(table)] == [f"{ACKED}/{marker.name}"]
    assert marker.read_bytes() == entry_of(table, 1).read_bytes()
    assert damages(table) == []


def test_the_leftovers_of_a_killed_cleanup_are_not_reported_as_damage(
    table: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    load_table(table).create_checkpoint()
    acknowledge_newest_checkpoint(table)
    delete = blobs.delete

    def die_after_the_first(location: Location) -> None:
        delete(location)
        raise KeyboardInterrupt

    monkeypatch.setattr(blobs, "delete", die_after_the_first)
    with pytest.raises(KeyboardInterrupt):
        acknowledged.forget_before(table, 3)
    monkeypatch.undo()
    assert sorted(read_markers(table).entries) == [1, 2, 3], "the oldest first, so that there is no gap"
    assert damages(table) == []


def test_a_stale_copy_of_an_entry_is_reported_as_damage(table: Location) -> None:
    entry_of(table, 3).write_bytes(entry_of(table, 2).read_bytes())
    with pytest.raises(DamagedLog, match="the entry of version 3 is not the one that was acknowledged"):
        OpenTable(table)


def test_an_entry_of_another_table_is_not_mistaken_for_the_next_version(table: Location, tmp_path: Path) -> None:
    other = locate(tmp_path) / "other"
    create_table(other, SCHEMA, {"upper": 0})
    for upper in (7, 8, 9, 10):
        commit(other, upper)
    entry_of(table, 4).write_bytes(entry_of(other, 4).read_bytes())
    with pytest.raises(DamagedLog, match="version 4 does not follow the acknowledged version before it"):
        OpenTable(table)


def test_the_commit_of_a_writer_that_died_before_the_marker_is_finished_by_the_next_writer(table: Location) -> None:
    before = contents(table)
    marker_of(table, 3).unlink()
    assert contents(table) == before
    assert read_markers(table).newest == 3
    commit(table, 4)
    assert check_log(table) == 5


def test_a_commit_without_a_marker_just_after_a_checkpoint_is_finished_by_the_next_writer(table: Location) -> None:
    for upper in range(4, 33):
        commit(table, upper)
    assert maintain(table)
    commit(table, 33)
    marker_of(table, 33).unlink()
    assert contents(table)[:3] == (33, 33, 33)
    assert marker_of(table, 33).exists()


def test_a_missing_marker_is_written_again_but_not_if_all_of_them_are_missing(table: Location) -> None:
    before = contents(table)
    marker_of(table, 1).unlink()
    with capture_logs() as logs:
        assert contents(table) == before
    assert [(log["event"], log["version"]) for log in logs] == [("a missing marker was written again", 1)]
    assert sorted(read_markers(table).entries) == [0, 1, 2, 3]
    marker_of(table, 1).unlink()
    entry_of(table, 1).write_bytes(entry_of(table, 1).read_bytes().replace(b'"upper"', b'"uppes"'))
    with pytest.raises(DamagedLog, match="the entry of version 1 is not the one that was acknowledged"):
        OpenTable(table)
    for marker in (table.local / ACKED).iterdir():
        marker.unlink()
    for damage in (lambda: None, lambda: entry_of(table, 3).write_bytes(b"{"), lambda: entry_of(table, 3).unlink()):
        damage()
        with pytest.raises(DamagedLog, match="no version is marked as acknowledged"):
            OpenTable(table)


def test_a_damaged_marker_is_written_again_from_its_entry(table: Location) -> None:
    marker_of(table, 2).write_bytes(b"{}")
    assert damages(table) == [("is not a copy of the entry", True)]
    assert [damage.file.partition("/")[0] for damage in repair_log(table)] == [ACKED]
    assert marker_of(table, 2).read_bytes() == entry_of(table, 2).read_bytes()
    entry_of(table, 2).unlink()
    marker_of(table, 2).write_bytes(b"{}")
    assert damages(table) == [("is missing", False)]
    assert repair_log(table) == []


def test_a_commit_by_an_earlier_release_alongside_this_release_is_reported(table: Location) -> None:
    marker_of(table, 3).unlink()
    forget_before(entry_of(table, 3))
    with pytest.raises(DamagedTable, match="version 3 was committed by an earlier release of Tidelake"):
        OpenTable(table)


# --- checkpoints -----------------------------------------------------------------------------------------------------


def age_log(table: Location) -> None:
    """Make every file in the log older than the retention time."""
    old = time.time() - table_log.RETENTION_S - 60
    for blob in (table.local / LOG).iterdir():
        os.utime(blob, (old, old))


def with_checkpoints(table: Location, count: int) -> None:
    for upper in range(4, 4 + 33 * count):
        commit(table, upper)
        maintain(table)
    assert len(list((table.local / LOG).glob("*.checkpoint.parquet"))) == count


def test_any_flipped_bit_of_a_checkpoint_is_found_and_the_entries_are_read_instead(table: Location) -> None:
    with_checkpoints(table, 1)
    before, random = contents(table), Random(3)
    for _ in range(FLIPS // 10):
        (checkpoint,) = (table.local / LOG).glob("*.checkpoint.parquet")
        whole, hint = checkpoint.read_bytes(), (table.local / LOG / "_last_checkpoint").read_bytes()
        bit = random.randrange(8 * len(whole))
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        checkpoint.write_bytes(damaged)
        assert contents(table) == before
        checkpoint.write_bytes(whole)
        (table.local / LOG / "_last_checkpoint").write_bytes(hint)
    entry_of(table, 1).unlink()
    checkpoint.write_bytes(damaged)
    with pytest.raises(DamagedLog, match="is damaged, and entries that it covers are gone"):
        OpenTable(table)


def test_a_checkpoint_is_acknowledged_only_if_it_agrees_with_the_entries(table: Location) -> None:
    with_checkpoints(table, 1)
    (checkpoint,) = (table.local / LOG).glob("*.checkpoint.parquet")
    before = contents(table)
    for marker in (table.local / ACKED).glob("*.checkpoint"):
        marker.unlink()
    assert contents(table) == before
    assert len(list((table.local / ACKED).glob("*.checkpoint"))) == 1
    for marker in (table.local / ACKED).glob("*.checkpoint"):
        marker.unlink()
    rows = pa.parquet.read_table(checkpoint)
    pa.parquet.write_table(rows.slice(0, rows.num_rows - 1), checkpoint)
    assert contents(table) == before
    assert not checkpoint.exists()


@pytest.mark.parametrize("hint", [b"", b"{", b'{"version":3,"size":1}', b'{"version":99999,"size":1}', b"[]"])
def test_a_damaged_hint_is_ignored(table: Location, hint: bytes) -> None:
    with_checkpoints(table, 1)
    before = contents(table)
    (table.local / LOG / "_last_checkpoint").write_bytes(hint)
    assert contents(table) == before


def test_entries_stay_until_there_are_two_checkpoints_after_them(table: Location) -> None:
    with_checkpoints(table, 2)
    first, second = sorted(read_markers(table).checkpoints)
    assert len(read_markers(table).entries) == OpenTable(table).version + 1, "nothing is old yet"
    age_log(table)
    version = OpenTable(table).version
    for upper in range(1000, 1000 + second + 33 - version):
        commit(table, upper)
        maintain(table)
    third = max(read_markers(table).checkpoints)
    assert third > second
    assert min(read_markers(table).entries) == second
    assert min(int(entry.name[:20]) for entry in (table.local / LOG).glob("0*")) == second
    before = contents(table)
    (checkpoint,) = (table.local / LOG).glob(f"{third:020d}.checkpoint.parquet")
    checkpoint.write_bytes(checkpoint.read_bytes()[:500])
    assert contents(table) == before, "the second checkpoint and the entries after it are enough"
    assert first < second


def test_a_writer_that_sleeps_through_a_cleanup_commits_nothing(
    table: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writer wakes up after the entry whose name it is about to take has been cleaned up."""
    sleeper = OpenTable(table)
    before: list[tuple[object, ...]] = []

    def others_commit(place: str) -> None:
        if place != "commit.before_call.t" or before:
            return
        on_reach(None)
        for upper in range(4, 4 + 33 * 2):
            commit(table, upper)
            maintain(table)
        age_log(table)
        for upper in range(1000, 1000 + 33):
            commit(table, upper)
            maintain(table)
        assert not entry_of(table, sleeper.version + 1).exists()
        before.append(contents(table))

    monkeypatch.setattr("tidelake.store.failpoints.FAILPOINTS", (*FAILPOINTS, "commit.before_call.t"))
    on_reach(others_commit)
    try:
        with pytest.raises((Conflict, Indeterminate)):  # the version that the commit follows is gone
            sleeper.commit({"upper": 5000})
    finally:
        on_reach(None)
    assert not entry_of(table, sleeper.version + 1).exists()
    assert [contents(table)] == before


# --- problems that a review found ------------------------------------------------------------------------------------


def test_two_commits_by_an_earlier_release_are_reported_as_well(table: Location) -> None:
    commit(table, 4)
    for version in (3, 4):
        marker_of(table, version).unlink()
        forget_before(entry_of(table, version))
    with pytest.raises(DamagedTable, match="version 4 was committed by an earlier release of Tidelake"):
        OpenTable(table)


@pytest.mark.parametrize("version", [50, 10**12])
def test_a_checkpoint_of_a_version_that_does_not_exist_is_set_aside(table: Location, version: int) -> None:
    with_checkpoints(table, 1)
    before = contents(table)
    (checkpoint,) = (table.local / LOG).glob("*.checkpoint.parquet")
    stray = checkpoint.with_name(f"{version:020d}.checkpoint.parquet")
    stray.write_bytes(checkpoint.read_bytes())
    assert contents(table) == before
    assert not stray.exists()
    assert sorted(read_markers(table).checkpoints) == [int(checkpoint.name[:20])]


def test_a_table_that_is_gone_is_reported_as_damage(table: Location) -> None:
    shutil.rmtree(table.local)
    assert damages(table) == [("is missing", False)]


def test_a_restored_entry_is_treated_as_new_and_the_cleanup_leaves_no_gap_before_it(table: Location) -> None:
    with_checkpoints(table, 2)
    damaged = bytearray(entry_of(table, 5).read_bytes())
    damaged[40] ^= 1
    age_log(table)
    entry_of(table, 5).write_bytes(damaged)
    assert len(repair_log(table)) == 1
    for upper in range(1000, 1000 + 33):
        commit(table, upper)
        maintain(table)
    assert damages(table) == []
    assert min(read_markers(table).entries) == 5
    assert min(int(entry.name[:20]) for entry in (table.local / LOG).glob("0*")) == 5


@pytest.mark.parametrize("killed_after", [0, 10])
def test_a_cleanup_that_is_killed_leaves_no_damage(
    table: Location, monkeypatch: pytest.MonkeyPatch, killed_after: int
) -> None:
    with_checkpoints(table, 3)
    age_log(table)
    before = contents(table)
    deleted: list[Location] = []

    class Killed(BaseException):
        pass

    def delete(location: Location) -> None:
        if len(deleted) == killed_after:
            raise Killed
        deleted.append(location)
        location.local.unlink()

    with monkeypatch.context() as patched:
        patched.setattr(blobs, "delete", delete)
        with pytest.raises(Killed):
            table_log.clean_up(table)
    assert contents(table) == before
    assert damages(table) == []
    table_log.clean_up(table)
    assert min(int(entry.name[:20]) for entry in (table.local / LOG).glob("0*")) > 0
    assert contents(table) == before


def test_a_version_that_was_acknowledged_is_never_committed_again(table: Location) -> None:
    writer = OpenTable(table)
    commit(table, 4)
    entry_of(table, 4).unlink()
    with pytest.raises(Conflict, match="another commit was already acknowledged"):
        writer.commit({"upper": 9})
    assert len(repair_log(table)) == 1
    assert contents(table)[:3] == (4, 4, 4)


def test_a_listing_that_misses_a_name_is_repeated(table: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    names = blobs.list_names

    def incomplete(folder: Location) -> list[str]:
        listed = names(folder)
        if folder.name == LOG and listed:
            monkeypatch.setattr(blobs, "list_names", names)
            return [name for name in listed if not name.startswith(f"{2:020d}")]
        return listed

    before = contents(table)
    monkeypatch.setattr(blobs, "list_names", incomplete)
    assert contents(table) == before


def test_a_listing_that_misses_a_name_before_a_new_checkpoint_is_repeated(
    table: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, names, settled = contents(table), blobs.list_names, table_log._settle
    load_table(table).create_checkpoint()  # nobody has acknowledged it yet
    opened: list[Location] = []

    def incomplete(folder: Location) -> list[str]:
        listed = names(folder)
        if folder.name == LOG and listed:
            monkeypatch.setattr(blobs, "list_names", names)
            return [name for name in listed if not name.startswith(f"{1:020d}")]
        return listed

    def settle_once(path: Location, takes_over: bool, seen: Tip | None = None) -> Tip:
        opened.append(path)
        return settled(path, takes_over, seen)

    monkeypatch.setattr(table_log, "_settle", settle_once)
    monkeypatch.setattr(blobs, "list_names", incomplete)
    assert OpenTable(table).version == 3
    assert opened == [table], "the entry is not missing, so nothing had to be opened again"
    assert contents(table) == before


@pytest.mark.parametrize("name", [f"{3:020d}.crc", f"{1:020d}.{3:020d}.compacted.json", f"{2:020d}.checkpoint.ab.json"])
def test_files_of_other_engines_that_were_never_verified_are_set_aside(table: Location, name: str) -> None:
    before = contents(table)
    (table.local / LOG / name).write_bytes(b"{}")
    assert contents(table) == before
    assert not (table.local / LOG / name).exists()


def test_a_table_that_is_created_while_it_is_opened_is_sound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = locate(tmp_path) / "t"

    def read_and_create(table: Location) -> Markers:
        markers = read_markers(table)
        monkeypatch.setattr(table_log, "read_markers", read_markers)
        create_table(path, SCHEMA, {"upper": 0})
        commit(path, 1)
        return markers

    monkeypatch.setattr(table_log, "read_markers", read_and_create)
    create_table(path, SCHEMA, {"upper": 0})
    assert contents(path)[:3] == (1, 1, 1)


@pytest.mark.parametrize("separator", ["\u2028", "\x85", "\x0b", "\x1e"])
def test_text_in_an_entry_may_contain_any_line_separator(table: Location, separator: str) -> None:
    OpenTable(table).commit({f"offset/a{separator}b/0": 7})
    assert OpenTable(table).value(f"offset/a{separator}b/0") == 7
    assert damages(table) == []


def test_a_marker_of_another_table_is_set_aside_and_restores_nothing(table: Location, tmp_path: Path) -> None:
    before, other = contents(table), locate(tmp_path) / "other"
    create_table(other, SCHEMA, {"upper": 0})
    for upper in (7, 8, 9, 10):
        commit(other, upper)
    for version in (2, 4):
        shutil.copy(marker_of(other, version), table.local / ACKED)
    with pytest.raises(DamagedLog):
        OpenTable(table)
    assert damages(table) == [("marks no commit of this table", True)] * 2
    assert len(repair_log(table)) == 2
    assert damages(table) == []
    assert contents(table) == before


def test_directories_in_place_of_files_are_reported_as_damage(table: Location) -> None:
    with_checkpoints(table, 1)
    before = contents(table)
    (checkpoint,) = (table.local / LOG).glob("*.checkpoint.parquet")
    marker, entry = marker_of(table, 34), entry_of(table, 35)
    for file in (checkpoint, marker, entry):
        file.unlink()
        file.mkdir()
    assert sorted(problem for problem, _ in damages(table)) == [
        "is not a copy of the entry",
        "is not the one that was acknowledged",
    ]
    assert len(repair_log(table)) == 2
    assert contents(table) == before


@pytest.mark.parametrize(
    "hint", [b'{"version":1e400}', b"[" * 100_000, b'{"version":-5,"size":1}', b'{"version":null}']
)
def test_a_hint_with_strange_contents_is_ignored(table: Location, hint: bytes) -> None:
    with_checkpoints(table, 1)
    before = contents(table)
    (table.local / LOG / "_last_checkpoint").write_bytes(hint)
    maintain(table)
    assert contents(table) == before


def test_a_missing_file_and_a_file_with_the_bytes_of_another_are_reported(table: Location) -> None:
    files = {file.time_min: (table / file.path).local for file in OpenTable(table).files()}
    files[1].unlink()
    files[2].write_bytes(files[3].read_bytes())
    missing, other = sorted(problem for problem, _ in damages(table))
    assert missing == "is missing"
    assert other.startswith(f"the file {files[2].relative_to(table.local)} ")
    with pytest.raises(DamagedTable):
        verify_all(table)


def verify_all(table: Location) -> None:
    found = Verification()
    verify_table(table, True, found)
    if found.damages:
        raise DamagedTable(str(table), found.damages[0].problem)


READ_ONLY = """
import os, sys
from tidelake.storage.location import locate
from tidelake.store.commit import OpenTable
OpenTable(locate(sys.argv[1]))  # everything is imported
if os.geteuid() == 0:
    os.setgroups([]), os.setgid(65534), os.setuid(65534)
opened = OpenTable(locate(sys.argv[2]))
print(opened.version, opened.value("upper"))
"""


def tear(table: Location) -> None:
    marker_of(table, 3).unlink()
    entry_of(table, 3).write_bytes(b'{"add')


@pytest.mark.parametrize(
    ("change", "version"),
    [
        (lambda table: marker_of(table, 3).unlink(), 2),
        (tear, 2),
        (lambda table: marker_of(table, 2).unlink(), 3),
        (lambda table: load_table(table).create_checkpoint(), 3),
        (lambda table: (table.local / LOG / f"{3:020d}.crc").write_text("{}"), 3),
    ],
    ids=["not acknowledged", "torn", "missing marker", "unmarked checkpoint", "stray file"],
)
def test_a_reader_without_permission_to_write_opens_the_newest_acknowledged_version(
    table: Location, change: Callable[[Location], object], version: int
) -> None:
    with TemporaryDirectory() as folder:
        sound, changed = Path(folder) / "sound", Path(folder) / "changed"
        shutil.copytree(table.local, sound)
        change(table)
        shutil.copytree(table.local, changed)
        before = sorted(path.name for path in changed.rglob("*"))
        for path in (Path(folder), *Path(folder).rglob("*")):
            path.chmod(0o555 if path.is_dir() else 0o444)
        done = subprocess.run(
            [sys.executable, "-c", READ_ONLY, str(sound), str(changed)], capture_output=True, text=True, check=False
        )
        for path in (Path(folder), *Path(folder).rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)
        assert done.stdout == f"{version} {version}\n", done.stderr
        assert sorted(path.name for path in changed.rglob("*")) == before


@pytest.mark.parametrize(
    "text",
    [b"[" * 100_000, b'{"txn": 5}\n', b'{"add": {"path": "a"}}\n', b'{"commitInfo": {"last": "seq"}}\n{"txn": 5}\n'],
)
def test_an_entry_with_an_odd_shape_is_reported_as_damage(table: Location, text: bytes) -> None:
    shutil.rmtree(table.local / ACKED)  # as in stores from before there were markers
    for version in range(4):
        forget_before(entry_of(table, version))
    entry_of(table, 2).write_bytes(text)
    with pytest.raises(DamagedTable):
        OpenTable(table)


def test_a_reader_that_sleeps_through_a_cleanup_reads_the_newest_state(
    table: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_log, "RETENTION_S", -60)
    read, newest = table_log._text_of, 90

    def read_after_a_sleep(path: Location, version: int) -> bytes | None:
        monkeypatch.setattr(table_log, "_text_of", read)
        for upper in range(4, newest):
            commit(path, upper)
            maintain(path)
        return read(path, version)

    monkeypatch.setattr(table_log, "_text_of", read_after_a_sleep)
    assert OpenTable(table).value("upper") == newest - 1
    assert not entry_of(table, 1).exists()
