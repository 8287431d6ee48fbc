"""A topic for lakes whose processes are killed: mangled pieces from a seed, with messages for every code path."""

from __future__ import annotations

from itertools import pairwise
from random import Random
from typing import Any

from tests.lakes.lake import progress, updates
from tests.protocol.streams import batches, covered, random_history

PIECES = 3
WINDOW = 10
_IDS = {"a": 1, "b": 2, "c": 3, "d": 4}
_EARLY = 5


def pieces_of(seed: int, count: int = PIECES) -> list[list[bytes | None]]:
    """The topic in `count` pieces; piece `i` completes the times in `[10 i, 10 i + 10)`.

    Each piece has two redundant writers, the first of which loses messages; progress statements that overlap; copies;
    an update of the next window, which the next piece repeats; bytes that are not a message; and a null. Each piece but
    the first repeats a sealed update. The last piece of an odd seed contradicts itself at one time, which stays open.
    """
    rng = Random(seed)
    windows = [_window(rng, index) for index in range(count + 1)]
    return [_piece(rng, seed, index, windows) for index in range(count)]


def _window(rng: Random, index: int) -> dict[tuple[int, int], int]:
    """Diffs by `(id, time)`: an update at the window's first time, another at its second, and random ones."""
    start = WINDOW * index
    history = {(_IDS[data], start + 1 + time): diff for (data, time), diff in random_history(rng, 8, False).items()}
    return {(_EARLY, start): 1, (_IDS["a"], start + 1): 1} | history


def _piece(rng: Random, seed: int, index: int, windows: list[dict[tuple[int, int], int]]) -> list[bytes | None]:
    history, start = windows[index], WINDOW * index
    triples = [(data, time, diff) for (data, time), diff in history.items()]
    messages: list[bytes | None] = []
    for loss in (0.3, 0.0):
        written = [updates(*batch) for _, batch in batches(rng, list(triples))] + _statements(rng, history, start)
        messages += [message for message in written if rng.random() >= loss]
    messages += [rng.choice(messages), updates((_EARLY, start + WINDOW, 1)), b"\x07", None]
    if index > 0:
        (data, time), diff = rng.choice(sorted(windows[index - 1].items()))
        messages.append(updates((data, time, diff)))
    if index == 0 and rng.random() < 0.5:
        messages.append(updates((1, 10**6, 1)))
    if index == len(windows) - 2 and seed % 2:
        time = start + WINDOW - 1
        messages.append(progress([time], [time + 1], {time: sum(at == time for _, at in history) + 1}))
    rng.shuffle(messages)
    return messages


def _statements(rng: Random, history: dict[tuple[int, int], int], start: int) -> list[bytes]:
    cuts = sorted({start, start + WINDOW, *(start + rng.randrange(WINDOW) for _ in range(2))})
    intervals: list[tuple[int, int]] = list(pairwise(cuts))
    low = rng.choice(cuts[:-1])
    intervals.append((low, start + WINDOW))
    return [_statement(history, low, high) for low, high in intervals]


def _statement(history: dict[Any, int], low: int, high: int) -> bytes:
    counts: dict[int, int] = {}
    for _, time in history:
        if covered([low], [high], time):
            counts[time] = counts.get(time, 0) + 1
    return progress([low], [high], counts)
