"""The one suite: what is held against every collection, how bad it is when it fails, and what it says to a person."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from expectations.frame import TIME_ROW, TOTAL_ROW
from tidelake.configuration import CollectionSettings

if TYPE_CHECKING:
    from great_expectations import ExpectationSuite
    from great_expectations.expectations.expectation import Expectation


@dataclass(frozen=True)
class Rule:
    """One expectation: its name as a check, and what its failing means."""

    name: str
    description: str
    blocking: bool
    """Whether a failure is damage below upper: nothing may be built on the collection then."""
    warning: bool
    """Whether it only asks somebody to look soon."""
    build: Callable[[dict[str, Any], CollectionSettings], Expectation]


def rules_of(settings: CollectionSettings) -> tuple[Rule, ...]:
    """The rules of a collection, by its envelope and whether it has a key."""
    if settings.framing == "reclock":
        # Nothing is announced by anybody, so nothing is contradicted or late, and a count is what was bound.
        attention = tuple(rule for rule in _ATTENTION if rule.name in _RAW_ATTENTION)
        return (*_DAMAGE[1:], *(_APPEND_ONLY if settings.envelope == "append_only" else _RAW_KEYED), *attention)
    if settings.key:
        return (*_DAMAGE, *_KEYED, *_ATTENTION)
    sums = {"none": _PLAIN, "append_only": _APPEND_ONLY, "debezium": _EVENTS}
    return (*_DAMAGE, *sums[settings.envelope], *_ATTENTION)


def build_suite(settings: CollectionSettings) -> ExpectationSuite:
    """The rules as a suite that is called like the collection; each expectation's meta names its check."""
    from great_expectations import ExpectationSuite

    expectations = []
    for rule in rules_of(settings):
        common = {
            "description": f"{rule.name}: {rule.description}",
            "severity": "warning" if rule.warning else "critical",
            "meta": {"check": rule.name},
        }
        expectations.append(rule.build(common, settings))
    return ExpectationSuite(name=settings.name, expectations=expectations)


def _equal(row: str, first: str, second: str) -> Callable[[dict[str, Any], CollectionSettings], Expectation]:
    def build(common: dict[str, Any], settings: CollectionSettings) -> Expectation:
        from great_expectations.expectations.core.expect_column_pair_values_to_be_equal import (
            ExpectColumnPairValuesToBeEqual,
        )
        from great_expectations.expectations.row_conditions import Column

        condition = Column("row") == row
        return ExpectColumnPairValuesToBeEqual(column_A=first, column_B=second, row_condition=condition, **common)

    return build


def _at_most(
    column: str, most: Callable[[CollectionSettings], int]
) -> Callable[[dict[str, Any], CollectionSettings], Expectation]:
    def build(common: dict[str, Any], settings: CollectionSettings) -> Expectation:
        from great_expectations.expectations.core.expect_column_values_to_be_between import (
            ExpectColumnValuesToBeBetween,
        )
        from great_expectations.expectations.row_conditions import Column

        condition = Column("row") == TOTAL_ROW
        return ExpectColumnValuesToBeBetween(
            column=column, min_value=0, max_value=most(settings), row_condition=condition, **common
        )

    return build


def _never_falls(common: dict[str, Any], settings: CollectionSettings) -> Expectation:
    from great_expectations.expectations.core.expect_column_values_to_be_between import (
        ExpectColumnValuesToBeBetween,
    )
    from great_expectations.expectations.row_conditions import Column

    # A time that was emptied by decision has no row, and no least diff.
    condition = (Column("row") == TIME_ROW) & (Column("recounted") > 0)
    return ExpectColumnValuesToBeBetween(column="diff_min", min_value=1, row_condition=condition, **common)


def _none(settings: CollectionSettings) -> int:
    return 0


_DAMAGE = (
    Rule(
        "announced_is_counted",
        "at every sealed time, as many distinct updates were counted as were announced",
        True,
        False,
        _equal(TIME_ROW, "announced", "counted"),
    ),
    Rule(
        "announced_is_recounted",
        "at every sealed time, a recount that knows nothing of the seal finds what was announced",
        True,
        False,
        _equal(TIME_ROW, "announced", "recounted"),
    ),
    Rule(
        "nothing_readable_beyond_upper",
        "every read at or after upper is refused",
        True,
        False,
        _at_most("readable_beyond_upper", _none),
    ),
)
_SUM = (
    Rule(
        "sum_of_diffs_is_as_recorded",
        "all diffs before upper add up to what was recorded as they were sealed; looked for in full validations",
        True,
        False,
        _equal(TOTAL_ROW, "diff_sum_recorded", "diff_sum_found"),
    ),
)


def _below_zero(warning: bool) -> Rule:
    return Rule(
        "nothing_accumulates_below_zero",
        "no row is taken away more often than it came, just before upper; looked for in full validations",
        False,
        warning,
        _at_most("below_zero", _none),
    )


_PLAIN = (*_SUM, _below_zero(warning=True))
_EVENTS = (*_SUM, _below_zero(warning=False))
_APPEND_ONLY = (
    *_SUM,
    Rule(
        "contents_never_fall",
        "no update before upper takes anything away: contents fall only by recorded retention",
        True,
        False,
        _never_falls,
    ),
)
_KEYED = (
    Rule(
        "one_value_a_key",
        "no key has two values at any sealed time that was recounted",
        True,
        False,
        _at_most("doubled", _none),
    ),
)
_RAW_KEYED = (
    Rule(
        "no_key_is_in_error",
        "every key's newest record could be decoded; a later good value or a delete heals one that could not, and "
        "until then reads refuse it, or leave it out",
        False,
        False,
        _at_most("keys_in_error", _none),
    ),
)
_ATTENTION = (
    Rule(
        "nothing_is_contradicted",
        "no time waits because its source contradicts itself; `tidelake resolve` settles one that does",
        False,
        False,
        _at_most("contradictions", _none),
    ),
    Rule(
        "late_statements_are_copies",
        "what is stated about a sealed time says again what was published; `tidelake late` shows what does not, and "
        "`tidelake resolve` settles it",
        False,
        False,
        _at_most("late_contradictions", _none),
    ),
    Rule(
        "quarantine_is_explained",
        "every message could be used, or somebody has decided about it; `tidelake quarantine` shows the others",
        False,
        True,
        _at_most("quarantine_unexplained", _none),
    ),
    Rule(
        "frontier_moves",
        "upper has moved within `stalled_after_s`, or need not: the stream is closed, or all of a raw topic was read",
        False,
        True,
        _at_most("frontier_age_s", lambda settings: settings.stalled_after_s),
    ),
)
_RAW_ATTENTION = ("quarantine_is_explained", "frontier_moves")
