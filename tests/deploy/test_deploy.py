"""The container file, the compose file and the systemd units pass their linters, and the commands in them work."""

from __future__ import annotations

import configparser
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from jobs.tick import STEPS
from tests.docs.blocks import PROJECT
from tests.lakes.lake import RECORD
from tests.services.process import Server, free_ports
from tests.sweeps import swept
from tests.telemetry.exposed import exposed

DEPLOY = PROJECT / "deploy"
CONTAINERFILE = DEPLOY / "container" / "Containerfile"
COMPOSE = DEPLOY / "container" / "compose.yml"
UNITS = sorted((DEPLOY / "systemd").iterdir())
SERVICES = [unit for unit in UNITS if unit.suffix == ".service"]
INSTALLED = "/opt/tidelake"
"""Where the checkout is in the image, and where the units expect it."""
_BIN = Path(sys.executable).parent


def lint(*command: str | Path) -> None:
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def here(text: str) -> str:
    """The text, with the path of this checkout in place of the path of the installation."""
    return text.replace(INSTALLED, str(PROJECT))


def unit(path: Path) -> Mapping[str, str]:
    """The section of a unit that says what to start; the last value of a repeated setting counts."""
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(path.read_text(encoding="utf-8"))
    return parser["Service"]


def services() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = yaml.safe_load(COMPOSE.read_text(encoding="utf-8"))["services"]
    return found


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """The settings of a lake with one collection, whose topic is empty."""
    (tmp_path / "topics" / "prices").mkdir(parents=True)
    block = {"family": "plain", "topic": "prices", "schema": RECORD}
    document = {"store": "store", "topics": "topics", "data_docs": "docs", "collections": {"prices": block}}
    file = tmp_path / "collections.yaml"
    file.write_text(json.dumps(document), encoding="utf-8")
    return file


def variables(config: Path, **more: str) -> dict[str, str]:
    return os.environ | {"TIDELAKE_CONFIG": str(config), "PATH": f"{_BIN}:{os.environ['PATH']}", **more}


def test_the_container_file_passes_its_linter() -> None:
    lint(_BIN / "hadolint", "--failure-threshold", "info", CONTAINERFILE)


def test_the_compose_file_conforms_to_its_specification() -> None:
    lint(_BIN / "check-jsonschema", "--builtin-schema", "vendor.compose-spec", COMPOSE)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not on PATH")
def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    for path in UNITS:
        text = here(path.read_text(encoding="utf-8"))
        (tmp_path / path.name).write_text(re.sub("^(User|Group)=.*$", r"\1=root", text, flags=re.MULTILINE))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *(path.name for path in UNITS)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_every_scheduled_service_has_a_timer_and_a_time_limit() -> None:
    assert {path.stem for path in UNITS if path.suffix == ".timer"} == {"tidelake-tick", "tidelake-nightly"}
    for path in SERVICES:
        settings = unit(path)
        assert ("TimeoutStartSec" in settings) == (settings["Type"] == "oneshot")
        assert settings["NoNewPrivileges"] == "yes"
        assert settings["User"] == "tidelake"


def test_no_port_is_published_to_other_machines_and_nothing_runs_as_root() -> None:
    for name, service in services().items():
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", [])), name
        assert "environment" not in service or not re.search("PASSWORD|SECRET|TOKEN", str(service["environment"])), name
    text = CONTAINERFILE.read_text(encoding="utf-8")
    users = re.findall(r"^USER (\S+)$", text, flags=re.MULTILINE)
    assert users == ["10001:10001"]


