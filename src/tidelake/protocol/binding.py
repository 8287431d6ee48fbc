"""Bindings of reclocked topics: records have no times, so each tick mints a time and binds it to the offsets it read.

A binding proves that exactly the records before its offsets are present at its time. Bindings are written before the
commit that makes them true, so some belong to ticks that lost a race or crashed. Valid bindings form a chain: each
begins where the one before ends, and the last one ends at the offsets in the table's own commit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tidelake.errors import DamagedTable

Place = tuple[str, int]
"""A topic and one of its partitions."""


@dataclass(frozen=True)
class Binding:
    """One minted time and the offsets bound to it.

    Args:
        time: the minted time.
        lower: upper before the tick. For an idle tick: upper before the uninterrupted series of idle ticks that it
            continues. Nothing happened from `lower` until `time`.
        starts: for each place, the first offset that had not been read when the tick began.
        ends: for every known place, the first offset that had not been read when the tick ended.
        records: the number of records that the tick read. Offsets that an operator gave up on are also between `starts`
            and `ends`.
        rows: the number of rows made from the records.
        quarantined: the number of unusable records.
        at_ms: the start of the tick, in milliseconds since 1970.
    """

    time: int
    lower: int
    starts: Mapping[Place, int] = field(default_factory=dict)
    ends: Mapping[Place, int] = field(default_factory=dict)
    records: int = 0
    rows: int = 0
    quarantined: int = 0
    at_ms: int = 0

    def as_json(self) -> dict[str, Any]:
        """Return the binding as JSON values; `offsets` holds the end offset of each partition of each topic."""
        offsets: dict[str, dict[str, int]] = {}
        for (topic, partition), end in sorted(self.ends.items()):
            offsets.setdefault(topic, {})[str(partition)] = end
        return {
            "time": self.time,
            "lower": self.lower,
            "offsets": offsets,
            "records": self.records,
            "rows": self.rows,
            "quarantined": self.quarantined,
            "at_ms": self.at_ms,
        }


def mint_time(upper: int, start_ms: int, minted: int) -> int:
    """Return the time of a tick: the later of upper and the tick's start, but always later than every minted time.

    Args:
        upper: the first unsealed time.
        start_ms: the start of the tick, in milliseconds since 1970; a clock may run backwards.
        minted: the greatest minted time, including those of ticks that lost a race or crashed; -1 if there is none.

    >>> mint_time(0, 1_700_000_000_000, -1), mint_time(9, 5, -1), mint_time(9, 5, 9)
    (1700000000000, 9, 10)
    """
    return max(upper, start_ms, minted + 1)


def is_ahead(time: int, last: int, newest: int | None, ahead_max_ms: int) -> bool:
    """Return whether a time is too far ahead of both the last minted time and the newest record to be believed.

    Args:
        time: the time that the clock would mint.
        last: the last minted time; -1 if there is none. Any time is then believed: the first records of a topic are
            often old, so they say nothing about the clock.
        newest: the newest timestamp of the records; None if no record has one.
        ahead_max_ms: how far ahead a time may be and still be believed.

    >>> is_ahead(90, 10, None, 50), is_ahead(90, 10, 40, 50), is_ahead(90, 10, 39, 50), is_ahead(90, -1, 10, 50)
    (True, False, True, False)
    """
    return last >= 0 and all(time - known > ahead_max_ms for known in (last, newest) if known is not None)


def is_idle_due(start_ms: int, last: int, interval_ms: int, ahead_max_ms: int) -> bool | None:
    """Return whether a tick without records mints its start as a time; None if the clock cannot be believed.

    Args:
        start_ms: the start of the tick, in milliseconds since 1970.
        last: the last minted time; -1 if there is none. Any time is then believed, as in `is_ahead`.
        interval_ms: how long after `last` an idle tick is due.
        ahead_max_ms: how late an idle tick may be: there is no record whose timestamp could confirm a later time.

    >>> [is_idle_due(start, 100, 50, 30) for start in (90, 149, 150, 180, 181)], is_idle_due(181, -1, 50, 30)
    ([False, False, True, True, None], True)
    """
    if start_ms < last + interval_ms:
        return False
    return None if last >= 0 and is_ahead(start_ms, last + interval_ms, None, ahead_max_ms) else True


def chain_of(
    bindings: Iterable[Binding], upper: int, offsets: Mapping[Place, int], where: str, lower: int = 0
) -> list[Binding]:
    """Return the valid bindings, oldest first, for upper and the offsets of one version of the table.

    Args:
        bindings: all written bindings; no two have the same time.
        upper: the upper of that version.
        offsets: the offsets of that version.
        where: the table's folder, for errors.
        lower: where to stop; bindings of earlier times may be missing.

    Raises:
        DamagedTable: a binding is missing, or does not end where the next one begins.

    >>> first = Binding(5, 0, {("a", 0): 0}, {("a", 0): 3})
    >>> lost, second = Binding(8, 6, {("a", 0): 3}, {("a", 0): 9}), Binding(9, 6, {("a", 0): 3}, {("a", 0): 4})
    >>> [binding.time for binding in chain_of([first, lost, second], 10, {("a", 0): 4}, "updates")]
    [5, 9]
    """
    by_time = {binding.time: binding for binding in bindings}
    chain: list[Binding] = []
    while upper > lower:
        binding = by_time.pop(upper - 1, None)  # the chain holds each time only once, however damaged it is
        if binding is None:
            raise DamagedTable(where, f"the binding of time {upper - 1} is missing")
        if any(offsets.get(place, end) != end for place, end in binding.ends.items()):
            raise DamagedTable(
                where,
                f"the binding of time {binding.time} ends at {_shown(binding.ends)}, "
                f"but should end at {_shown(offsets)}",
            )
        chain.append(binding)
        upper, offsets = binding.lower, binding.starts
    return chain[::-1]


def _shown(offsets: Mapping[Place, int]) -> str:
    return ", ".join(f"{topic}:{partition}:{offset}" for (topic, partition), offset in sorted(offsets.items())) or "0"
