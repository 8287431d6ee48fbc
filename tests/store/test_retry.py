"""Retries: fresh state for each attempt, lost races distinguished from conflicts, and a maximum number of attempts."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

from tidelake.errors import Conflict, Fenced
from tidelake.storage import blobs
from tidelake.storage.location import Location, locate
from tidelake.store import retry
from tidelake.store.commit import OpenTable, create_table
from tidelake.store.retry import LostRace, retry_commit, retry_work

SCHEMA = pa.schema([("_time", pa.int64()), ("_run", pa.string())])


@pytest.fixture
def table(tmp_path: Path) -> Location:
    """An empty table with an epoch and an upper."""
    create_table(locate(tmp_path) / "t", SCHEMA, {"epoch": 3, "upper": 5})
    return locate(tmp_path) / "t"


def interfere(table: Location) -> None:
    """Commit as another process would."""
    OpenTable(table).commit({"upper": (OpenTable(table).value("upper") or 0) + 1})


def test_each_attempt_sees_what_the_others_committed(table: Location) -> None:
    seen: list[int | None] = []

    def commit(opened: OpenTable) -> int:
        seen.append(opened.value("upper"))
        if len(seen) < 3:
            interfere(table)
        return opened.commit({"other": len(seen)}).version

    assert retry_commit(table, commit, "no attempt won") == 3
    assert seen == [5, 6, 7]
    assert OpenTable(table).value("other") == 3


def test_the_first_attempt_uses_the_table_that_is_already_open(table: Location) -> None:
    stale = OpenTable(table)
    interfere(table)
    fresh: list[int] = []
    attempts: list[OpenTable] = []

    def commit(opened: OpenTable) -> None:
        attempts.append(opened)
        opened.commit({})

    retry_commit(stale, commit, "no attempt won", after_conflict=lambda opened: fresh.append(opened.version))
    assert attempts[0] is stale
    assert fresh == [1]
    assert OpenTable(table).version == 2


def test_a_lost_race_ends_the_attempts_at_once(table: Location) -> None:
    stale = OpenTable(table)
    interfere(table)

    def lose(opened: OpenTable) -> None:
        assert opened.value("upper") == 6
        raise LostRace

    with pytest.raises(LostRace):
        retry_commit(stale, lambda opened: opened.commit({}), "no attempt won", after_conflict=lose)
    assert OpenTable(table).version == 1


def test_after_the_last_attempt_the_conflict_says_what_failed(table: Location) -> None:
    attempts: list[int] = []

    def commit(opened: OpenTable) -> None:
        attempts.append(opened.version)
        interfere(table)
        opened.commit({})

    with pytest.raises(Conflict, match=r"version 4 of .*: 4 attempts to test failed") as caught:
        retry_commit(table, commit, "4 attempts to test failed", attempts_max=4)
    assert attempts == [0, 1, 2, 3]
    assert isinstance(caught.value.__cause__, Conflict)


def test_an_error_that_is_not_a_conflict_is_not_retried(table: Location) -> None:
    attempts: list[int] = []

    def commit(opened: OpenTable) -> None:
        attempts.append(opened.version)
        opened.commit({}, epoch=2)

    with pytest.raises(Fenced):
        retry_commit(table, commit, "no attempt won")
    assert attempts == [0]


def test_work_is_repeated_only_after_a_lost_race(table: Location) -> None:
    attempts: list[int] = []

    def work() -> str:
        attempts.append(len(attempts))
        if len(attempts) < 3:
            raise LostRace
        return "done"

    def conflict() -> None:
        attempts.append(-1)
        raise Conflict(str(table), 1, "lost for good")

    assert retry_work(work, table, "no attempt won") == "done"
    with pytest.raises(Conflict, match="lost for good"):
        retry_work(conflict, table, "no attempt won")
    assert attempts == [0, 1, 2, -1]


def test_work_that_always_loses_its_race_ends_with_a_conflict(table: Location) -> None:
    attempts: list[int] = []

    def work() -> None:
        attempts.append(len(attempts))
        raise LostRace

    with pytest.raises(Conflict) as caught:
        retry_work(work, table, "5 ticks in a row lost", attempts_max=5)
    assert caught.value.fact == f"a change to {table} was not committed: 5 ticks in a row lost"
    assert attempts == [0, 1, 2, 3, 4]


@contextmanager
def quick_callers(table: Location) -> Iterator[None]:
    """Keep committing from three threads until the block ends."""
    done = threading.Event()

    def hurry() -> None:
        while not done.is_set():
            retry_commit(table, lambda opened: opened.commit({}), "no attempt won")

    threads = [threading.Thread(target=hurry) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        done.set()
        for thread in threads:
            thread.join()


def test_a_slow_caller_is_not_starved_by_quick_ones(table: Location) -> None:
    attempts = 0

    def linger(opened: OpenTable) -> None:
        nonlocal attempts
        attempts += 1
        time.sleep(0.2)  # meanwhile, the quick callers make many commits
        opened.commit({"slow": 1})

    with quick_callers(table):
        retry_commit(table, linger, "no attempt won")
    assert OpenTable(table).value("slow") == 1
    # The first attempt loses. During the second, each quick caller may finish the commit that it has begun.
    assert attempts <= 5


def test_several_slow_callers_all_get_their_turn(table: Location) -> None:
    attempts: Counter[int] = Counter()

    def linger(number: int) -> None:
        def commit(opened: OpenTable) -> None:
            attempts[number] += 1
            time.sleep(0.05)
            opened.commit({f"slow/{number}": 1})

        retry_commit(table, commit, "no attempt won")

    with ThreadPoolExecutor(12) as threads:
        list(threads.map(linger, range(12)))
    assert OpenTable(table).seq == 12
    assert max(attempts.values()) <= 5, attempts


def test_nobody_waits_forever_for_a_caller_that_is_stopped(table: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "_TURN_S_MAX", 0.05)
    with blobs.turn(table, 0) as is_mine:
        assert is_mine()
        assert blobs.is_turn_taken(table)
        assert retry_commit(table, lambda opened: opened.commit({}).version, "no attempt won") == 1
        assert not blobs.is_turn_taken(table), "the next caller need not wait"
        assert not is_mine(), "its turn was taken away"


def test_a_call_within_a_turn_does_not_wait_for_itself(table: Location) -> None:
    stale = OpenTable(table)
    interfere(table)

    def commit(opened: OpenTable) -> int:
        if opened is not stale:
            assert blobs.is_turn_taken(table)
            started = time.monotonic()
            retry_commit(table, lambda inner: inner.commit({"inner": 1}), "no attempt won")
            assert time.monotonic() - started < retry._TURN_S_MAX
            opened = OpenTable(table)
        return opened.commit({}).version

    assert retry_commit(stale, commit, "no attempt won") == 3


def test_a_caller_whose_attempts_take_longer_than_a_turn_asks_for_more(
    table: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry, "_TURN_S_MAX", 0.1)
    attempts = 0

    def linger(opened: OpenTable) -> None:
        nonlocal attempts
        attempts += 1
        time.sleep(0.5)
        opened.commit({"slow": 1})

    with quick_callers(table):
        retry_commit(table, linger, "no attempt won")
    assert attempts <= 6


def test_a_call_without_a_turn_keeps_no_file_open(table: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "_TURN_S_MAX", 0.0)
    opened_files: list[int] = []

    def lose(opened: OpenTable) -> None:
        opened_files.append(len(os.listdir("/proc/self/fd")))
        interfere(table)
        opened.commit({})

    with blobs.turn(table, 0), pytest.raises(Conflict):
        retry_commit(table, lose, "no attempt won", attempts_max=5)
    assert max(opened_files) <= opened_files[0] + 1


def test_pauses_double_with_each_conflict_up_to_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    paused_s: list[float] = []
    monkeypatch.setattr("tidelake.store.retry.time.sleep", paused_s.append)
    for conflicts in (1, 2, 3, 10, 10_000):
        paused_s.clear()
        for _ in range(2_000):
            retry.pause_after_conflicts(conflicts, took_s=0.02)
        longest_s = min(0.02 * 2 ** min(conflicts, 16), 1.0)
        assert 0.9 * longest_s < max(paused_s) <= longest_s
        assert min(paused_s) < 0.1 * longest_s
