"""The sensor that watches the store shows each finding once. These tests do not start a JVM."""

from __future__ import annotations

import time as clock
from pathlib import Path
from typing import Any

import pytest
import yaml
from dagster import DagsterInstance, build_sensor_context

from orchestration.location import build_location
from orchestration.settings import Environment
from tests.report.published import configure
from tidelake import open_lake


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """The settings of a store with the collections `prices` and `visits`."""
    file = configure(tmp_path, "prices", "visits")
    lake = open_lake(file)
    for collection in lake.collections():
        lake.catalog.open_or_create(collection.settings.spec())
    return file


def evaluated(config: Path, instance: DagsterInstance, cursor: str | None = None) -> Any:
    location = build_location(Environment(config_file=config))
    with build_sensor_context(instance=instance, cursor=cursor) as context:
        return location.get_repository_def().get_sensor_def("watch_store").evaluate_tick(context)


def shown(result: Any) -> dict[str, str]:
    return {event.asset_key.path[-1]: event.metadata["state"].value for event in result.asset_events}


def test_orphaned_collections_are_observed_once_until_they_are_settled(config: Path, instance: DagsterInstance) -> None:
    quiet = evaluated(config, instance)
    assert "no hold is too old" in str(quiet.skip_message) and not quiet.asset_events
    document = yaml.safe_load(config.read_text(encoding="utf-8"))
    block = document["collections"].pop("visits")
    config.write_text(yaml.safe_dump(document), encoding="utf-8")
    found = evaluated(config, instance, quiet.cursor)
    assert shown(found) == {"visits": "orphaned"}
    assert "tidelake drop visits --apply" in str(found.skip_message)
    again = evaluated(config, instance, found.cursor)
    assert shown(again) == {} and "visits: orphaned" in str(again.skip_message)
    config.write_text(yaml.safe_dump(document | {"collections": document["collections"] | {"visits": block}}))
    assert shown(evaluated(config, instance, again.cursor)) == {"visits": "settled"}


def test_a_hold_that_is_too_old_is_observed_without_a_tick(
    config: Path, instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_lake(config).collection("prices").acquire(purpose="report")
    assert shown(evaluated(config, instance)) == {}
    real = clock.time
    monkeypatch.setattr("tidelake.read.holding.clock.time", lambda: real() + 30 * 86_400)
    assert shown(evaluated(config, instance)) == {"prices": "held"}


def test_an_unreadable_store_does_not_settle_observations(config: Path, instance: DagsterInstance) -> None:
    document = yaml.safe_load(config.read_text(encoding="utf-8"))
    del document["collections"]["visits"]
    config.write_text(yaml.safe_dump(document), encoding="utf-8")
    found = evaluated(config, instance)
    for entry in (config.parent / "store" / "names").glob("*/_delta_log/*.json"):
        entry.write_text("torn")
    lost = evaluated(config, instance, found.cursor)
    assert shown(lost) == {} and lost.cursor == found.cursor
