"""What each step of a small lake reports to monitoring: text files, OpenTelemetry, and structured logs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import structlog
from pyspark.sql import SparkSession

from jobs import ingest
from jobs.ingest import IngestReport
from tests.lakes.lake import NAME, Lake, progress, updates
from tests.telemetry.collector import Collector, attributes, collecting
from tests.telemetry.exposed import exposed
from tidelake.errors import ConfigurationError, TidelakeError
from tidelake.seal.report import SealReport
from tidelake.telemetry.logs import configure_logs
from tidelake.telemetry.start import start_telemetry
from tidelake.telemetry.steps import COUNTS, TEXTS, StepOutcome, has_listeners, listen, stop_listening

STEPS = ("ingest", "seal", "validate", "compact", "current")


@dataclass
class Reported:
    """The reports about one run of all steps, and about an ingest that failed afterwards."""

    ingested: IngestReport
    sealed: SealReport
    error: TidelakeError
    files: dict[str, dict[tuple[str, ...], float]]
    """The series in each step's file, by step; the key `failed` has those of the ingest that failed."""
    lines: list[dict[str, Any]]
    collector: Collector


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Iterator[Reported]:
    root = tmp_path_factory.mktemp("reported")
    folder, log = root / "metrics", root / "log.jsonl"
    folder.mkdir()
    lake = Lake(root / "lake", spark)
    lake.send(progress([0], [4], {1: 2, 2: 1, 3: 1}), updates((1, 1, 1), (2, 1, 1)), updates((1, 1, 1), (3, 2, 1)))
    lake.send(b"\x07 garbage")
    with collecting() as collector, pytest.MonkeyPatch.context() as patch:
        patch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        patch.setenv("TIDELAKE_METRICS_FOLDER", str(folder))
        patch.setenv("TIDELAKE_LOG_FORMAT", "json")
        patch.setenv("TIDELAKE_LOG_FILE", str(log))
        stream = configure_logs(os.environ)
        start_telemetry(os.environ)
        try:
            ingested, sealed = lake.ingest(), lake.seal()
            lake.validate()
            lake.compact()
            lake.current()
            files = {step: exposed((folder / f"tidelake-{NAME}-{step}.prom").read_text()) for step in STEPS}
            with (lake.topic / "0.jsonl").open("a", encoding="utf-8") as messages:
                messages.write("not a message\n")
            error = ingest.run(spark, lake.settings).errors[NAME]
            files["failed"] = exposed((folder / f"tidelake-{NAME}-ingest.prom").read_text())
        finally:
            stop_listening()
            structlog.reset_defaults()
            stream.close()
        lines = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
        yield Reported(ingested, sealed, error, files, lines, collector)


@pytest.mark.spark
def test_the_text_file_of_a_step_has_the_numbers_of_its_report(reported: Reported) -> None:
    ingested, sealed = reported.files["ingest"], reported.files["seal"]
    assert ingested["tidelake_step_messages", NAME, "ingest"] == reported.ingested.messages == 4
    assert ingested["tidelake_step_rows", NAME, "ingest"] == reported.ingested.updates_stored
    assert ingested["tidelake_step_quarantined_messages", NAME, "ingest"] == 1
    assert sealed["tidelake_step_times", NAME, "seal"] == reported.sealed.times_sealed == 2
    copies = ingested["tidelake_step_copies", NAME, "ingest"] + sealed["tidelake_step_copies", NAME, "seal"]
    assert copies == 1
    for step in STEPS:
        found = reported.files[step]
        assert found["tidelake_step_succeeded", NAME, step] == 1
        assert 0 < found["tidelake_step_duration_seconds", NAME, step] < 300
        counted = {series[0].removeprefix("tidelake_step_") for series in found} & set(TEXTS)
        assert counted == set(COUNTS[step])


@pytest.mark.spark
def test_a_step_that_fails_says_so_and_keeps_what_it_counted(reported: Reported) -> None:
    assert reported.files["failed"]["tidelake_step_succeeded", NAME, "ingest"] == 0
    assert reported.files["failed"]["tidelake_step_messages", NAME, "ingest"] == 0


