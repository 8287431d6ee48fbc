"""A lingering run: messages that arrive are sealed while it polls, and unresolved errors are in its report."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from jobs.job import Report
from jobs.linger import linger
from tests.cli.commands import invoke
from tests.lakes.dagster_lakes import Lakes
from tests.lakes.lake import progress, updates
from tests.sweeps import swept
from tidelake.errors import OptionRefused
from tidelake.lake import Lake
from tidelake.settings.lake import load_settings

_WAIT_S = 60.0


def wait_for(condition: Callable[[], bool]) -> None:
    end_s = time.monotonic() + _WAIT_S
    while not condition():
        assert time.monotonic() < end_s, "waited too long"
        time.sleep(0.1)


@pytest.mark.spark
def test_new_messages_are_sealed_while_the_run_lingers(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobs.linger.MAINTAIN_S", 2.0)
    lakes = Lakes(tmp_path, {"prices": "plain", "visits": "plain"})
    lakes.send("prices", updates((1, 1, 1)), progress([0], [2], {1: 1}))
    reports: list[Report] = []
    settings = load_settings(lakes.config)
    staying = threading.Thread(target=lambda: reports.append(linger(spark, settings, 25.0)))
    staying.start()
    try:
        wait_for(lambda: uppers(lakes) == (2, 0))
        lakes.send("visits", updates((5, 1, 1)), progress([0], [3], {1: 1}))
        wait_for(lambda: uppers(lakes) == (2, 3))
        lakes.send("prices", updates((2, 3, 1)), progress([2], [4], {3: 1}), skip=2)  # offsets 2 and 3 are missing
        time.sleep(2.0)
        lakes.send("visits", updates((6, 3, 1)), progress([3], [5], {3: 1}))
        wait_for(lambda: uppers(lakes) == (2, 5))
    finally:
        staying.join(_WAIT_S)
    (report,) = reports
    assert list(report.errors) == ["prices"]
    assert "offsets 2 to 4 are missing" in str(report.errors["prices"])
    assert set(report.results["visits"]) == {"ingest", "seal", "validate", "compact"}


def uppers(lakes: Lakes) -> tuple[int | None, int | None]:
    """The `upper` of both collections; None before the first tick."""
    found = Lake.open(lakes.config).status()
    prices, visits = (getattr(found[name], "upper", None) for name in ("prices", "visits"))
    return prices, visits


@pytest.mark.parametrize("text", swept(["4", "4 minutes", "0s", "25h", "-1m"], ["4", "25h"]))
def test_a_duration_needs_a_unit_and_must_be_within_bounds(text: str, tmp_path: Path) -> None:
    with pytest.raises(OptionRefused, match="which is not a duration"):
        invoke("run", f"--linger={text}", "--config", str(tmp_path / "collections.yaml"))
