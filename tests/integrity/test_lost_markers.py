"""A log that has lost all of its markers is refused, and marked again only if an operator accepts its newest entry."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from random import Random

import pytest

from tests.store import small_tables
from tests.store.small_tables import commit, contents, create
from tidelake.errors import DamagedLog
from tidelake.integrity.lost_markers import mark_again
from tidelake.integrity.verification import repair_log
from tidelake.storage.location import Location, locate
from tidelake.store import table_log
from tidelake.store.acknowledged import ACKED, acknowledge_entry, digest_of
from tidelake.store.commit import OpenTable, maintain
from tidelake.store.layout import new_run
from tidelake.store.table_log import LOG, checkpoints, entry_path

FLIPS = 60


def damages(table: Location) -> list[tuple[str, str, str]]:
    return [(damage.file, damage.problem, damage.remedy) for damage in small_tables.damages(table)]


def lose_markers(table: Location) -> None:
    shutil.rmtree(table.local / ACKED)


def check_is_refused(table: Location, why: str) -> None:
    """Check that nothing is written, even by a repair that may accept the newest entry, and that the error says `why`.

    `verify` reports the missing markers, and does not suggest accepting the entry.
    """
    with pytest.raises(DamagedLog, match=why):
        mark_again(table)
    assert repair_log(table, accepts_newest_entry=True) == []
    assert not (table.local / ACKED).exists()
    ((file, problem, remedy),) = damages(table)
    assert (file, "accept" in remedy) == (ACKED, False)
    assert problem.startswith("is missing: no version is marked as acknowledged, ")


@pytest.fixture
def table(tmp_path: Path) -> Location:
    return create(locate(tmp_path) / "t")


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Location:
    """A table whose first entries are gone, because two checkpoints follow them."""
    path = locate(tmp_path_factory.mktemp("made")) / "old"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table_log, "RETENTION_S", -60)
        create(path, commits=0)
        for upper in range(1, 90):
            commit(path, upper)
            maintain(path)
    assert not entry_path(path, 0).local.exists()
    assert len(checkpoints(path)) == 2
    return path


@pytest.fixture
def old_table(old: Location, tmp_path: Path) -> Location:
    shutil.copytree(old.local, tmp_path / "old")
    return locate(tmp_path) / "old"


def test_a_log_without_markers_is_refused_and_the_remedy_says_what_accepting_it_gives_up(table: Location) -> None:
    lose_markers(table)
    with pytest.raises(DamagedLog, match="no version is marked as acknowledged"):
        OpenTable(table)
    assert repair_log(table) == []
    assert not (table.local / ACKED).exists()
    ((file, problem, remedy),) = damages(table)
    assert (file, problem) == (ACKED, "is missing")
    assert (
        "from a copy of the store; or `tidelake repair --accept-newest-entry --apply` takes version 3 as it" in remedy
    )


def test_nothing_is_written_to_a_log_without_markers_when_it_is_opened(old_table: Location) -> None:
    lose_markers(old_table)
    with pytest.raises(DamagedLog, match="no version is marked as acknowledged"):
        OpenTable(old_table)
    assert not (old_table.local / ACKED).exists()


@pytest.mark.parametrize("name", ["table", "old_table"])
def test_a_log_whose_newest_entry_is_accepted_works_as_before(name: str, request: pytest.FixtureRequest) -> None:
    table: Location = request.getfixturevalue(name)
    before = contents(table)
    lose_markers(table)
    (restored,) = repair_log(table, accepts_newest_entry=True)
    assert restored.remedy == f"is recreated from the entries; version {before[0]} is taken as it is"
    assert contents(table) == before
    assert damages(table) == []
    assert repair_log(table, accepts_newest_entry=True) == []
    commit(table, 1000)
    entry = entry_path(table, int(str(before[0]))).local
    entry.unlink()
    assert len(repair_log(table)) == 1, "the new marker holds a copy of the entry"


def test_remaining_markers_are_never_overruled(table: Location) -> None:
    for marker in sorted((table.local / ACKED).iterdir())[:-1]:
        marker.unlink()
    entry_path(table, 3).local.unlink()
    repair_log(table, accepts_newest_entry=True)
    assert contents(table)[:3] == (3, 3, 3), "the newest entry was restored from its marker"


def test_a_process_that_dies_while_it_marks_a_log_leaves_a_log_that_opens(table: Location) -> None:
    before = contents(table)
    lose_markers(table)
    # The process died after it had written its first marker.
    acknowledge_entry(table, 3, entry_path(table, 3).local.read_bytes())
    assert contents(table) == before
    assert damages(table) == []


def test_an_older_entry_that_has_changed_is_never_accepted(table: Location) -> None:
    lose_markers(table)
    entry = entry_path(table, 1).local
    whole, random = entry.read_bytes(), Random(4)
    for _ in range(FLIPS):
        bit = random.randrange(8 * len(whole))
        changed = bytearray(whole)
        changed[bit // 8] ^= 1 << bit % 8
        entry.write_bytes(changed)
        check_is_refused(table, "the entry of version 1 is torn|version 2 does not follow version 1")


def test_a_torn_newest_entry_is_never_accepted(table: Location) -> None:
    lose_markers(table)
    entry = entry_path(table, 3).local
    entry.write_bytes(entry.read_bytes()[:-20])
    check_is_refused(table, "the entry of version 3 is torn")


def test_a_run_begun_after_the_newest_entry_shows_that_commits_are_lost(table: Location) -> None:
    run = new_run("ingest", OpenTable(table).seq)
    (table.local / f"_run={run}").mkdir()
    lose_markers(table)
    assert damages(table)[0][:2] == (ACKED, "is missing")
    entry_path(table, 3).local.unlink()
    check_is_refused(table, f"_run={run} is newer than version 2: commits are lost")


def test_a_checkpoint_beyond_the_newest_entry_shows_that_commits_are_lost(old_table: Location) -> None:
    newest = int(checkpoints(old_table)[-1].name[:20])
    lose_markers(old_table)
    for entry in (old_table.local / LOG).glob("*.json"):
        if int(entry.stem) >= newest:
            entry.unlink()
    check_is_refused(old_table, "commits are lost")


def test_a_gap_between_the_entries_and_the_checkpoints_is_never_accepted(old_table: Location) -> None:
    older, newer = (int(location.name[:20]) for location in checkpoints(old_table))
    lose_markers(old_table)
    entry_path(old_table, (older + newer) // 2).local.unlink()
    check_is_refused(old_table, "are gone or not proven, and no two checkpoints agree")


def test_a_single_checkpoint_without_the_entries_before_it_is_never_accepted(old_table: Location) -> None:
    checkpoints(old_table)[0].local.unlink()
    lose_markers(old_table)
    check_is_refused(old_table, "are gone or not proven, and no two checkpoints agree")


@pytest.mark.parametrize("place", [0, 1])
def test_a_checkpoint_that_has_changed_is_refused_or_changes_nothing(old_table: Location, place: int) -> None:
    before = contents(old_table)
    lose_markers(old_table)
    checkpoint, refused = checkpoints(old_table)[place].local, 0
    whole, random = checkpoint.read_bytes(), Random(place)
    for _ in range(FLIPS):
        bit = random.randrange(8 * len(whole))
        changed = bytearray(whole)
        changed[bit // 8] ^= 1 << bit % 8
        checkpoint.write_bytes(changed)
        if repair_log(old_table, accepts_newest_entry=True):
            assert contents(old_table) == before, bit
            lose_markers(old_table)
        else:
            refused += 1
    assert refused > 0


def test_an_entry_of_an_earlier_release_is_not_proven(table: Location) -> None:
    before = None
    for version in range(4):
        entry = entry_path(table, version).local
        actions = [json.loads(line) for line in entry.read_text("utf-8").splitlines()]
        actions[0]["commitInfo"]["before"] = before
        if version < 2:
            del actions[0]["commitInfo"]["before"]
        entry.write_text("".join(json.dumps(action) + "\n" for action in actions), "utf-8")
        before = digest_of(entry.read_bytes())
    lose_markers(table)
    check_is_refused(table, "the entries before version 1 are gone or not proven, and no two checkpoints agree")
