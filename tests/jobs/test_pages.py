"""The plain job judges full validations and writes their pages; Dagster writes the same ones."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from structlog.testing import capture_logs

from expectations.last_verdicts import last_verdicts
from expectations.offline import list_results
from expectations.suite import rules_of
from jobs import tick, validate
from jobs.pages import is_about_the_table, judge_and_report
from tests.lakes.lake import NAME, Lake, progress, updates
from tests.lakes.raw_lake import RawLake
from tests.lakes.upserts import ITEM, item
from tests.sweeps import swept
from tidelake.errors import BlockingCheckFailed, Conflict, DamagedTable, Fenced
from tidelake.report.history import read_history
from tidelake.settings.lake import load_settings
from tidelake.store.commit import OpenTable

pytestmark = pytest.mark.spark

OWN: list[dict[str, Any]] = [
    {"type": "expect_column_values_to_be_unique", "column": "id", "blocking": True},
    {"type": "expect_column_values_to_not_be_null", "column": "price", "severity": "warning"},
    {"type": "expect_column_max_to_be_between", "column": "price", "max_value": 15, "name": "prices_are_low"},
    {"type": "expect_column_values_to_be_in_type_list", "column": "id", "type_list": ["LongType"]},
    {"type": "unexpected_rows_expectation", "unexpected_rows_query": "SELECT * FROM {batch} WHERE _diff < 1"},
]


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Lake:
    lake = Lake(tmp_path_factory.mktemp("sealed"), spark)
    lake.send(updates(((1, 10), 0, 1)), progress([0], [1], {0: 1}))
    lake.run()
    return lake


@pytest.fixture
def sealed(template: Lake, tmp_path: Path) -> Lake:
    """A lake without a report."""
    return template.copy(tmp_path / "sealed")


def validated(lake: Lake) -> dict[str, Any]:
    """The JSON of the report that a full validation writes."""
    report = validate.run_with_pages(lake.spark, lake.settings)
    assert report.ok, report.errors
    return facts_of(lake)


def facts_of(lake: Lake) -> dict[str, Any]:
    return dict(json.loads((lake.data_docs / "collections" / f"{NAME}.json").read_text(encoding="utf-8")))


def text_of(lake: Lake) -> str:
    return (lake.data_docs / "collections" / f"{NAME}.html").read_text(encoding="utf-8")


def test_a_full_validation_writes_the_page_with_verdict_numbers_checks_and_your_own_expectations(
    tmp_path: Path, spark: SparkSession
) -> None:
    lake = Lake(tmp_path, spark, expectations=OWN)
    lake.send(
        updates(((1, 10), 0, 1), ((2, 20), 0, 1)),
        updates(((1, 10), 0, 1), ((3, None), 1, 1)),
        progress([0], [3], {0: 2, 1: 1}),
        progress([3], [5], {3: 8}),
        updates(((4, 40), 3, 1)),
        b"\x07 garbage",
    )
    lake.run()
    facts = validated(lake)
    assert facts["verdict"] == "Safe to use up to time 2. 3 updates announced, 3 counted at 2 times."
    assert facts["ahead"].startswith("Waiting at time 3: 8 announced, 1 stored; upper has not moved for ")
    assert (facts["recounted"], facts["tide"]["copies"], facts["level"]) == (3, 1, "alarm")
    checks = {check["check"]: (check["passed"], check["level"]) for check in facts["checks"]}
    failed = {name: level for name, (passed, level) in checks.items() if not passed}
    assert failed == {
        "quarantine_is_explained": "warning",
        "price_values_to_not_be_null": "warning",
        "prices_are_low": "alarm",
    }
    assert checks["id_values_to_be_unique"] == checks["id_values_to_be_in_type_list"] == (True, "calm")
    assert checks["unexpected_rows_expectation"] == (True, "calm")
    sentences = {check["check"]: check["sentence"] for check in facts["checks"]}
    assert sentences["announced_is_recounted"] == "3 updates announced, 3 recounted at 2 times."
    assert "1 of 3 rows does not" in sentences["price_values_to_not_be_null"]
    assert "the observed value is 20" in sentences["prices_are_low"]
    shown = text_of(lake)
    assert "Waiting at time 3" in shown and "tidelake resolve quarantine prices --offsets prices:0:5" in shown
    assert '<a href="../validations.html">' in shown
    assert {result.suite for result in list_results(lake.data_docs)} == {NAME, f"{NAME}-contents"}
    lake.send(progress([3], [4], {3: 1}))
    (row,) = read_history(lake.data_docs, NAME)
    assert (row["upper"], int(row["counted"]), row["problems"], row["quarantine"]) == (3, 3, 4, 1)


@pytest.mark.sweep
def test_a_damaged_table_is_the_first_thing_that_the_page_says(lake: Lake) -> None:
    lake.send(updates(((1, 10), 0, 1)), progress([0], [1], {0: 1}))
    lake.run()
    assert validated(lake)["verdict"].startswith("Safe to use up to time 0.")
    (entry,) = lake.table.files()
    file = Path(str(lake.collection.paths.updates)) / entry.path
    data = file.read_bytes()
    file.unlink()
    report = validate.run_with_pages(lake.spark, lake.settings)
    assert isinstance(report.errors[NAME], DamagedTable)
    facts = facts_of(lake)
    assert facts["verdict"].startswith("Do not use this table: ") and file.name in facts["verdict"]
    assert "tidelake repair prices --apply" in facts["problems"][0]["commands"]
    assert "Safe to use" not in text_of(lake)
    index = (lake.data_docs / "index.html").read_text(encoding="utf-8")
    assert "1 collection needs attention now." in index
    file.write_bytes(data)
    assert validated(lake)["verdict"].startswith("Safe to use up to time 0.")


@pytest.mark.sweep
def test_a_validation_that_fails_keeps_the_last_verdicts_on_your_own_expectations(
    tmp_path: Path, spark: SparkSession
) -> None:
    lake = Lake(tmp_path, spark, expectations=OWN[:1])
    lake.send(updates(((1, 10), 0, 1), ((1, 11), 0, 1)), progress([0], [1], {0: 2}))
    lake.run()
    report = tick.run_steps(spark, lake.settings, ("validate_full", "compact", "current"))
    error = report.errors[NAME]
    assert isinstance(error, BlockingCheckFailed) and error.detail == "id_values_to_be_unique"
    assert list(report.results[NAME]) == ["validate_full"], "after the failed validation, no further step runs"
    (settings,) = lake.settings.collections
    rules = [rule for rule in rules_of(settings) if rule.is_own]
    (before,) = last_verdicts(lake.data_docs, NAME, rules)
    assert not before.passed
    (entry,) = lake.table.files()
    (Path(str(lake.collection.paths.updates)) / entry.path).unlink()
    validate.run_with_pages(spark, lake.settings)
    assert facts_of(lake)["verdict"].startswith("Do not use this table: ")
    assert last_verdicts(lake.data_docs, NAME, rules) == [before]


@pytest.mark.parametrize("blocked", swept(["docs", "docs/.results", "docs/collections"], ["docs/.results"]))
def test_an_unwritable_folder_changes_no_verdict(tmp_path: Path, spark: SparkSession, blocked: str) -> None:
    lake = Lake(tmp_path, spark, expectations=OWN[:1])
    lake.send(updates(((1, 10), 0, 1), ((1, 11), 0, 1)), progress([0], [1], {0: 2}))
    lake.run()
    (tmp_path / blocked).parent.mkdir(exist_ok=True)
    (tmp_path / blocked).write_text("not a folder", encoding="utf-8")
    (settings,) = lake.settings.collections
    validated = validate.validate_collection(spark, lake.collection, full=True)
    with capture_logs() as logged:
        judged = judge_and_report(spark, lake.settings, settings, lake.collection, validated)
    assert judged is not None
    assert [verdict.check for verdict in judged.judgement.verdicts if not verdict.passed] == ["id_values_to_be_unique"]
    assert [entry["event"] for entry in logged] == ["the report was not written"]


def test_an_error_while_judging_does_not_hide_damage(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    def judge(*_: object) -> None:
        raise RuntimeError("the library fails")

    lake.send(updates(((1, 10), 0, 1)), progress([0], [1], {0: 1}))
    lake.run()
    (entry,) = lake.table.files()
    (Path(str(lake.collection.paths.updates)) / entry.path).unlink()
    monkeypatch.setattr(validate, "judge_and_report", judge)
    assert isinstance(validate.run_with_pages(lake.spark, lake.settings).errors[NAME], DamagedTable)


@pytest.mark.parametrize(
    ("error", "is_told"),
    [
        (DamagedTable("updates", "a file is missing"), True),
        pytest.param(pa.ArrowInvalid("no footer"), True, marks=pytest.mark.sweep),
        (OSError(errno.EIO, "Input/output error"), True),
        (OSError(errno.ENOSPC, "No space left on device"), False),
        pytest.param(ConnectionRefusedError("the JVM is gone"), False, marks=pytest.mark.sweep),
        pytest.param(MemoryError(), False, marks=pytest.mark.sweep),
        (PySparkException("java.lang.OutOfMemoryError: Java heap space"), False),
        pytest.param(Conflict("updates", 3, "somebody was faster"), False, marks=pytest.mark.sweep),
        pytest.param(Fenced("updates", 1, 2), False, marks=pytest.mark.sweep),
    ],
)
def test_only_errors_about_the_table_replace_the_report(
    sealed: Lake, monkeypatch: pytest.MonkeyPatch, error: Exception, is_told: bool
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(validate, "validate_collection", fail)
    assert NAME in validate.run_with_pages(sealed.spark, sealed.settings).errors
    page = sealed.data_docs / "collections" / f"{NAME}.html"
    assert page.exists() == is_told
    assert len(read_history(sealed.data_docs, NAME) if is_told else []) == is_told
    assert sealed.data_docs.exists() == is_told


def test_errors_after_an_interrupt_are_not_about_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    error = PySparkException("the job was cancelled")
    assert is_about_the_table(error)
    monkeypatch.setattr("jobs.pages.is_interrupted", lambda: True)
    assert not is_about_the_table(error)


def test_a_table_whose_state_cannot_be_read_still_has_a_page(lake: Lake) -> None:
    lake.send(updates(((1, 10), 0, 1)), progress([0], [1], {0: 1}), b"\x07 garbage")
    lake.run()
    (entry,) = OpenTable(lake.collection.paths.quarantine).files()
    (Path(str(lake.collection.paths.quarantine)) / entry.path).write_bytes(b"PAR1")
    assert NAME in validate.run_with_pages(lake.spark, lake.settings).errors
    facts = facts_of(lake)
    assert facts["verdict"].startswith("Do not use this table: ")
    assert "tidelake verify prices --deep" in facts["problems"][0]["commands"]


@pytest.mark.sweep
def test_the_page_of_a_reclocked_collection_counts_records_and_shows_moments(
    tmp_path: Path, spark: SparkSession
) -> None:
    lake = RawLake(tmp_path, spark, envelope="upsert", key="id", schema=ITEM)
    for turn in range(3):
        lake.put(*(item(key, 10 * turn) for key in range(4)))
        lake.ingest()
    facts = validated(lake)
    assert "12 records read, 12 rows stored at 3 times." in facts["verdict"] and " UTC)" in facts["verdict"]
    assert facts["ahead"].startswith("In order, definite in [")
    assert (facts["tide"]["times"], facts["level"]) == (3, "calm")
    assert "<svg" in text_of(lake)


@pytest.mark.sweep
def test_an_argument_that_only_the_library_refuses_names_the_line(tmp_path: Path, spark: SparkSession) -> None:
    own = [{"type": "expect_column_values_to_be_unique", "column": "id", "mostly": "most"}]
    lake = Lake(tmp_path, spark, expectations=own)
    lake.send(updates(((1, 10), 0, 1)), progress([0], [1], {0: 1}))
    lake.run()
    error = str(validate.run_with_pages(lake.spark, lake.settings).errors[NAME])
    assert "collections.yaml, line " in error and "collections.prices.expectations.0: mostly: " in error


def test_planted_secrets_are_in_no_page_and_no_json(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    secrets = {"PLANTED_BROKER": "broker-hunter2-planted", "PLANTED_REGISTRY": "registry-hunter3-planted"}
    for name, value in secrets.items():
        monkeypatch.setenv(name, value)
    lake = Lake(tmp_path, spark)
    lake.send(updates(((1, 10), 0, 1)), progress([0], [1], {0: 1}), b"\x07 garbage")
    lake.run()
    document = yaml.safe_load(lake.file.read_text(encoding="utf-8"))
    document["kafka"] = {
        "bootstrap_servers": "127.0.0.1:9",
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "SCRAM-SHA-256",
        "sasl_username": "reader",
        "sasl_password": {"env": "PLANTED_BROKER"},
        "request_timeout_s": 1,
    }
    document["registry"] = {
        "url": "http://127.0.0.1:9",
        "username": "reader",
        "password": {"env": "PLANTED_REGISTRY"},
    }
    document["collections"][NAME]["source"] = "kafka"
    lake.file.write_text(yaml.safe_dump(document), encoding="utf-8")
    lake.settings = load_settings(lake.file)
    facts = validated(lake)
    assert "cannot be read from 127.0.0.1:9" in facts["problems"][0]["text"], "the broker was asked"
    files = [file for file in lake.data_docs.glob("**/*") if file.is_file()]
    assert len(files) > 8
    for file in files:
        data = file.read_bytes()
        assert not any(value.encode() in data for value in secrets.values()), file
