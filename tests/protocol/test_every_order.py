"""Every order of six messages about three logical times; their prefixes cover every order of fewer messages."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from typing import Any

import pytest

from tests.protocol.oracle import Model
from tests.protocol.streams import new_reader, observe
from tidelake.protocol.order import Time

U = "updates"
P = "progress"
CONSISTENT: dict[str, list[tuple[Any, ...]]] = {
    "one progress statement for each of three times": [
        (U, [("a", 0, 1)]),
        (U, [("a", 1, -1), ("b", 1, 1)]),
        (U, [("b", 2, 2)]),
        (P, (0,), (1,), {0: 1}),
        (P, (1,), (2,), {1: 2}),
        (P, (2,), (3,), {2: 1}),
    ],
    "copies of an update and of a progress statement": [
        (U, [("a", 0, 1), ("a", 0, 1)]),
        (U, [("a", 0, 1)]),
        (U, [("b", 0, 1)]),
        (P, (0,), (2,), {0: 2}),
        (P, (0,), (2,), {0: 2}),
        (P, (2,), (3,), {}),
    ],
    "progress statements that overlap, and one that covers every time": [
        (U, [("a", 1, 1)]),
        (U, [("b", 2, 1)]),
        (P, (0,), (2,), {1: 1}),
        (P, (1,), (3,), {1: 1, 2: 1}),
        (P, (0,), (3,), {1: 1, 2: 1}),
        (P, (3,), (), {}),
    ],
    "the same updates in different batches, and a closed stream": [
        (U, [("a", 0, 1), ("b", 1, 1), ("c", 2, 1)]),
        (U, [("c", 2, 1), ("a", 0, 1)]),
        (U, [("b", 1, 1), ("d", 2, -1)]),
        (P, (0,), (2,), {0: 1, 1: 1}),
        (P, (2,), (), {2: 2}),
        (P, (1,), (1,), {}),
    ],
    "pair times": [
        (U, [("a", (0, 1), 1)]),
        (U, [("b", (1, 0), 1)]),
        (U, [("c", (1, 1), 1)]),
        (P, ((0, 0),), ((0, 1), (1, 0)), {}),
        (P, ((0, 1),), ((0, 2), (1, 1)), {(0, 1): 1}),
        (P, ((1, 0),), ((2, 0), (1, 2)), {(1, 0): 1, (1, 1): 1}),
    ],
}
CONTRADICTORY: dict[str, list[tuple[Any, ...]]] = {
    "two diffs for one update": [
        (U, [("a", 1, 1)]),
        (U, [("a", 1, -1)]),
        (U, [("b", 0, 1)]),
        (P, (0,), (1,), {0: 1}),
        (P, (1,), (2,), {1: 1}),
        (P, (2,), (3,), {}),
    ],
    "one update too many": [
        (U, [("a", 1, 1)]),
        (U, [("b", 1, 1)]),
        (U, [("c", 2, 1)]),
        (P, (0,), (2,), {1: 1}),
        (P, (2,), (3,), {2: 1}),
        (P, (1,), (3,), {1: 1, 2: 1}),
    ],
    "two counts for one time, one of them implied by omission": [
        (U, [("a", 0, 1)]),
        (U, [("b", 2, 1)]),
        (P, (0,), (1,), {0: 1}),
        (P, (1,), (3,), {2: 1}),
        (P, (2,), (3,), {}),
        (P, (2,), (3,), {2: 2}),
    ],
    "pair times, one of them contradictory": [
        (U, [("a", (0, 1), 1)]),
        (U, [("a", (0, 1), 2)]),
        (U, [("b", (1, 0), 1)]),
        (P, ((0, 0),), ((0, 1), (1, 0)), {}),
        (P, ((0, 1),), ((0, 2), (1, 1)), {(0, 1): 1}),
        (P, ((1, 0),), ((2, 0), (1, 1)), {(1, 0): 1}),
    ],
}


def run(order: Sequence[tuple[Any, ...]], pairs: bool) -> tuple[list[Any], frozenset[Time]]:
    """Feed messages to the model and the reader in an order; return the published updates and the last frontier."""
    model, reader = Model(5, pairs), new_reader(pairs)
    published: list[Any] = []
    for message in order:
        expected, found = model.receive(message), observe(reader, message)
        assert found == expected, f"at {message} of {order}"
        published += found[0]
    return sorted(published), frozenset(reader.frontier.elements)


@pytest.mark.parametrize("name", CONSISTENT)
def test_every_order_of_a_consistent_stream_gives_the_same_result(name: str) -> None:
    messages = CONSISTENT[name]
    results = {str(run(order, name.startswith("pair"))) for order in permutations(messages)}
    assert len(results) == 1


@pytest.mark.parametrize("name", CONTRADICTORY)
def test_every_order_of_a_contradictory_stream_is_read_as_the_model_reads_it(name: str) -> None:
    for order in permutations(CONTRADICTORY[name]):
        run(order, name.startswith("pair"))
