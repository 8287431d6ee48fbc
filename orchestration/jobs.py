"""The jobs over all collections. Each run is one process with one Spark session."""

from collections.abc import Iterator, Sequence
from typing import Any

from dagster import (
    AssetKey,
    AssetSelection,
    Definitions,
    ExecutorDefinition,
    JobDefinition,
    OpExecutionContext,
    Output,
    RunConfig,
    define_asset_job,
    in_process_executor,
    job,
    op,
)

from assets.names import Names
from assets.options import RunOptions
from assets.topics import look_at_lake, observation
from expectations.checks import merges_key
from orchestration.resources import LakeResource
from orchestration.settings import Environment
from tidelake.errors import TidelakeError

TICK = "tick"
CURRENT = "rebuild_current"
NIGHTLY = "nightly"
OBSERVE = "observe_topics"


def build_jobs(
    names: Names, environment: Environment, collections: Sequence[str], refused: Sequence[AssetKey] = ()
) -> Definitions:
    """Build the jobs over these collections.

    All of them include the checks, so that damage is found before anything is built on a collection, and the checks
    that show invalid settings.

    Args:
        names: the names of the lake.
        environment: the names of jobs begin with its prefix.
        collections: the names of its collections.
        refused: the keys of the collections whose settings are invalid.
    """
    keys = [names.collection(name) for name in collections]
    proven = AssetSelection.assets(*keys)
    checks = AssetSelection.checks_for_assets(*keys, *refused)
    merges = AssetSelection.checks(*(merges_key(names, name) for name in collections))
    currents = AssetSelection.assets(*(names.current(name) for name in collections)).without_checks()
    executor: ExecutorDefinition = in_process_executor

    def options(**values: Any) -> RunConfig:
        return RunConfig(resources={names.options: RunOptions(**values)})

    return Definitions(
        jobs=[
            define_asset_job(
                environment.job(TICK),
                selection=proven | checks | merges,
                config=options(compact=True),
                executor_def=executor,
                description="For all collections: ingest, seal, validate new times, and merge within a budget.",
            ),
            define_asset_job(
                environment.job(CURRENT),
                selection=checks | currents,
                config=options(),
                executor_def=executor,
                description="Validate new times, then bring every `current` table up to upper.",
            ),
            define_asset_job(
                environment.job(NIGHTLY),
                selection=checks | merges,
                config=options(validate_all=True, compact_all=True),
                executor_def=executor,
                description="Validate all updates that compaction has kept, write the Data Docs, then compact.",
            ),
            _observe_job(names, environment),
        ]
    )


def _observe_job(names: Names, environment: Environment) -> JobDefinition:
    @op(name=f"{names.lake}__{OBSERVE}", required_resource_keys={names.resource})
    def observe(context: OpExecutionContext) -> Iterator[Output[None]]:
        lake: LakeResource = getattr(context.resources, names.resource)
        looks = look_at_lake(lake.settings)
        for collection in lake.settings.collections:
            states = looks[collection.name]
            if isinstance(states, TidelakeError):
                context.log.warning(f"{collection.name}: {states.fact}")
                continue
            for key, state in zip(names.topics(collection), states, strict=True):
                context.log_event(observation(key, state))
        yield Output(None)

    @job(
        name=environment.job(OBSERVE),
        executor_def=in_process_executor,
        description="Looks once at every topic: how far it goes, and how much is unread. It starts no JVM.",
    )
    def observe_topics() -> None:
        observe()

    return observe_topics
