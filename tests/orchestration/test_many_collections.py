"""A lake of 1,000 collections loads in seconds."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from orchestration.settings import PROJECT
from tests.lakes.dagster_lakes import Lakes

COLLECTIONS = 1_000
SECONDS_MAX = 10.0
LOAD = """
import json, time
started = time.process_time()
from orchestration.definitions import defs
repository = defs.get_repository_def()
jobs = [repository.get_job(name) for name in ("tick", "rebuild_current", "nightly")]
graph = repository.asset_graph
print(json.dumps({"seconds": time.process_time() - started, "assets": len(graph.get_all_asset_keys())}))
"""


@pytest.mark.sweep
def test_a_location_of_1000_collections_loads_in_less_than_ten_seconds(tmp_path: Path) -> None:
    families = ("plain", "append_only")
    lakes = Lakes(tmp_path, {f"c{number:04}": families[number % 2] for number in range(COLLECTIONS)})
    loaded = subprocess.run(
        [sys.executable, "-c", LOAD],
        cwd=PROJECT,
        env={"TIDELAKE_CONFIG": str(lakes.config)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert loaded.returncode == 0, loaded.stderr[-4000:]
    measured = json.loads(loaded.stdout)
    assert measured["assets"] == 3 * COLLECTIONS
    assert measured["seconds"] < SECONDS_MAX
