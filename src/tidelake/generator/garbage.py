"""Makes unusable values: bytes that do not decode, and messages that break a rule on their own.

The values are derived from good messages, which stay in the topic as well, so nothing is lost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from itertools import cycle, islice
from random import Random
from typing import Any

from tidelake.errors import CodecError, MalformedMessage
from tidelake.generator.encoder import Encoder, confluent_header
from tidelake.generator.options import Encoding

Fact = tuple[int, Any, int]
"""A row number, a time, a diff."""

_HEADER_BYTES: dict[Encoding, int] = {"avro": 0, "confluent": 5}
_ATTEMPTS_MAX = 1_000


class Garbage:
    """Creates unusable values, and counts them by the reason that a reader has to report.

    Args:
        decode: raises an error for an unusable value. Each value is decoded once, so that none is usable by chance.
        encoding: the framing of good messages.
        schema_id: the schema id of good messages.
        random: the source of all randomness.
    """

    def __init__(self, decode: Callable[[bytes], object], encoding: Encoding, schema_id: int, random: Random) -> None:
        self.reasons: Counter[str] = Counter()
        self._decode = decode
        self._header_bytes = _HEADER_BYTES[encoding]
        self._schema_id = schema_id
        self._random = random

    def undecodable(self, values: Sequence[bytes], count: int) -> list[bytes]:
        """From good values, derive values that do not decode, cycling through the kinds of damage."""
        kinds = [self._cut_off, self._with_trailing_bytes, self._with_an_invalid_first_byte, self._random_bytes]
        if self._header_bytes:
            kinds.append(self._with_an_unknown_schema)
        return [self._unusable(kind, values) for kind in islice(cycle(kinds), count)]

    def malformed(self, encoder: Encoder, batches: Sequence[Sequence[Fact]], count: int) -> list[bytes]:
        """From batches of updates, derive messages that break a rule, cycling through the rules."""
        rules = (_zero_diff, _bad_interval, _negative_time, _negative_count, _duplicate_count, _count_outside_interval)
        return [self._unusable(partial(rule, encoder, self._random), batches) for rule in islice(cycle(rules), count)]

    def _unusable(self, make: Callable[[Any], bytes], originals: Sequence[Any]) -> bytes:
        for _ in range(_ATTEMPTS_MAX):
            value = make(self._random.choice(originals))
            try:
                self._decode(value)
            except CodecError as error:
                self.reasons[error.reason] += 1
                return value
            except MalformedMessage as error:
                self.reasons[error.kind] += 1
                return value
        raise AssertionError(f"none of {_ATTEMPTS_MAX} mangled values is unusable")

    def _cut_off(self, value: bytes) -> bytes:
        return value[: self._random.randint(self._header_bytes + 1, len(value) - 1)]

    def _with_trailing_bytes(self, value: bytes) -> bytes:
        return value + self._random.randbytes(self._random.randint(1, 8))

    def _with_an_invalid_first_byte(self, value: bytes) -> bytes:
        return bytes([self._random.choice((4, 6, 8, 64))]) + value[1:]  # read as a union's branch: 2, 3, 4, 32

    def _random_bytes(self, _: bytes) -> bytes:
        first = self._random.choice((10, 12, 32, 100))  # no message begins with these
        return bytes([first]) + self._random.randbytes(self._random.randint(0, 80))

    def _with_an_unknown_schema(self, value: bytes) -> bytes:
        return confluent_header(self._schema_id + 1_000_000) + value[self._header_bytes :]


def _zero_diff(encoder: Encoder, random: Random, updates: Sequence[Fact]) -> bytes:
    batch = list(updates)
    place = random.randrange(len(batch))
    row, time, _ = batch[place]
    batch[place] = (row, time, 0)
    return encoder.updates(batch)


def _negative_time(encoder: Encoder, random: Random, updates: Sequence[Fact]) -> bytes:
    batch = list(updates)
    place = random.randrange(len(batch))
    row, time, diff = batch[place]
    batch[place] = (row, -1 - time, diff)
    return encoder.updates(batch)


def _bad_interval(encoder: Encoder, random: Random, updates: Sequence[Fact]) -> bytes:
    time = random.choice(updates)[1]
    return encoder.progress([time + 3], [time], [])


def _negative_count(encoder: Encoder, random: Random, updates: Sequence[Fact]) -> bytes:
    time = random.choice(updates)[1]
    return encoder.progress([time], [time + 1], [(time, -len(updates))])


def _duplicate_count(encoder: Encoder, random: Random, updates: Sequence[Fact]) -> bytes:
    time = random.choice(updates)[1]
    return encoder.progress([time], [time + 1], [(time, 1), (time, 1)])


def _count_outside_interval(encoder: Encoder, random: Random, updates: Sequence[Fact]) -> bytes:
    time = random.choice(updates)[1]
    return encoder.progress([time], [time + 1], [(time + 1, len(updates))])
