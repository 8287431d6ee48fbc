"""The user's own expectations are checks in Dagster: full validations judge them, and ticks repeat the verdict."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from dagster import DagsterInstance, ExecuteInProcessResult
from pyspark.sql import SparkSession

from orchestration.run_once import run_nightly_job, run_tick_job
from tests.lakes.dagster_lakes import HISTORY, Lakes, compacted, failed_checks, materialized
from tests.lakes.lake import progress, updates
from tests.sweeps import swept

pytestmark = pytest.mark.spark

CHECK = "id_values_to_be_unique"
OWN = [{"type": "expect_column_values_to_be_unique", "column": "id", "blocking": True}]


def shown(result: ExecuteInProcessResult) -> dict[str, Any]:
    """The metadata of the user's check, with its description."""
    (check,) = [found for found in result.get_asset_check_evaluations() if found.check_name == CHECK]
    return {name: value.value for name, value in check.metadata.items()} | {"description": check.description}


@pytest.mark.parametrize("until", swept(["it has failed", "it passes again"], ["it has failed"]))
def test_a_blocking_expectation_stops_downstream_assets_until_a_full_validation_agrees(
    tmp_path: Path, spark: SparkSession, instance: DagsterInstance, until: str
) -> None:
    lakes = Lakes(tmp_path / "lakes", {"prices": "plain"}, expectations=OWN)
    lakes.send("prices", *HISTORY, updates(((4, 41), 6, 1)), progress([6], [7], {6: 1}))
    first = run_tick_job(lakes.config, instance)
    assert failed_checks(first) == {}
    assert shown(first)["note"] == "not judged yet: only full validations judge this check"

    nightly = run_nightly_job(lakes.config, instance)
    assert failed_checks(nightly) == {f"prices/{CHECK}": "ERROR"}
    assert "2 of 5 rows do not" in shown(nightly)["description"]
    assert compacted(nightly) == set()
    page = lakes.root / "docs" / "collections" / "prices.html"
    assert shown(nightly)["report"] == page.resolve().as_uri()
    assert "failed, blocks downstream assets" in page.read_text(encoding="utf-8")
    if until == "it has failed":
        return

    lakes.send("prices", updates(((4, 41), 7, -1)), progress([7], [8], {7: 1}))
    tick = run_tick_job(lakes.config, instance)
    assert failed_checks(tick) == {f"prices/{CHECK}": "ERROR"}
    assert shown(tick)["note"].startswith("as judged at ") and "2 of 5 rows do not" in shown(tick)["note"]
    assert (materialized(tick), compacted(tick)) == ({"prices"}, set())

    healed = run_nightly_job(lakes.config, instance)
    assert failed_checks(healed) == {}
    assert compacted(healed) == {"prices"}
    assert failed_checks(run_tick_job(lakes.config, instance)) == {}