def test_everything_that_the_image_copies_exists_and_nothing_that_it_needs_is_ignored() -> None:
    ignored = (PROJECT / ".dockerignore").read_text(encoding="utf-8").split()
    copied = re.findall(r"^COPY (.+) \S+$", CONTAINERFILE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    names = [name.removeprefix("./") for line in copied for name in line.split()]
    assert {"src", "jobs", "assets", "expectations", "orchestration", "requirements.lock", "deploy/steps"} <= set(names)
    for name in names:
        assert (PROJECT / name).exists(), name
        assert name.partition("/")[0] not in ignored, name


def test_the_image_shows_the_status_if_it_is_run_without_a_command(config: Path) -> None:
    [line] = re.findall(r"^CMD (.+)$", CONTAINERFILE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    done = subprocess.run(json.loads(line), env=variables(config), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "prices" in done.stdout


def start(folder: Path, command: Sequence[str], environment: Mapping[str, str], ready: Callable[[], bool]) -> Server:
    server = Server(command[0], command, folder / "server.log")
    server.start(ready, environment)
    return server


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


METRICS = {
    "compose": services()["metrics"]["command"],
    "systemd": shlex.split(here(unit(DEPLOY / "systemd" / "tidelake-metrics.service")["ExecStart"])),
}


@pytest.mark.parametrize("command", swept(METRICS.values(), [METRICS["systemd"]]), ids=METRICS)
def test_the_metrics_are_served(command: list[str], config: Path, tmp_path: Path) -> None:
    [scraped] = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())["scrape_configs"][0][
        "static_configs"
    ]
    port = command[command.index("--serve") + 1]
    assert scraped["targets"] == [f"127.0.0.1:{port}"]
    [free] = free_ports(1)
    url = f"http://127.0.0.1:{free}/metrics"
    replaced = [str(free) if word == port else word for word in command]
    server = start(tmp_path, replaced, variables(config), lambda: answers(url))
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            assert exposed(answer.read().decode())["tidelake_collection_readable", "prices"] == 1
    finally:
        server.stop()


@pytest.mark.slow
@pytest.mark.sweep
def test_the_web_server_and_the_schedules_start(config: Path, tmp_path: Path) -> None:
    home = tmp_path / "dagster"
    home.mkdir()
    shutil.copy(PROJECT / "orchestration" / "dagster.yaml", home)
    environment = variables(config, DAGSTER_HOME=str(home), PYTHONPATH=str(PROJECT))
    [port] = free_ports(1)
    for name, ready in (
        ("dagster", lambda: answers(f"http://127.0.0.1:{port}/server_info")),
        ("schedules", lambda: "configured with the following daemons" in (tmp_path / "schedules.log").read_text()),
    ):
        service = services()[name]
        command = [here(word).replace("0.0.0.0", "127.0.0.1") for word in service["command"]]
        command = [str(port) if word == "3000" else word for word in command]
        server = Server(name, command, tmp_path / f"{name}.log")
        try:
            server.start(ready, environment | service.get("environment", {}))
        finally:
            server.stop()


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("name", swept(["tidelake-tick", "tidelake-nightly"], ["tidelake-tick"]))
def test_the_steps_of_each_unit_succeed(name: str, config: Path) -> None:
    settings = unit(DEPLOY / "systemd" / f"{name}.service")
    command = shlex.split(here(settings["ExecStart"]))
    done = subprocess.run(
        command,
        cwd=here(settings["WorkingDirectory"]),
        env=variables(config, TIDELAKE_LOG_FORMAT="json"),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert re.findall(r'^  "job": "(\w+)"', done.stdout, flags=re.MULTILINE) == command[1:]
    assert (config.parent / "docs").exists() == (name == "tidelake-nightly")  # a full recount writes the report
    if name == "tidelake-tick":
        assert list(json.loads(done.stdout)["results"]["prices"]) == list(STEPS)
    assert all(json.loads(line)["collection"] == "prices" for line in done.stderr.splitlines())


def test_a_wrong_setting_ends_the_steps_at_once(tmp_path: Path) -> None:
    command = [str(DEPLOY / "steps"), "seal", "validate"]
    done = subprocess.run(command, env=variables(tmp_path / "none.yaml"), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr.count("error: ")) == (2, "", 1)
