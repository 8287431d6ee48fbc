"""Bad input for a lake, and helpers that check the effects."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import structlog
from pyspark.sql import SparkSession

from expectations.frame import result_frame
from expectations.judge import judge
from expectations.suite import build_suite
from jobs import ingest
from tests.lakes.lake import NAME, Lake, encode
from tidelake.read.snapshot import snapshot
from tidelake.read.status import CollectionStatus, read_status
from tidelake.topic.open import open_topics

BEYOND = b"\x80" * 9 + b"\x02"
"""2^63 as Avro would write it."""


def status_of(lake: Lake) -> CollectionStatus:
    """The status that `tidelake status` shows."""
    settings = lake.settings.collection(NAME)
    return read_status(lake.collection, open_topics(settings, lake.collection.entry.decisions))


def failing_checks(lake: Lake) -> set[str]:
    """The checks that fail in a full validation."""
    settings = lake.settings.collection(NAME)
    frame = result_frame(lake.validate(full=True), status_of(lake), frontier_age_s=0)
    return {verdict.check for verdict in judge(frame, build_suite(settings)) if not verdict.passed}


_INNER = {"type": "record", "name": "inner", "fields": [{"name": "s", "type": ["null", "string"]}]}


NESTED = {
    "type": "record",
    "name": "data",
    "fields": [{"name": "n", "type": ["null", _INNER]}, {"name": "text", "type": "string"}],
}


def check_extremes(lake: Lake) -> None:
    """Check that a collection of `NESTED` stores extreme values unchanged and quarantines numbers beyond int64."""
    good: list[dict[str, Any]] = [
        {"n": None, "text": ""},
        {"n": {"s": None}, "text": ""},
        {"n": {"s": ""}, "text": "x" * 2**20},
    ]
    lake.send(encode([{"data": value, "time": 1, "diff": 1} for value in good], NESTED))
    lake.send(b"\x00\x02\x00\x00" + BEYOND + b"\x02\x00", b"\x00\x02\x00\x00\x02" + BEYOND + b"\x00")
    lake.send(encode({"lower": [0], "upper": [2], "counts": [{"time": 1, "count": 3}]}, NESTED))
    assert lake.run().upper == 2
    assert lake.quarantined() == [(1, "undecodable"), (2, "undecodable")]
    rows = [row.asDict(recursive=True) for row in snapshot(lake.spark, lake.collection, 1).contents.collect()]
    assert sorted(map(repr, rows)) == sorted(repr({**value, "_diff": 1}) for value in good)
    assert failing_checks(lake) == {"quarantine_is_explained"}


def check_refused(
    tmp_path: Path,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    text: str,
    message: str,
) -> None:
    """Check that the ingest job, called as a shell would call it, names the error and a fix, and writes nothing."""
    (tmp_path / "topics" / NAME).mkdir(parents=True, exist_ok=True)
    file = tmp_path / "collections.yaml"
    file.write_text(text, encoding="utf-8")
    monkeypatch.setattr("jobs.job.start_session", lambda **_: spark)
    status = ingest.main(["--config", str(file)])
    structlog.reset_defaults()
    assert status == 2
    stderr = capsys.readouterr().err
    assert stderr.startswith("error: ")
    assert message in stderr
    assert "\nhint: " in stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["collections.yaml", "topics"]
