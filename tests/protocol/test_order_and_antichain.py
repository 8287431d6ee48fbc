"""The laws of times and frontiers."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.protocol.oracle import at_or_before
from tidelake.errors import MixedTimes
from tidelake.protocol.antichain import Antichain, MutableAntichain
from tidelake.protocol.ledger.sorted_times import SortedTimes
from tidelake.protocol.order import Time, advance_by, join, less_equal, less_than, meet, minimum_like, total_order_key

integers = st.integers(0, 6)
pairs = st.tuples(st.integers(0, 3), st.integers(0, 3))
GRID = list(product(range(5), range(5)))


@pytest.mark.parametrize("times", [integers, pairs], ids=["integers", "pairs"])
class TestLaws:
    """The laws, checked for integers and for pairs."""

    def test_join_and_meet_are_the_nearest_bounds(self, times: st.SearchStrategy[Any]) -> None:
        @given(times, times, times)
        def check(a: Time, b: Time, c: Time) -> None:
            assert less_equal(a, b) == at_or_before(a, b)
            assert less_equal(a, c) and less_equal(b, c) if less_equal(join(a, b), c) else True
            assert less_equal(join(a, b), c) == (less_equal(a, c) and less_equal(b, c))
            assert less_equal(c, meet(a, b)) == (less_equal(c, a) and less_equal(c, b))
            assert less_equal(minimum_like(a), a)
            assert less_than(a, b) == (less_equal(a, b) and a != b)

        check()

    def test_the_sort_key_never_puts_a_time_before_an_earlier_time(self, times: st.SearchStrategy[Any]) -> None:
        @given(times, times)
        def check(a: Time, b: Time) -> None:
            if less_than(a, b):
                first: Any = total_order_key(a)
                assert first < total_order_key(b)

        check()

    def test_no_reader_at_or_after_since_can_tell_an_advanced_time_from_its_original(
        self, times: st.SearchStrategy[Any]
    ) -> None:
        @given(times, st.lists(times, min_size=1, max_size=3), times)
        def check(time: Time, since: list[Time], reader: Time) -> None:
            if any(less_equal(element, reader) for element in since):
                assert less_equal(time, reader) == less_equal(advance_by(time, since), reader)

        check()

    def test_a_frontier_stands_for_the_times_at_or_after_one_of_its_elements(
        self, times: st.SearchStrategy[Any]
    ) -> None:
        @given(st.lists(times, max_size=4), st.lists(times, max_size=4), times)
        def check(first: list[Time], second: list[Time], time: Time) -> None:
            a, b = Antichain(first), Antichain(second)
            assert a.less_equal(time) == any(at_or_before(element, time) for element in first)
            assert a.join(b).less_equal(time) == (a.less_equal(time) and b.less_equal(time))
            assert a.meet(b).less_equal(time) == (a.less_equal(time) or b.less_equal(time))
            assert a.less_equal_frontier(b) == all(a.less_equal(element) for element in second)
            assert all(not less_than(x, y) for x in a for y in a)
            assert (a == b) == (a.less_equal_frontier(b) and b.less_equal_frontier(a))
            assert pickle.loads(pickle.dumps(a)) == a
            assert hash(a) == hash(Antichain(reversed(first)))

        check()

    def test_the_frontier_is_bounded_only_by_times_with_positive_counts(self, times: st.SearchStrategy[Any]) -> None:
        @given(st.lists(st.tuples(times, st.integers(-2, 2)), max_size=8))
        def check(changes: list[tuple[Time, int]]) -> None:
            counted = MutableAntichain()
            sums: dict[Time, int] = {}
            for time, delta in changes:
                counted.update(time, delta)
                sums[time] = sums.get(time, 0) + delta
                assert counted.frontier() == Antichain(t for t, n in sums.items() if n > 0)
                assert counted.count(time) == sums[time]

        check()


def test_the_empty_frontier_is_beyond_every_other_and_wins_every_join() -> None:
    empty, five = Antichain(), Antichain.of(5)
    assert empty.is_empty
    assert five.less_equal_frontier(empty)
    assert not empty.less_equal_frontier(five)
    assert empty.less_equal_frontier(empty)
    assert five.join(empty) == empty
    assert five.meet(empty) == five
    assert not any(empty.less_equal(time) for time in GRID)


@pytest.mark.parametrize("function", [less_equal, less_than, join, meet])
@pytest.mark.parametrize(("first", "second"), [(1, (1,)), ((1,), 1), ((1, 2), (1, 2, 3))])
def test_times_of_different_widths_cannot_be_compared(
    function: Callable[[Time, Time], object], first: Time, second: Time
) -> None:
    with pytest.raises(MixedTimes):
        function(first, second)
    with pytest.raises(MixedTimes):
        Antichain([first, second])


def test_an_antichain_never_changes() -> None:
    with pytest.raises(AttributeError):
        Antichain.of(1).elements = (2,)


@given(st.lists(st.tuples(st.sampled_from(["add", "remove", "drop"]), st.sets(st.integers(0, 60), max_size=12))))
def test_sorted_times_are_a_sorted_set(steps: list[tuple[str, set[int]]]) -> None:
    times = SortedTimes()
    expected: set[int] = set()
    for step, values in steps:
        if step == "add":
            times.add_run(sorted(values - expected))
            expected |= values
        elif step == "remove":
            for value in values & expected:
                times.remove(value)
            expected -= values
        else:
            number = min(len(values), len(expected))
            times.drop_first(number)
            expected = set(sorted(expected)[number:])
        assert list(times) == sorted(expected)
        assert bool(times) == bool(expected)
        for time in (0, 7, 30, 61):
            assert times.floor(time) == max((other for other in expected if other <= time), default=None)
            assert times.between(time, time + 20) == [o for o in sorted(expected) if time <= o < time + 20]


def test_sorted_times_split_long_lists_and_lose_nothing() -> None:
    times = SortedTimes()
    expected: set[int] = set()
    for start in (50_000, 10_000, 90_000, 0):
        run = list(range(start, start + 9_000, 3))
        times.add_run(run)
        expected.update(run)
    inner = [time for time in range(0, 100_000, 7) if time not in expected]
    times.add_run(inner)
    expected.update(inner)
    assert list(times) == sorted(expected)
    times.drop_first(1234)
    assert list(times) == sorted(expected)[1234:]
