"""The code location loads without any settings, refuses invalid settings, and has a schedule for every job."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from dagster import DagsterInstance, DefaultScheduleStatus, Definitions, FreshnessPolicy, build_schedule_context

from assets.names import Names
from orchestration.jobs import CURRENT, NIGHTLY, TICK
from orchestration.location import build_location
from orchestration.refused import GROUP
from orchestration.settings import PROJECT, Environment, read_environment
from tests.lakes.change_events import EVENT
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


def test_the_location_loads_with_an_empty_environment_and_without_heavy_imports() -> None:
    loaded = load()
    assert loaded.returncode == 0, loaded.stderr
    printed = json.loads(loaded.stdout)
    assert printed["heavy"] == []
    assert printed["keys"]


def test_a_location_with_collections_loads_without_heavy_imports(lakes: Lakes) -> None:
    loaded = load(TIDELAKE_CONFIG=str(lakes.config))
    assert loaded.returncode == 0, loaded.stderr
    printed = json.loads(loaded.stdout)
    assert printed["heavy"] == []
    assert printed["keys"] == [
        "lakes/prices",
        "lakes/prices/current",
        "lakes/topics/files/prices",
        "lakes/topics/files/visits",
        "lakes/visits",
        "lakes/visits/current",
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
    lakes.config.write_text(lakes.config.read_text().replace("data_docs:", "data_dogs:"), encoding="utf-8")
    loaded = load(TIDELAKE_CONFIG=str(lakes.config))
    assert loaded.returncode != 0
    (line,) = (number for number, text in enumerate(lakes.config.read_text().splitlines(), 1) if "data_dogs" in text)
    assert f"{lakes.config}, line {line}: data_dogs: is not a known key" in loaded.stderr
    assert "hint: did you mean 'data_docs'?" in loaded.stderr


def test_an_invalid_block_is_shown_with_its_error_and_the_rest_loads(
    lakes: Lakes, caplog: pytest.LogCaptureFixture
) -> None:
    lakes.document["collections"]["prices"]["family"] = "plein"
    lakes.document["collections"]["My Orders"] = {}
    lakes.write(lakes.document)
    defs = build_location(Environment(config_file=lakes.config))
    specs = {spec.key.to_user_string(): spec for spec in defs.resolve_all_asset_specs()}
    assert specs["lakes/visits"].group_name == "append_only"
    error = "collections.prices.family: input should be 'plain'"
    assert error in str(specs["lakes/prices"].description)
    assert error in caplog.text
    assert "is not a valid name" in str(specs["lakes/My_Orders"].description)
    assert {spec.group_name for key, spec in specs.items() if key in ("lakes/prices", "lakes/My_Orders")} == {GROUP}


def test_the_check_of_an_invalid_block_fails_in_every_run_until_the_block_is_corrected(
    instance: DagsterInstance, lakes: Lakes
) -> None:
    lakes.document["collections"]["prices"]["family"] = "plein"
    del lakes.document["collections"]["visits"]
    lakes.write(lakes.document)
    job = build_location(Environment(config_file=lakes.config)).resolve_job_def(TICK)
    (failed,) = job.execute_in_process(instance=instance).get_asset_check_evaluations()
    assert (failed.check_name, failed.passed, failed.severity.value) == ("settings_are_valid", False, "ERROR")
    assert "'plein'" in str(failed.description)
    lakes.document["collections"]["prices"]["family"] = "plain"
    lakes.write(lakes.document)
    (corrected,) = job.execute_in_process(instance=instance).get_asset_check_evaluations()
    assert corrected.passed
    assert "reload the code location" in str(corrected.description)


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
        (
            {"TIDELAKE_PARALLEL_RUNS": "0"},
            "environment: TIDELAKE_PARALLEL_RUNS is '0', which is not a number of runs\nhint: write",
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


def test_a_schedule_divides_the_collections_into_as_many_runs_as_the_environment_says(
    instance: DagsterInstance, lakes: Lakes
) -> None:
    environment = read_environment({"TIDELAKE_CONFIG": str(lakes.config), "TIDELAKE_PARALLEL_RUNS": "3"})
    location = build_location(environment)
    names, shares = Names("lakes"), {}
    for job in (TICK, CURRENT, NIGHTLY):
        with build_schedule_context(instance=instance, scheduled_execution_time=datetime.now(UTC)) as context:
            evaluated = location.get_repository_def().get_schedule_def(f"{job}_schedule").evaluate_tick(context)
        shares[job] = [(request.asset_selection, request.asset_check_keys) for request in evaluated.run_requests or []]
    assert [assets for assets, _ in shares[TICK]] == [[names.collection(name)] for name in ("prices", "visits")]
    assert [assets for assets, _ in shares[CURRENT]] == [[names.current(name)] for name in ("prices", "visits")]
    assert [assets for assets, _ in shares[NIGHTLY]] == [[], []]
    for job in shares:
        checked = [{key.asset_key.path[1] for key in checks or []} for _, checks in shares[job]]
        assert checked == [{"prices"}, {"visits"}]


def test_a_collection_is_one_asset_between_its_topic_and_its_table_in_the_group_of_its_family(lakes: Lakes) -> None:
    lakes.document["collections"]["prices"] |= {"owners": ["team:sales", "ada@example.com"], "stalled_after_s": 7200}
    lakes.write(lakes.document)
    defs = build_location(Environment(config_file=lakes.config))
    graph = defs.resolve_asset_graph()
    names = Names("lakes")
    topic, prices, current = names.topic("files", "prices"), names.collection("prices"), names.current("prices")
    assert graph.get(prices).parent_keys == {topic}
    assert graph.get(prices).child_keys == {current}
    assert graph.get(topic).is_external
    specs = {spec.key: spec for spec in defs.resolve_all_asset_specs()}
    groups = {key: spec.group_name for key, spec in specs.items()}
    assert (groups[prices], groups[current], groups[names.collection("visits")]) == ("plain", "plain", "append_only")
    assert groups[topic] == "topics"
    assert specs[topic].kinds == {"files", "avro"}
    assert specs[prices].kinds == specs[current].kinds == {"spark", "deltalake"}
    assert specs[prices].owners == ["team:sales", "ada@example.com"]
    assert specs[prices].freshness_policy == FreshnessPolicy.time_window(fail_window=timedelta(hours=2))
    assert all(spec.description for spec in specs.values())
    pools = {key: graph.get(key).pools for key in (prices, current, names.collection("visits"))}
    assert pools == {prices: {"lakes/prices"}, current: {"lakes/prices"}, names.collection("visits"): {"lakes/visits"}}


def test_a_change_of_the_schema_changes_the_code_version_and_nothing_else_does(lakes: Lakes) -> None:
    def version() -> str | None:
        defs = build_location(Environment(config_file=lakes.config))
        return next(spec.code_version for spec in defs.resolve_all_asset_specs() if spec.key.path[1:] == ["prices"])

    first = version()
    lakes.document["collections"]["prices"]["keep"] = 5
    lakes.write(lakes.document)
    assert version() == first
    field = {"name": "note", "type": ["null", "string"]}
    record = lakes.document["collections"]["prices"]["schema"]
    lakes.document["collections"]["prices"]["schema"] = {**record, "fields": [*record["fields"], field]}
    lakes.write(lakes.document)
    assert version() != first


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({}, "`_diff` says how many times a row occurs"),
        ({"bag": True}, "A row appears once for each time that it occurs"),
        ({"family": "upsert", "key": "id"}, "Each key has one row"),
        ({"family": "upsert", "key": "id", "current": {"skip_errors": True}}, "Keys in error are left out"),
    ],
)
def test_a_published_table_says_how_it_shows_a_row_that_occurs_twice(
    lakes: Lakes, more: dict[str, object], text: str
) -> None:
    lakes.document["collections"]["prices"] |= more
    lakes.write(lakes.document)
    specs = build_location(Environment(config_file=lakes.config)).resolve_all_asset_specs()
    (description,) = (spec.description for spec in specs if spec.key.path[1:] == ["prices", "current"])
    assert description is not None and text in description


@pytest.mark.parametrize(
    ("block", "said", "unsaid"),
    [
        ({"schema": EVENT}, ["Seal counts events.", "its diff is not positive"], ["A tick seals"]),
        (
            {"framing": "reclock", "format": "json", "key": "id"},
            ["A tick seals what it reads.", "puts its key in error"],
            ["Seal counts", "unsealed", "diff"],
        ),
        (
            {"framing": "transactions", "transaction_topic": "t.transaction", "table": "p", "format": "json"},
            ["Seal counts the events of each transaction", "unsealed until an operator decides"],
            ["A tick seals", "diff"],
        ),
    ],
    ids=lambda value: value.get("framing", "cdcv2") if isinstance(value, dict) else None,
)
def test_a_table_of_change_events_says_what_seals_its_times(
    lakes: Lakes, block: dict[str, object], said: list[str], unsaid: list[str]
) -> None:
    lakes.document["collections"]["prices"] = {"envelope": "debezium", "topic": "prices", **block}
    lakes.write(lakes.document)
    specs = build_location(Environment(config_file=lakes.config)).resolve_all_asset_specs()
    text = next(spec.description for spec in specs if spec.key == Names("lakes").collection("prices")) or ""
    assert [words for words in said if words not in text] == []
    assert [words for words in unsaid if words in text] == []


def test_columns_are_shown_with_sql_types_and_the_descriptions_of_the_schema(lakes: Lakes) -> None:
    fields = [
        {"name": "id", "type": "long", "doc": "The article."},
        {"name": "price", "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}]},
        {"name": "seen", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
    ]
    lakes.document["collections"]["prices"]["schema"] = {"type": "record", "name": "row", "fields": fields}
    lakes.write(lakes.document)
    defs = build_location(Environment(config_file=lakes.config))
    (spec,) = (spec for spec in defs.resolve_all_asset_specs() if spec.key.path[1:] == ["prices"])
    columns = spec.metadata["dagster/column_schema"].schema.columns
    assert [(column.name, column.type) for column in columns] == [
        ("id", "BIGINT"),
        ("price", "DECIMAL(12,2)"),
        ("seen", "TIMESTAMP"),
        ("tags", "ARRAY<STRING>"),
    ]
    assert [column.description for column in columns] == ["The article.", None, None, None]


def test_blocking_checks_lie_between_a_collection_and_everything_downstream(lakes: Lakes) -> None:
    graph = build_location(Environment(config_file=lakes.config)).resolve_asset_graph()
    checks = {
        name: {key.name for key in graph.asset_check_keys if key.asset_key.path[1] == name}
        for name in ("prices", "visits")
    }
    assert checks["visits"] - checks["prices"] == {"contents_never_fall"}
    assert {"topic_complete", "announced_updates_arrive", "announced_is_recounted", "merges_keep_contents"} <= checks[
        "prices"
    ]
    blocking = {key.name for key in graph.asset_check_keys if graph.get(key).blocking}
    assert blocking == {
        "announced_is_counted",
        "announced_is_recounted",
        "rows_are_as_recorded",
        "nothing_readable_beyond_upper",
        "sum_of_diffs_is_as_recorded",
        "contents_never_fall",
    }


def test_every_check_except_that_of_merges_can_be_run_by_hand(lakes: Lakes) -> None:
    """The UI offers to run a check only if nothing else must be run with it."""
    graph = build_location(Environment(config_file=lakes.config)).resolve_asset_graph()
    assert graph.asset_check_keys
    together = {key: graph.get_execution_set_identifier(key) for key in graph.asset_check_keys}
    assert {key.name for key, others in together.items() if others is not None} == {"merges_keep_contents"}


def test_two_lakes_share_no_key_even_if_their_collections_have_the_same_names(tmp_path: Path) -> None:
    keys = []
    for folder in ("tour", "demo"):
        lakes = Lakes(tmp_path / folder, {"prices": "plain"})
        keys.append(build_location(Environment(config_file=lakes.config)).resolve_asset_graph().get_all_asset_keys())
    assert keys[0].isdisjoint(keys[1])
    merged = [
        build_location(
            Environment(config_file=tmp_path / folder / "collections.yaml", prefix=f"{folder}_", owns_location=False)
        )
        for folder in ("tour", "demo")
    ]
    assert Definitions.merge(*merged).resolve_asset_graph().get_all_asset_keys() == keys[0] | keys[1]
