"""Runs the tick job and the nightly job of a lake on a Dagster instance: `scheduled_run COLLECTIONS.YAML HOME`."""

from __future__ import annotations

import sys
from pathlib import Path

from dagster import DagsterInstance

from orchestration.run_once import run_nightly_job, run_tick_job


def main() -> int:
    """Run both jobs; the exit status says whether both succeeded."""
    settings, home = map(Path, sys.argv[1:])
    with DagsterInstance.from_config(str(home)) as instance:
        results = [run(settings, instance, log_level="DEBUG") for run in (run_tick_job, run_nightly_job)]
    return 0 if all(result.success for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
