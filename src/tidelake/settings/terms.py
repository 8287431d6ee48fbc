"""The terms of framings and envelopes, by name: what settings and the store need to know about each.

Everything else is in their plug-ins: see `tidelake.plugins`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Literal, TypeVar

from tidelake.errors import UnknownPlugin

T = TypeVar("T")

GROUP = "tidelake.plugins"
"""The group of entry points: each is named after a framing or an envelope, and is a function that registers it."""

_SUMS, _BELOW_ZERO = "sum_of_diffs_is_as_recorded", "nothing_accumulates_below_zero"


@dataclass(frozen=True)
class FramingTerms:
    """The terms of a framing: how completeness and copies are detected.

    Args:
        name: the name of the framing.
        mints_times: whether ingest mints a time for each tick, binds it to the tick's offsets and seals it; if not,
            statements have times of their own, which are proven later.
        identifies_by_data: whether equal data at the same time is a copy. If so, columns never change; if not, a
            statement is identified by its place.
        checks: the names of the expectations that apply whatever the envelope is.
        key_checks: the expectations of collections with a key, which replace the envelope's.
        counts_positions: whether a statement is identified by its position in the source. If so, seal counts distinct
            positions, and the rows of the table `transactions/` announce how many there are.
    """

    name: str
    mints_times: bool
    identifies_by_data: bool
    checks: tuple[str, ...]
    key_checks: tuple[str, ...]
    counts_positions: bool = False


@dataclass(frozen=True)
class EnvelopeTerms:
    """The terms of an envelope: what a statement means.

    Args:
        name: the name of the envelope.
        family: the name of its file in `assets/`; in `collections.yaml`, `family:` is another way to name it.
        key: whether a collection must have a key, may have one, or must not.
        of_changes: whether a statement is a change event, with the row before and the row after.
        needs_diff: whether a statement needs a diff, which the records of reclocked topics do not state.
        checks: the names of the expectations of collections without a key, besides the framing's.
        warnings: the checks whose failure is only a warning.
        only_adds: whether no statement removes a row; retention may still remove rows, which is recorded.
    """

    name: str
    family: str
    key: Literal["refused", "optional", "required"] = "refused"
    of_changes: bool = False
    needs_diff: bool = False
    checks: tuple[str, ...] = (_SUMS,)
    warnings: frozenset[str] = frozenset()
    only_adds: bool = False


_ANNOUNCED = (
    "announced_is_counted",
    "announced_is_recounted",
    "rows_are_as_recorded",
    "nothing_readable_beyond_upper",
    "nothing_is_contradicted",
    "late_statements_are_copies",
    "quarantine_is_explained",
    "frontier_moves",
)
"""The checks of collections whose source announces the number of statements at each time."""

FRAMINGS = {
    "cdcv2": FramingTerms(
        "cdcv2",
        mints_times=False,
        identifies_by_data=True,
        checks=_ANNOUNCED,
        key_checks=("one_value_a_key",),
    ),
    # Nothing is announced, so nothing can be contradicted or late; the number that is recounted is in the binding.
    "reclock": FramingTerms(
        "reclock",
        mints_times=True,
        identifies_by_data=False,
        checks=(
            "announced_is_recounted",
            "rows_are_as_recorded",
            "nothing_readable_beyond_upper",
            "quarantine_is_explained",
            "frontier_moves",
        ),
        key_checks=("no_key_is_in_error",),
    ),
    "transactions": FramingTerms(
        "transactions",
        mints_times=False,
        identifies_by_data=False,
        checks=_ANNOUNCED,
        key_checks=("no_key_is_in_error",),
        counts_positions=True,
    ),
}
"""The framings that settings accept, by name."""

ENVELOPES = {
    "none": EnvelopeTerms(
        "none", family="plain", needs_diff=True, checks=(_SUMS, _BELOW_ZERO), warnings=frozenset({_BELOW_ZERO})
    ),
    "append_only": EnvelopeTerms(
        "append_only", family="append_only", checks=(_SUMS, "contents_never_fall"), only_adds=True
    ),
    "upsert": EnvelopeTerms("upsert", family="upsert", key="required"),
    "debezium": EnvelopeTerms(
        "debezium", family="debezium", key="optional", of_changes=True, checks=(_SUMS, _BELOW_ZERO)
    ),
}
"""The envelopes that settings accept, by name."""


def framing_terms(name: str) -> FramingTerms:
    """Return the terms of a framing; raises the same errors as `look_up`."""
    return look_up("framing", FRAMINGS, name)


def envelope_terms(name: str) -> EnvelopeTerms:
    """Return the terms of an envelope; raises the same errors as `look_up`."""
    return look_up("envelope", ENVELOPES, name)


def look_up(kind: str, table: Mapping[str, T], name: str) -> T:
    """Look up a framing or an envelope in a table; if it is missing, first load the package that provides it.

    Raises:
        UnknownPlugin: neither this process nor an installed package has it.
    """
    if name not in table:
        load_plugin(name)
    if name not in table:
        raise UnknownPlugin(kind, name, GROUP)
    return table[name]


def load_plugin(name: str) -> None:
    """Call the entry points of `tidelake.plugins` with this name; each registers a framing or an envelope."""
    for entry_point in entry_points(group=GROUP, name=name):
        entry_point.load()()


def one_of(names: Iterable[str]) -> str:
    """Join names as a choice.

    >>> one_of(["a", "b", "c"]), one_of(["a"])
    ("'a', 'b' or 'c'", "'a'")
    """
    *most, last = (f"'{name}'" for name in names)
    return f"{', '.join(most)} or {last}" if most else last
