"""The status of collections as metrics: complete, bounded, and read without a JVM."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from tests.cli.commands import call, run
from tests.expectations.reports import STATUS, settings
from tests.telemetry.exposed import exposed
from tidelake.errors import DamagedTable, OptionRefused, TidelakeError
from tidelake.read.status import CollectionStatus
from tidelake.read.verdict import PROBLEM_KINDS
from tidelake.read.waiting import Waiting, WaitingTime
from tidelake.telemetry.exposition import Metric, Sample, exposition, write_textfile
from tidelake.telemetry.lake_metrics import collection_samples

NOW_S = 1_000_000.0
SERIES_MAX = 80


def metrics_of(status: CollectionStatus | TidelakeError | None, framing: str = "cdcv2") -> dict[tuple[str, ...], float]:
    """The series of a collection, without the prefix of the metric and without the collection."""
    found = exposed(exposition(collection_samples(settings(framing=framing), status, NOW_S)))
    assert all(series[1] == "prices" for series in found)
    return {(series[0].removeprefix("tidelake_"), *series[2:]): value for series, value in found.items()}


def problems_in(found: dict[tuple[str, ...], float]) -> set[str]:
    return {series[1] for series, value in found.items() if series[0] == "problem" and value == 1}


def test_every_number_of_a_status_is_a_metric() -> None:
    numbers: dict[str, Any] = {
        "since": 2, "upper": 11, "rows": 101, "pending": 13, "runs": 17, "bytes": 1019, "lag_messages": 23,
        "statements_pending": 29, "late_undecided": 31, "keys_in_error": 37, "times_ahead_s": 90_001,
        "rows_left": 67,
    }  # fmt: skip
    status = replace(
        STATUS,
        **numbers,
        lag_s=41.5,
        quarantine_reasons={"undecodable": 43, "wrong_magic_byte": 47},
        quarantine_unexplained={"undecodable": 53},
        late_verdicts={"copy": 59, "contradiction": 61},
        topic_gaps=["one", "two"],
        contradictions=[
            {"time": 11, "detail": "over_count: a fact", "decided": False},
            {"time": 11, "decided": False},
            {"time": 12, "decided": True},
        ],
        sealed_by_decision=[{"time": 1}],
    )
    found = metrics_of(status)
    assert set(numbers.values()) <= set(found.values())
    assert found["quarantined_messages", "undecodable"] == 43
    assert found["quarantined_messages", "wrong_magic_byte"] == 47
    assert found["quarantined_messages_unexplained", "undecodable"] == 53
    assert (found["late_rows", "copy"], found["late_rows", "contradiction"]) == (59, 61)
    assert (found[("topic_gaps",)], found[("contradictions",)], found[("contradictions_undecided",)]) == (2, 2, 1)
    assert found[("sealed_by_decision",)] == 1
    assert found[("upper_moved_timestamp_seconds",)] == NOW_S - 41.5
    assert found[("stalled_after_seconds",)] == settings().stalled_after_s
    named = {"name", "family", "quarantine", "late", "waiting"}  # labels, and sums of other metrics
    numeric = {field.name for field in fields(STATUS) if type(getattr(STATUS, field.name)) in (int, float)}
    covered = {*numbers, "closed", "lag_s", "late_contradicted"}
    # A new number of a status needs a metric, or an exception in this test.
    assert numeric - named - covered <= {"upper_age_s", "stalled_after_s"}


def test_numbers_that_are_unknown_have_no_series() -> None:
    closed = metrics_of(replace(STATUS, upper=None, since=None, closed=True, lag_messages=None, lag_s=None, pending=3))
    absent = {"upper", "since", "lag_messages", "upper_moved_timestamp_seconds", "upper_timestamp_seconds"}
    assert not absent & {series[0] for series in closed}
    assert (closed[("closed",)], closed[("waiting",)]) == (1, 0)


def test_the_upper_of_minted_times_is_also_a_point_in_time() -> None:
    assert ("upper_timestamp_seconds",) not in metrics_of(STATUS)
    minted = metrics_of(replace(STATUS, upper=1_700_000_000_500), "reclock")
    assert minted[("upper_timestamp_seconds",)] == 1_700_000_000.5


@pytest.mark.parametrize(
    ("problem", "change"),
    [
        ("damaged", {"damaged": "a file is missing"}),
        ("topic_unreadable", {"topic_problem": "the brokers do not answer"}),
        ("topic_gap", {"topic_gaps": ["offsets 3 to 5"]}),
        ("held_back", {"contradictions": [{"time": 9, "detail": "over_count: a fact", "decided": False}]}),
        ("late_contradiction", {"late_undecided": 1}),
        ("late_unreadable", {"late_problem": "a file is missing"}),
        ("keys_in_error", {"keys_in_error": 2}),
        ("clock_ahead", {"times_ahead_s": 90_000}),
        ("updates_missing", {"waiting": Waiting(11, True, [WaitingTime(11, 8, 1)]), "lag_messages": 0}),
        ("not_sealed", {"waiting": Waiting(12, False), "upper_age_s": 10**9}),
    ],
)
def test_each_problem_sets_a_flag_and_needs_attention(problem: str, change: dict[str, Any]) -> None:
    found = metrics_of(replace(STATUS, **change))
    assert problems_in(found) == {problem}
    assert found[("needs_somebody",)] == 1


def test_a_collection_in_order_has_every_flag_at_zero() -> None:
    found = metrics_of(STATUS)
    assert {series[1] for series in found if series[0] == "problem"} == set(PROBLEM_KINDS)
    assert problems_in(found) == set()
    assert (found[("needs_somebody",)], found[("waiting",)], found[("collection_readable",)]) == (0, 0, 1)


def test_a_decided_contradiction_needs_no_attention() -> None:
    found = metrics_of(replace(STATUS, contradictions=[{"time": 9, "decided": True}]))
    assert (found[("needs_somebody",)], found[("contradictions",)]) == (0, 1)


def test_a_collection_without_a_status_has_only_flags() -> None:
    unreadable = metrics_of(DamagedTable("updates", "torn"))
    assert (unreadable[("collection_readable",)], unreadable[("needs_somebody",)]) == (0, 1)
    new = metrics_of(None)
    assert (new[("collection_ingested",)], new[("needs_somebody",)], new[("collection_readable",)]) == (0, 0, 1)
    assert ("upper",) not in unreadable | new


def test_a_source_cannot_create_an_unbounded_number_of_series() -> None:
    reasons = {f"reason_{number}": number for number in range(1, 1001)}
    found = metrics_of(replace(STATUS, quarantine_reasons=reasons, quarantine_unexplained=reasons), "reclock")
    assert len(found) <= SERIES_MAX
    assert sum(value for series, value in found.items() if series[0] == "quarantined_messages") == sum(reasons.values())


def test_labels_are_escaped() -> None:
    metric = Metric("odd", "Back\\slash\nand line.", ("label",))
    values = ['quote"', "back\\slash", "line\nbreak", "plain"]
    text = exposition(Sample(metric, (value,), number) for number, value in enumerate(values))
    assert list(exposed(text)) == [("tidelake_odd", value) for value in values]
    assert len(text.splitlines()) == 2 + len(values)


def test_a_text_file_is_replaced_in_one_step_and_kept_if_that_fails(tmp_path: Path) -> None:
    file = tmp_path / "lake.prom"
    sample = Sample(Metric("rows", "Rows.", ()), (), 1)
    write_textfile(file, [sample])
    assert (exposed(file.read_text()), file.stat().st_mode & 0o777) == ({("tidelake_rows",): 1}, 0o644)
    broken = Sample(Metric("rows", "Rows.", ("label",)), (), 1)
    with pytest.raises(ValueError, match="zip"):
        write_textfile(file, [broken])
    assert [path.name for path in tmp_path.iterdir()] == ["lake.prom"]
    assert exposed(file.read_text()) == {("tidelake_rows",): 1}


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """The settings of a lake with one collection that was never ingested."""
    (tmp_path / "topics" / "t").mkdir(parents=True)
    schema = {"type": "record", "name": "data", "fields": [{"name": "id", "type": "long"}]}
    file = tmp_path / "collections.yaml"
    block = {"family": "plain", "topic": "t", "schema": schema}
    file.write_text(json.dumps({"store": "store", "topics": "topics", "collections": {"one": block}}))
    return file


def test_the_command_prints_metrics_and_does_not_start_a_jvm(config: Path) -> None:
    code = (
        f"import sys; sys.argv = ['tidelake', 'metrics', '--config', {str(config)!r}]\n"
        "from tidelake.cli.app import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print([name for name in ('pyspark', 'pandas', 'opentelemetry', 'structlog') if name in sys.modules], "
        "file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert exposed(done.stdout)["tidelake_collection_ingested", "one"] == 0
    assert done.stderr == "[]\n"


def test_the_command_writes_a_text_file(config: Path, tmp_path: Path) -> None:
    file = tmp_path / "tidelake.prom"
    assert call("metrics", "--config", str(config), "--textfile", str(file)) == ""
    assert exposed(file.read_text())["tidelake_collection_readable", "one"] == 1
    with pytest.raises(OptionRefused, match="cannot be combined"):
        call("metrics", "--config", str(config), "--textfile", str(file), "--serve", "0")
    missing = run("metrics", "--config", config, "--textfile", tmp_path / "none" / "tidelake.prom")
    assert (missing.returncode, missing.stdout) == (1, "")
