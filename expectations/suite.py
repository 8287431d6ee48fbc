"""The rules for collections: what is expected, and how severe a failure is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from expectations.frame import TIME_ROW, TOTAL_ROW
from tidelake.errors import ConfigurationError
from tidelake.settings.collection import CollectionSettings
from tidelake.settings.expectations import OwnExpectation
from tidelake.settings.terms import framing_terms

if TYPE_CHECKING:
    from great_expectations import ExpectationSuite
    from great_expectations.expectations.expectation import Expectation


@dataclass(frozen=True)
class Rule:
    """One expectation: its name as a check, and what a failure means."""

    name: str
    description: str
    build: Callable[[dict[str, Any], CollectionSettings], Expectation]
    blocking: bool = False
    """Whether nothing may be built on the collection after a failure: it means damage, or the settings demand this."""
    warning: bool = False
    """Whether a failure is only a warning, which should be looked at soon."""
    is_own: bool = False
    """Whether the expectation is from the user's settings: then it is about the contents. Full validations judge it."""


def rules_of(settings: CollectionSettings) -> tuple[Rule, ...]:
    """Return the rules of a collection: those of its framing, those of its key or its envelope, and the user's own.

    Raises:
        LookupError: a framing or an envelope names a check that no rule defines.
    """
    framing, envelope = framing_terms(settings.framing), settings.terms
    names = {*framing.checks, *(framing.key_checks if settings.key else envelope.checks)}
    if undefined := names - {rule.name for rule in _RULES}:
        raise LookupError(
            f"the framing '{framing.name}' and the envelope '{envelope.name}' name checks that no rule defines: "
            f"{', '.join(sorted(undefined))}"
        )
    chosen = (rule for rule in _RULES if rule.name in names)
    fitting = (replace(rule, warning=True) if rule.name in envelope.warnings else rule for rule in chosen)
    return *fitting, *map(_own_rule, settings.expectations)


def build_suite(settings: CollectionSettings) -> ExpectationSuite:
    """Return the rules about a recount as a suite with the name of the collection."""
    return _suite(settings.name, settings, [rule for rule in rules_of(settings) if not rule.is_own])


def build_own_suite(settings: CollectionSettings) -> ExpectationSuite:
    """Return the user's own expectations as a suite.

    Raises:
        ConfigurationError: the library refuses the arguments of one of them.
    """
    return _suite(f"{settings.name}-contents", settings, [rule for rule in rules_of(settings) if rule.is_own])


def _suite(name: str, settings: CollectionSettings, rules: Sequence[Rule]) -> ExpectationSuite:
    """Build a suite. The `meta` of each expectation names its check. A warning has `(a warning)` in its description."""
    from great_expectations import ExpectationSuite

    expectations = []
    for rule in rules:
        common = {
            "description": f"{rule.name}{' (a warning)' if rule.warning else ''}: {rule.description}",
            "severity": "warning" if rule.warning else "critical",
            "meta": {"check": rule.name},
        }
        expectations.append(rule.build(common, settings))
    return ExpectationSuite(name=name, expectations=expectations)


def _own_rule(own: OwnExpectation) -> Rule:
    def build(common: dict[str, Any], settings: CollectionSettings) -> Expectation:
        from great_expectations.compatibility.pydantic import ValidationError
        from great_expectations.expectations.registry import get_expectation_impl

        try:
            return get_expectation_impl(own.type)(**own.arguments, **common)
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(map(str, first["loc"]))
            raise ConfigurationError(
                own.place, own.field, f"{field}: {first['msg']}", "correct the argument"
            ) from error

    return Rule(own.name, own.text, build, blocking=own.blocking, warning=own.severity == "warning", is_own=True)


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
    column: str, maximum: Callable[[CollectionSettings], int]
) -> Callable[[dict[str, Any], CollectionSettings], Expectation]:
    def build(common: dict[str, Any], settings: CollectionSettings) -> Expectation:
        from great_expectations.expectations.core.expect_column_values_to_be_between import (
            ExpectColumnValuesToBeBetween,
        )
        from great_expectations.expectations.row_conditions import Column

        condition = Column("row") == TOTAL_ROW
        return ExpectColumnValuesToBeBetween(
            column=column, min_value=0, max_value=maximum(settings), row_condition=condition, **common
        )

    return build


