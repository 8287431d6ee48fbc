"""Each expectation can fail: every frame here is right but for one number."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from expectations.frame import result_frame
from expectations.judge import Verdict, judge
from expectations.suite import build_suite, rules_of
from tests.delta.lake import RECORD
from tidelake.configuration import CollectionSettings
from tidelake.delta.status import CollectionStatus
from tidelake.delta.validation import ValidateReport

BIG = 2**70
STATUS = CollectionStatus(
    name="prices",
    family="append_only",
    since=0,
    upper=9,
    closed=False,
    rows=5,
    pending=0,
    runs=1,
    bytes=1,
    late=0,
    quarantine=0,
    quarantine_reasons={},
    lag_messages=0,
    lag_s=1.0,
    statements_pending=0,
    contradictions=[],
    damaged=None,
)


def settings(family: Any = "append_only", framing: Any = "cdcv2") -> CollectionSettings:
    return CollectionSettings(
        name="prices",
        family=family,
        framing=framing,
        topics=("prices",),
        topics_folder=Path("topics"),
        record_schema=RECORD,
        key=("id",) if family == "upsert" else (),
    )


def at(time: int, **other: int) -> dict[str, Any]:
    return {
        "time": time,
        "announced": 2,
        "counted": 2,
        "recounted": 2,
        "diff_min": 1,
        "diff_sum": 2,
        "decision": None,
    } | other


def report(*times: dict[str, Any], **other: Any) -> ValidateReport:
    return ValidateReport(lower=0, upper=9, since=0, closed=False, version=1, times=list(times), **other)


def judged(
    found: ValidateReport, status: CollectionStatus = STATUS, age_s: int = 1, family: str = "append_only"
) -> dict[str, Verdict]:
    verdicts = judge(result_frame(found, status, age_s), build_suite(settings(family)))
    return {one.check: one for one in verdicts}


def failing(*arguments: Any, **named: Any) -> dict[str, list[int]]:
    return {name: one.times for name, one in judged(*arguments, **named).items() if not one.passed}


def test_what_is_as_it_should_be_passes_every_rule() -> None:
    verdicts = judged(report(at(3), at(2**62), diff_sum_recorded=4, diff_sum_found=4))
    assert set(verdicts) == {rule.name for rule in rules_of(settings())}
    assert all(one.passed for one in verdicts.values())
    assert verdicts["announced_is_recounted"].rows == 2


def test_a_range_without_times_passes() -> None:
    assert failing(report()) == {}


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        ({"counted": 3}, {"announced_is_counted": [2**62]}),
        ({"recounted": 1}, {"announced_is_recounted": [2**62]}),
        ({"recounted": 3}, {"announced_is_recounted": [2**62]}),
        ({"diff_min": -1}, {"contents_never_fall": [2**62]}),
        ({"announced": 2**53, "counted": 2**53, "recounted": 2**53 + 1}, {"announced_is_recounted": [2**62]}),
    ],
)
def test_a_wrong_number_at_one_time_fails_its_rule_and_names_the_time(
    wrong: dict[str, int], expected: dict[str, list[int]]
) -> None:
    assert failing(report(at(3), at(2**62, **wrong))) == expected


def test_a_time_that_was_emptied_by_decision_takes_nothing_away() -> None:
    assert failing(report(at(3, announced=0, counted=0, recounted=0, diff_min=0))) == {}


@pytest.mark.parametrize("total", [4, BIG])
def test_diffs_that_do_not_add_up_to_what_was_recorded_are_found(total: int) -> None:
    assert failing(report(at(3), diff_sum_recorded=total, diff_sum_found=total)) == {}
    assert failing(report(at(3), diff_sum_recorded=total, diff_sum_found=total - 1)) == {
        "sum_of_diffs_is_as_recorded": [9]
    }


def test_a_read_beyond_upper_that_is_answered_is_found() -> None:
    assert set(failing(report(at(3), readable_beyond_upper=1))) == {"nothing_readable_beyond_upper"}


def test_contradictions_quarantine_and_a_frontier_that_stands_still_are_told_apart() -> None:
    contradicted = replace(STATUS, contradictions=[{"time": 9, "detail": "x", "decided": False}])
    decided = replace(STATUS, contradictions=[{"time": 9, "detail": "x", "decided": True}])
    assert set(failing(report(), contradicted)) == {"nothing_is_contradicted"}
    assert failing(report(), decided) == {}
    assert failing(report(), replace(STATUS, late=5, late_contradicted=1)) == {}
    assert set(failing(report(), replace(STATUS, late=5, late_contradicted=2, late_undecided=1))) == {
        "late_statements_are_copies"
    }
    assert set(failing(report(late_problem="x"))) == {"late_statements_are_copies"}
    assert set(failing(report(), replace(STATUS, late_problem="x"))) == {"late_statements_are_copies"}
    assert failing(report(), replace(STATUS, quarantine=1)) == {}
    seen = replace(STATUS, quarantine=2, quarantine_unexplained={"undecodable": 1})
    assert set(failing(report(), seen)) == {"quarantine_is_explained"}
    assert failing(report(), age_s=86_400) == {}
    assert set(failing(report(), age_s=86_401)) == {"frontier_moves"}


def test_a_plain_collection_may_take_away() -> None:
    assert failing(report(at(3, diff_min=-5, diff_sum=-3)), family="plain") == {}


def test_data_below_zero_is_a_warning_of_the_plain_family_only() -> None:
    assert failing(report(at(3), below_zero=0), family="plain") == {}
    assert set(failing(report(at(3), below_zero=2), family="plain")) == {"nothing_accumulates_below_zero"}
    assert failing(report(at(3), below_zero=2), family="append_only") == {}


def test_two_values_of_one_key_fail_the_upsert_family_s_own_rule() -> None:
    assert failing(report(at(3, diff_min=0, diff_sum=0)), family="upsert") == {}
    assert set(failing(report(at(3, diff_min=0)), family="upsert")) == set()
    assert set(failing(report(at(3), doubled=1), family="upsert")) == {"one_value_a_key"}
    assert "sum_of_diffs_is_as_recorded" not in {rule.name for rule in rules_of(settings("upsert"))}


def test_only_damage_blocks_and_only_what_can_wait_warns() -> None:
    blocking = {rule.name for rule in rules_of(settings()) if rule.blocking}
    assert blocking == {
        "announced_is_counted",
        "announced_is_recounted",
        "sum_of_diffs_is_as_recorded",
        "nothing_readable_beyond_upper",
        "contents_never_fall",
    }
    assert {rule.name for rule in rules_of(settings()) if rule.warning} == {"quarantine_is_explained", "frontier_moves"}
    below_zero = {
        family: [rule.warning for rule in rules_of(settings(family)) if rule.name == "nothing_accumulates_below_zero"]
        for family in ("plain", "append_only", "upsert", "debezium")
    }
    assert below_zero == {"plain": [True], "append_only": [], "upsert": [], "debezium": [False]}
