"""The in-memory collection agrees with the sum over a full history."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.protocol.oracle import at_or_before, grid
from tidelake.errors import FrontierRegression, MalformedMessage, SealedTime, SinceError, UpperError
from tidelake.model.sums import SumCollection
from tidelake.protocol.antichain import Antichain
from tidelake.protocol.order import Time

integers = st.integers(0, 4)
pairs = st.tuples(st.integers(0, 3), st.integers(0, 3))


def contents(history: Iterable[Sequence[Any]], time: Time) -> dict[Any, int]:
    """Sum all updates at or before a time."""
    sums: dict[Any, int] = {}
    for data, at, diff in history:
        if at_or_before(at, time):
            sums[data] = sums.get(data, 0) + diff
    return {data: diff for data, diff in sums.items() if diff}


def check_every_time(collection: SumCollection, history: list[Sequence[Any]], times: Iterable[Time]) -> None:
    for time in times:
        if not collection.since.less_equal(time):
            with pytest.raises(SinceError):
                collection.read(time)
        elif collection.upper.less_equal(time):
            with pytest.raises(UpperError):
                collection.read(time)
        else:
            assert collection.read(time) == contents(history, time)


@pytest.mark.parametrize("times", [integers, pairs], ids=["integers", "pairs"])
def test_between_since_and_upper_a_read_gives_the_sum_of_the_history(times: st.SearchStrategy[Any]) -> None:
    updates = st.lists(st.tuples(st.sampled_from("ab"), times, st.sampled_from([-2, -1, 1, 2])), max_size=4)
    frontiers = st.lists(times, max_size=2)
    steps = st.lists(
        st.one_of(
            st.tuples(st.just("append"), updates),
            st.tuples(st.just("seal"), frontiers),
            st.tuples(st.just("compact"), frontiers),
        ),
        max_size=10,
    )

    @settings(deadline=None, max_examples=400, suppress_health_check=list(HealthCheck))
    @given(steps)
    def check(steps: list[tuple[str, list[Any]]]) -> None:
        is_pairs = times is pairs
        collection = SumCollection(Antichain.of((0, 0) if is_pairs else 0))
        history: list[Sequence[Any]] = []
        for step, value in steps:
            if step == "append":
                value = [update for update in value if collection.upper.less_equal(update[1])]
                collection.append(value)
                history += value
            elif step == "seal":
                collection.seal(collection.upper.join(Antichain(value)))
            else:
                collection.compact(collection.since.join(Antichain(value)))
            check_every_time(collection, history, grid(5, is_pairs))
            assert all(update.diff for update in collection.updates)

    check()


def small() -> SumCollection:
    collection = SumCollection(Antichain.of(0))
    collection.append([("a", 1, 1), ("b", 2, 1), ("a", 4, -1)])
    collection.seal(Antichain.of(5))
    return collection


def test_compaction_consolidates_equal_data_and_drops_sums_of_zero() -> None:
    collection = small()
    collection.compact(Antichain.of(4))
    assert [tuple(update) for update in collection.updates] == [("b", 4, 1)]


def test_compaction_moves_no_update_to_a_time_that_is_not_sealed() -> None:
    collection = small()
    collection.append([("c", 5, 1)])
    collection.compact(Antichain.of(9))
    assert {update.time for update in collection.updates if collection.upper.less_equal(update.time)} == {5}
    collection.seal(Antichain.of(10))
    assert collection.read(9) == {"b": 1, "c": 1}


def test_frontiers_never_move_backwards_and_the_same_frontier_changes_nothing() -> None:
    collection = small()
    collection.seal(Antichain.of(5))
    collection.compact(Antichain.of(2))
    collection.compact(Antichain.of(2))
    with pytest.raises(FrontierRegression):
        collection.seal(Antichain.of(4))
    with pytest.raises(FrontierRegression):
        collection.compact(Antichain.of(1))
    assert (collection.since, collection.upper) == (Antichain.of(2), Antichain.of(5))


def test_a_collection_with_an_empty_upper_is_closed_forever_and_stays_readable() -> None:
    collection = small()
    collection.seal(Antichain())
    assert collection.is_closed
    assert collection.read(10**9) == {"b": 1}
    collection.seal(Antichain())
    with pytest.raises(FrontierRegression):
        collection.seal(Antichain.of(10**9))
    with pytest.raises(SealedTime):
        collection.append([("a", 10**9, 1)])


def test_a_collection_with_an_empty_since_is_unreadable_forever() -> None:
    collection = small()
    collection.compact(Antichain())
    assert collection.updates == []
    collection.compact(Antichain())
    for time in (0, 3, 10**9):
        with pytest.raises(SinceError):
            collection.read(time)
    with pytest.raises(FrontierRegression):
        collection.compact(Antichain.of(3))
    collection.append([("c", 7, 1)])
    collection.seal(Antichain.of(9))


def test_an_append_is_all_or_nothing() -> None:
    collection = small()
    before = collection.updates
    with pytest.raises(SealedTime):
        collection.append([("c", 7, 1), ("d", 4, 1)])
    with pytest.raises(MalformedMessage):
        collection.append([("c", 7, 1), ("d", 8, 0)])
    assert collection.updates == before


def test_an_update_that_is_not_sealed_is_not_read() -> None:
    collection = small()
    collection.append([("c", 5, 1)])
    with pytest.raises(UpperError):
        collection.read(5)
    assert collection.read(4) == {"b": 1}
