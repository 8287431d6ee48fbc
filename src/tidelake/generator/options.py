"""The options of a generated topic, each with its help, its default and its rule."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, get_args

from tidelake.errors import ArgumentRefused, GeneratorRefused
from tidelake.protocol.order import INT64_MAX

Family = Literal["plain", "append_only", "upsert", "debezium"]
Encoding = Literal["avro", "confluent"]
Shuffle = Literal["none", "window", "full"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,248}")
_SCHEMA_ID_MAX = 2**31 - 1
_NUMBER_MAX = 2**40
"""Keeps every time and row number of a history far from the end of int64."""


def _choice(default: Any, text: str, **rule: Any) -> Any:
    return field(default=default, metadata={"help": text, **rule})


def _among(kinds: Any, text: str) -> dict[str, Any]:
    return {"help": text, "rule": "one of", "among": kinds}


def _number(default: int, text: str, least: int = 0, most: int = _NUMBER_MAX) -> Any:
    return _choice(default, text, rule="number", least=least, most=most)


def _share(default: float, text: str) -> Any:
    return _choice(default, text, rule="share")


def _times(text: str) -> Any:
    return _choice((), text, rule="times")


@dataclass(frozen=True, kw_only=True)
class GenerateOptions:
    """All options; mangling is off by default. The help of each is `metadata["help"]` of its dataclass field.

    Raises:
        ArgumentRefused: a value is illegal.
        GeneratorRefused: two options cannot be combined.

    >>> GenerateOptions(name="orders", copies=0.3).shuffle
    'none'
    >>> GenerateOptions(name="orders", copies=30)
    Traceback (most recent call last):
    tidelake.errors.ArgumentRefused: copies is 30, but must be between 0 and 1
    hint: give a fraction: 0.3 means 30%
    """

    name: str = _choice(
        "", "The topic's name. The topic's folder has this name, and three file names begin with it.", rule="name"
    )

    # The history.
    family: Family = field(
        default="plain",
        metadata=_among(
            Family,
            "plain: inserts, deletes, replacements; append_only: diffs of 1 or more; upsert: at most one row per "
            "order, keyed by id; debezium: change events of such rows.",
        ),
    )
    seed: int = _number(0, "The same seed and options give the same bytes.", most=INT64_MAX)
    updates: int = _number(10_000, "Exact number of distinct updates (data, time) in the history.", 1)
    times: int = _number(
        100, "Number of distinct times in the history; the last upper is the first time after them.", 1
    )
    keys: int = _number(5_000, "Number of orders; a plain history exceeds it only if necessary.", 1)
    empty_times: float = _share(0.05, "Share of the times that have no update.")
    negative: float = _share(0.0, "Share of the deletions that remove a row more often than it occurs (plain only).")

    # The messages.
    encoding: Encoding = field(
        default="avro", metadata=_among(Encoding, "avro: bare Avro; confluent: Avro after a zero byte and a schema id.")
    )
    schema_id: int = _number(1, "The schema id in Confluent framing.", most=_SCHEMA_ID_MAX)
    partitions: int = _number(1, "Number of partitions, which take the messages in turn.", 1, 10_000)
    messages_per_file: int = _number(1_000, "Number of messages in one Parquet file.", 1)
    updates_per_message: int = _number(100, "Maximum number of updates in a message of the first writer.", 1)
    times_per_statement: int = _number(10, "Average number of distinct times that one progress statement covers.", 1)
    append: bool = _choice(
        False, "Continue a topic that this generator wrote, with later offsets and later times.", rule="flag"
    )

    # The writers.
    writers: int = _number(1, "Number of redundant writers; each states everything, in its own batches.", 1)
    shards: int = _number(1, "Number of shards of each writer; together, they announce one count for each time.", 1)

    # What happens in transit.
    copies: float = _share(0.0, "Share of the messages that are repeated somewhere after the original.")
    copies_inside: float = _share(0.0, "Share of the updates that are repeated inside their own message.")
    shuffle: Shuffle = field(
        default="none",
        metadata=_among(Shuffle, "none: in order; window: moved by at most shuffle_window places; full: in any order."),
    )
    shuffle_window: int = _number(100, "Maximum number of places that a message moves when shuffled in a window.", 1)
    split: float = _share(0.0, "Share of the progress statements that are split into overlapping parts.")
    unsealed_times: int = _number(0, "Number of times at the end of the history that no progress statement covers.")
    late: int = _number(0, "Number of messages that are repeated at the very end.")
    undecodable: int = _number(
        0,
        "Number of undecodable messages, of these kinds in turn: truncated, with trailing bytes, with an invalid first "
        "byte, consisting of random bytes, and (in Confluent framing) with an unknown schema id.",
    )
    nulls: int = _number(0, "Number of records with a null value.")
    malformed: int = _number(
        0,
        "Number of malformed messages, of these kinds in turn: with a diff of 0, with an invalid interval, with a "
        "negative time, with invalid counts.",
    )
    far_future: int = _number(
        0, "Number of updates far beyond the history, at times that no progress statement covers."
    )
    close: bool = _choice(False, "End with a statement that closes the stream.", rule="flag")

    # Source errors; their times cannot be sealed. All but the breaches are sent before all other messages, so that no
    # reordering hides them.
    conflicting_diff_at: tuple[int, ...] = _times("Times at which an update is sent again with another diff.")
    conflicting_count_at: tuple[int, ...] = _times("Times for which a second count is announced.")
    over_count_at: tuple[int, ...] = _times("Times with one more update than announced.")
    breach_at: tuple[int, ...] = _times(
        "Times with one announced update of diff -1 (append_only, debezium), or an order that has two values (upsert)."
    )

    def __post_init__(self) -> None:
        for option in fields(self):
            _check(option.name, getattr(self, option.name), option.metadata)
        refusals = (
            (self.close and self.unsealed_times, "`close` and `unsealed_times`", "a closed stream has no unsealed end"),
            (
                self.close and self.far_future,
                "`close` and `far_future`",
                "a closed stream has no later updates",
            ),
            (
                self.family != "plain" and self.negative,
                f"the family `{self.family}` and `negative`",
                "leave out `negative`",
            ),
            (
                self.family == "plain" and self.breach_at,
                "the family `plain` and `breach_at`",
                "a plain history allows any diff",
            ),
        )
        for refused, pair, why in refusals:
            if refused:
                raise GeneratorRefused(f"{pair} cannot be combined", why)
        if self.unsealed_times > self.times:
            raise GeneratorRefused(
                f"unsealed_times is {self.unsealed_times}, but times is only {self.times}", "reduce unsealed_times"
            )
        if len(self.times_needed) > self.updates:
            raise GeneratorRefused(
                f"updates is {self.updates}, but {len(self.times_needed)} different times must have an update",
                "increase updates: a contradiction needs an update to contradict",
            )

    @property
    def times_held_back(self) -> tuple[int, ...]:
        """The times that cannot be sealed because of a source error, in order."""
        return tuple(sorted({*self.times_needed, *self.breach_at}))

    @property
    def times_needed(self) -> tuple[int, ...]:
        """The times that need an update, because that update will be contradicted."""
        return tuple(sorted({*self.conflicting_diff_at, *self.conflicting_count_at, *self.over_count_at}))


def _check(name: str, value: Any, rule: Mapping[str, Any]) -> None:
    kind = rule["rule"]
    if kind == "name" and not (isinstance(value, str) and _NAME.fullmatch(value)):
        raise ArgumentRefused("name", value, "which is not a valid topic name", "use letters, digits, '.', '_' and '-'")
    if kind == "flag" and type(value) is not bool:
        raise ArgumentRefused(name, value, "but must be true or false", "leave it out, or set it to true")
    if kind == "one of" and value not in get_args(rule["among"]):
        raise ArgumentRefused(
            name, value, f"but must be one of: {', '.join(get_args(rule['among']))}", "choose one of them"
        )
    if kind == "number" and (type(value) is not int or not rule["least"] <= value <= rule["most"]):
        bounds = f"from {rule['least']} to {rule['most']}"
        raise ArgumentRefused(name, value, f"but must be a whole number {bounds}", "correct the number")
    if kind == "share" and (type(value) not in (int, float) or not 0 <= value <= 1):
        fix = "give a fraction: 0.3 means 30%"
        raise ArgumentRefused(name, value, "but must be between 0 and 1", fix)
    if kind == "times" and not (isinstance(value, tuple) and all(type(time) is int and time >= 0 for time in value)):
        raise ArgumentRefused(name, value, "but must be a tuple of times", "give whole numbers of 0 or more")
