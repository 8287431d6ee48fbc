"""The alert rules that come with Tidelake: valid, tested, complete, and evaluated by a real Prometheus."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from pyspark.sql import SparkSession

from tests.cli.commands import TIDELAKE
from tests.docs.anchors import anchors_of
from tests.docs.blocks import PROJECT
from tests.lakes.lake import NAME, Lake, progress, updates
from tests.services.process import Server
from tests.services.prometheus import prometheus, tool
from tidelake.read.verdict import PROBLEM_KINDS
from tidelake.telemetry import lake_metrics, step_files
from tidelake.telemetry.exposition import PREFIX

FOLDER = PROJECT / "deploy" / "prometheus"
RULES: list[dict[str, Any]] = [
    rule
    for group in yaml.safe_load((FOLDER / "alerts.yml").read_text(encoding="utf-8"))["groups"]
    for rule in group["rules"]
]
_WAIT_S = 60


def metric_names() -> set[str]:
    """The names of all metrics."""
    return {PREFIX + metric.name for metric in (*lake_metrics.METRICS, *step_files.METRICS)}


@pytest.mark.parametrize("arguments", [("check", "rules", "alerts.yml"), ("test", "rules", "alerts_test.yml"),
                                       ("check", "config", "prometheus.yml")], ids=" ".join)  # fmt: skip
def test_prometheus_accepts_the_rules_and_their_tests(arguments: tuple[str, ...]) -> None:
    done = subprocess.run([tool("promtool"), *arguments], cwd=FOLDER, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "FAILED" not in done.stdout


def test_every_problem_has_an_alert() -> None:
    expressions = " ".join(rule["expr"] for rule in RULES)
    assert set(re.findall(r'tidelake_problem\{problem="(\w+)"\}', expressions)) == set(PROBLEM_KINDS)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: str(rule["alert"]))
def test_an_alert_uses_existing_metrics_and_leads_to_an_existing_page(rule: dict[str, Any]) -> None:
    used = set(re.findall(r"tidelake_\w+", rule["expr"]))
    assert used <= metric_names()
    assert rule["labels"]["severity"] in {"page", "ticket"}
    assert {"summary", "description", "runbook"} == set(rule["annotations"])
    page, _, anchor = rule["annotations"]["runbook"].partition("#")
    assert anchor in anchors_of(PROJECT / page)


def wait_for(condition: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + _WAIT_S
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.2)


@pytest.mark.spark
def test_a_lost_message_raises_an_alert_that_ends_when_the_message_arrives(tmp_path: Path, spark: SparkSession) -> None:
    tool("prometheus")  # skips before anything is started
    lake = Lake(tmp_path / "lake", spark, stalled_after_s=2)
    lake.send(progress([0], [4], {1: 1, 2: 2, 3: 1}), updates((1, 1, 1), (2, 2, 1), (4, 3, 1)))
    lake.run()
    server = Server("metrics", [*TIDELAKE, "metrics", "--config", str(lake.file), "--serve", "0"], tmp_path / "log")
    try:
        server.start(lambda: "/metrics" in server.said())
        [target] = re.findall(r"http://(127\.0\.0\.1:\d+)/metrics", server.said())
        with prometheus(tmp_path, FOLDER / "alerts.yml", "tidelake", target) as monitor:
            wait_for(lambda: ("TidelakeStalled", NAME) in monitor.firing(), "the alert does not fire")
            [waiting] = monitor.get("query?query=tidelake_pending_rows")["result"]
            assert (waiting["metric"]["collection"], waiting["value"][1]) == (NAME, "2")
            lake.send(updates((3, 2, 1)))
            lake.run()
            wait_for(lambda: not monitor.firing(), "the alert does not end")
            [upper] = monitor.get("query?query=tidelake_upper")["result"]
            assert upper["value"][1] == "4"
    finally:
        server.stop()
