"""Mangled streams: after every message the reader agrees with the definition in `tests/protocol/oracle.py`."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.protocol.oracle import Model
from tests.protocol.streams import covered, interval_is_legal, mangled_stream, new_reader, observe
from tests.sweeps import swept
from tidelake.protocol.reader import Reader

LIMIT = 4
PAIR_LIMIT = 3
QUICK = settings(deadline=None, suppress_health_check=list(HealthCheck), database=None)
SEEDS = st.integers(0, 2**64 - 1)
PARTS = pytest.mark.parametrize("part", swept(range(10), [0]))
"""A tenth of the examples every day, and the others in sweeps."""


def check(stream: list[Any], pairs: bool, restarts: Random | None = None, limit: int = LIMIT) -> None:
    """Run a stream through the model and the reader, with random restarts if `restarts` is given."""
    model, reader = Model(limit + 2, pairs), new_reader(pairs)
    for number, message in enumerate(stream):
        expected, found = model.receive(message), observe(reader, message)
        assert found == expected, f"message {number} of {stream}: found {found}, but the model has {expected}"
        if restarts and restarts.random() < 0.4:
            reader = Reader.restore(json.loads(json.dumps(reader.save())))


@PARTS
@settings(QUICK, max_examples=900)
@given(SEEDS)
def test_a_mangled_history_is_read_as_defined(part: int, seed: int) -> None:
    check(mangled_stream(Random(seed), LIMIT, pairs=False, contradictory=False), pairs=False)


@PARTS
@settings(QUICK, max_examples=500)
@given(SEEDS)
def test_a_contradictory_stream_is_read_as_defined(part: int, seed: int) -> None:
    check(mangled_stream(Random(seed), LIMIT, pairs=False, contradictory=True), pairs=False)


@PARTS
@settings(QUICK, max_examples=200)
@given(SEEDS)
def test_a_mangled_history_of_pair_times_is_read_as_defined(part: int, seed: int) -> None:
    stream = mangled_stream(Random(seed), PAIR_LIMIT, pairs=True, contradictory=False)
    check(stream, pairs=True, limit=PAIR_LIMIT)


@PARTS
@settings(QUICK, max_examples=150)
@given(SEEDS)
def test_a_contradictory_stream_of_pair_times_is_read_as_defined(part: int, seed: int) -> None:
    stream = mangled_stream(Random(seed), PAIR_LIMIT, pairs=True, contradictory=True)
    check(stream, pairs=True, limit=PAIR_LIMIT)


@PARTS
@settings(QUICK, max_examples=200)
@given(SEEDS, st.booleans())
def test_stopping_and_resuming_a_reader_does_not_change_what_it_reads(
    part: int, seed: int, contradictory: bool
) -> None:
    random = Random(seed)
    check(mangled_stream(random, LIMIT, pairs=False, contradictory=contradictory), pairs=False, restarts=random)


@PARTS
@settings(QUICK, max_examples=50)
@given(SEEDS, st.booleans())
def test_stopping_and_resuming_a_reader_of_pair_times_does_not_change_what_it_reads(
    part: int, seed: int, contradictory: bool
) -> None:
    random = Random(seed)
    stream = mangled_stream(random, PAIR_LIMIT, pairs=True, contradictory=contradictory)
    check(stream, pairs=True, restarts=random, limit=PAIR_LIMIT)


@pytest.mark.slow
@pytest.mark.parametrize("pairs", [False, True])
def test_thousands_more_streams_are_read_as_defined(pairs: bool, request: pytest.FixtureRequest) -> None:
    for seed in range(4000 if request.config.getoption("markexpr", "") == "slow" else 400):
        random = Random(f"more {seed}")
        check(mangled_stream(random, LIMIT, pairs, contradictory=seed % 2 == 1), pairs, restarts=random)


integers = st.integers(0, LIMIT)
pairs_of_integers = st.tuples(integers, integers)


@st.composite
def arbitrary_messages(draw: st.DrawFn, times: st.SearchStrategy[Any]) -> tuple[Any, ...]:
    """Arbitrary facts, which hypothesis shrinks to the smallest stream that fails."""
    if draw(st.booleans()):
        return (
            "updates",
            draw(st.lists(st.tuples(st.sampled_from("ab"), times, st.sampled_from([1, -1])), max_size=3)),
        )
    lower, upper = draw(st.lists(times, min_size=1, max_size=2)), draw(st.lists(times, max_size=2))
    if not interval_is_legal(lower, upper):
        upper = [joined(low, high) for low, high in zip(lower, upper + upper, strict=False)]
    return ("progress", tuple(lower), tuple(upper), draw(counts_in(tuple(lower), tuple(upper), times)))


def joined(first: Any, second: Any) -> Any:
    return tuple(map(max, first, second)) if isinstance(first, tuple) else max(first, second)


@st.composite
def counts_in(
    draw: st.DrawFn, lower: tuple[Any, ...], upper: tuple[Any, ...], times: st.SearchStrategy[Any]
) -> dict[Any, int]:
    named = draw(st.dictionaries(times, st.integers(0, 2), max_size=2))
    return {time: count for time, count in named.items() if covered(lower, upper, time)}


@PARTS
@settings(QUICK, max_examples=100)
@given(st.lists(arbitrary_messages(integers), max_size=8))
def test_arbitrary_facts_are_read_as_defined(part: int, stream: list[tuple[Any, ...]]) -> None:
    check(stream, pairs=False)


@PARTS
@settings(QUICK, max_examples=50)
@given(st.lists(arbitrary_messages(pairs_of_integers), max_size=6))
def test_arbitrary_facts_about_pair_times_are_read_as_defined(part: int, stream: list[tuple[Any, ...]]) -> None:
    check(stream, pairs=True)
