"""`keep_rows`: which rules are accepted, and why others are refused. These tests do not start a JVM."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from tidelake.errors import ConfigurationError
from tidelake.settings.lake import load_settings
from tidelake.settings.row_retention import RowRetention

FIELDS = [
    {"name": "id", "type": "long"},
    {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}]},
    {"name": "day", "type": {"type": "int", "logicalType": "date"}},
    {"name": "page", "type": "string"},
]
RECLOCKED = {"framing": "reclock", "format": "json", "metadata": ["timestamp"]}


def rule_of(root: Path, keep_rows: Any, **more: Any) -> RowRetention | None:
    block = {"envelope": "append_only", "topic": "visits", "keep_rows": keep_rows} | more
    block["schema"] = {"type": "record", "name": "visit", "fields": FIELDS}
    file = root / "collections.yaml"
    file.write_text(yaml.safe_dump({"store": "s", "topics": "t", "data_docs": "d", "collections": {"visits": block}}))
    return load_settings(file).collection("visits").keep_rows


@pytest.mark.parametrize(
    ("written", "more", "kind", "unit_us"),
    [
        ({"column": "at", "for": "30d"}, {}, "timestamp", 1),
        ({"column": "day", "for": "30d"}, {}, "date", 1),
        ({"column": "id", "for": "30d", "unit": "s"}, {}, "number", 1_000_000),
        ({"column": "_time", "for": "30d"}, RECLOCKED, "number", 1_000),
        ({"column": "_time", "for": "30d"}, RECLOCKED | {"keep": "31d"}, "number", 1_000),
        ({"column": "_time", "for": "30d", "unit": "us"}, {}, "number", 1),
        ({"column": "_time", "for": "1d", "unit": "s"}, {"keep": 86_400}, "number", 1_000_000),
        ({"column": "kafka_timestamp", "for": "30d"}, RECLOCKED, "timestamp", 1),
    ],
)
def test_rules_that_name_points_in_time_are_accepted(
    tmp_path: Path, written: Any, more: Any, kind: str, unit_us: int
) -> None:
    rule = rule_of(tmp_path, written, **more)
    assert rule is not None and (rule.column, rule.kind, rule.unit_us) == (written["column"], kind, unit_us)
    assert rule.step_ms == rule.duration_ms // 100


@pytest.mark.parametrize(
    ("written", "more", "problem"),
    [
        ("30d", {}, "keep_rows: is not a mapping"),
        ({"for": "30d"}, {}, "column: is missing or not a name"),
        ({"column": "at"}, {}, "for: is missing"),
        ({"column": "at", "for": "a while"}, {}, "for: should be a duration"),
        ({"column": "at", "for": "30d", "until": 3}, {}, "until: is not a known key"),
        ({"column": "at", "for": "30d", "unit": "ms"}, {}, "unit: is not allowed for a timestamp"),
        ({"column": "id", "for": "30d"}, {}, "unit: is missing: 'id' holds numbers"),
        ({"column": "id", "for": "30d", "unit": "h"}, {}, "unit: should be one of s, ms, us"),
        ({"column": "page", "for": "30d"}, {}, "column: is 'page', which holds no points in time"),
        (
            {"column": "when", "for": "30d"},
            {},
            "column: is not a column of the schema: 'when'\nhint: name one of: id, at, day, _time",
        ),
        ({"column": "_time", "for": "30d"}, {}, "unit: is missing: the source states the times"),
        ({"column": "_time", "for": "30d", "unit": "ms"}, RECLOCKED, "unit: is not allowed: minted times"),
        ({"column": "_time", "for": "30d"}, RECLOCKED | {"keep": "29d"}, "column: is _time, but `keep` lets"),
        ({"column": "_time", "for": "30d", "unit": "ms"}, {"keep": "90d"}, "column: is _time, but `keep` lets"),
        ({"column": "_time", "for": "1d", "unit": "s"}, {"keep": 86_399}, "column: is _time, but `keep` lets"),
        ({"column": "at", "for": "30d"}, {"envelope": "none"}, "keep_rows: is not allowed for the envelope 'none'"),
    ],
)
def test_other_rules_are_refused_by_name(tmp_path: Path, written: Any, more: Any, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=r"collections\.visits\.keep_rows") as raised:
        rule_of(tmp_path, written, **more)
    assert problem in str(raised.value)


def test_old_rows_are_sought_again_after_a_hundredth_of_the_duration_but_at_least_daily() -> None:
    def step(**duration: int) -> timedelta:
        rule = RowRetention(column="at", kind="timestamp", duration=timedelta(**duration))
        return timedelta(milliseconds=rule.step_ms)

    assert (step(days=50), step(days=3650), step(seconds=1)) == (
        timedelta(hours=12),
        timedelta(days=1),
        timedelta(milliseconds=10),
    )
