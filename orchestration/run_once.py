"""Runs a job of the location in this process, against a real instance: the same steps that the schedules start."""

from __future__ import annotations

from pathlib import Path

from dagster import DagsterInstance, ExecuteInProcessResult

from orchestration.jobs import CURRENT, NIGHTLY, TICK
from orchestration.location import build_location
from orchestration.settings import Environment


def run_tick_job(settings_path: Path, instance: DagsterInstance, log_level: str = "WARNING") -> ExecuteInProcessResult:
    """Ingest, seal, validate and merge every collection of a `collections.yaml`."""
    return run_job(TICK, settings_path, instance, log_level)


def run_current_job(
    settings_path: Path, instance: DagsterInstance, log_level: str = "WARNING"
) -> ExecuteInProcessResult:
    """Validate what is new and rebuild every `current` table."""
    return run_job(CURRENT, settings_path, instance, log_level)


def run_nightly_job(
    settings_path: Path, instance: DagsterInstance, log_level: str = "WARNING"
) -> ExecuteInProcessResult:
    """Validate everything, write the Data Docs, compact everything."""
    return run_job(NIGHTLY, settings_path, instance, log_level)


def run_job(job: str, settings_path: Path, instance: DagsterInstance, log_level: str) -> ExecuteInProcessResult:
    """Run one job to its end, whatever becomes of its steps; the result says so.

    Args:
        job: its name in `orchestration.jobs`.
        settings_path: the `collections.yaml`.
        instance: where runs and materializations are recorded.
        log_level: what of the run's log goes to the console; all of it is in the instance.

    Raises:
        ConfigurationError: a setting is wrong; nothing was written.
    """
    environment = Environment(config_file=settings_path.absolute(), config_required=True)
    definition = build_location(environment).resolve_job_def(job)
    return definition.execute_in_process(
        instance=instance,
        raise_on_error=False,
        run_config={**(definition.run_config or {}), "loggers": {"console": {"config": {"log_level": log_level}}}},
    )
