"""Streams for the tests: random histories, and the ways in which they are mangled."""

from __future__ import annotations

from random import Random
from typing import Any

from tests.protocol.oracle import at_or_before
from tidelake.protocol.antichain import Antichain
from tidelake.protocol.message import Progress, Updates
from tidelake.protocol.reader import Reader

DATA = "abcd"


def to_message(message: Any) -> Updates | Progress:
    """Return one of the model's messages as a message of the package."""
    if message[0] == "updates":
        return Updates(message[1])
    return Progress(list(message[1]), list(message[2]), list(message[3].items()))


def observe(reader: Reader, message: Any) -> tuple[list[Any], set[Any], set[tuple[str, Any]]]:
    """Feed a message to the reader, and return the result in the model's form; no error may be reported twice."""
    received = reader.receive(to_message(message))
    errors = [(error.kind, error.time) for error in received.errors]
    assert len(errors) == len(set(errors))
    return [tuple(update) for update in received.updates], set(received.frontier.elements), set(errors)


def new_reader(pairs: bool = False) -> Reader:
    """A reader at the beginning of time."""
    return Reader(Antichain.of((0, 0) if pairs else 0))


def random_time(random: Random, limit: int, pairs: bool) -> Any:
    """A time whose coordinates are below `limit`."""
    return (random.randrange(limit), random.randrange(limit)) if pairs else random.randrange(limit)


def random_history(random: Random, limit: int, pairs: bool) -> dict[tuple[Any, Any], int]:
    """Up to eight updates: `(data, time)` to diff."""
    return {
        (random.choice(DATA), random_time(random, limit, pairs)): random.choice((-2, -1, 1, 2))
        for _ in range(random.randrange(9))
    }


def covered(lower: Any, upper: Any, time: Any) -> bool:
    """Whether a progress statement with this interval covers a time."""
    return any(at_or_before(low, time) for low in lower) and not any(at_or_before(high, time) for high in upper)


def true_statement(history: dict[tuple[Any, Any], int], lower: Any, upper: Any) -> Any:
    """The progress statement that is correct for a history and an interval."""
    counts: dict[Any, int] = {}
    for _, time in history:
        if covered(lower, upper, time):
            counts[time] = counts.get(time, 0) + 1
    return ("progress", tuple(lower), tuple(upper), counts)


def random_interval(random: Random, limit: int, pairs: bool) -> tuple[Any, Any]:
    """A lower and an upper at or beyond it; the upper is sometimes empty."""
    lower = [random_time(random, limit, pairs) for _ in range(random.choice((1, 1, 2)))]
    if random.random() < 0.15:
        return lower, []
    upper = []
    for _ in range(random.choice((1, 1, 2))):
        base, other = random.choice(lower), random_time(random, limit, pairs)
        joined = tuple(map(max, base, other)) if pairs else max(base, other)
        upper.append(joined)
    return lower, upper


def chain_of_statements(random: Random, history: Any, limit: int, pairs: bool, closed: bool) -> list[Any]:
    """Progress statements that continue one another, up to a random time or, if `closed`, to the end of the stream."""
    zero, end = ((0, 0), (limit, limit)) if pairs else (0, limit)
    steps: list[Any] = [zero]
    while steps[-1] != end and random.random() < 0.7:
        step = random_time(random, limit + 1, pairs)
        joined = tuple(map(max, steps[-1], step)) if pairs else max(steps[-1], step)
        if joined != steps[-1]:
            steps.append(joined)
    uppers = [[step] for step in steps[1:]]
    # Before [(x, y)] are the times whose first coordinate is below x or whose second is below y; before
    # [(x, 0), (0, y)] are only those for which both are true.
    if pairs:
        uppers = [[(step[0][0], 0), (0, step[0][1])] if random.random() < 0.5 else step for step in uppers]
    lowers = [[zero], *uppers]
    statements = [true_statement(history, low, high) for low, high in zip(lowers, uppers, strict=False)]
    if closed:
        statements.append(true_statement(history, lowers[-1], []))
        if pairs:
            statements.append(true_statement(history, [zero], []))
    return [statement for statement in statements if interval_is_legal(statement[1], statement[2])]


def interval_is_legal(lower: Any, upper: Any) -> bool:
    """Whether upper is at or beyond lower."""
    return all(any(at_or_before(low, high) for low in lower) for high in upper)


def batches(random: Random, updates: list[Any]) -> list[Any]:
    """The updates in messages of any size, with copies inside and among them."""
    updates = updates + [random.choice(updates) for _ in range(random.randrange(4)) if updates]
    random.shuffle(updates)
    messages = []
    while updates:
        size = random.randint(1, 3)
        messages.append(("updates", updates[:size]))
        updates = updates[size:]
    return messages


def mangled_stream(random: Random, limit: int, pairs: bool, contradictory: bool) -> list[Any]:
    """A random history from one to three redundant writers, shuffled, copied, partly lost, perhaps contradictory."""
    history = random_history(random, limit, pairs)
    triples = [(data, time, diff) for (data, time), diff in history.items()]
    messages: list[Any] = []
    for _ in range(random.randint(1, 3)):
        messages += batches(random, triples)
        messages += chain_of_statements(random, history, limit, pairs, closed=random.random() < 0.3)
    for _ in range(random.randrange(3)):
        messages.append(true_statement(history, *random_interval(random, limit, pairs)))
    messages += [random.choice(messages) for _ in range(random.randrange(3)) if messages]
    if random.random() < 0.3:
        messages = [message for message in messages if random.random() < 0.9]
    if contradictory:
        for _ in range(random.randint(1, 3)):
            messages.append(contradicting_message(random, history, limit, pairs))
    random.shuffle(messages)
    return messages


def contradicting_message(random: Random, history: Any, limit: int, pairs: bool) -> Any:
    """A message with a surplus update, a different diff or a different count."""
    if random.random() < 0.6:
        return ("updates", [(random.choice(DATA), random_time(random, limit, pairs), random.choice((-3, 3)))])
    _, lower, upper, counts = true_statement(history, *random_interval(random, limit, pairs))
    time = random_time(random, limit, pairs)
    changed = {**counts, time: counts.get(time, 0) + random.choice((1, 2))}
    if random.random() < 0.3:
        changed.pop(time)
    return ("progress", lower, upper, {at: count for at, count in changed.items() if covered(lower, upper, at)})
