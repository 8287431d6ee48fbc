"""Alerts: one message to a webhook when a check begins to fail or passes again, or when a run fails.

The message is JSON with `text`, as Slack, Mattermost and others accept it. `alerts:` in `collections.yaml` says where
the URL of the webhook is; the URL itself is a secret.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass, field

from dagster import (
    AssetCheckEvaluation,
    AssetCheckKey,
    AssetCheckSeverity,
    DagsterInstance,
    DagsterRunStatus,
    DefaultSensorStatus,
    RunsFilter,
    SensorDefinition,
    SensorEvaluationContext,
    SensorResult,
    sensor,
)
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecordStatus as Status

from orchestration.settings import Environment
from tidelake.errors import TidelakeError
from tidelake.settings.lake import Settings
from tidelake.settings.secret import Secret

_INTERVAL_S = 60
_TIMEOUT_S = 10.0
_RUNS_MAX = 20


@dataclass
class _Cursor:
    """The problems that the sensor has already reported."""

    failing: dict[str, str] = field(default_factory=dict)
    """The checks that fail, by key, each with the first line of its description."""
    failed_runs: list[str] | None = None
    """The newest failed runs; None before the first evaluation, which reports no earlier run."""


def build_alerts_sensor(
    environment: Environment, settings: Settings, webhook: Secret, checks: Sequence[AssetCheckKey], jobs: Sequence[str]
) -> SensorDefinition:
    """Build the sensor that sends alerts. Warnings cause no alert.

    Args:
        environment: says whether the sensor starts with the location.
        settings: the settings of the lake.
        webhook: where the URL is kept.
        checks: the checks of the lake.
        jobs: the names of its jobs.
    """
    running = environment.schedules == "running"

    @sensor(
        name=environment.job("alerts"),
        minimum_interval_seconds=_INTERVAL_S,
        default_status=DefaultSensorStatus.RUNNING if running else DefaultSensorStatus.STOPPED,
        description="Sends a message to a webhook when a check begins to fail or passes again, or when a run fails.",
    )
    def alerts(context: SensorEvaluationContext) -> SensorResult:
        cursor = _Cursor(**json.loads(context.cursor or "{}"))
        failing = _failing(context.instance, checks, cursor.failing)
        failed_runs = _failed_runs(context.instance, jobs)
        lines = [f"{key} fails: {why}" for key, why in failing.items() if key not in cursor.failing]
        lines += [f"{key} passes again" for key in cursor.failing if key not in failing]
        known = failed_runs if cursor.failed_runs is None else cursor.failed_runs
        lines += [f"run {run} failed" for run in failed_runs if run not in known]
        after = json.dumps(vars(_Cursor(failing, failed_runs)))
        if not lines:
            return SensorResult(skip_reason="nothing has changed", cursor=after)
        try:
            _send(webhook, f"Tidelake, lake {settings.lake}:\n" + "\n".join(lines))
        except (OSError, TidelakeError) as error:
            context.log.error(f"the webhook cannot be reached: {type(error).__name__}")  # its text may contain the URL
            return SensorResult(
                skip_reason="the webhook cannot be reached; the next evaluation tries again", cursor=context.cursor
            )
        return SensorResult(skip_reason=f"sent: {'; '.join(lines)}", cursor=after)

    return alerts


def _failing(instance: DagsterInstance, checks: Sequence[AssetCheckKey], before: dict[str, str]) -> dict[str, str]:
    """Return the checks whose newest result is an error. While a check runs, its earlier result is used."""
    failing = {}
    records = instance.event_log_storage.get_latest_asset_check_execution_by_key(list(checks))
    for key in checks:
        record, shown = records.get(key), key.to_user_string()
        if record is not None and record.status is Status.PLANNED:
            if shown in before:
                failing[shown] = before[shown]
            continue
        event = record.event.dagster_event if record is not None and record.event is not None else None
        evaluation = event.event_specific_data if event is not None else None
        if not isinstance(evaluation, AssetCheckEvaluation) or evaluation.passed:
            continue
        if evaluation.severity is AssetCheckSeverity.ERROR:
            failing[shown] = (evaluation.description or "").partition("\n")[0]
    return failing


def _failed_runs(instance: DagsterInstance, jobs: Sequence[str]) -> list[str]:
    return [
        f"{run.run_id} of {job}"
        for job in jobs
        for run in instance.get_runs(RunsFilter(job_name=job, statuses=[DagsterRunStatus.FAILURE]), limit=_RUNS_MAX)
    ]


def _send(webhook: Secret, text: str) -> None:
    """Post a message.

    Raises:
        OSError: the webhook cannot be reached, or refuses the message.
        TidelakeError: the URL is not where the settings say it is.
    """
    from tidelake.settings.secret import read_secret

    url = read_secret(webhook, "alerts")
    if not url.startswith(("https://", "http://")):
        raise urllib.error.URLError("not the URL of a web server")
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(url, data=json.dumps({"text": text}).encode(), headers=headers)
    with urllib.request.urlopen(request, timeout=_TIMEOUT_S):
        pass
