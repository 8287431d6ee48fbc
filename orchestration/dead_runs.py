"""Runs whose process is gone: Dagster would wait for them for ever, and keep their collections' pools.

A run notes the process that executes it. Where that process is not there any more, the run is marked as failed; the
next one starts over from what is committed.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path

from dagster import DagsterInstance, DagsterRun, DagsterRunStatus, RunsFilter

PROCESS_TAG = "tidelake/process"
"""`<host> <pid> <start>`: start tells a process from a later one with the same number."""

_EXECUTING = [DagsterRunStatus.STARTED, DagsterRunStatus.CANCELING]


def mark_process(instance: DagsterInstance, run_id: str) -> None:
    """Note on a run that this process executes it."""
    pid = os.getpid()
    instance.add_run_tags(run_id, {PROCESS_TAG: f"{socket.gethostname()} {pid} {_start_of(pid)}"})


def fail_dead_runs(instance: DagsterInstance) -> list[str]:
    """Mark every run of this host whose process is gone as failed; return their ids."""
    failed = []
    for run in instance.get_runs(RunsFilter(statuses=_EXECUTING)):
        if _is_dead(run):
            instance.report_run_failed(
                run, "The process of this run ended without a word. The next run goes on from what is committed."
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
    """When a process began, in a form that only serves to compare; empty where there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()[19]
    except FileNotFoundError:
        pass
    if Path("/proc/self/stat").exists():
        return ""
    try:  # no /proc, as on macOS: only the number tells
        os.kill(pid, 0)
    except ProcessLookupError:
        return ""
    except PermissionError:
        pass
    return "running"
