"""Dead runs: Dagster waits forever for a run whose process was killed, and keeps its pools occupied.

Each run is tagged with the process that executes it. If that process is gone, the run is marked as failed; the next run
continues from what is committed.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path

from dagster import DagsterInstance, DagsterRun, DagsterRunStatus, RunsFilter

PROCESS_TAG = "tidelake/process"
"""`<host> <pid> <start>`; `start` distinguishes the process from a later one with the same pid."""

KILLED_TAG = "tidelake/killed"
"""The tag of a run whose process was killed."""
_EXECUTING = [DagsterRunStatus.STARTED, DagsterRunStatus.CANCELING]


def mark_process(instance: DagsterInstance, run_id: str, pid: int | None = None) -> None:
    """Tag a run with the process on this host that executes it; None means this process."""
    pid = os.getpid() if pid is None else pid
    instance.add_run_tags(run_id, {PROCESS_TAG: f"{socket.gethostname()} {pid} {_start_of(pid)}"})


def fail_dead_runs(instance: DagsterInstance) -> list[str]:
    """Mark as failed every run on this host whose process is gone, and return the ids of these runs."""
    failed = []
    for run in instance.get_runs(RunsFilter(statuses=_EXECUTING)):
        if _is_dead(run):
            instance.add_run_tags(run.run_id, {KILLED_TAG: "true"})
            instance.report_run_failed(
                run, "The process of this run was killed. The next run resumes from the committed work."
            )
            failed.append(run.run_id)
    return failed


def _is_dead(run: DagsterRun) -> bool:
    host, _, process = run.tags.get(PROCESS_TAG, "").partition(" ")
    pid, _, start = process.partition(" ")
    if host != socket.gethostname() or not pid.isdigit():
        return False
    return _start_of(int(pid)) != start


def _start_of(pid: int) -> str:
    """Return the start time of a process, only for comparison; empty if there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()[19]
    except FileNotFoundError:
        pass
    if Path("/proc/self/stat").exists():
        return ""
    try:  # no /proc, as on macOS: only the pid can be compared
        os.kill(pid, 0)
    except ProcessLookupError:
        return ""
    except PermissionError:
        pass
    return "running"
