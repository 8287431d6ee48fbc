"""The schedules of the jobs, and the sensor that marks dead runs as failed."""

from __future__ import annotations

from dagster import (
    DagsterInvalidDefinitionError,
    DagsterRunStatus,
    DefaultScheduleStatus,
    DefaultSensorStatus,
    RunRequest,
    RunsFilter,
    ScheduleDefinition,
    ScheduleEvaluationContext,
    SensorDefinition,
    SensorEvaluationContext,
    SkipReason,
    sensor,
)

from orchestration.dead_runs import fail_dead_runs
from orchestration.jobs import CURRENT, NIGHTLY, TICK
from orchestration.settings import CRON_VARIABLES, Environment
from tidelake.errors import ConfigurationError

UNFINISHED = [
    DagsterRunStatus.NOT_STARTED,
    DagsterRunStatus.QUEUED,
    DagsterRunStatus.STARTING,
    DagsterRunStatus.STARTED,
    DagsterRunStatus.CANCELING,
]
_DEAD_RUNS_INTERVAL_S = 30


def build_schedules(environment: Environment) -> list[ScheduleDefinition]:
    """Build a UTC schedule for each job. Schedules start with the code location only if the environment says so.

    Raises:
        ConfigurationError: a cron expression is not valid.
    """
    return [
        _schedule(environment, TICK, "tick_cron", "Keeps every collection up to date with its topic."),
        _schedule(environment, CURRENT, "current_cron", "Keeps every `current` table up to date with upper."),
        _schedule(environment, NIGHTLY, "nightly_cron", "Validates and compacts everything at night."),
    ]


def build_sensors() -> list[SensorDefinition]:
    """Build the sensor that is always on. It looks only at processes on this host."""

    @sensor(
        name="clear_dead_runs",
        minimum_interval_seconds=_DEAD_RUNS_INTERVAL_S,
        default_status=DefaultSensorStatus.RUNNING,
        description="Marks runs as failed if their process was killed, so that the next run does not wait for them.",
    )
    def clear_dead_runs(context: SensorEvaluationContext) -> SkipReason:
        failed = fail_dead_runs(context.instance)
        return SkipReason(f"marked as failed: {', '.join(failed)}" if failed else "every unfinished run is alive")

    return [clear_dead_runs]


def _schedule(environment: Environment, job: str, field: str, description: str) -> ScheduleDefinition:
    cron: str = getattr(environment, field)

    def evaluate(context: ScheduleEvaluationContext) -> RunRequest | SkipReason:
        # Runs do not queue up behind a slow run: the next tick reads everything that has arrived.
        unfinished = context.instance.get_runs(RunsFilter(job_name=job, statuses=UNFINISHED), limit=1)
        if unfinished:
            return SkipReason(f"run {unfinished[0].run_id} is not finished")
        return RunRequest()

    running = environment.schedules == "running"
    try:
        return ScheduleDefinition(
            name=f"{job}_schedule",
            job_name=job,
            cron_schedule=cron,
            execution_timezone="UTC",
            execution_fn=evaluate,
            default_status=DefaultScheduleStatus.RUNNING if running else DefaultScheduleStatus.STOPPED,
            description=description,
        )
    except DagsterInvalidDefinitionError as error:
        raise ConfigurationError(
            "environment",
            "",
            f"{CRON_VARIABLES[field]} is {cron!r}, which is not a cron expression",
            "write, for example, `*/5 * * * *`",
        ) from error
