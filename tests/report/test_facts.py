"""The facts of a report about a collection: the verdict, what upper is waiting for, the numbers, and what to do."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

from tests.expectations.reports import STATUS
from tests.report.stored import NAME, Stored
from tidelake.errors import ConflictingDiff, OverCount
from tidelake.read.waiting import Waiting, WaitingTime
from tidelake.report.facts import CheckResult, summary_of
from tidelake.report.problems import problems_of
from tidelake.store.decision import (
    AcceptGap,
    AcceptTopic,
    Acknowledge,
    Count,
    Decision,
    Discard,
    Offsets,
    Park,
)
from tidelake.validate.validation import ValidateReport


def test_the_verdict_names_the_last_safe_time_with_the_numbers_that_prove_it(tmp_path: Path) -> None:
    stored = Stored(tmp_path)
    assert stored.facts().verdict == "Nothing is sealed yet, so there is nothing to read."
    stored.seal(dict.fromkeys(range(1000), 200), 1000)
    stored.announce(1000, 1002, {})
    facts = stored.facts()
    assert facts.verdict == "Safe to use up to time 999. 200,000 updates announced, 200,000 counted at 1,000 times."
    sentence = "Not sealed yet: complete before 1002, sealed before 1000; the next seal moves upper."
    assert (facts.ahead, facts.level, facts.problems) == (sentence, "calm", [])
    assert facts.tide.copies == 1000


def test_a_waiting_time_is_shown_with_its_announced_and_its_counted_updates(tmp_path: Path) -> None:
    stored = Stored(tmp_path)
    stored.seal({0: 2, 4: 1}, 5, hours_ago=3.5)
    assert stored.facts().ahead == "In order, definite in [0, 5)."
    stored.announce(5, 9, {5: 8, 7: 2})
    stored.arrive(5, 7, 7, 30)
    facts = stored.facts()
    assert facts.ahead == "Waiting at time 5: 8 announced, 1 stored; upper has not moved for 3 h."
    (problem,) = facts.problems
    assert (facts.level, problem.text.partition(".")[0]) == (
        "warning",
        "Updates are missing at time 5: 8 announced, 1 stored",
    )
    assert problem.commands[1] == f'tidelake resolve count {NAME} --time 5 --count N --reason "…"'
    stored.arrive(5, 5, 5, 5, 5, 5, 5)
    assert (stored.facts().level, stored.facts().ahead) == (
        "calm",
        "Not sealed yet: complete before 9, sealed before 5; the next seal moves upper.",
    )
    tide = facts.tide
    assert [(open.time, open.announced, open.here) for open in tide.open_first] == [(5, 8, 1), (30, None, 1)]
    assert (tide.open_times, tide.open_announced, tide.open_here, tide.outstanding) == (3, 10, 4, 7)
    assert [(step.first, step.part, step.announced, step.counted) for step in tide.bins] == [
        (0, "sealed", 2, 2),
        (4, "sealed", 1, 1),
        (5, "open", 8, 1),
        (7, "open", 2, 2),
        (30, "open", 0, 1),
    ]


def test_bars_are_few_and_lose_no_update(tmp_path: Path) -> None:
    stored = Stored(tmp_path, keep="all")
    stored.seal({3 * time: time % 7 + 1 for time in range(5000)}, 15_000)
    stored.announce(15_000, 40_000, dict.fromkeys(range(15000, 15900), 2**62))
    tide = stored.facts().tide
    sealed = [step for step in tide.bins if step.part == "sealed"]
    opened = [step for step in tide.bins if step.part == "open"]
    assert len(sealed) <= 48 and len(opened) <= 24
    assert sum(step.counted for step in sealed) == sum(time % 7 + 1 for time in range(5000)) == tide.counted
    assert sum(step.announced for step in opened) == 900 * 2**62 == tide.outstanding


def test_a_time_with_two_proofs_counts_once(tmp_path: Path) -> None:
    stored = Stored(tmp_path)
    stored.seal({0: 2, 1: 3}, 2, hours_ago=2)
    stored.seal({1: 4}, 2)
    tide = stored.facts().tide
    assert (tide.times, tide.announced) == (2, 6)
    assert [upper for _, upper in tide.marks] == [1, 2]


def test_unexplained_messages_are_a_warning_with_the_command_that_settles_them(tmp_path: Path) -> None:
    stored = Stored(tmp_path)
    stored.refuse([b"\x07 garbage", b"\x07 more"])
    facts = stored.facts()
    (problem,) = facts.problems
    assert (facts.level, problem.level) == ("warning", "warning")
    assert problem.commands == (
        f"tidelake quarantine {NAME}",
        f'tidelake resolve quarantine {NAME} --offsets {NAME}:0:0 --reason "…"',
    )
    decision = Acknowledge(offsets=Offsets(NAME, 0, 0, 2), reason="tests of the producer")
    stored.catalog.decide(NAME, decision)
    facts = stored.facts()
    assert (facts.level, facts.problems, summary_of(facts)["quarantine"]) == ("calm", [], 2)
    assert [(said.kind, said.about, said.reason) for said in facts.decisions] == [
        ("quarantine", "prices:0:0-2", "tests of the producer")
    ]
    assert {sample.explained for sample in facts.quarantine[0].samples} == {"tests of the producer"}


def test_samples_show_messages_only_if_the_settings_allow_it(tmp_path: Path) -> None:
    for shows, value in ((False, "15 bytes, hidden"), (True, '{"card": "4711"}'[:15])):
        stored = Stored(tmp_path / str(shows), show_values=shows)
        stored.refuse([b'{"card": "4711"}'[:15]])
        (reason,) = stored.facts().quarantine
        assert (reason.samples[0].place, reason.samples[0].value) == ("prices:0:0", value)


@pytest.mark.parametrize(("kind", "has_count"), [(ConflictingDiff.kind, False), (OverCount.kind, True)])
def test_a_count_is_proposed_only_where_it_settles_a_contradiction(kind: str, has_count: bool) -> None:
    noted = {"time": 9, "detail": f"{kind}: a fact", "decided": False}
    (problem,) = problems_of(replace(STATUS, contradictions=[noted]), None)
    assert [command.split()[2] for command in problem.commands] == (
        ["prices", "count", "discard"] if has_count else ["prices", "discard"]
    )


@pytest.mark.parametrize(
    ("waiting", "commands"),
    [
        (None, ["tidelake seal prices"]),
        (Waiting(12, is_sealed=False), ["tidelake seal prices"]),
        (Waiting(9, times=[WaitingTime(9, 5, 3, is_decided=True)]), ["tidelake explain prices --time 9"]),
    ],
)
def test_a_decided_time_waits_for_the_next_seal_only_if_that_seals_something(
    waiting: Waiting | None, commands: list[str]
) -> None:
    noted = {"time": 9, "detail": f"{OverCount.kind}: a fact", "decided": True}
    problems = problems_of(replace(STATUS, contradictions=[noted], decided_counts=[9], waiting=waiting), None)
    assert list(next(found for found in problems if "is decided" in found.text).commands) == commands


def test_decisions_are_listed_newest_first_and_their_number_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelake.report.facts.LISTED_MAX", 3)
    stored = Stored(tmp_path)
    for time in range(5):
        stored.catalog.decide(NAME, Count(time=time, count=1, reason=f"reason {time}"))
    facts = stored.facts()
    assert (len(facts.decisions), facts.decisions_total) == (3, 5)
    assert facts.decisions[0].reason == "reason 4"


def test_every_kind_of_decision_is_listed(tmp_path: Path) -> None:
    stored, offsets, reason = Stored(tmp_path), Offsets(NAME, 0, 7, 9), "said"
    decisions: list[Decision] = [
        Count(time=3, count=1, reason=reason),
        Discard(time=3, statement={"data": {"id": 1, "price": 2}, "diff": -1}, reason=reason),
        AcceptGap(offsets=offsets, reason=reason),
        AcceptTopic(topic=NAME, reason=reason),
        Acknowledge(offsets=offsets, reason=reason),
        Park(transaction="74", reason=reason),
    ]
    assert {type(decision) for decision in decisions} == set(get_args(Decision))
    for decision in decisions:
        stored.catalog.decide(NAME, decision)
    assert [(said.kind, said.about) for said in reversed(stored.facts().decisions)] == [
        ("count", "time 3: 1 update"),
        ("discard", 'time 3: {"data":{"id":1,"price":2},"diff":-1}'),
        ("gap", "prices:0:7-9"),
        ("topic", "prices"),
        ("quarantine", "prices:0:7-9"),
        ("transaction", "74"),
    ]


def test_late_statements_that_were_not_compared_are_a_problem(tmp_path: Path) -> None:
    stored = Stored(tmp_path)
    stored.seal({0: 2}, 1)
    failed = CheckResult("late_statements_are_copies", False, "alarm", "Expected: copies.", evidence=["no memory"])
    levels = {}
    for problem in (None, "no memory"):
        validated = ValidateReport(lower=0, upper=1, since=0, closed=False, version=1, late_problem=problem)
        facts = stored.facts(validated)
        facts.add_checks([failed])
        levels[problem] = facts.level, [told.text for told in facts.problems]
    text = "The check late_statements_are_copies failed: no memory. Expected: copies."
    assert levels == {None: ("calm", []), "no memory": ("alarm", [text])}
