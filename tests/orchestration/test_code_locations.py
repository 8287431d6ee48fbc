"""The lake as its own code location next to a foreign one, and as a component inside a foreign project."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from dagster import DagsterInstance
from dagster._core.workspace.context import WorkspaceProcessContext, WorkspaceRequestContext
from dagster._core.workspace.load_target import WorkspaceFileTarget
from dagster_graphql.schema import create_schema

from orchestration.run_once import run_tick_job
from orchestration.settings import PROJECT
from tests.lakes.dagster_lakes import Lakes
from tests.sweeps import swept

FOREIGN = """
from pathlib import Path
from dagster import load_from_defs_folder
defs = load_from_defs_folder(path_within_project=Path(__file__).parent)
"""
OWN = """
from dagster import AssetKey, Definitions, asset, job, op

@asset(deps=[AssetKey(["eu", "prices", "current"])])
def report() -> None:
    pass

@op
def nothing() -> None:
    pass

@job
def tick() -> None:
    nothing()

defs = Definitions(assets=[report], jobs=[tick])
"""


@pytest.fixture
def workspace(
    tmp_path: Path, instance: DagsterInstance, lakes: Lakes, monkeypatch: pytest.MonkeyPatch
) -> Iterator[WorkspaceRequestContext]:
    """Two gRPC servers: the project's own location, and a foreign project with the component of another lake."""
    monkeypatch.setenv("TIDELAKE_CONFIG", str(lakes.config))
    project = tmp_path / "foreign"
    (project / "shop" / "defs" / "lake").mkdir(parents=True)
    other = Lakes(tmp_path / "eu", {"prices": "upsert"}, key="id")
    component = {"type": "tidelake.Lake", "attributes": {"config": str(other.config), "prefix": "eu_"}}
    (project / "shop" / "defs" / "lake" / "defs.yaml").write_text(yaml.safe_dump(component), encoding="utf-8")
    (project / "shop" / "defs" / "own.py").write_text(OWN, encoding="utf-8")
    (project / "shop" / "__init__.py").touch()
    (project / "shop" / "definitions.py").write_text(textwrap.dedent(FOREIGN), encoding="utf-8")
    (project / "pyproject.toml").write_text(
        '[tool.dg]\ndirectory_type = "project"\n[tool.dg.project]\nroot_module = "shop"\n', encoding="utf-8"
    )
    monkeypatch.setenv("PYTHONPATH", f"{PROJECT}:{PROJECT / 'src'}")
    own = yaml.safe_load((PROJECT / "workspace.yaml").read_text(encoding="utf-8"))
    own["load_from"][0]["python_file"] |= {"working_directory": str(PROJECT)}
    own["load_from"][0]["python_file"]["relative_path"] = str(PROJECT / "orchestration" / "definitions.py")
    foreign = {"module_name": "shop.definitions", "working_directory": str(project), "location_name": "foreign"}
    own["load_from"].append({"python_module": foreign})
    file = tmp_path / "workspace.yaml"
    file.write_text(yaml.safe_dump(own), encoding="utf-8")
    with WorkspaceProcessContext(instance, WorkspaceFileTarget([str(file)])) as process:
        yield process.create_request_context()


def asked(workspace: WorkspaceRequestContext, query: str) -> Any:
    answer = create_schema().execute(query, context_value=workspace)
    assert answer.errors is None, answer.errors
    return answer.data


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("has_run", swept([False, True], [False]), ids=["loaded", "after a tick"])
def test_two_code_locations_load_side_by_side_and_the_overview_shows_the_runs_of_the_first(
    spark: Any, workspace: WorkspaceRequestContext, instance: DagsterInstance, lakes: Lakes, has_run: bool
) -> None:
    errors = {name: entry.load_error for name, entry in workspace.get_code_location_entries().items()}
    assert errors == {"orchestration": None, "foreign": None}
    if has_run:
        assert run_tick_job(lakes.config, instance).success
    shown = asked(
        workspace,
        """{
          workspaceOrError { ... on Workspace { locationEntries { name locationOrLoadError {
            ... on RepositoryLocation { repositories {
              name
              pipelines { name isAssetJob runs { pipelineName status } }
              assetNodes { assetKey { path } groupName }
            } } } } } }
          runsOrError(filter: {tags: [{key: ".dagster/repository", value: "__repository__@orchestration"}]}) {
            ... on Runs { results { pipelineName status } } }
          assetChecksOrError: assetNodeOrError(assetKey: {path: ["lakes", "prices"]}) {
            ... on AssetNode { assetChecksOrError { ... on AssetChecks { checks { name canExecuteIndividually } } } } }
        }""",
    )
    # A run started from the shell has the location's label, by which the overview finds runs.
    runs = [{"pipelineName": "tick", "status": "SUCCESS"}] if has_run else []
    assert shown["runsOrError"]["results"] == runs
    locations = {
        entry["name"]: entry["locationOrLoadError"]["repositories"][0]
        for entry in shown["workspaceOrError"]["locationEntries"]
    }
    keys = {name: {"/".join(node["assetKey"]["path"]) for node in own["assetNodes"]} for name, own in locations.items()}
    assert {"lakes/prices", "lakes/prices/current"} <= keys["orchestration"]
    assert {"eu/prices", "eu/prices/current", "eu/topics/files/prices", "report"} == keys["foreign"]
    jobs = {name: {job["name"] for job in own["pipelines"]} for name, own in locations.items()}
    assert {"tick", "rebuild_current", "nightly", "observe_topics"} <= jobs["orchestration"]
    assert {"tick", "eu_tick", "eu_rebuild_current", "eu_nightly", "eu_observe_topics"} <= jobs["foreign"]
    checks = shown["assetChecksOrError"]["assetChecksOrError"]["checks"]
    assert {check["canExecuteIndividually"] for check in checks} == {"CAN_EXECUTE"}
    assert len(checks) == 13
