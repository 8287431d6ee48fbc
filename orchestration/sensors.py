"""The sensor that starts a tick when topics have new messages, without waiting for the schedule."""

from __future__ import annotations

import json

from dagster import (
    AssetKey,
    DefaultSensorStatus,
    RunRequest,
    RunsFilter,
    SensorDefinition,
    SensorEvaluationContext,
    SensorResult,
    SkipReason,
    sensor,
)

from orchestration.jobs import TICK
from orchestration.schedules import UNFINISHED
from orchestration.settings import Environment
from tidelake.errors import TidelakeError
from tidelake.settings.collection import CollectionSettings
from tidelake.settings.lake import Settings

_INTERVAL_S = 30


def build_new_offsets_sensor(environment: Environment, settings: Settings) -> SensorDefinition:
    """Build the sensor that requests a tick of collections whose topics have new messages. It starts no JVM.

    Messages that a run left unread, because it failed or stopped at a gap, do not start another run. They wait for new
    messages or for the schedule.
    """
    running = environment.schedules == "running"

    @sensor(
        name="new_offsets",
        job_name=TICK,
        minimum_interval_seconds=_INTERVAL_S,
        default_status=DefaultSensorStatus.RUNNING if running else DefaultSensorStatus.STOPPED,
        description="Starts a tick of the collections whose topics have new messages, between the schedule's ticks.",
    )
    def new_offsets(context: SensorEvaluationContext) -> SensorResult | SkipReason:
        unfinished = context.instance.get_runs(RunsFilter(job_name=TICK, statuses=UNFINISHED), limit=1)
        if unfinished:
            return SkipReason(f"run {unfinished[0].run_id} is not finished")
        requested: dict[str, dict[str, int]] = json.loads(context.cursor or "{}")
        names, problems = [], []
        for collection in settings.collections:
            name = collection.name
            try:
                ends, unread = _ends_and_unread(settings, collection)
            except TidelakeError as error:
                problems.append(f"{name}: {error.fact}")
                continue
            if unread and ends != requested.get(name):
                names.append(name)
                requested[name] = ends
        for problem in problems:
            context.log.warning(problem)
        if not names:
            return SkipReason("; ".join(problems) or "no topic has new messages")
        keys = [AssetKey([name, verb]) for name in names for verb in ("ingest", "seal", "compact")]
        request = RunRequest(asset_selection=keys, tags={"tidelake/new_offsets": ",".join(names)[:256]})
        return SensorResult(run_requests=[request], cursor=json.dumps(requested))

    return new_offsets


def _ends_and_unread(settings: Settings, collection: CollectionSettings) -> tuple[dict[str, int], int]:
    """Return the end of each partition, by `TOPIC:PARTITION`, and the number of unread messages."""
    from tidelake.ingest.position import unread
    from tidelake.store.catalog import Catalog
    from tidelake.store.commit import OpenTable
    from tidelake.store.layout import Store
    from tidelake.topic.open import open_topics

    catalog = Catalog(Store(settings.store))
    exists = collection.name in {entry.name for entry in catalog.entries()}
    stored = catalog.find(collection.name) if exists else None
    topics = open_topics(collection, stored.entry.decisions if stored else ())
    ends = {topic.name: topic.end_offsets() for topic in topics}
    if stored is None:
        count = sum(end for partitions in ends.values() for end in partitions.values())
    else:
        table = OpenTable(stored.paths.updates)
        count = sum(unread(topic, table, stored, ends[topic.name])[0] for topic in topics)
    by_partition = {f"{name}:{partition}": end for name, own in ends.items() for partition, end in own.items()}
    return by_partition, count
