"""Puts a stream together: what writers say of a history, what happens to it on the way, and what does not belong."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import merge
from random import Random

from tidelake.generator.contradictions import breaches, other_counts, other_diffs, second_values, unannounced_updates
from tidelake.generator.encoder import Encoder
from tidelake.generator.garbage import Garbage
from tidelake.generator.history import History, Triple
from tidelake.generator.mangle import insert_anywhere, repeat_inside, repeat_messages, shuffle, split_statements
from tidelake.generator.options import GenerateOptions
from tidelake.generator.writers import Said, Span, say_alone, say_in_shards
from tidelake.message import Message, Progress, Updates

Chance = Callable[[str], Random]
"""Gives each purpose a source of its own, so that one option does not change what another draws."""


class Stream:
    """The records of one call, and what they are made of.

    Args:
        options: what shall happen to them.
        history: what they tell of; it gets a few more rows here, which no update of it speaks of.
        span: how far updates and progress go.
        repair: statements that an earlier call has left out.
        far_future: the first time of what lies far beyond.
        chance: where all chance comes from.
    """

    def __init__(
        self,
        options: GenerateOptions,
        history: History,
        span: Span,
        repair: Sequence[Message],
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
            *other_diffs(history, options.conflicting_diff_at, chance("other diffs")),
            *other_counts(history, options.conflicting_count_at),
            *unannounced_updates(history, options.over_count_at),
        ]
        self._usual = self._on_the_way(repair, self._said(history, span))
        random = chance("far future")
        stragglers = [Updates([(random.choice(history.updates)[0], time, 1)]) for time in self.far_future]
        self._usual = insert_anywhere(self._usual, stragglers, chance("places of far future"))
        random = chance("late")
        self._late = [random.choice(self._usual) for _ in range(options.late)]

    @property
    def messages(self) -> list[Message]:
        """All messages that can be used, in no order; copies too."""
        return [*self._first, *self._usual, *self._late]

    def values(self, encoder: Encoder, garbage: Garbage) -> list[bytes | None]:
        """Encode the messages, put what cannot be used among them, and bring all into the final order.

        Contradictions come first, so that their times cannot seal before a reader meets them.
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

    def _said(self, history: History, span: Span) -> list[Message]:
        """What all writers say, side by side in time."""
        options = self._options
        updates: list[Triple] = (
            sorted([*history.updates, *self.breaches], key=_time_of) if self.breaches else history.updates
        )
        said: list[list[Said]] = []
        for writer in range(options.writers):
            random = self._chance(f"writer {writer}")
            size = options.updates_per_message
            if writer:
                size = max(1, round(size * random.uniform(0.3, 1.7)))
            if options.shards > 1:
                said.append(say_in_shards(updates, span, random, size, options.times_per_statement, options.shards))
            else:
                said.append(say_alone(updates, span, random, size, options.times_per_statement))
        return [one.message for one in merge(*said, key=_by)]

    def _on_the_way(self, repair: Sequence[Message], messages: list[Message]) -> list[Message]:
        options = self._options
        cut = split_statements([*repair, *messages], self._chance("split"), options.split)
        inside = repeat_inside(cut, self._chance("copies inside"), options.copies_inside)
        return repeat_messages(inside, self._chance("copies"), options.copies)


def missing_statement(lower: int, upper: int, counts: list[tuple[int, int]]) -> list[Message]:
    """Give the statement about times that were left without one; none where there are no such times."""
    return [Progress([lower], [upper], counts)] if lower < upper else []


def _time_of(update: Triple) -> int:
    return update[1]


def _by(said: Said) -> int:
    return said.by
