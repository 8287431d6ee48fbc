"""Runs a job of the location in this process, on a real Dagster instance, as the schedules do."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from dagster import DagsterInstance, ExecuteInProcessResult

from orchestration.jobs import CURRENT, NIGHTLY, TICK
from orchestration.location import build_location
from orchestration.settings import Environment

LOCATION = "orchestration"
"""The name of the code location in `workspace.yaml`."""
LABEL_TAG = ".dagster/repository"
"""The tag by which Dagster's overview finds the runs of a code location: `<repository>@<location>`."""


def run_tick_job(settings_path: Path, instance: DagsterInstance, log_level: str = "WARNING") -> ExecuteInProcessResult:
    """Ingest, seal, validate, publish and merge every collection of a `collections.yaml`."""
    return run_job(TICK, settings_path, instance, log_level)


def run_current_job(
    settings_path: Path, instance: DagsterInstance, log_level: str = "WARNING"
) -> ExecuteInProcessResult:
    """Validate new times, and bring every `current` table to upper."""
    return run_job(CURRENT, settings_path, instance, log_level)


def run_nightly_job(
    settings_path: Path, instance: DagsterInstance, log_level: str = "WARNING"
) -> ExecuteInProcessResult:
    """Validate everything, write the Data Docs, and compact everything."""
    return run_job(NIGHTLY, settings_path, instance, log_level)


def run_job(
    job: str,
    settings_path: Path,
    instance: DagsterInstance,
    log_level: str,
    tags: Mapping[str, str] | None = None,
) -> ExecuteInProcessResult:
    """Run a job to its end. A failed step is reported in the result, and raises no error.

    Args:
        job: the name of a job in `orchestration.jobs`.
        settings_path: the `collections.yaml`.
        instance: records the run and its materializations.
        log_level: the lowest level that is printed; the instance keeps the whole log.
        tags: tags of the run, such as those that name the schedule that requested it.

    Raises:
        ConfigurationError: a setting is wrong; nothing was written.
    """
    environment = Environment(config_file=settings_path.absolute(), config_required=True)
    location = build_location(environment)
    definition = location.resolve_job_def(job)
    return definition.execute_in_process(
        instance=instance,
        raise_on_error=False,
        run_config={**(definition.run_config or {}), "loggers": {"console": {"config": {"log_level": log_level}}}},
        tags={**(tags or {}), LABEL_TAG: f"{location.get_repository_def().name}@{LOCATION}"},
    )
