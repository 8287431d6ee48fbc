"""The sensor that observes all topics, and starts a tick when they have new messages, without waiting for the schedule.

Its cursor remembers, for each collection, the ends for which a tick was requested, and since when messages have been
waiting.
"""

from __future__ import annotations

import json
import time as clock
from dataclasses import dataclass, field
from typing import Any

from dagster import (
    AssetKey,
    AssetObservation,
    DefaultSensorStatus,
    RunRequest,
    RunsFilter,
    SensorDefinition,
    SensorEvaluationContext,
    SensorResult,
    sensor,
)

from assets.names import Names
from assets.topics import TopicState, observation, read_lake_states
from expectations.checks import checks_of
from orchestration.dead_runs import KILLED_TAG
from orchestration.jobs import TICK
from orchestration.schedules import UNFINISHED
from orchestration.settings import Environment
from tidelake.errors import TidelakeError
from tidelake.read.words import counted
from tidelake.settings.lake import Settings

_INTERVAL_S = 30
_OBSERVE_AGAIN_S = 300
"""How often a topic with unread messages is observed again even if nothing else has changed."""
_VERSION = 2


@dataclass
class _Cursor:
    """The state that the sensor keeps between evaluations."""

    requested: dict[str, dict[str, int]] = field(default_factory=dict)
    """By collection, the ends for which the last tick was requested, by `TOPIC:PARTITION`."""
    waiting_since: dict[str, float] = field(default_factory=dict)
    """By collection, when unread messages were first seen after everything had been read, in seconds since 1970."""
    observed: dict[str, list[Any]] = field(default_factory=dict)
    """By the key of a topic: its version, how many messages were unread, and when it was last observed."""

    @classmethod
    def read(cls, text: str | None) -> _Cursor:
        """Read a cursor. An older one has only the ends, by collection."""
        document: dict[str, Any] = json.loads(text or "{}")
        if document.pop("version", None) == _VERSION:
            return cls(**document)
        return cls(requested=document)

    def text(self) -> str:
        """Return the cursor as text."""
        return json.dumps({"version": _VERSION, **vars(self)})


@dataclass(frozen=True)
class _Topics:
    """The topics of one collection."""

    states: list[TopicState]

    @property
    def ends(self) -> dict[str, int]:
        """The end of each partition, by `TOPIC:PARTITION`."""
        return {f"{state.name}:{partition}": end for state in self.states for partition, end in state.ends.items()}

    @property
    def unread(self) -> int:
        """Number of unread messages."""
        return sum(state.unread for state in self.states)


def build_new_offsets_sensor(names: Names, environment: Environment, settings: Settings) -> SensorDefinition:
    """Build the sensor that, without a JVM, observes topics and requests ticks of collections with new messages.

    Messages that a run left unread, because it failed or stopped at a gap, do not start another run: they wait for new
    messages or for the schedule, and the sensor says so. If the run was killed, they do start another.
    """
    running = environment.schedules == "running"
    job = environment.job(TICK)

    @sensor(
        name=environment.job("new_offsets"),
        job_name=job,
        minimum_interval_seconds=_INTERVAL_S,
        default_status=DefaultSensorStatus.RUNNING if running else DefaultSensorStatus.STOPPED,
        description=(
            "Observes all topics, and starts a tick of the collections whose topics have new messages, between the "
            "schedule's ticks."
        ),
    )
    def new_offsets(context: SensorEvaluationContext) -> SensorResult:
        cursor, now_s = _Cursor.read(context.cursor), clock.time()
        found, problems = _read_all_topics(settings)
        for problem in problems:
            context.log.warning(problem)
        events = _observations(names, settings, found, cursor, now_s)
        unfinished = context.instance.get_runs(RunsFilter(job_name=job, statuses=UNFINISHED), limit=1)
        if unfinished:
            reason = f"run {unfinished[0].run_id} is not finished"
            return SensorResult(skip_reason=reason, cursor=cursor.text(), asset_events=events)
        chosen, left = _choose(found, cursor, retries=_was_killed(context, job))
        if not chosen:
            reason = "; ".join([*left, *problems]) or "no topic has new messages"
            return SensorResult(skip_reason=reason, cursor=cursor.text(), asset_events=events)
        for name in chosen:
            cursor.requested[name] = found[name].ends
        request = RunRequest(
            asset_selection=[names.collection(name) for name in chosen],
            asset_check_keys=[key for name in chosen for key in checks_of(names, settings.collection(name))],
            tags={"tidelake/new_offsets": ",".join(chosen)[:256]},
        )
        return SensorResult(run_requests=[request], cursor=cursor.text(), asset_events=events)

    return new_offsets


def _read_all_topics(settings: Settings) -> tuple[dict[str, _Topics], list[str]]:
    """Read the topics of each collection; a topic that cannot be read is a problem of its collection alone."""
    found, problems = {}, []
    for name, states in read_lake_states(settings).items():
        if isinstance(states, TidelakeError):
            problems.append(f"{name}: {states.fact}")
        else:
            found[name] = _Topics(states)
    return found, problems


def _choose(found: dict[str, _Topics], cursor: _Cursor, retries: bool) -> tuple[list[str], list[str]]:
    """Return the collections to request a tick of, and a sentence about every other collection with unread messages.

    Args:
        found: the topics of each collection.
        cursor: which ends were already requested.
        retries: whether to request again what was requested before.
    """
    chosen, left = [], []
    for name, topics in found.items():
        if not topics.unread:
            continue
        if retries or topics.ends != cursor.requested.get(name):
            chosen.append(name)
        else:
            left.append(
                f"{name}: {counted(topics.unread, 'message')} still unread after the tick that was requested; waiting "
                "for the schedule or for new messages"
            )
    return chosen, left


def _was_killed(context: SensorEvaluationContext, job: str) -> bool:
    """Return whether the process of the newest tick was killed."""
    newest = context.instance.get_runs(RunsFilter(job_name=job), limit=1)
    return bool(newest) and KILLED_TAG in newest[0].tags


def _observations(
    names: Names, settings: Settings, found: dict[str, _Topics], cursor: _Cursor, now_s: float
) -> list[AssetObservation]:
    """Return an event for each topic that has changed or, every few minutes, that still has unread messages.

    The cursor remembers what was observed.
    """
    seen: dict[AssetKey, tuple[TopicState, float]] = {}
    for collection in settings.collections:
        topics = found.get(collection.name)
        if topics is None:
            continue
        since = cursor.waiting_since.setdefault(collection.name, now_s) if topics.unread else now_s
        if not topics.unread:
            cursor.waiting_since.pop(collection.name, None)
        for key, state in zip(names.topics(collection), topics.states, strict=True):
            before = seen.get(key)
            if before is None or before[0].unread < state.unread:  # the collection furthest behind
                seen[key] = (state, now_s - since if state.unread else 0.0)
    events = []
    for key, (state, lag_s) in seen.items():
        version, unread, at_s = cursor.observed.get(key.to_user_string(), [None, 0, 0.0])
        is_due = state.unread > 0 and now_s - at_s >= _OBSERVE_AGAIN_S
        if (version, unread) != (state.version, state.unread) or is_due:
            cursor.observed[key.to_user_string()] = [state.version, state.unread, now_s]
            events.append(observation(key, state, lag_s))
    return events
