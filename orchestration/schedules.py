"""The schedules of the jobs, and the sensor that marks dead runs as failed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime

from dagster import (
    AssetCheckKey,
    AssetKey,
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

Selection = Sequence[tuple[Sequence[AssetKey], Sequence[AssetCheckKey]]]
"""By collection, the assets that a job materializes, and the checks that it runs."""


def build_schedules(
    environment: Environment, selections: Mapping[str, Callable[[], Selection]]
) -> list[ScheduleDefinition]:
    """Build the UTC schedules of the tick, of `current` and of the night.

    They start with the code location only if the environment says so.

    Args:
        environment: the times, and into how many runs the collections are divided.
        selections: for each job, a function that gives what each collection contributes to a run.

    Raises:
        ConfigurationError: a cron expression is not valid.
    """
    return [
        _schedule(environment, selections, TICK, "tick_cron", "Keeps every collection up to date with its topic."),
        _schedule(environment, selections, CURRENT, "current_cron", "Keeps every table `current` at upper."),
        _schedule(environment, selections, NIGHTLY, "nightly_cron", "Validates and compacts everything at night."),
    ]


def build_sensors(environment: Environment) -> list[SensorDefinition]:
    """Build the sensor that is always on. It looks only at processes on this host."""

    @sensor(
        name=environment.job("clear_dead_runs"),
        minimum_interval_seconds=_DEAD_RUNS_INTERVAL_S,
        default_status=DefaultSensorStatus.RUNNING,
        description="Marks runs as failed if their process was killed, so that the next run does not wait for them.",
    )
    def clear_dead_runs(context: SensorEvaluationContext) -> SkipReason:
        failed = fail_dead_runs(context.instance)
        return SkipReason(f"marked as failed: {', '.join(failed)}" if failed else "every unfinished run is alive")

    return [clear_dead_runs]


def divided(runs: int, selected: Callable[[], Selection], time: Callable[[], datetime]) -> list[RunRequest]:
    """Return the requests of a job: one for everything, or one for each share of the collections.

    Args:
        runs: the number of shares; there are no more shares than collections.
        selected: gives what each collection contributes to a run.
        time: gives the time of the schedule, which distinguishes these requests from those of other times.
    """
    selection = selected() if runs > 1 else ()
    if len(selection) < 2:
        return [RunRequest()]
    shares = [selection[number::runs] for number in range(min(runs, len(selection)))]
    return [
        RunRequest(
            run_key=f"{time().isoformat()}/{number}",
            asset_selection=[key for assets, _ in share for key in assets],
            asset_check_keys=[key for _, checks in share for key in checks],
        )
        for number, share in enumerate(shares)
    ]


def _schedule(
    environment: Environment,
    selections: Mapping[str, Callable[[], Selection]],
    job: str,
    field: str,
    description: str,
) -> ScheduleDefinition:
    cron: str = getattr(environment, field)
    selected = selections[job]
    job = environment.job(job)

    def evaluate(context: ScheduleEvaluationContext) -> Iterator[RunRequest | SkipReason]:
        # Runs do not queue up behind a slow run: the next tick reads everything that has arrived.
        unfinished = context.instance.get_runs(RunsFilter(job_name=job, statuses=UNFINISHED), limit=1)
        if unfinished:
            yield SkipReason(f"run {unfinished[0].run_id} is not finished")
        else:
            yield from divided(environment.parallel_runs, selected, lambda: context.scheduled_execution_time)

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
