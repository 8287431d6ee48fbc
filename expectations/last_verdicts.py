"""The last verdicts on the user's own expectations; every tick reports them again until the next full validation.

They have a file of their own: a report about a table that could not be validated says nothing about them, and must not
lift a verdict that blocks.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict

from expectations.judge import Verdict
from expectations.suite import Rule
from tidelake.errors import StoreUnreadable
from tidelake.report.facts import CheckResult
from tidelake.report.files import ReportPlace, read_text, replace_text
from tidelake.report.pages import COLLECTIONS
from tidelake.report.text import moment
from tidelake.storage import blobs
from tidelake.storage.location import Location


def verdicts_file(data_docs: ReportPlace, name: str) -> Location:
    """Return the file with the last verdicts on a collection."""
    return blobs.root_of(data_docs) / ".results/verdicts" / f"{name}.json"


def save_verdicts(data_docs: ReportPlace, name: str, at_ms: int, results: Sequence[CheckResult]) -> None:
    """Save the verdicts of a full validation.

    Raises:
        OSError, StoreUnreadable: the folder of the reports cannot be written to.
    """
    _save(data_docs, name, json.dumps({"at_ms": at_ms, "checks": [asdict(result) for result in results]}))


def keep_verdicts(data_docs: ReportPlace, name: str) -> None:
    """Save verdicts that an older version wrote only into the report; the caller is about to replace the report.

    Raises:
        OSError, StoreUnreadable: the folder of the reports cannot be written to.
    """
    if not blobs.exists(verdicts_file(data_docs, name)):
        report = blobs.root_of(data_docs) / COLLECTIONS / f"{name}.json"
        with suppress(FileNotFoundError):
            _save(data_docs, name, blobs.read(report).decode("utf-8", errors="replace"))


def last_verdicts(data_docs: ReportPlace, name: str, rules: Sequence[Rule]) -> list[Verdict]:
    """Return the verdicts of the last full validation that judged the user's own expectations.

    An expectation that has not been judged yet passes, with a note that says so. If the verdicts cannot be read, none
    passes: the last full validation may have failed.
    """
    if not rules:
        return []
    try:
        known = _read(data_docs, name)
    except (OSError, StoreUnreadable, ValueError, LookupError, TypeError, AttributeError) as error:
        note = (
            f"the last verdict cannot be read ({type(error).__name__}: {error}), so the check fails "
            "until the next full validation judges it again"
        )
        return [Verdict(rule.name, False, 0, 0, note=note) for rule in rules]
    unknown = "not judged yet: only full validations judge this check"
    return [known.get(rule.name, Verdict(rule.name, True, 0, 0, note=unknown)) for rule in rules]


def _read(data_docs: ReportPlace, name: str) -> dict[str, Verdict]:
    """Read the verdicts by check; none if there is no file. Older versions kept them only in the report."""
    for file in (verdicts_file(data_docs, name), blobs.root_of(data_docs) / COLLECTIONS / f"{name}.json"):
        try:
            text = read_text(file)
        except FileNotFoundError:
            continue
        saved = json.loads(text)
        at = moment(saved["at_ms"])
        return {check["check"]: _verdict(check, at) for check in saved["checks"]}
    return {}


def _verdict(check: dict[str, object], at: str) -> Verdict:
    name, passed, sentence, evidence = (check[key] for key in ("check", "passed", "sentence", "evidence"))
    if not isinstance(passed, bool) or not isinstance(evidence, list):
        raise ValueError(f"{name} has no verdict")
    return Verdict(str(name), passed, 0, 0, note=f"as judged at {at}: {sentence}", examples=list(map(str, evidence)))


def _save(data_docs: ReportPlace, name: str, text: str) -> None:
    replace_text(verdicts_file(data_docs, name), text)
