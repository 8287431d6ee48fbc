"""The sensor that watches the store: collections that the settings do not name, and holds that are too old.

It shows each as an observation of the collection's asset, and makes another one only when something has changed. No run
is started.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from dagster import (
    AssetKey,
    AssetObservation,
    DefaultSensorStatus,
    SensorDefinition,
    SensorEvaluationContext,
    SensorResult,
    sensor,
)

from assets.metadata import listed
from assets.names import Names
from orchestration.settings import Environment
from orchestration.shares import Share
from tidelake.errors import TidelakeError
from tidelake.settings.lake import Settings

_INTERVAL_S = 900


@dataclass(frozen=True)
class _Finding:
    """The problems of one collection that need attention."""

    key: AssetKey
    name: str
    sentences: list[str]
    kind: str
    """`orphaned` or `held`: the state that the collection is in."""

    @property
    def observation(self) -> AssetObservation:
        """The event for the UI."""
        metadata: dict[str, Any] = {"state": self.kind, "why": listed(self.sentences)}
        return AssetObservation(asset_key=self.key, description=self.sentences[0], metadata=metadata)


def build_store_sensor(names: Names, environment: Environment, settings: Settings) -> SensorDefinition:
    """Build the sensor. It reads the logs of the store's names and handles, and writes nothing to the store.

    Args:
        names: the names of the lake.
        environment: says whether the sensor starts with the location, and which share of the lake it watches.
        settings: the settings of the lake, which were read when the location was loaded.
    """
    running = environment.schedules == "running"

    @sensor(
        name=environment.job("watch_store"),
        minimum_interval_seconds=_INTERVAL_S,
        default_status=DefaultSensorStatus.RUNNING if running else DefaultSensorStatus.STOPPED,
        description=(
            "Shows the collections of the store that the settings do not name, and the holds that are older than "
            "`hold_age_max_s`, as observations of their assets."
        ),
    )
    def watch_store(context: SensorEvaluationContext) -> SensorResult:
        before: dict[str, str] = json.loads(context.cursor or "{}")
        found, problems = _read_findings(names, settings, environment.share)
        now = {finding.key.to_user_string(): "; ".join(finding.sentences) for finding in found}
        events = []
        for finding in found:
            shown = finding.key.to_user_string()
            if now[shown] != before.get(shown):
                events.append(finding.observation)
                context.log.warning(f"{finding.name}: {now[shown]}")
        if not problems:
            gone = [AssetKey.from_user_string(shown) for shown in before if shown not in now]
            events += [AssetObservation(asset_key=key, metadata={"state": "settled"}) for key in gone]
        for problem in problems:
            context.log.warning(problem)
        said = [*problems, *(f"{finding.name}: {now[finding.key.to_user_string()]}" for finding in found)]
        reason = "; ".join(said) or "the settings name every collection of the store, and no hold is too old"
        cursor = json.dumps(now if not problems else before | now)
        return SensorResult(skip_reason=reason, cursor=cursor, asset_events=events)

    return watch_store


def _read_findings(names: Names, settings: Settings, share: Share) -> tuple[list[_Finding], list[str]]:
    """Return the findings, and a sentence for each collection that could not be read."""
    from tidelake.catalog.catalog import Catalog
    from tidelake.read.holding import held_too_long
    from tidelake.read.orphaned import read_orphaned
    from tidelake.store.layout import Store

    store = Store(settings.store, read_only=True)
    found, problems = [], []
    known = {*settings.names, *(collection.name for collection in settings.collections)}
    for orphaned in read_orphaned(store, known):
        if not share.has(orphaned.name):
            continue
        if orphaned.error is not None:
            problems.append(f"{orphaned.name}: {orphaned.sentence}")
        else:
            found.append(_Finding(names.collection(orphaned.name), orphaned.name, [orphaned.sentence], "orphaned"))
    stored = Catalog(store).lookup(collection.name for collection in settings.collections)
    for collection in settings.collections:
        each = stored[collection.name]
        if isinstance(each, TidelakeError):
            problems.append(f"{collection.name}: {each.fact}")
        elif each is not None and (old := held_too_long(each, collection.hold_age_max_s)):
            found.append(_Finding(names.collection(collection.name), collection.name, old, "held"))
    return found, problems
