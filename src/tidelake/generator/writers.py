"""What the writers of a history say: redundant ones say all of it, each its own way; shards say it together."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from random import Random
from typing import NamedTuple

from tidelake.antichain import Antichain
from tidelake.generator.history import Triple
from tidelake.message import Message, Updates
from tidelake.writer import ShardGroup, ShardWriter, Writer


class Said(NamedTuple):
    """A message, and the time by which its writer had come so far."""

    by: int
    message: Message


class Span(NamedTuple):
    """From where to where a history is stated: updates up to `end`, progress up to `sealed`."""

    start: int
    sealed: int
    end: int
    close: bool


def say_alone(
    updates: Sequence[Triple], span: Span, random: Random, updates_per_message: int, times_per_statement: int
) -> list[Said]:
    """Let one writer state the updates, which are in time order; without the statements beyond `sealed`."""
    writer = Writer(Antichain.of(span.start), updates_per_message)
    said: list[Said] = []
    first = 0
    for upper in _steps(random, span, times_per_statement):
        last = bisect_left(updates, upper, first, key=_time_of)
        writer.add(updates[first:last])
        first = last
        said += [Said(upper, one) for one in writer.advance(Antichain.of(upper)) if _may_say(one, upper, span)]
    if span.close:
        said += [Said(span.end, one) for one in writer.close()]
    return said


def say_in_shards(
    updates: Sequence[Triple],
    span: Span,
    random: Random,
    updates_per_message: int,
    times_per_statement: int,
    shards: int,
) -> list[Said]:
    """Let shards state the updates, each at its own pace; a row is always in the same shard."""
    group = ShardGroup(Antichain.of(span.start), shards)
    writers = [ShardWriter(Antichain.of(span.start), updates_per_message) for _ in range(shards)]
    parts = [[update for update in updates if update[0] % shards == shard] for shard in range(shards)]
    firsts = [0] * shards
    steps = [(upper, shard) for shard in range(shards) for upper in _steps(random, span, times_per_statement)]
    said: list[Said] = []
    for upper, shard in sorted(steps):
        last = bisect_left(parts[shard], upper, firsts[shard], key=_time_of)
        writers[shard].add(parts[shard][firsts[shard] : last])
        firsts[shard] = last
        messages, counts = writers[shard].advance(Antichain.of(upper))
        said += [Said(upper, one) for one in messages]
        if upper <= span.sealed:
            said += [Said(upper, one) for one in group.report(shard, Antichain.of(upper), counts)]
    for shard in range(shards if span.close else 0):
        said += [Said(span.end, one) for one in group.report(shard, Antichain(), {})]
    return said


def _time_of(update: Triple) -> int:
    return update[1]


def _may_say(message: Message, upper: int, span: Span) -> bool:
    return upper <= span.sealed or isinstance(message, Updates)


def _steps(random: Random, span: Span, times_per_statement: int) -> list[int]:
    """Give the uppers of a writer: uneven steps, of which one ends at `sealed` and the last at `end`."""
    steps = []
    upper = span.start
    while upper < span.end:
        stop = span.sealed if upper < span.sealed else span.end
        upper = min(stop, upper + random.randint(1, 2 * times_per_statement - 1))
        steps.append(upper)
    return steps
