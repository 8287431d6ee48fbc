"""Each expectation can fail: a correct report passes them all, and one that is wrong in one respect fails only one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pandas as pd
import pytest

from expectations.evidence import evidence_of
from expectations.frame import result_frame
from expectations.judge import Verdict, judge
from expectations.sentences import failure_of
from expectations.suite import build_own_suite, build_suite, rules_of
from tests.expectations.reports import STATUS, at, report, settings
from tests.sweeps import swept
from tidelake.read.status import CollectionStatus
from tidelake.read.waiting import Waiting, WaitingTime
from tidelake.settings.expectations import OwnExpectation
from tidelake.settings.terms import ENVELOPES
from tidelake.validate.validation import ValidateReport

BIG = 2**70


def judged(
    result: ValidateReport, status: CollectionStatus = STATUS, age_s: int = 1, family: str = "append_only"
) -> dict[str, Verdict]:
    verdicts = judge(result_frame(result, status, age_s), build_suite(settings(family)))
    return {verdict.check: verdict for verdict in verdicts}


def failing(*arguments: Any, **named: Any) -> dict[str, list[int]]:
    return {name: verdict.times for name, verdict in judged(*arguments, **named).items() if not verdict.passed}


def test_a_correct_report_passes_every_rule() -> None:
    verdicts = judged(report(at(3), at(2**62), diff_sum_recorded=4, diff_sum_found=4))
    assert set(verdicts) == {rule.name for rule in rules_of(settings())}
    assert all(verdict.passed for verdict in verdicts.values())
    assert verdicts["announced_is_recounted"].rows == 2


def test_a_range_without_times_passes() -> None:
    assert failing(report()) == {}


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"counted": 3}, {"announced_is_counted": [2**62]}),
        ({"recounted": 1}, {"announced_is_recounted": [2**62]}),
        pytest.param({"recounted": 3}, {"announced_is_recounted": [2**62]}, marks=pytest.mark.sweep),
        ({"diff_min": -1}, {"contents_never_fall": [2**62]}),
        ({"announced": 2**53, "counted": 2**53, "recounted": 2**53 + 1}, {"announced_is_recounted": [2**62]}),
    ],
)
def test_an_incorrect_number_fails_its_rule_which_names_the_time(
    changed: dict[str, int], expected: dict[str, list[int]]
) -> None:
    assert failing(report(at(3), at(2**62, **changed))) == expected


def test_a_time_whose_count_was_decided_to_be_zero_passes() -> None:
    assert failing(report(at(3, announced=0, counted=0, recounted=0, diff_min=0))) == {}


@pytest.mark.parametrize("total", swept([4, BIG], [BIG]))
def test_diffs_that_do_not_add_up_to_the_recorded_sum_fail(total: int) -> None:
    assert failing(report(at(3), diff_sum_recorded=total, diff_sum_found=total)) == {}
    assert failing(report(at(3), diff_sum_recorded=total, diff_sum_found=total - 1)) == {
        "sum_of_diffs_is_as_recorded": [9]
    }


def test_rows_whose_hash_differs_from_the_recorded_one_fail() -> None:
    changed = report(at(3), hash_mismatches=["the contents before 9 hash to a, not to b"])
    assert set(failing(changed)) == {"rows_are_as_recorded"}


def test_an_answer_to_a_read_beyond_upper_fails_its_rule() -> None:
    assert set(failing(report(at(3), readable_beyond_upper=1))) == {"nothing_readable_beyond_upper"}


def test_a_contradiction_a_quarantined_message_and_a_stalled_frontier_fail_different_checks() -> None:
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


def test_a_plain_collection_may_remove_data() -> None:
    assert failing(report(at(3, diff_min=-5, diff_sum=-3)), family="plain") == {}


def test_data_below_zero_is_a_warning_for_the_plain_family_only() -> None:
    assert failing(report(at(3), below_zero=0), family="plain") == {}
    assert set(failing(report(at(3), below_zero=2), family="plain")) == {"nothing_accumulates_below_zero"}
    assert failing(report(at(3), below_zero=2), family="append_only") == {}


def test_two_values_of_one_key_fail_the_rule_of_the_upsert_family() -> None:
    assert failing(report(at(3, diff_min=0, diff_sum=0)), family="upsert") == {}
    assert set(failing(report(at(3, diff_min=0)), family="upsert")) == set()
    assert set(failing(report(at(3), doubled=1), family="upsert")) == {"one_value_a_key"}
    assert "sum_of_diffs_is_as_recorded" not in {rule.name for rule in rules_of(settings("upsert"))}


@pytest.mark.parametrize("prices", [[], [None]], ids=["no rows", "only null"])
def test_a_failure_without_numbers_says_that_there_was_no_value(prices: list[None]) -> None:
    kind, text = "expect_column_min_to_be_between", "the least price is at least 1"
    arguments = {"column": "price", "min_value": 1}
    own = OwnExpectation(name="cheapest", type=kind, arguments=arguments, text=text, place="here", field="expectations")
    chosen = settings("plain").model_copy(update={"expectations": (own,)})
    frame = pd.DataFrame({"price": pd.Series(prices, dtype="float64")})
    (verdict,) = judge(frame, build_own_suite(chosen))
    (rule,) = (rule for rule in rules_of(chosen) if rule.is_own)
    assert failure_of(rule, verdict) == "Expected: the least price is at least 1; no value was observed."


def test_a_check_that_no_rule_defines_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    envelope = ENVELOPES["append_only"]
    monkeypatch.setitem(ENVELOPES, "append_only", replace(envelope, checks=(*envelope.checks, "tides_are_high")))
    with pytest.raises(LookupError, match="envelope 'append_only' name checks that no rule defines: tides_are_high"):
        rules_of(settings())


def test_only_damage_blocks_and_only_problems_that_can_wait_are_warnings() -> None:
    blocking = {rule.name for rule in rules_of(settings()) if rule.blocking}
    assert blocking == {
        "announced_is_counted",
        "announced_is_recounted",
        "sum_of_diffs_is_as_recorded",
        "rows_are_as_recorded",
        "nothing_readable_beyond_upper",
        "contents_never_fall",
    }
    assert {rule.name for rule in rules_of(settings()) if rule.warning} == {"quarantine_is_explained", "frontier_moves"}
    below_zero = {
        family: [rule.warning for rule in rules_of(settings(family)) if rule.name == "nothing_accumulates_below_zero"]
        for family in ("plain", "append_only", "upsert", "debezium")
    }
    assert below_zero == {"plain": [True], "append_only": [], "upsert": [], "debezium": [False]}


def test_the_evidence_says_what_upper_is_waiting_for_before_the_check_fails() -> None:
    waiting = Waiting(5, times=[WaitingTime(5, announced=8, counted=7)])
    assert evidence_of(report(), replace(STATUS, waiting=waiting)) == {
        "frontier_moves": ["upper is waiting at time 5: 8 announced, 7 stored"]
    }
    for unknown in (None, Waiting(None, is_sealed=False), Waiting(5, times=[WaitingTime(5, None, 7)])):
        assert evidence_of(report(), replace(STATUS, waiting=unknown)) == {}
