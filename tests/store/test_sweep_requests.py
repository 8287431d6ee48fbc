"""Sweeps take the same number of requests, however many runs are dead. Neither a server nor Spark is started."""

from __future__ import annotations

import json
from collections import Counter

import pyarrow as pa
import pytest

from tests.lakes.early_sweeps import sweep_early
from tests.storage.counted import CountedStore
from tidelake.storage import blobs
from tidelake.storage.location import Location
from tidelake.store.acknowledged import digest_of
from tidelake.store.commit import OpenTable, create_table
from tidelake.store.dead_notes import DEAD, begin_sweep, long_dead, notes_of
from tidelake.store.failpoints import on_reach
from tidelake.store.files import write_run
from tidelake.store.layout import RUN, new_run
from tidelake.store.sweep import sweep

SCHEMA = pa.schema([("_time", pa.int64()), ("_run", pa.string())])
MANY = 300


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> CountedStore:
    return CountedStore(monkeypatch)


@pytest.fixture
def table(store: CountedStore) -> Location:
    path = store.root / "t"
    create_table(path, SCHEMA, {"epoch": 0})
    return path


def leave_dead(table: Location, runs: int = 1) -> list[str]:
    """Write runs that nobody commits, and return the names of their folders."""
    names = [new_run("ingest", OpenTable(table).seq) for _ in range(runs)]
    for name in names:
        blobs.write(table / f"{RUN}={name}" / "part-0.parquet", b"PAR1")
    return [f"{RUN}={name}" for name in names]


def confirm_dead(table: Location) -> None:
    """Announce the runs that are dead, and confirm them."""
    for _ in range(2):
        sweep(table)


def requests_of_a_sweep(store: CountedStore, table: Location) -> dict[str, int]:
    before = Counter(store.requests)
    sweep(table)
    return store.since(before)


def test_a_sweep_takes_the_same_requests_however_many_runs_earlier_sweeps_have_noted(
    store: CountedStore, table: Location
) -> None:
    leave_dead(table)
    sweep(table)
    leave_dead(table)
    few = requests_of_a_sweep(store, table)
    for _ in range(MANY):
        leave_dead(table)
        sweep(table)
    leave_dead(table)
    assert requests_of_a_sweep(store, table) == few
    assert sum(few.values()) <= 10, few
    assert len(notes_of(table)) == MANY + 3


def test_a_sweep_that_finds_nothing_dead_only_lists(store: CountedStore, table: Location) -> None:
    sweep(table)
    requests = requests_of_a_sweep(store, table)
    assert sum(requests.values()) == 3 and all(verb.startswith("list") for verb in requests), requests


def test_notes_of_an_earlier_release_are_valid_and_become_one(store: CountedStore, table: Location) -> None:
    folders = leave_dead(table, MANY)
    for number, folder in enumerate(folders):
        blobs.write(table / DEAD / f"{number}-{number:032x}.json", json.dumps([folder]).encode())
    assert notes_of(table) == dict.fromkeys(folders), "they announce the folders"
    assert sweep(table, retention_s=-60.0) == 0
    assert None not in notes_of(table).values()
    assert len(blobs.list_names(table / DEAD)) == 1
    assert requests_of_a_sweep(store, table)["get"] == 1


def test_a_note_that_confirms_what_was_not_announced_counts_as_an_announcement(table: Location) -> None:
    (first,) = leave_dead(table)
    data = json.dumps({first: [0.0, 0]}).encode()  # as unreleased versions after 0.1.0 wrote it
    blobs.write(table / DEAD / f"0-{'0' * 32}-{digest_of(data)}.json", data)
    assert sweep(table, retention_s=-60.0) == 0
    assert sweep(table, retention_s=-60.0) == 1


def test_what_was_confirmed_is_repeated_with_its_times(table: Location) -> None:
    folders = leave_dead(table, 3)
    confirm_dead(table)
    before = dict(notes_of(table))
    assert before.keys() == set(folders) and None not in before.values()
    for _ in range(3):
        leave_dead(table)
        sweep(table)
        assert before.items() <= notes_of(table).items()


def test_an_earlier_release_reads_the_folders_of_a_note_and_keeps_them_longer(table: Location) -> None:
    (first,) = leave_dead(table)
    confirm_dead(table)
    noted = notes_of(table)[first]
    OpenTable(table).commit({"other": 1})
    leave_dead(table)
    sweep(table)
    (blob,) = blobs.list_folder(table / DEAD).blobs
    # An earlier release reads only the folders, and takes the blob's time and `seq` for each of them.
    folders = set(json.loads(blobs.read(blob.location)))
    assert first in folders
    assert noted is not None and blob.changed_s > noted.at_s
    assert int(blob.location.name.partition("-")[0]) == 1 > (noted.seq or 0)


