"""Reports of validations, with the settings and the status of their collection."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.lakes.lake import RECORD
from tidelake.read.status import CollectionStatus
from tidelake.settings.collection import CollectionSettings
from tidelake.settings.framings import SETTINGS
from tidelake.validate.validation import ValidateReport

STATUS = CollectionStatus(
    name="prices",
    family="append_only",
    since=0,
    upper=9,
    closed=False,
    rows=5,
    pending=0,
    runs=1,
    bytes=1,
    late=0,
    quarantine=0,
    quarantine_reasons={},
    lag_messages=0,
    lag_s=1.0,
    statements_pending=0,
    contradictions=[],
    damaged=None,
)


def settings(family: Any = "append_only", framing: Any = "cdcv2") -> CollectionSettings:
    return SETTINGS[framing](
        name="prices",
        envelope="none" if family == "plain" else family,
        framing=framing,
        topics=("prices",),
        topics_folder=Path("topics"),
        value_schema=RECORD,
        key=("id",) if family == "upsert" else (),
    )


def at(time: int, **other: int) -> dict[str, Any]:
    return {
        "time": time,
        "announced": 2,
        "counted": 2,
        "recounted": 2,
        "diff_min": 1,
        "diff_sum": 2,
        "decision": None,
    } | other


def report(*times: dict[str, Any], **other: Any) -> ValidateReport:
    return ValidateReport(lower=0, upper=9, since=0, closed=False, version=1, times=list(times), **other)
