"""Assembles a stream: what writers state, what happens to messages in transit, and what does not belong in a stream."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import merge
from random import Random

from tidelake.generator.contradictions import (
    breaches,
    conflicting_counts,
    conflicting_diffs,
    second_values,
    unannounced_updates,
)
from tidelake.generator.encoder import Encoder
from tidelake.generator.garbage import Garbage
from tidelake.generator.history import History, Triple
from tidelake.generator.mangle import insert_anywhere, repeat_inside, repeat_messages, shuffle, split_statements
from tidelake.generator.options import GenerateOptions
from tidelake.generator.writers import Span, Stated, state_alone, state_in_shards
from tidelake.protocol.message import Message, Progress, Updates

Chance = Callable[[str], Random]
"""Returns a random source for each purpose, so that one option does not change what another option draws."""


class Stream:
    """The records of one call of the generator.

    Args:
        options: what happens to the records.
        history: the updates that the messages contain. Contradictions add rows to
            `history.rows`; `history.updates` stays as it is.
        span: the times for which updates and progress are stated.
        repairs: statements that an earlier call left out.
        far_future: the first time of the updates far beyond the history.
        chance: the source of all randomness.
    """

    def __init__(
        self,
        options: GenerateOptions,
        history: History,
        span: Span,
        repairs: Sequence[Message],
        far_future: int,
        chance: Chance,
    ) -> None:
        self._options = options
        self._chance = chance
        if options.family == "upsert":
            self.breaches = second_values(history, options.breach_at)
        else:
            self.breaches = breaches(history, options.breach_at, chance("breaches"))
        self.far_future = tuple(range(far_future, far_future + options.far_future))
        self._first = [
            *conflicting_diffs(history, options.conflicting_diff_at, chance("other diffs")),
            *conflicting_counts(history, options.conflicting_count_at),
            *unannounced_updates(history, options.over_count_at),
        ]
        self._usual = self._in_transit(repairs, self._stated(history, span))
        random = chance("far future")
        stragglers = [Updates([(random.choice(history.updates)[0], time, 1)]) for time in self.far_future]
        self._usual = insert_anywhere(self._usual, stragglers, chance("places of far future"))
        random = chance("late")
        self._late = [random.choice(self._usual) for _ in range(options.late)]

    @property
    def messages(self) -> list[Message]:
        """All usable messages, copies included, in no particular order."""
        return [*self._first, *self._usual, *self._late]

    def values(self, encoder: Encoder, garbage: Garbage) -> list[bytes | None]:
        """Encode the messages, mix in unusable ones, and put everything into the final order.

        A reader meets the contradiction of a time before the time can be sealed: breaches are announced like other
        updates, and all other contradictions come first.
        """
        options = self._options
        usual = [encoder.message(message) for message in self._usual]
        batches = [message.batch for message in self._usual if isinstance(message, Updates)]
        extras: list[bytes | None] = [None] * options.nulls
        extras += garbage.undecodable(usual, options.undecodable)
        extras += garbage.malformed(encoder, batches, options.malformed)
        mixed = insert_anywhere(usual, extras, self._chance("places of extras"))
        return [
            *map(encoder.message, self._first),
            *shuffle(mixed, self._chance("shuffle"), options.shuffle, options.shuffle_window),
            *map(encoder.message, self._late),
        ]

    def _stated(self, history: History, span: Span) -> list[Message]:
        """Return the messages of all writers, merged by time."""
        options = self._options
        updates: list[Triple] = (
            sorted([*history.updates, *self.breaches], key=_time_of) if self.breaches else history.updates
        )
        stated: list[list[Stated]] = []
        for writer in range(options.writers):
            random = self._chance(f"writer {writer}")
            size = options.updates_per_message
            if writer:
                size = max(1, round(size * random.uniform(0.3, 1.7)))
            if options.shards > 1:
                stated.append(state_in_shards(updates, span, random, size, options.times_per_statement, options.shards))
            else:
                stated.append(state_alone(updates, span, random, size, options.times_per_statement))
        return [entry.message for entry in merge(*stated, key=_upper_of)]

    def _in_transit(self, repairs: Sequence[Message], messages: list[Message]) -> list[Message]:
        options = self._options
        cut = split_statements([*repairs, *messages], self._chance("split"), options.split)
        inside = repeat_inside(cut, self._chance("copies inside"), options.copies_inside)
        return repeat_messages(inside, self._chance("copies"), options.copies)


def missing_statements(lower: int, upper: int, counts: list[tuple[int, int]]) -> list[Message]:
    """Return a list of one progress statement for the times in `[lower, upper)`; an empty list if there are none."""
    return [Progress([lower], [upper], counts)] if lower < upper else []


def _time_of(update: Triple) -> int:
    return update[1]


def _upper_of(stated: Stated) -> int:
    return stated.upper
