"""Describes the result of each check in a sentence with its numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelake.read.words import counted, duration

if TYPE_CHECKING:
    import pandas as pd

    from expectations.judge import Verdict
    from expectations.suite import Rule


def sentence_of(rule: Rule, verdict: Verdict, frame: pd.DataFrame) -> str:
    """Return the sentence of a check that passed.

    Args:
        rule: the rule of the check.
        verdict: its result.
        frame: the DataFrame that was judged; see `result_frame`.
    """
    if verdict.note:
        return _sentence(verdict.note)
    total = {name: int(value) for name, value in frame.iloc[-1].items() if name != "row"}
    at = f"at {counted(len(frame) - 1, 'time')}"
    match rule.name:
        case "announced_is_counted":
            return f"{counted(total['announced'], 'update')} announced, {total['counted']:,} counted {at}."
        case "announced_is_recounted":
            return f"{counted(total['announced'], 'update')} announced, {total['recounted']:,} recounted {at}."
        case "sum_of_diffs_is_as_recorded":
            return f"All diffs add up to {total['diff_sum_found']:,}, as recorded."
        case "nothing_readable_beyond_upper":
            return f"Reads at or after {total['time']} are refused."
        case "frontier_moves":
            age_s = total["frontier_age_s"]
            return f"upper moved {duration(age_s)} ago." if age_s else "upper need not move."
        case _ if rule.is_own:
            return f"{_sentence(rule.description)}: {counted(verdict.rows, 'row')} checked."
        case _:
            return _sentence(f"{rule.description}.")


def failure_of(rule: Rule, verdict: Verdict) -> str:
    """Return the sentence of a check that failed."""
    if verdict.problem is not None:
        return f"Could not be judged: {verdict.problem}"
    if verdict.note:
        return _sentence(verdict.note)
    if rule.is_own:
        of, do = f" of {verdict.rows:,}" if verdict.rows else "", "does" if verdict.failed == 1 else "do"
        observed = verdict.observed or "no value was observed"
        found = f"{verdict.failed:,}{of} rows {do} not meet this" if verdict.failed else observed
        return f"Expected: {rule.description}; {found}."
    at = f" It fails at {times_of(verdict)}." if verdict.times and rule.blocking else ""
    return f"Expected: {rule.description}.{at}"


def times_of(verdict: Verdict) -> str:
    """Return the times at which a check failed, as words."""
    return f"{'time' if len(verdict.times) == 1 else 'times'} {', '.join(map(str, verdict.times))}"


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}"