def _never_falls(common: dict[str, Any], settings: CollectionSettings) -> Expectation:
    from great_expectations.expectations.core.expect_column_values_to_be_between import (
        ExpectColumnValuesToBeBetween,
    )
    from great_expectations.expectations.row_conditions import Column

    # A time that a decision emptied has no updates, so it has no smallest diff.
    condition = (Column("row") == TIME_ROW) & (Column("recounted") > 0)
    return ExpectColumnValuesToBeBetween(column="diff_min", min_value=1, row_condition=condition, **common)


def _zero(settings: CollectionSettings) -> int:
    return 0


_RULES = (
    Rule(
        "announced_is_counted",
        "at every sealed time, the seal counted as many distinct updates as were announced",
        _equal(TIME_ROW, "announced", "counted"),
        blocking=True,
    ),
    Rule(
        "announced_is_recounted",
        "at every sealed time, a recount that is independent of the seal finds as many updates as were announced",
        _equal(TIME_ROW, "announced", "recounted"),
        blocking=True,
    ),
    Rule(
        "rows_are_as_recorded",
        "the hashes of rows are those recorded when the rows were written, and the hashes of statements and contents "
        "are those recorded by earlier validations; checked in full validations",
        _at_most("hash_mismatches", _zero),
        blocking=True,
    ),
    Rule(
        "nothing_readable_beyond_upper",
        "reads at or after upper are refused",
        _at_most("readable_beyond_upper", _zero),
        blocking=True,
    ),
    Rule(
        "sum_of_diffs_is_as_recorded",
        "the sum of all diffs before upper equals the sum recorded by seals; checked in full validations",
        _equal(TOTAL_ROW, "diff_sum_recorded", "diff_sum_found"),
        blocking=True,
    ),
    Rule(
        "nothing_accumulates_below_zero",
        "just before upper, no row has been removed more times than added; checked in full validations",
        _at_most("below_zero", _zero),
    ),
    Rule(
        "contents_never_fall",
        "no update before upper removes anything: contents shrink only by recorded retention",
        _never_falls,
        blocking=True,
    ),
    Rule(
        "one_value_a_key",
        "no key has two values at a recounted time",
        _at_most("doubled", _zero),
        blocking=True,
    ),
    Rule(
        "no_key_is_in_error",
        "the newest record of every key could be decoded; a later value or delete clears the error, and until then, "
        "reads fail or skip the key",
        _at_most("keys_in_error", _zero),
    ),
    Rule(
        "nothing_is_contradicted",
        "the source does not contradict itself about any unsealed time; `tidelake resolve` settles a contradiction",
        _at_most("contradictions", _zero),
    ),
    Rule(
        "late_statements_are_copies",
        "every statement about a sealed time repeats what was published; `tidelake late` shows those that do "
        "not, and `tidelake resolve` settles them",
        _at_most("late_contradictions", _zero),
    ),
    Rule(
        "quarantine_is_explained",
        "every message could be used, or there is a decision about it; `tidelake quarantine` shows the messages that "
        "could not be used",
        _at_most("quarantine_unexplained", _zero),
        warning=True,
    ),
    Rule(
        "frontier_moves",
        "upper has moved within `stalled_after_s`, or need not move: the stream is closed, or the reclocked topic was "
        "read to its end",
        _at_most("frontier_age_s", lambda settings: settings.stalled_after_s),
        warning=True,
    ),
)
"""All rules; a collection's framing and envelope say which of them apply."""
