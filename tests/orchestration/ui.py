"""Dagster's UI for a test: on a free local port, queried through the GraphQL that its pages use, and always stopped."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import ProxyHandler, Request, build_opener

import psutil

from orchestration.settings import PROJECT

START_TIMEOUT_S = 120.0
_STOP_TIMEOUT_S = 20.0
_DIRECT = build_opener(ProxyHandler({}))
_ENDED = ("SUCCESS", "FAILURE", "CANCELED")
_LOADED = """{ workspaceOrError { ... on Workspace { locationEntries { name locationOrLoadError {
  __typename ... on PythonError { message } } } } } }"""
_LAUNCH = """mutation Launch($job: String!, $config: RunConfigData) {
  launchRun(executionParams: {runConfigData: $config, selector: {
    repositoryLocationName: "orchestration", repositoryName: "__repository__", pipelineName: $job}}) {
    __typename
    ... on LaunchRunSuccess { run { runId } }
    ... on PythonError { message }
    ... on RunConfigValidationInvalid { errors { message } }
  } }"""
_ASSET = """query Asset($path: [String!]!) { assetNodeOrError(assetKey: {path: $path}) { ... on AssetNode {
  assetMaterializations(limit: 1) { runId metadataEntries {
    label ... on IntMetadataEntry { intValue } ... on TextMetadataEntry { text } } }
  assetChecksOrError { ... on AssetChecks { checks { name executionForLatestMaterialization {
    runId evaluation { success severity description metadataEntries { label ... on TextMetadataEntry { text } } }
  } } } } } } }"""


@dataclass(frozen=True)
class DagsterUi:
    """A running webserver; `address` is its URL without a slash at the end."""

    address: str

    def ask(self, query: str, **variables: Any) -> Any:
        """Send a GraphQL request, and return its data."""
        body = json.dumps({"query": query, "variables": variables}).encode()
        request = Request(f"{self.address}/graphql", body, {"Content-Type": "application/json"})
        with _DIRECT.open(request, timeout=60) as answer:
            document = json.load(answer)
        assert "errors" not in document, document["errors"]
        return document["data"]

    def asset(self, *path: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """The newest metadata of an asset, by label, and the evaluations of its checks, by check name."""
        node = self.ask(_ASSET, path=path)["assetNodeOrError"]
        newest = node["assetMaterializations"][0]["metadataEntries"] if node["assetMaterializations"] else []
        numbers = {entry["label"]: entry.get("intValue", entry.get("text")) for entry in newest}
        checks = {}
        for check in node["assetChecksOrError"]["checks"]:
            execution = check["executionForLatestMaterialization"]
            if execution is not None and execution["evaluation"] is not None:
                evaluation = execution["evaluation"]
                texts = {entry["label"]: entry.get("text") for entry in evaluation.pop("metadataEntries")}
                checks[check["name"]] = evaluation | {"runId": execution["runId"], "metadata": texts}
        return numbers, checks

    def run(self, job: str, config: Mapping[str, Any], timeout_s: float = 300.0) -> str:
        """Launch a job, as the button does, and wait until its run has ended; return its status."""
        launched = self.ask(_LAUNCH, job=job, config=config)["launchRun"]
        assert launched["__typename"] == "LaunchRunSuccess", launched
        run, end = launched["run"]["runId"], time.monotonic() + timeout_s
        while time.monotonic() < end:
            answer = self.ask("query Run($id: ID!) { runOrError(runId: $id) { ... on Run { status } } }", id=run)
            status: str = answer["runOrError"]["status"]
            if status in _ENDED:
                return status
            time.sleep(0.5)
        raise TimeoutError(f"the run {run} has not ended after {timeout_s:g} s")


@contextmanager
def webserver(environment: Mapping[str, str], log: Path) -> Iterator[DagsterUi]:
    """Start Dagster's webserver alone, without the daemon that starts runs: for looking at what has happened.

    Args:
        environment: `DAGSTER_HOME` and `TIDELAKE_CONFIG`.
        log: the file for what it prints.
    """
    port = free_port()
    command = [sys.executable, "-m", "dagster_webserver", "--host", "127.0.0.1", "--port", str(port)]
    paths = {"PYTHONPATH": os.pathsep.join((str(PROJECT / "src"), str(PROJECT)))}
    with dagster_ui([*command, "--workspace", "workspace.yaml"], port, log, PROJECT, {**paths, **environment}) as ui:
        yield ui


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


@contextmanager
def dagster_ui(
    command: Sequence[str], port: int, log: Path, cwd: Path, environment: Mapping[str, str]
) -> Iterator[DagsterUi]:
    """Start a command that serves the UI on a port; wait until the code locations are loaded."""
    ui = DagsterUi(f"http://127.0.0.1:{port}")
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=cwd,
            env=os.environ | environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        _wait_for(ui, process, log)
        yield ui
    finally:
        _stop(process)


def _wait_for(ui: DagsterUi, process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < end:
        assert process.poll() is None, log.read_text(errors="replace")[-4000:]
        try:
            entries = ui.ask(_LOADED)["workspaceOrError"]["locationEntries"]
        except (URLError, ConnectionError, TimeoutError):
            entries = []
        if entries and all(entry["locationOrLoadError"] for entry in entries):
            assert {entry["locationOrLoadError"]["__typename"] for entry in entries} == {"RepositoryLocation"}, entries
            return
        time.sleep(0.5)
    raise TimeoutError(f"no UI after {START_TIMEOUT_S:g} s: {log.read_text(errors='replace')[-4000:]}")


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Stop the command and everything that it has started, the code servers included."""
    try:
        children = psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        children = []
    process.send_signal(signal.SIGINT)
    for child in children:
        if child.is_running():
            child.terminate()
    _, alive = psutil.wait_procs(children, timeout=_STOP_TIMEOUT_S)
    for child in alive:
        child.kill()
    if process.poll() is None:
        process.kill()
    process.wait(timeout=_STOP_TIMEOUT_S)
