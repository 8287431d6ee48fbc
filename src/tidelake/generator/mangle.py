"""Mangles messages without changing their meaning, as transport may do: copies, splits, reordering."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random
from typing import TypeVar

from tidelake.generator.options import Shuffle
from tidelake.protocol.message import Message, Progress, Updates

Item = TypeVar("Item")


def split_statements(messages: Iterable[Message], random: Random, share: float) -> list[Message]:
    """Replace a share of the progress statements with three parts each, which overlap."""
    result: list[Message] = []
    for message in messages:
        if isinstance(message, Progress) and random.random() < share:
            result += _parts(message, random)
        else:
            result.append(message)
    return result


def repeat_inside(messages: Iterable[Message], random: Random, share: float) -> list[Message]:
    """Repeat a share of the updates, each somewhere in its own message."""
    result: list[Message] = []
    for message in messages:
        copies = [update for update in message.batch if random.random() < share] if isinstance(message, Updates) else []
        if isinstance(message, Updates) and copies:
            result.append(Updates(insert_anywhere(message.batch, copies, random)))
        else:
            result.append(message)
    return result


def repeat_messages(messages: Sequence[Item], random: Random, share: float) -> list[Item]:
    """Repeat a share of the messages, each somewhere after its original."""
    chosen = sorted(random.sample(range(len(messages)), round(len(messages) * share)))
    places = [(float(place), message) for place, message in enumerate(messages)]
    places += [(random.uniform(place, len(messages)), messages[place]) for place in chosen]
    places.sort(key=_place)
    return [message for _, message in places]


def insert_anywhere(items: Sequence[Item], extras: Iterable[Item], random: Random) -> list[Item]:
    """Insert extras at random places; the items keep their order."""
    places = [(float(place), item) for place, item in enumerate(items)]
    places += [(random.uniform(-1.0, len(items)), extra) for extra in extras]
    places.sort(key=_place)
    return [item for _, item in places]


def shuffle(items: Sequence[Item], random: Random, how: Shuffle, window: int) -> list[Item]:
    """Reorder the items: not at all, by at most `window` places each, or completely."""
    if how == "none":
        return list(items)
    if how == "full":
        return random.sample(items, len(items))
    places = [(place + random.uniform(0.0, window), item) for place, item in enumerate(items)]
    places.sort(key=_place)
    return [item for _, item in places]


def _place(placed: tuple[float, object]) -> float:
    return placed[0]


def _parts(statement: Progress, random: Random) -> list[Message]:
    """Return two parts that cover a statement and may overlap, and a third part from anywhere in it.

    A statement that covers a single time, or closes the stream, stays whole.
    """
    if statement.upper.is_empty:
        return [statement]
    (lower,), (upper,) = statement.lower.elements, statement.upper.elements
    assert isinstance(lower, int) and isinstance(upper, int)
    if upper - lower < 2:
        return [statement]
    cut = random.randint(lower + 1, upper - 1)
    inner = random.randint(lower, upper - 1)
    return [
        _part(statement, lower, random.randint(cut, upper)),
        _part(statement, inner, random.randint(inner + 1, upper)),
        _part(statement, cut, upper),
    ]


def _part(statement: Progress, lower: int, upper: int) -> Progress:
    counts = [(time, count) for time, count in statement.counts.items() if time in range(lower, upper)]
    return Progress([lower], [upper], counts)
