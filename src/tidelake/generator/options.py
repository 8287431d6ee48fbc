"""What a generated topic shall be like: every choice with its help, its default and its rule."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, get_args

from tidelake.errors import RuleBroken
from tidelake.order import INT64_MAX

Family = Literal["plain", "append_only", "upsert", "debezium"]
Encoding = Literal["avro", "confluent"]
Shuffle = Literal["none", "window", "full"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,248}")
_SCHEMA_ID_MAX = 2**31 - 1
_NUMBER_MAX = 2**40
"""So that no time or row number of a history comes near the end of int64."""


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
    """All choices; mangling is off by default. `fields()` has the help of each under `metadata["help"]`.

    Raises:
        RuleBroken: a value is not legal, or two do not go together.

    >>> GenerateOptions(name="orders", copies=0.3).shuffle
    'none'
    >>> GenerateOptions(name="orders", copies=30)
    Traceback (most recent call last):
    tidelake.errors.RuleBroken: copies is 30, and has to be a share from 0 to 1
    hint: name the share of what there is: 0.3 for 30 %
    """

    name: str = _choice("", "The topic's name; it becomes a folder, and three files beside begin with it.", rule="name")

    # The history.
    family: Family = field(
        default="plain",
        metadata=_among(
            Family,
            "plain: inserts, deletes, replacements; append_only: diffs of 1 or more; upsert: one row an order at most, "
            "keyed by id; debezium: change events of such rows.",
        ),
    )
    seed: int = _number(0, "The same seed and options give the same bytes.", most=INT64_MAX)
    updates: int = _number(10_000, "How many distinct updates (data, time) the history has, exactly.", 1)
    times: int = _number(100, "How many times the history spans; its last upper is the first time after them.", 1)
    keys: int = _number(5_000, "How many orders there are; a plain history goes beyond only where it must.", 1)
    empty_times: float = _share(0.05, "Which share of the times has no update.")
    negative: float = _share(0.0, "Which share of the deletions takes away more than is there (plain only).")

    # The messages.
    encoding: Encoding = field(
        default="avro", metadata=_among(Encoding, "avro: bare; confluent: behind a zero byte and a schema id.")
    )
    schema_id: int = _number(1, "The schema id in Confluent framing.", most=_SCHEMA_ID_MAX)
    partitions: int = _number(1, "How many partitions take the messages in turn.", 1, 10_000)
    messages_per_file: int = _number(1_000, "How many messages go into one Parquet file.", 1)
    updates_per_message: int = _number(100, "How many updates the first writer puts into a message at most.", 1)
    times_per_statement: int = _number(10, "How many times one progress statement covers, on average.", 1)
    append: bool = _choice(
        False, "Continue a topic that this generator wrote: later offsets, later times.", rule="flag"
    )

    # Who writes.
    writers: int = _number(1, "How many redundant writers there are; each states everything, batched its own way.", 1)
    shards: int = _number(1, "How many shards each writer consists of; together they state one count.", 1)

    # What happens on the way.
    copies: float = _share(0.0, "Which share of the messages is repeated, somewhere after the first.")
    copies_inside: float = _share(0.0, "Which share of the updates is repeated inside their own message.")
    shuffle: Shuffle = field(
        default="none", metadata=_among(Shuffle, "window: by at most shuffle_window places; full: any order.")
    )
    shuffle_window: int = _number(100, "How many places a message may move by when shuffled in a window.", 1)
    split: float = _share(0.0, "Which share of the progress statements is cut into parts that overlap.")
    unsealed_times: int = _number(0, "For how many times at the end no progress is stated.")
    late: int = _number(0, "How many messages come again at the very end.")
    undecodable: int = _number(
        0, "How many messages are no messages: cut off, bytes left over, a wrong first byte, random bytes, by turns."
    )
    nulls: int = _number(0, "How many records have a null value.")
    malformed: int = _number(
        0, "How many messages break a rule by themselves: diff 0, negative time, bad interval, bad counts, by turns."
    )
    far_future: int = _number(0, "How many updates lie far beyond the history, at times that no progress covers.")
    close: bool = _choice(False, "End with a statement that nothing more will ever come.", rule="flag")

    # What the source gets wrong; the time does not seal. These messages come first, so that no order hides them.
    conflicting_diff_at: tuple[int, ...] = _times("Times at which one update is stated with a second diff.")
    conflicting_count_at: tuple[int, ...] = _times("Times for which a second count is announced.")
    over_count_at: tuple[int, ...] = _times("Times with one update more than announced.")
    breach_at: tuple[int, ...] = _times(
        "Times with one announced update of diff -1 (append_only, debezium), or an order of two values (upsert)."
    )

    def __post_init__(self) -> None:
        for one in fields(self):
            _check(one.name, getattr(self, one.name), one.metadata)
        refusals = (
            (self.close and self.unsealed_times, "close and unsealed_times", "a closed stream has no unsealed end"),
            (self.close and self.far_future, "close and far_future", "they would be more than the announced none"),
            (self.family != "plain" and self.negative, f"{self.family} and negative", "leave out negative"),
            (self.family == "plain" and self.breach_at, "plain and breach_at", "a plain history allows any diff"),
            (self.unsealed_times > self.times, "so many unsealed_times and so few times", "lower unsealed_times"),
        )
        for refused, both, why in refusals:
            if refused:
                raise RuleBroken(f"{both} do not go together", why)
        if len(self.times_needed) > self.updates:
            raise RuleBroken(
                f"{self.updates} updates are fewer than the {len(self.times_needed)} times that must have one",
                "raise updates: a contradiction needs an update to contradict",
            )

    @property
    def times_held_back(self) -> tuple[int, ...]:
        """The times that cannot seal, in order."""
        return tuple(sorted({*self.times_needed, *self.breach_at}))

    @property
    def times_needed(self) -> tuple[int, ...]:
        """The times that must have an update, because it will be contradicted."""
        return tuple(sorted({*self.conflicting_diff_at, *self.conflicting_count_at, *self.over_count_at}))


def _check(name: str, value: Any, rule: Mapping[str, Any]) -> None:
    kind = rule["rule"]
    if kind == "name" and not (isinstance(value, str) and _NAME.fullmatch(value)):
        raise RuleBroken(f"name is {value!r}, which is no topic's name", "use letters, digits, '.', '_' and '-'")
    if kind == "flag" and type(value) is not bool:
        raise RuleBroken(f"{name} is {value!r}, and has to be true or false", "leave it out, or give true")
    if kind == "one of" and value not in get_args(rule["among"]):
        raise RuleBroken(f"{name} is {value!r}", f"it has to be one of: {', '.join(get_args(rule['among']))}")
    if kind == "number" and (type(value) is not int or not rule["least"] <= value <= rule["most"]):
        bounds = f"from {rule['least']} to {rule['most']}"
        raise RuleBroken(f"{name} is {value!r}, and has to be a whole number {bounds}", "mend the number")
    if kind == "share" and (type(value) not in (int, float) or not 0 <= value <= 1):
        fix = "name the share of what there is: 0.3 for 30 %"
        raise RuleBroken(f"{name} is {value!r}, and has to be a share from 0 to 1", fix)
    if kind == "times" and not (isinstance(value, tuple) and all(type(one) is int and one >= 0 for one in value)):
        raise RuleBroken(f"{name} is {value!r}, and has to be a tuple of times", "give whole numbers of 0 or more")
