"""The writers of a history: each states all of it in its own batches, and may divide the work among shards."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from random import Random
from typing import NamedTuple

from tidelake.generator.history import Triple
from tidelake.protocol.antichain import Antichain
from tidelake.protocol.message import Message, Updates
from tidelake.protocol.writer import ShardGroup, ShardWriter, Writer


class Stated(NamedTuple):
    """A message, and its writer's upper after it."""

    upper: int
    message: Message


class Span(NamedTuple):
    """The times that are stated: updates from `start` to `end`, progress up to `sealed`."""

    start: int
    sealed: int
    end: int
    close: bool


def state_alone(
    updates: Sequence[Triple], span: Span, random: Random, updates_per_message: int, times_per_statement: int
) -> list[Stated]:
    """State the updates, which must be in time order, with one writer; progress stops at `sealed`."""
    writer = Writer(Antichain.of(span.start), updates_per_message)
    stated: list[Stated] = []
    first = 0
    for upper in _steps(random, span, times_per_statement):
        last = bisect_left(updates, upper, first, key=_time_of)
        writer.add(updates[first:last])
        first = last
        messages = writer.advance(Antichain.of(upper))
        stated += [Stated(upper, message) for message in messages if _is_within(message, upper, span)]
    if span.close:
        stated += [Stated(span.end, message) for message in writer.close()]
    return stated


def state_in_shards(
    updates: Sequence[Triple],
    span: Span,
    random: Random,
    updates_per_message: int,
    times_per_statement: int,
    shards: int,
) -> list[Stated]:
    """State the updates with several shards, each at its own pace; a row always belongs to the same shard."""
    group = ShardGroup(Antichain.of(span.start), shards)
    writers = [ShardWriter(Antichain.of(span.start), updates_per_message) for _ in range(shards)]
    parts = [[update for update in updates if update[0] % shards == shard] for shard in range(shards)]
    firsts = [0] * shards
    steps = [(upper, shard) for shard in range(shards) for upper in _steps(random, span, times_per_statement)]
    stated: list[Stated] = []
    for upper, shard in sorted(steps):
        last = bisect_left(parts[shard], upper, firsts[shard], key=_time_of)
        writers[shard].add(parts[shard][firsts[shard] : last])
        firsts[shard] = last
        messages, counts = writers[shard].advance(Antichain.of(upper))
        stated += [Stated(upper, message) for message in messages]
        if upper <= span.sealed:
            stated += [Stated(upper, message) for message in group.report(shard, Antichain.of(upper), counts)]
    for shard in range(shards if span.close else 0):
        stated += [Stated(span.end, message) for message in group.report(shard, Antichain(), {})]
    return stated


def _time_of(update: Triple) -> int:
    return update[1]


def _is_within(message: Message, upper: int, span: Span) -> bool:
    return upper <= span.sealed or isinstance(message, Updates)


def _steps(random: Random, span: Span, times_per_statement: int) -> list[int]:
    """Return the uppers of a writer: uneven steps that include `sealed` and finish at `end`."""
    steps = []
    upper = span.start
    while upper < span.end:
        stop = span.sealed if upper < span.sealed else span.end
        upper = min(stop, upper + random.randint(1, 2 * times_per_statement - 1))
        steps.append(upper)
    return steps