@pytest.mark.spark
def test_a_collector_gets_a_span_and_counters_for_each_step(reported: Reported) -> None:
    spans = reported.collector.spans()
    assert [span.name for span in spans] == [*(f"tidelake.{step}" for step in STEPS), "tidelake.ingest"]
    first, last = spans[0], spans[-1]
    assert attributes(first.attributes) == {
        "tidelake.collection": NAME,
        "tidelake.step": "ingest",
        **{
            f"tidelake.{name}": count
            for name, count in zip(COUNTS["ingest"], counts_of(reported.ingested), strict=True)
        },
    }
    assert first.end_time_unix_nano > first.start_time_unix_nano
    assert (last.status.code, last.status.message) == (2, type(reported.error).__name__)
    found = reported.collector.metrics()
    messages = {point.as_int for point in found["tidelake.step.messages"].sum.data_points}
    assert messages == {4}
    assert sum(point.count for point in found["tidelake.step.duration"].histogram.data_points) == len(spans)
    assert sum(point.as_int for point in found["tidelake.step.failures"].sum.data_points) == 1


def counts_of(ingested: IngestReport) -> list[int]:
    values = [getattr(ingested, attribute) for attribute in COUNTS["ingest"].values()]
    return [len(value) if isinstance(value, list) else value for value in values]


@pytest.mark.spark
def test_every_log_line_has_its_collection_and_the_frontiers_and_offsets_that_are_known(reported: Reported) -> None:
    assert all({"timestamp", "level", "event", "collection"} <= set(line) for line in reported.lines), reported.lines
    by_event = {line["event"]: line for line in reported.lines}
    ingested, sealed = by_event["ingested"], by_event["sealed"]
    assert (ingested["step"], ingested["lower"], ingested["upper"]) == ("ingest", 0, 0)
    assert ingested["offsets"] == {NAME: {"0": 4}}
    assert (sealed["step"], sealed["lower"], sealed["upper"]) == ("seal", 0, reported.sealed.upper)
    assert (by_event["validated"]["lower"], by_event["validated"]["upper"]) == (3, 3)
    stopped = by_event["ingest stopped"]
    assert (stopped["level"], stopped["error"]) == ("error", type(reported.error).__name__)


def outcome() -> StepOutcome:
    return StepOutcome("seal", NAME, 1.0, 2.0)


class Broken:
    """A listener that always fails."""

    def record(self, outcome: StepOutcome) -> None:
        raise OSError("the disk is full")

    def close(self) -> None:
        raise OSError("the disk is full")


@pytest.mark.spark
def test_monitoring_that_fails_does_not_stop_a_step(lake: Lake, capsys: pytest.CaptureFixture[str]) -> None:
    lake.send(progress([0], [2], {1: 1}), updates((1, 1, 1)))
    configure_logs({})
    listen(Broken())
    try:
        assert lake.run().upper == 2
    finally:
        stop_listening()
        structlog.reset_defaults()
    assert not has_listeners()
    logged = capsys.readouterr().err
    assert logged.count("telemetry was not recorded") == 2
    assert "the disk is full" in logged


def test_nobody_listens_unless_the_environment_asks_for_it(tmp_path: Path) -> None:
    start_telemetry({})
    start_telemetry({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_SDK_DISABLED": "true"})
    assert not has_listeners()
    with pytest.raises(ConfigurationError, match="which is not a folder\nhint: create it"):
        start_telemetry({"TIDELAKE_METRICS_FOLDER": str(tmp_path / "none")})
    assert not has_listeners()


def test_opentelemetry_is_imported_only_for_an_endpoint() -> None:
    code = (
        "import sys\nfrom tidelake.telemetry.start import start_telemetry\nstart_telemetry({})\n"
        "assert 'opentelemetry' not in sys.modules\n"
        "sys.modules['opentelemetry.sdk.metrics'] = None\n"
        "start_telemetry({'OTEL_EXPORTER_OTLP_ENDPOINT': 'http://127.0.0.1:1'})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "is not installed\nhint: install the extra `otlp`, or unset the variable" in done.stderr
