"""The asset of a published topic: each tick publishes what it has sealed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from dagster import DagsterInstance
from pyspark.sql import SparkSession

from orchestration.location import build_location
from orchestration.run_once import run_tick_job
from orchestration.settings import Environment
from tests.lakes.dagster_lakes import HISTORY, Lakes, materialized, metadata
from tests.lakes.lake import progress, updates
from tests.sweeps import swept
from tidelake.topic.files import FileTopic

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("ticks", swept([1, 3], [1]))
def test_a_tick_publishes_what_it_has_sealed(
    tmp_path: Path, spark: SparkSession, instance: DagsterInstance, ticks: int
) -> None:
    lakes = Lakes(tmp_path, {"prices": "plain", "visits": "append_only"})
    document = json.loads(json.dumps(lakes.document))
    document["collections"]["prices"]["publish"] = {"to": "prices_out"}
    lakes.write(document)
    for name in ("prices", "visits"):
        lakes.send(name, *HISTORY)
    assets = build_location(Environment(config_file=lakes.config)).resolve_asset_graph().get_all_asset_keys()
    assert {key.path[1] for key in assets if key.path[2:] == ["published"]} == {"prices"}
    for frontier, is_new in ((6, True), (6, False))[:ticks]:
        result = run_tick_job(lakes.config, instance)
        assert result.success
        assert materialized(result) == {"prices", "visits", "prices/published"}
        stated = metadata(result, "prices", "published")
        assert (stated["frontier"], stated["statements"] > 0) == (frontier, is_new)
    if ticks == 3:
        lakes.send("prices", updates(((5, 50), 7, 1)), progress([6], [9], {7: 1}))
        assert metadata(run_tick_job(lakes.config, instance), "prices", "published")["frontier"] == 9
    assert FileTopic(tmp_path / "topics" / "prices_out").end_offsets()[0] > (2 if ticks == 3 else 0)
