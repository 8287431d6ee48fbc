"""Re-clocking: a raw topic states no times, so each tick mints one and binds it to the offsets that it has read.

The binding is the proof: at its time, exactly the records before these offsets are there. Bindings are written before
the commit that makes them true, so some belong to ticks that lost or died. Those that count hang together: each begins
where the one before has ended, and the last one ends where the table's own commit says.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tidelake.errors import DamagedTable

Place = tuple[str, int]
"""A topic, and a partition of it."""


@dataclass(frozen=True)
class Binding:
    """One minted time and the offsets that it stands for.

    Args:
        time: what was minted.
        lower: upper before it; from there on up to `time` nothing else happened.
        starts: by place, the next offset before the tick.
        ends: by place, the next offset after it; every place that is known.
        records: how many records the tick read. Offsets that an operator gave up are between `starts` and `ends` too.
        rows: how many rows they became.
        quarantined: how many could not be used.
        at_ms: when the tick began, in milliseconds since 1970.
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
        """The same as JSON values: `offsets` has the end offset of each partition of each topic."""
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
    """The time of a tick: the later of upper and its start, and never one that a tick has had before.

    Args:
        upper: the first time that is not sealed.
        start_ms: when the tick began, in milliseconds since 1970; a clock may go back.
        minted: the greatest time that was minted, also by a tick that lost or died; -1 where there is none.

    >>> mint_time(0, 1_700_000_000_000, -1), mint_time(9, 5, -1), mint_time(9, 5, 9)
    (1700000000000, 9, 10)
    """
    return max(upper, start_ms, minted + 1)


def chain_of(
    bindings: Iterable[Binding], upper: int, offsets: Mapping[Place, int], where: str, lower: int = 0
) -> list[Binding]:
    """The bindings that count, oldest first, from upper and the offsets of one version of the table.

    Args:
        bindings: all that are written; no two have one time.
        upper: of that version.
        offsets: of that version.
        where: the table's folder, for errors.
        lower: bindings of times before it are not asked for.

    Raises:
        DamagedTable: a binding is missing, or does not end where the next one begins.

    >>> first = Binding(5, 0, {("a", 0): 0}, {("a", 0): 3})
    >>> lost, second = Binding(8, 6, {("a", 0): 3}, {("a", 0): 9}), Binding(9, 6, {("a", 0): 3}, {("a", 0): 4})
    >>> [one.time for one in chain_of([first, lost, second], 10, {("a", 0): 4}, "updates")]
    [5, 9]
    """
    by_time = {one.time: one for one in bindings}
    chain: list[Binding] = []
    while upper > lower:
        binding = by_time.get(upper - 1)
        if binding is None:
            raise DamagedTable(where, f"the binding of time {upper - 1} is missing")
        if any(offsets.get(place, end) != end for place, end in binding.ends.items()):
            raise DamagedTable(
                where,
                f"the binding of time {binding.time} ends at {_shown(binding.ends)}, and {_shown(offsets)} is known",
            )
        chain.append(binding)
        upper, offsets = binding.lower, binding.starts
    return chain[::-1]


def _shown(offsets: Mapping[Place, int]) -> str:
    return ", ".join(f"{topic}:{partition}:{offset}" for (topic, partition), offset in sorted(offsets.items())) or "0"
