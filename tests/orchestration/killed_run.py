"""A process that runs the tick job and kills itself at a failpoint: `python -m tests.orchestration.killed_run`."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from dagster import DagsterInstance

from orchestration.run_once import run_tick_job
from tidelake.store.failpoints import on_reach


def main(config: str, home: str, stop: str) -> int:
    """Run the tick job, and die at the failpoint `stop`; return 0 if the job does not reach it."""

    def die(name: str) -> None:
        if name == stop:
            os.kill(os.getpid(), signal.SIGKILL)

    on_reach(die)
    with DagsterInstance.from_config(home) as instance:
        run_tick_job(Path(config), instance)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
