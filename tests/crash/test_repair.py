"""`tidelake repair --apply` restores the files of logs, and names files that it cannot restore. No JVM is started."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml

from tests.crash.questions import Reader
from tests.golden.shown import command
from tests.lakes.damage import changed_bytes, files_of, kind_of, replace_file
from tests.lakes.places import bucket_of, remove_lake, store_settings
from tests.lakes.whole_store import COLLECTIONS, WholeStore
from tests.services.counted_lake import forget_process
from tests.sweeps import seeds
from tidelake.store.acknowledged import ACKED

SWEEP_CASES = 10
"""The number of cases of each kind for each seed of a sweep; ten seeds make 100 cases of each kind."""
_CHANGES = ("a flipped bit", "truncated", "a zeroed block", "appended bytes")


class Case:
    """A copy of a store in which one table is damaged.

    If the folder belongs to a bucket, the store is in the bucket. A test then changes the files in the folder; each
    command first puts them into the bucket, and afterwards writes the bucket's objects back to the folder.
    """

    def __init__(self, whole: WholeStore, folder: Path, random: Random) -> None:
        self.random, self.name = random, random.choice(sorted(COLLECTIONS))
        self.lake = whole.copy(folder, self.name)
        self.bucket, self.own = bucket_of(folder), self._own_folders()
        if self.bucket is not None:
            document = yaml.safe_load(self.lake.config.read_text(encoding="utf-8")) | store_settings(folder)
            self.lake.config.write_text(yaml.safe_dump(document), encoding="utf-8")
        folders = [self.lake.store / "catalog", *sorted(self.lake.folder(self.name).iterdir())]
        self.table = random.choice([path for path in folders if path.name != "current"])

    def _own_folders(self) -> list[Path]:
        """The folders that the copy does not share with the whole store."""
        return [self.lake.store / "names", self.lake.store / "catalog", self.lake.folder(self.name)]

    def files(self, what: str) -> Sequence[Path]:
        """The files of a kind in the table, in the order of their versions."""
        return [file for file in files_of([self.table]) if kind_of(file)[1] == what]

    def change(self, file: Path, others: Sequence[Path]) -> bytes:
        """Change the bytes of a file, or replace them with those of another file of its kind; return the new bytes."""
        data = file.read_bytes()
        different = [other.read_bytes() for other in others if other.read_bytes() != data]
        if different and self.random.random() < 0.25:
            changed = self.random.choice(different)
        else:
            changed = data
            while changed == data:  # the block may already have been all zeros
                changed = changed_bytes(self.random.choice(_CHANGES), data, self.random)
        replace_file(file, changed)
        return changed

    def repair(self, *options: str) -> tuple[int, dict[str, Any]]:
        """Run `tidelake repair --apply`; return its exit status and its output."""
        if self.bucket is not None:
            self.bucket.put(self.lake.root, self.own)
            forget_process()
        status, printed = command("repair", self.name, "--apply", *options, "--json", "--config", self.lake.config)
        if self.bucket is not None:
            for folder in self.own:
                shutil.rmtree(folder)
            self.bucket.get(self.lake.root)
        return status, json.loads(printed)

    def answers(self) -> dict[str, Any]:
        return Reader(None, self.lake, self.name).answers()


def _entry_lost(case: Case) -> tuple[Path, bytes, bytes | None]:
    entry = case.random.choice(case.files("entry"))
    return _lose(entry)


def _entry_damaged(case: Case) -> tuple[Path, bytes, bytes | None]:
    entry = case.random.choice(case.files("entry"))
    return entry, entry.read_bytes(), case.change(entry, case.files("entry"))


def _marker_lost(case: Case) -> tuple[Path, bytes, bytes | None]:
    # The loss of the oldest marker would not be damage: a killed cleanup may have deleted it.
    return _lose(case.random.choice(case.files("marker")[1:]))


def _marker_damaged(case: Case) -> tuple[Path, bytes, bytes | None]:
    marker = case.random.choice(case.files("marker"))
    return marker, marker.read_bytes(), case.change(marker, case.files("marker"))


def _checkpoint_lost(case: Case) -> tuple[Path, bytes, bytes | None]:
    return _lose(case.files("checkpoint")[-1])


def _checkpoint_damaged(case: Case) -> tuple[Path, bytes, bytes | None]:
    checkpoint = case.files("checkpoint")[-1]
    return checkpoint, checkpoint.read_bytes(), case.change(checkpoint, case.files("checkpoint"))


def _checkpoint_marker_lost(case: Case) -> tuple[Path, bytes, bytes | None]:
    return _lose(case.random.choice(case.files("checkpoint's marker")))


def _hint_damaged(case: Case) -> tuple[Path, bytes, bytes | None]:
    (hint,) = case.files("hint")
    return hint, hint.read_bytes(), case.change(hint, [])


def _lose(file: Path) -> tuple[Path, bytes, None]:
    data = file.read_bytes()
    file.unlink()
    return file, data, None


REPAIRABLE: dict[str, Callable[[Case], tuple[Path, bytes, bytes | None]]] = {
    "an entry is lost": _entry_lost,
    "an entry is damaged": _entry_damaged,
    "a marker is lost": _marker_lost,
    "a marker is damaged": _marker_damaged,
    "a checkpoint is lost": _checkpoint_lost,
    "a checkpoint is damaged": _checkpoint_damaged,
    "a checkpoint's marker is lost": _checkpoint_marker_lost,
    "the hint is damaged": _hint_damaged,
}
"""The kinds of damage, by name. Each returns the damaged file with its bytes before and after."""


@pytest.fixture(scope="module")
def healthy(whole: WholeStore) -> Callable[[str], dict[str, Any]]:
    """The answers about each collection of the undamaged store."""
    return cache(lambda name: Reader(None, whole, name).answers())


def check_repair(
    whole: WholeStore, healthy: Callable[[str], dict[str, Any]], kind: str, folder: Path, random: Random
) -> None:
    """Damage a file of this kind, repair, and compare bytes and answers."""
    case = Case(whole, folder, random)
    file, before, after = REPAIRABLE[kind](case)
    status, said = case.repair()
    assert (status, said["left"]) == (0, []), (kind, file, said)
    if kind_of(file)[1] in ("entry", "marker"):
        assert file.read_bytes() == before, (kind, file)
        if after is not None:
            asides = [aside.read_bytes() for aside in file.parent.glob(f".damaged-{file.name}-*")]
            assert asides == [after], (kind, file, "the damaged bytes are kept")
    assert case.answers() == healthy(case.name), (kind, file)
    assert case.lake.collection(case.name).verify(deep=True).damages == [], (kind, file)
    assert case.repair() == (0, {"name": case.name, "restored": [], "left": []}), (kind, file, "all is repaired")
    remove_lake(folder)


def check_says_so(whole: WholeStore, what: str, folder: Path, random: Random) -> None:
    """Damage a file that nothing can restore; check that repair names it and does not change it."""
    case = Case(whole, folder, random)
    if what == "data":  # files of `updates` can be recreated from the topic
        tables = [case.lake.store / "catalog", *sorted(case.lake.folder(case.name).iterdir())]
        while case.table.name in ("updates", "current") or not case.files("data"):
            case.table = random.choice(tables)
        file = random.choice(case.files("data"))
        _lose(file) if random.random() < 0.5 else case.change(file, [])
    else:
        file = random.choice(case.files("entry")[:-1])
        (marker,) = [path for path in case.files("marker") if path.name.startswith(file.stem)]
        case.change(file, case.files("entry"))
        _lose(marker) if random.random() < 0.5 else case.change(marker, [])
    left = file.read_bytes() if file.exists() else None
    status, said = case.repair()
    assert status == 1, (what, file, said)
    problems = {(damage["table"], damage["file"]) for damage in said["left"]}
    assert any(table == kind_of(file)[0] for table, _ in problems), (what, file, said)
    assert all(not damage["is_restorable"] for damage in said["left"]), (what, file, said)
    assert (file.read_bytes() if file.exists() else None) == left, (what, file)
    remove_lake(folder)


def check_marks_again(
    whole: WholeStore, healthy: Callable[[str], dict[str, Any]], folder: Path, random: Random
) -> None:
    """Delete all markers of a table: repair marks its entries again only on request, and the answers are the same."""
    case = Case(whole, folder, random)
    shutil.rmtree(case.table / ACKED)
    status, said = case.repair()
    (damage,) = said["left"]
    assert (status, damage["file"], damage["is_restorable"]) == (1, ACKED, False), (case.table, said)
    assert "tidelake repair --accept-newest-entry --apply" in damage["remedy"], (case.table, said)
    assert not (case.table / ACKED).exists(), "nothing was changed"
    status, said = case.repair("--accept-newest-entry")
    assert (status, said["left"], len(said["restored"])) == (0, [], 1), (case.table, said)
    assert case.answers() == healthy(case.name), case.table
    assert case.lake.collection(case.name).verify(deep=True).damages == [], case.table
    remove_lake(folder)


@pytest.mark.parametrize("kind", REPAIRABLE)
def test_a_lost_or_damaged_file_is_restored(
    whole: WholeStore, healthy: Callable[[str], dict[str, Any]], any_store: Path, kind: str
) -> None:
    check_repair(whole, healthy, kind, any_store / "case", Random(f"every day {kind}"))


def test_a_log_without_markers_is_marked_again_if_an_operator_accepts_its_newest_entry(
    whole: WholeStore, healthy: Callable[[str], dict[str, Any]], any_store: Path
) -> None:
    check_marks_again(whole, healthy, any_store / "case", Random("every day markers"))


@pytest.mark.parametrize("what", ["data", "entry and marker"])
def test_a_file_that_cannot_be_restored_is_reported_and_left_alone(
    whole: WholeStore, any_store: Path, what: str
) -> None:
    check_says_so(whole, what, any_store / "case", Random(f"every day {what}"))


@pytest.mark.sweep
@pytest.mark.parametrize("kind", REPAIRABLE)
@pytest.mark.parametrize("seed", seeds())
def test_every_lost_or_damaged_file_is_restored(
    whole: WholeStore, healthy: Callable[[str], dict[str, Any]], tmp_path: Path, seed: int, kind: str
) -> None:
    for number in range(SWEEP_CASES):
        check_repair(whole, healthy, kind, tmp_path / f"case-{number}", Random(f"{seed} {kind} {number}"))


@pytest.mark.sweep
@pytest.mark.parametrize("seed", seeds())
def test_logs_without_markers_are_marked_again_if_an_operator_accepts_their_newest_entries(
    whole: WholeStore, healthy: Callable[[str], dict[str, Any]], tmp_path: Path, seed: int
) -> None:
    for number in range(SWEEP_CASES):
        check_marks_again(whole, healthy, tmp_path / f"case-{number}", Random(f"{seed} markers {number}"))


@pytest.mark.sweep
@pytest.mark.parametrize("what", ["data", "entry and marker"])
@pytest.mark.parametrize("seed", seeds())
def test_every_file_that_cannot_be_restored_is_reported_and_left_alone(
    whole: WholeStore, tmp_path: Path, seed: int, what: str
) -> None:
    for number in range(SWEEP_CASES):
        check_says_so(whole, what, tmp_path / f"case-{number}", Random(f"{seed} {what} {number}"))
