"""Runs a history: starts, kills, stops and wakes processes, and collects their records."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from tests.crash.harness import WAIT_MAX_S, Nursery, has_ended
from tests.lakes.held import HeldLake

PROCESSES = 8
_SLEEP_MAX_S = 0.8
"""The longest time for which a process is stopped: longer than the short leases."""


@dataclass
class Process:
    """A process of the history, which may have been killed and started again."""

    number: int
    pid: int = 0
    lives: int = 0
    wakes_at: float | None = None


@dataclass
class Run:
    """A history on one lake.

    Args:
        lake: the lake.
        nursery: forks the processes.
        seed: the source of all randomness except how the operating system schedules the processes.
        sessions: how many processes have a session; the first of them merges.
        sweeps: whether the merger also deletes files early.
    """

    lake: HeldLake
    nursery: Nursery
    seed: str
    sessions: int = 0
    sweeps: bool = False
    killed: int = 0
    stopped: int = 0
    _read: dict[Path, tuple[int, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.folder = self.lake.root / "records"
        self.folder.mkdir()
        self.stop = self.lake.root / "stop"
        self.rng = Random(f"{self.seed} scheduler")
        self.processes = [Process(number) for number in range(PROCESSES)]

    def until(self, operations: int, seconds_max: float) -> int:
        """Run until the processes have made this many calls, or for this many seconds; return the number of calls."""
        end = time.monotonic() + seconds_max
        for process in self.processes:
            self._start(process)
        try:
            next_at = 0
            while (made := self.calls()) < operations and time.monotonic() < end:
                self._wake()
                if made >= next_at:  # counted in calls, not in time: a busy machine makes fewer calls
                    self._happen()
                    next_at = made + self.rng.randint(2, 14)
                time.sleep(0.02)
        finally:
            self._end()
        return self.calls()

    def calls(self) -> int:
        """How many calls have been recorded so far, including unfinished ones."""
        for path in self.folder.glob("*.jsonl"):
            place, count = self._read.get(path, (0, 0))
            with path.open("rb") as file:
                file.seek(place)
                new = file.read()
            self._read[path] = place + len(new), count + new.count(b'{"name"')
        return sum(count for _, count in self._read.values())

    def _start(self, process: Process) -> None:
        roles = {0: "writer", 1: "merger"} if self.sessions else {0: "writer"}
        order = {
            "holds": True,
            "said": str(self.folder / f"p{process.number}.log"),
            "folder": str(self.folder),
            "lake": str(self.lake.root),
            "stop": str(self.stop),
            "seed": self.seed,
            "number": process.number,
            "life": process.lives,
            "processes": PROCESSES,
            "role": roles.get(process.number, "reader"),
            "sweeps": self.sweeps,
            "has_session": 1 <= process.number <= self.sessions,
        }
        process.pid = self.nursery.start(order)
        process.lives += 1

    def _wake(self) -> None:
        """Wake the processes whose pause is over."""
        now = time.monotonic()
        for process in self.processes:
            if process.wakes_at is not None and process.wakes_at <= now:
                os.kill(process.pid, signal.SIGCONT)
                process.wakes_at = None
            assert not has_ended(process.pid), f"p{process.number} has ended: see its log in {self.folder}"

    def _happen(self) -> None:
        """Kill or stop a process, at random."""
        process = self.rng.choice(self.processes)
        chance = self.rng.random()
        if chance < 0.2:
            os.kill(process.pid, signal.SIGKILL)
            self.nursery.wait(process.pid)
            process.wakes_at = None
            self.killed += 1
            self._start(process)
        elif chance < 0.5 and process.wakes_at is None:
            os.kill(process.pid, signal.SIGSTOP)
            process.wakes_at = time.monotonic() + self.rng.uniform(0.05, _SLEEP_MAX_S)
            self.stopped += 1

    def _end(self) -> None:
        self.stop.touch()
        for process in self.processes:
            os.kill(process.pid, signal.SIGCONT)
        end = time.monotonic() + WAIT_MAX_S
        for process in self.processes:
            while not has_ended(process.pid):
                if time.monotonic() > end:
                    os.kill(process.pid, signal.SIGKILL)
                time.sleep(0.01)
        codes = [self.nursery.wait(process.pid) for process in self.processes]
        logs = {path.name: path.read_text() for path in self.folder.glob("*.log") if path.stat().st_size}
        assert codes == [0] * PROCESSES, logs