def test_a_note_whose_times_were_changed_counts_for_nothing(table: Location) -> None:
    (first,) = leave_dead(table)
    sweep(table)
    leave_dead(table)
    sweep(table)
    (note,) = blobs.list_names(table / DEAD)
    blobs.write(table / DEAD / note, json.dumps({first: [0.0, 0, 0.0]}).encode())
    assert not notes_of(table)
    assert sweep(table) == 0
    assert len(notes_of(table)) == 2


@pytest.mark.parametrize("is_first", [True, False])
def test_a_sweep_that_meets_another_keeps_the_times_of_all_notes(table: Location, is_first: bool) -> None:
    (first,) = leave_dead(table)
    confirm_dead(table)
    noted = notes_of(table)[first]
    later: list[str] = []

    def sweep_too(place: str) -> None:
        if place == "sweep.after_note":
            on_reach(None)
            later.extend(leave_dead(table))
            sweep(table)
            if not is_first:
                later.extend(leave_dead(table))
                sweep(table)

    leave_dead(table)
    on_reach(sweep_too)
    try:
        sweep(table)
    finally:
        on_reach(None)
    assert later and notes_of(table).keys() >= {first, *later}
    assert notes_of(table)[first] == noted
    sweep(table)
    assert len(blobs.list_names(table / DEAD)) == 1
    assert notes_of(table)[first] == noted


def test_a_note_that_another_sweep_repeats_meanwhile_is_not_missed(
    table: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    (first,) = leave_dead(table)
    confirm_dead(table)
    noted = notes_of(table)[first]
    assert noted is not None
    read = blobs.read
    repeated: list[Location] = []

    def read_late(location: Location, bytes_max: int | None = None) -> bytes:
        if location.parent.name == DEAD and not repeated:
            repeated.append(location)
            leave_dead(table)
            sweep(table)
        return read(location, bytes_max)

    monkeypatch.setattr(blobs, "read", read_late)
    assert notes_of(table)[first] == noted
    assert not blobs.exists(repeated[0])


def test_a_run_keeps_its_note_while_a_version_names_it(table: Location) -> None:
    opened = OpenTable(table)
    run = new_run("ingest", opened.seq)
    files = write_run(table, run, pa.table({"_time": [1]}))
    confirm_dead(table)
    noted = notes_of(table)[f"{RUN}={run}"]
    assert noted is not None
    OpenTable(table).commit({}, files)
    leave_dead(table)
    sweep(table)
    assert notes_of(table)[f"{RUN}={run}"] == noted


def test_notes_about_folders_that_are_gone_are_forgotten(table: Location) -> None:
    (first,) = leave_dead(table)
    assert sweep_early(table) == 1
    assert notes_of(table) == {} or set(notes_of(table)) == {first}
    (second,) = leave_dead(table)
    sweep(table)
    assert set(notes_of(table)) == {second}
    blobs.delete_folder(table / second)
    sweep(table)
    assert blobs.list_names(table / DEAD) == []


def commit_run(table: Location, *removed: str) -> str:
    """Commit a run in place of others, and return its name."""
    opened = OpenTable(table)
    run = new_run("merge", opened.seq)
    opened.commit({}, write_run(table, run, pa.table({"_time": [1]})), list(removed))
    return run


@pytest.mark.parametrize("has_notes", [False, True])
def test_a_commit_takes_the_same_requests_however_many_runs_it_removes(
    store: CountedStore, table: Location, has_notes: bool
) -> None:
    if has_notes:
        leave_dead(table, 2)
        sweep(table)
    counts = []
    for removes in (0, 1, 3, 8):
        runs = [commit_run(table) for _ in range(removes)]
        opened = OpenTable(table)
        files = write_run(table, new_run("pending", opened.seq), pa.table({"_time": [1]}))
        before = Counter(store.requests)
        opened.commit({}, files, runs)
        counts.append(sum(store.since(before).values()))
    without, one, *more = counts
    assert one == without + 1
    assert more == [without + 1 + has_notes] * 2


@pytest.mark.parametrize("others", [0, 4])
def test_a_run_that_was_noted_before_its_commit_is_renewed_when_it_is_removed(table: Location, others: int) -> None:
    opened = OpenTable(table)
    run = new_run("ingest", opened.seq)
    files = write_run(table, run, pa.table({"_time": [1]}))
    sweep(table)
    asleep, present = begin_sweep(table), {f"{RUN}={run}"}
    opened.commit({}, files)
    leave_dead(table)
    confirm_dead(table)  # the run is live now
    commit_run(table, run, *(commit_run(table) for _ in range(others)))
    long_dead(asleep, [f"{RUN}=ingest-1", *present], present, 3600.0, 0)  # like a sweep that slept
    assert sweep(table, retention_s=-60.0) == 1, "only the run that nobody committed was dead for long enough"
    assert blobs.list_blobs(table / f"{RUN}={run}")
    assert sum(sweep(table, retention_s=-60.0) for _ in range(2)) == others + 1
