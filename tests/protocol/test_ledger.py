"""The ledger alone: its decisions, its reports, and the agreement of its two implementations."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tidelake.errors import ConflictingCount, ConflictingDiff, Contradiction, MixedTimes, OverCount
from tidelake.protocol.antichain import Antichain
from tidelake.protocol.ledger.ledger import Ledger
from tidelake.protocol.message import Progress
from tidelake.protocol.order import Time

TIMES = st.integers(0, 5)
STEPS = st.one_of(
    st.tuples(st.just("announce"), TIMES, st.integers(0, 4) | st.none(), st.dictionaries(TIMES, st.integers(0, 2))),
    st.tuples(st.just("count"), TIMES, st.integers(1, 2)),
    st.tuples(st.just("decide"), TIMES, st.integers(0, 3)),
    st.tuples(st.just("contradict"), TIMES),
    st.tuples(st.just("restart")),
)


def at(time: int, wide: bool) -> Time:
    """The time as it is or, if `wide`, as a tuple of one integer."""
    return (time,) if wide else time


def take(ledger: Ledger, step: tuple[Any, ...], wide: bool) -> list[tuple[str, int]]:
    """Take a step of a history; return the errors in a form that both implementations share."""
    kind, *values = step
    errors: list[Contradiction] = []
    if kind == "announce":
        lower, length, counts = values
        upper = [] if length is None else [at(lower + length, wide)]
        inside = {t: n for t, n in counts.items() if t >= lower and (length is None or t < lower + length)}
        errors = ledger.announce(Progress([at(lower, wide)], upper, [(at(t, wide), n) for t, n in inside.items()]))
    elif kind == "count":
        errors = ledger.count(at(values[0], wide), values[1])
    elif kind == "decide":
        errors = ledger.decide(at(values[0], wide), values[1])
    elif kind == "contradict":
        ledger.contradict(ConflictingDiff(at(values[0], wide), 1, 2))
    return sorted((error.kind, flat(error.time)) for error in errors)


def flat(time: Time) -> int:
    return time[0] if isinstance(time, tuple) else time


def view(ledger: Ledger) -> tuple[Any, ...]:
    """Everything that a ledger says, without the width of its times."""
    return (
        [flat(time) for time in ledger.advance()],
        [flat(time) for time in ledger.settled_times],
        [(flat(time), announced, counted) for time, announced, counted in ledger.outstanding()],
        {flat(t): sorted((e.kind, *e.args[1:]) for e in errors) for t, errors in ledger.contradictions().items()},
        [ledger.announced(at(time, ledger.save()["width"] == 1)) for time in range(11) if is_open(ledger, time)],
    )


def is_open(ledger: Ledger, time: int) -> bool:
    return ledger.frontier.less_equal(at(time, ledger.save()["width"] == 1))


@settings(deadline=None, max_examples=1500, suppress_health_check=list(HealthCheck))
@given(st.lists(STEPS, max_size=12))
def test_the_book_of_integers_and_the_book_of_products_agree(steps: list[tuple[Any, ...]]) -> None:
    ledgers = [Ledger(Antichain.of(0)), Ledger(Antichain.of((0,)))]
    for step in steps:
        if step[0] == "restart":
            ledgers = [Ledger.restore(json.loads(json.dumps(ledger.save()))) for ledger in ledgers]
        errors = [take(ledger, step, wide) for wide, ledger in zip((False, True), ledgers, strict=True)]
        assert errors[0] == errors[1]
        assert view(ledgers[0]) == view(ledgers[1])


def sealed_to(ledger: Ledger) -> list[Time]:
    return list(ledger.advance().elements)


def test_a_decision_replaces_counts_that_are_announced_before_and_after_it() -> None:
    ledger = Ledger(Antichain.of(0))
    ledger.announce(Progress([0], [5], [(2, 3)]))
    ledger.count(2, 1)
    assert sealed_to(ledger) == [2]
    assert ledger.decide(2, 1) == []
    assert ledger.announce(Progress([0], [5], [(2, 4)])) == []
    assert sealed_to(ledger) == [5]


def test_a_decision_clears_contradictions_of_counts() -> None:
    ledger = Ledger(Antichain.of(0))
    ledger.announce(Progress([0], [5], [(2, 1)]))
    assert [error.kind for error in ledger.announce(Progress([0], [5], []))] == ["conflicting_count"]
    ledger.count(2, 1)
    assert sealed_to(ledger) == [2]
    ledger.decide(2, 1)
    assert ledger.contradictions() == {}
    assert sealed_to(ledger) == [5]


def test_a_decision_does_not_cover_a_time() -> None:
    ledger = Ledger(Antichain.of(0))
    ledger.decide(2, 0)
    assert sealed_to(ledger) == [0]
    ledger.announce(Progress([0], [2]))
    assert sealed_to(ledger) == [2]
    ledger.announce(Progress([2], [3], [(2, 9)]))
    assert sealed_to(ledger) == [3]


def test_a_decision_does_not_clear_a_contradiction_of_data() -> None:
    ledger = Ledger(Antichain.of(0))
    ledger.announce(Progress([0], [5], [(2, 1)]))
    ledger.count(2, 1)
    ledger.contradict(ConflictingDiff(2, 1, -1))
    ledger.decide(2, 1)
    assert sealed_to(ledger) == [2]


def test_more_updates_than_decided_are_an_over_count() -> None:
    ledger = Ledger(Antichain.of(0))
    ledger.announce(Progress([0], [5], [(2, 1)]))
    ledger.decide(2, 2)
    assert ledger.count(2, 2) == []
    assert isinstance(ledger.count(2, 1)[0], OverCount)
    assert sealed_to(ledger) == [2]
    ledger.decide(2, 3)
    assert sealed_to(ledger) == [5]


def test_outstanding_times_are_listed_with_their_announced_and_counted_updates() -> None:
    ledger = Ledger(Antichain.of(0))
    ledger.announce(Progress([0], [5], [(2, 3), (4, 1)]))
    ledger.count(2, 1)
    ledger.count(4, 1)
    ledger.count(8, 2)
    ledger.advance()
    assert ledger.outstanding() == [(2, 3, 1), (8, None, 2)]
    ledger.count(2, 2)
    ledger.advance()
    assert ledger.outstanding() == [(5, None, 0), (8, None, 2)]


def test_coverage_is_merged_in_any_order() -> None:
    ledger = Ledger(Antichain.of(0))
    for lower, upper in [(8, 9), (2, 4), (6, 8), (4, 5), (3, 7)]:
        ledger.announce(Progress([lower], [upper]))
    assert ledger.coverage == [(Antichain.of(2), Antichain.of(9))]
    ledger.announce(Progress([20], []))
    assert ledger.coverage[1:] == [(Antichain.of(20), Antichain())]


def test_contradictions_carry_their_values() -> None:
    ledger = Ledger(Antichain.of(0))
    ledger.announce(Progress([1], [3], [(2, 5)]))
    (error,) = ledger.announce(Progress([1], [3], [(2, 7)]))
    assert isinstance(error, ConflictingCount)
    assert {error.first, error.second} == {5, 7}
    ledger.count(2, 9)
    kinds = {error.kind for error in ledger.contradictions()[2]}
    assert kinds == {"conflicting_count", "over_count"}


def test_a_statement_of_a_different_width_is_refused_and_changes_nothing() -> None:
    ledger = Ledger(Antichain.of(0))
    before = ledger.save()
    with pytest.raises(MixedTimes):
        ledger.announce(Progress([(0, 0)], [(1, 1)]))
    with pytest.raises(MixedTimes):
        ledger.count((0, 0), 1)
    assert ledger.save() == before


def test_a_ledger_that_starts_closed_ignores_everything() -> None:
    ledger = Ledger(Antichain())
    assert ledger.announce(Progress([0], [5], [(2, 1)])) == []
    assert ledger.count(2, 5) == []
    assert ledger.advance().is_empty
    assert ledger.outstanding() == []


@pytest.mark.parametrize("order", ["in order", "reversed"])
def test_a_repeated_statement_about_a_long_interval_does_not_visit_every_open_time_again(order: str) -> None:
    ledger = Ledger(Antichain.of(0))
    times = range(1, 2001)
    for time in times if order == "in order" else reversed(times):
        ledger.count(time, 1)
    long = Progress([1], [3000], [])
    assert len(ledger.announce(long)) == 2000
    for _ in range(50):
        assert count_calls(lambda: ledger.announce(long)) < 200
    assert ledger.announce(long) == []


def count_calls(work: Callable[[], object]) -> int:
    """The number of function calls that `work` makes."""
    calls = []
    sys.setprofile(lambda frame, event, argument: calls.append(event) if event in ("call", "c_call") else None)
    try:
        work()
    finally:
        sys.setprofile(None)
    return len(calls)
