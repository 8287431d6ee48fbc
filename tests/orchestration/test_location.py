"""The code location loads without any settings, refuses invalid settings, and has a schedule for every job."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from dagster import DefaultScheduleStatus

from orchestration.jobs import CURRENT, NIGHTLY, TICK
from orchestration.location import build_location
from orchestration.settings import PROJECT, Environment, read_environment
from tests.lakes.dagster_lakes import Lakes
from tidelake.errors import ConfigurationError

LOAD = (
    "import json, sys; from orchestration.definitions import defs;"
    "heavy = [name for name in ('pyspark', 'great_expectations', 'deltalake') if name in sys.modules];"
    "keys = [key.to_user_string() for key in defs.resolve_asset_graph().get_all_asset_keys()];"
    "print(json.dumps({'heavy': heavy, 'keys': sorted(keys)}))"
)


def load(**environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", LOAD],
        cwd=PROJECT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_location_loads_with_an_empty_environment_and_starts_nothing() -> None:
    loaded = load()
    assert loaded.returncode == 0, loaded.stderr
    printed = json.loads(loaded.stdout)
    assert printed["heavy"] == []
    assert printed["keys"]


def test_a_location_with_collections_starts_nothing(lakes: Lakes) -> None:
    loaded = load(TIDELAKE_CONFIG=str(lakes.config))
    assert loaded.returncode == 0, loaded.stderr
    printed = json.loads(loaded.stdout)
    assert printed["heavy"] == []
    assert printed["keys"] == [
        f"{name}/{verb}" for name in ("prices", "visits") for verb in ("compact", "current", "ingest", "seal")
    ]


def test_without_a_collections_yaml_the_location_says_how_to_write_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    defs = build_location(Environment(config_file=tmp_path / "collections.yaml"))
    (spec,) = defs.resolve_all_asset_specs()
    assert "collections:" in str(spec.description)
    assert "TIDELAKE_CONFIG" in caplog.text


def test_the_file_named_by_a_variable_must_exist(tmp_path: Path) -> None:
    environment = read_environment({"TIDELAKE_CONFIG": str(tmp_path / "nowhere.yaml")})
    with pytest.raises(ConfigurationError, match=r"nowhere\.yaml.*cannot be read"):
        build_location(environment)


def test_an_invalid_collections_yaml_fails_the_load_with_its_own_error(lakes: Lakes) -> None:
    lakes.config.write_text(lakes.config.read_text().replace("plain", "plein"), encoding="utf-8")
    loaded = load(TIDELAKE_CONFIG=str(lakes.config))
    assert loaded.returncode != 0
    assert f"{lakes.config}, line 3: collections.prices.family:" in loaded.stderr
    assert "hint: see docs/reference/configuration.md" in loaded.stderr


@pytest.mark.parametrize(
    ("variables", "text"),
    [
        (
            {"TIDELAKE_SCHEDULES": "yes"},
            "environment: TIDELAKE_SCHEDULES is 'yes', which is neither 'running' nor 'stopped'\nhint: write",
        ),
        (
            {"TIDELAKE_TICK_CRON": "often"},
            "environment: TIDELAKE_TICK_CRON is 'often', which is not a cron expression\nhint: write",
        ),
    ],
)
def test_the_error_names_the_invalid_variable(lakes: Lakes, variables: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        build_location(read_environment({"TIDELAKE_CONFIG": str(lakes.config), **variables}))
    assert str(raised.value).startswith(text)


def test_an_empty_variable_counts_as_unset() -> None:
    assert read_environment({"TIDELAKE_CONFIG": "", "TIDELAKE_SPARK_MASTER": ""}) == read_environment({})


def test_every_job_has_a_schedule_that_runs_only_if_it_is_switched_on(lakes: Lakes) -> None:
    for value, expected in (("", DefaultScheduleStatus.STOPPED), ("running", DefaultScheduleStatus.RUNNING)):
        environment = read_environment({"TIDELAKE_CONFIG": str(lakes.config), "TIDELAKE_SCHEDULES": value})
        repository = build_location(environment).get_repository_def()
        schedules = {schedule.job_name: schedule for schedule in repository.schedule_defs}
        assert set(schedules) == {TICK, CURRENT, NIGHTLY}
        assert {schedule.default_status for schedule in schedules.values()} == {expected}
        assert schedules[TICK].cron_schedule == "*/5 * * * *"


def test_each_collection_is_a_group_with_a_pool_and_two_families_differ_in_their_checks(lakes: Lakes) -> None:
    defs = build_location(Environment(config_file=lakes.config))
    graph = defs.resolve_asset_graph()
    specs = {spec.key.to_user_string(): spec for spec in defs.resolve_all_asset_specs()}
    assert {spec.group_name for spec in specs.values()} == {"prices", "visits"}
    assert all(spec.description for spec in specs.values())
    pools = {node.key.path[0]: node.pools for node in graph.asset_nodes}
    assert pools == {"prices": {"collection_prices"}, "visits": {"collection_visits"}}
    checks = {name: {key.name for key in graph.asset_check_keys if key.asset_key.path[0] == name} for name in pools}
    assert checks["visits"] - checks["prices"] == {"contents_never_fall"}
    assert {"topic_complete", "announced_is_recounted", "nothing_readable_beyond_upper"} <= checks["prices"]
