"""The jobs over all collections. Each run is one process with at most one Spark session."""

from collections.abc import Sequence
from typing import Any

from dagster import (
    AssetKey,
    AssetSelection,
    Definitions,
    ExecutorDefinition,
    RunConfig,
    define_asset_job,
    in_process_executor,
)

from assets.names import Names
from assets.options import RunOptions
from expectations.checks import merges_key
from orchestration.settings import Environment
from tidelake.settings.collection import CollectionSettings

TICK = "tick"
CURRENT = "rebuild_current"
NIGHTLY = "nightly"
OBSERVE = "observe_topics"


def build_jobs(
    names: Names, environment: Environment, collections: Sequence[CollectionSettings], refused: Sequence[AssetKey] = ()
) -> Definitions:
    """Build the jobs over these collections.

    All but the one that observes topics include the collections' checks, so that damage is found before anything is
    built on a collection. They also include the checks that show invalid settings.

    Args:
        names: the names of the lake.
        environment: the names of jobs begin with its prefix.
        collections: its collections.
        refused: the keys of the collections whose settings are invalid.
    """
    keys = [names.collection(collection.name) for collection in collections]
    proven = AssetSelection.assets(*keys)
    checks = AssetSelection.checks_for_assets(*keys, *refused)
    merges = AssetSelection.checks(*(merges_key(names, collection.name) for collection in collections))
    currents = AssetSelection.assets(*(names.current(collection.name) for collection in collections)).without_checks()
    published = AssetSelection.assets(
        *(names.published(collection.name) for collection in collections if collection.publish is not None)
    ).without_checks()
    executor: ExecutorDefinition = in_process_executor

    def options(**values: Any) -> RunConfig:
        return RunConfig(resources={names.options: RunOptions(**values)})

    topics = {key for collection in collections for key in names.topics(collection)}
    observe = define_asset_job(
        environment.job(OBSERVE),
        selection=AssetSelection.assets(*topics),
        executor_def=executor,
        description="Observes every topic once: how far it reaches, and how much is unread. It does not start a JVM.",
    )
    return Definitions(
        jobs=[
            *([observe] if topics else []),
            define_asset_job(
                environment.job(TICK),
                selection=proven | checks | merges | published,
                config=options(compact=True),
                executor_def=executor,
                description="For all collections: ingest, seal, validate new times, publish, merge within a budget.",
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
        ]
    )
