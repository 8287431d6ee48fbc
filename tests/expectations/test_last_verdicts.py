"""The last verdicts on the user's own expectations are repeated; a verdict that cannot be read is not a pass."""

from __future__ import annotations

from pathlib import Path

import pytest

from expectations.last_verdicts import keep_verdicts, last_verdicts, save_verdicts, verdicts_file
from expectations.suite import Rule
from tidelake.report.facts import CheckResult

RULE = Rule("ids_are_unique", "ids are unique", lambda common, settings: None, blocking=True, is_own=True)  # type: ignore
FAILED = CheckResult(RULE.name, False, "alarm", "2 of 5 rows do not.", True, ["1"])


def test_an_expectation_that_was_not_judged_passes_and_earlier_verdicts_are_repeated(tmp_path: Path) -> None:
    (verdict,) = last_verdicts(tmp_path, "prices", [RULE])
    assert (verdict.passed, verdict.note) == (True, "not judged yet: only full validations judge this check")
    save_verdicts(tmp_path, "prices", 0, [FAILED])
    (verdict,) = last_verdicts(tmp_path, "prices", [RULE])
    assert (verdict.passed, verdict.examples) == (False, ["1"])
    assert verdict.note is not None and verdict.note.startswith("as judged at 1970-01-01")
    assert [file.name for file in verdicts_file(tmp_path, "prices").local.parent.iterdir()] == ["prices.json"]


@pytest.mark.parametrize(
    "text",
    ["", '{"at_ms": 1', "[]", "null", '{"checks": []}', '{"at_ms": 0, "checks": [{"check": "ids_are_unique"}]}'],
)
@pytest.mark.parametrize("is_report", [False, True])
def test_verdicts_that_cannot_be_read_do_not_pass(tmp_path: Path, text: str, is_report: bool) -> None:
    file = tmp_path / "collections" / "prices.json" if is_report else verdicts_file(tmp_path, "prices").local
    file.parent.mkdir(parents=True)
    file.write_text(text, encoding="utf-8")
    (verdict,) = last_verdicts(tmp_path, "prices", [RULE])
    assert not verdict.passed
    assert verdict.note is not None and verdict.note.startswith("the last verdict cannot be read (")


def test_verdicts_in_the_report_of_an_older_version_outlive_the_report(tmp_path: Path) -> None:
    save_verdicts(tmp_path, "prices", 0, [FAILED])
    report = tmp_path / "collections" / "prices.json"
    report.parent.mkdir()
    verdicts_file(tmp_path, "prices").local.replace(report)
    keep_verdicts(tmp_path, "prices")
    report.write_text('{"at_ms": 1, "checks": []}', encoding="utf-8")
    keep_verdicts(tmp_path, "prices")
    assert [verdict.passed for verdict in last_verdicts(tmp_path, "prices", [RULE])] == [False]
