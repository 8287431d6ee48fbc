"""The sensor that asks the topics for new offsets, so that a tick need not wait for its schedule."""

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
from tidelake.configuration import CollectionSettings, Settings
from tidelake.errors import TidelakeError

_ASK_EVERY_S = 30


def build_new_offsets_sensor(environment: Environment, settings: Settings) -> SensorDefinition:
    """A sensor that requests a tick of the collections whose topics have something new; it starts no JVM.

    What a run has left unread, because it failed or stopped at a gap, does not start another one: that waits for new
    messages, or for the schedule.
    """
    running = environment.schedules == "running"

    @sensor(
        name="new_offsets",
        job_name=TICK,
        minimum_interval_seconds=_ASK_EVERY_S,
        default_status=DefaultSensorStatus.RUNNING if running else DefaultSensorStatus.STOPPED,
        description="Starts a tick of the collections whose topics have new messages, between the schedule's ticks.",
    )
    def new_offsets(context: SensorEvaluationContext) -> SensorResult | SkipReason:
        unfinished = context.instance.get_runs(RunsFilter(job_name=TICK, statuses=UNFINISHED), limit=1)
        if unfinished:
            return SkipReason(f"run {unfinished[0].run_id} is not finished")
        asked: dict[str, dict[str, int]] = json.loads(context.cursor or "{}")
        seen = dict(asked)
        news, problems = [], []
        for one in settings.collections:
            try:
                ends, left = _ends_of(settings, one)
            except TidelakeError as error:
                problems.append(f"{one.name}: {error.fact()}")
                continue
            if left and ends != asked.get(one.name):
                news.append(one.name)
                seen[one.name] = ends
        for problem in problems:
            context.log.warning(problem)
        if not news:
            return SkipReason("; ".join(problems) or "no topic has anything new")
        keys = [AssetKey([name, verb]) for name in news for verb in ("ingest", "seal", "compact")]
        request = RunRequest(asset_selection=keys, tags={"tidelake/new_offsets": ",".join(news)[:256]})
        return SensorResult(run_requests=[request], cursor=json.dumps(seen))

    return new_offsets


def _ends_of(settings: Settings, one: CollectionSettings) -> tuple[dict[str, int], int]:
    """By topic and partition the end of what is there, and how much of it was not read yet."""
    from tidelake.delta.catalog import Catalog
    from tidelake.delta.commit import OpenTable
    from tidelake.delta.layout import Store
    from tidelake.delta.position import unread
    from tidelake.delta.topic import open_topics

    catalog = Catalog(Store(settings.store))
    exists = one.name in {entry.name for entry in catalog.entries()}
    collection = catalog.find(one.name) if exists else None
    topics = open_topics(one, collection.entry.decisions if collection else ())
    ends = {topic.name: topic.end_offsets() for topic in topics}
    if collection is None:
        left = sum(end for partitions in ends.values() for end in partitions.values())
    else:
        table = OpenTable(collection.paths.updates)
        left = sum(unread(topic, table, collection, ends[topic.name])[0] for topic in topics)
    return {f"{name}:{one}": end for name, found in ends.items() for one, end in found.items()}, left
