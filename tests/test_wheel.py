"""A wheel works in an environment without the checkout, and none of the checkout's folders can be imported."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from tests.docs.blocks import PROJECT
from tidelake import __version__
from tidelake.spark.jars import jars_folder

_KEYS = (
    "from tidelake.app.orchestration.definitions import defs\n"
    "print(*sorted(key.to_user_string() for key in defs.resolve_asset_graph().get_all_asset_keys()))"
)
FOLDERS = ("jobs", "assets", "expectations", "orchestration")


class Foreign:
    """An environment with the wheel and with the packages that it depends on, and a folder to work in."""

    def __init__(self, root: Path) -> None:
        self.folder, self.environment = root / "work", root / "venv"
        self.folder.mkdir()
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
        self._run([*pip, "wheel", "--no-deps", "--no-build-isolation", "--no-index", "-w", str(root), str(PROJECT)])
        (wheel,) = root.glob("*.whl")
        venv.create(self.environment)
        python = self.environment / "bin" / "python"
        self._run([*pip, "--python", str(python), "install", "--no-deps", "--no-index", str(wheel)])
        (packages,) = (self.environment / "lib").glob("python*/site-packages")
        # In the folder of the dependencies, a .pth file leads to the checkout. Python does not read this file, because
        # the folder itself was added by a .pth file.
        (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
        home = root / "home"
        home.mkdir()
        (home / ".jars").symlink_to(jars_folder(), target_is_directory=True)
        self.variables = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PYTHON", "SPARK", "PYSPARK", "TIDELAKE"))
        } | {"TIDELAKE_HOME": str(home), "PATH": f"{self.environment / 'bin'}:{os.environ['PATH']}"}

    def run(self, *command: str, **variables: str) -> str:
        """Run a command in the folder, and return its output."""
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=self.variables | variables,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    @staticmethod
    def _run(command: list[str]) -> None:
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Foreign:
    return Foreign(tmp_path_factory.mktemp("foreign"))


def test_the_wheel_installs_one_package_and_nothing_else(foreign: Foreign) -> None:
    code = (
        "import importlib.util, json, tidelake\n"
        f"print(json.dumps([tidelake.__file__] + [n for n in {FOLDERS!r} if importlib.util.find_spec(n)]))"
    )
    (where,) = json.loads(foreign.run("python", "-c", code))
    assert where.startswith(str(foreign.environment))
    (packages,) = (foreign.environment / "lib").glob("python*/site-packages")
    names = {path.name for path in packages.iterdir()}
    assert names == {"dependencies.pth", "tidelake", "tidelake-0.1.0.dist-info"}


def test_commands_and_the_location_load(foreign: Foreign) -> None:
    assert foreign.run("tidelake", "--version") == f"tidelake {__version__}\n"
    foreign.run("tidelake", "generate", "orders", "--topics", "topics", "--out", ".", "--updates", "50", "--times", "5")
    foreign.run("tidelake", "init", "topics/orders", "--schema", "orders.avsc")
    assert json.loads(foreign.run("tidelake", "status", "--json")) == {
        "collections": {"orders": None},
        "orphaned": [],
    }
    assert "--collection" in foreign.run("python", "-m", "tidelake.app.jobs.seal", "--help")
    config = str(foreign.folder / "collections.yaml")
    keys = foreign.run("python", "-c", _KEYS, TIDELAKE_CONFIG=config).split()
    assert keys == ["work/orders", "work/orders/current", "work/topics/files/orders"]
    component = foreign.run("python", "-c", "import tidelake; print(tidelake.Lake.__module__)")
    assert component == "tidelake.app.orchestration.component\n"
    assert foreign.run("python", "-c", _KEYS).split() == keys  # the file in the current folder


@pytest.mark.sweep
@pytest.mark.spark
def test_a_topic_becomes_a_table_and_a_location_without_the_checkout(foreign: Foreign) -> None:
    folder = ["--topics", "seal/topics", "--out", "seal"]
    foreign.run("tidelake", "generate", "orders", *folder, "--updates", "50", "--times", "5")
    config = ["--config", "seal/collections.yaml"]
    foreign.run("tidelake", "init", "seal/topics/orders", "--schema", "seal/orders.avsc", *config)
    ran = foreign.run("tidelake", "run", *config).splitlines()
    assert ran[1] == "orders: seal: 5 new times are sealed, upper is 5"
    status = json.loads(foreign.run("tidelake", "status", "--json", *config))["collections"]["orders"]
    assert (status["upper"], status["state"]) == (5, "in order")
    assert '"ok": true' in foreign.run("tidelake", "doctor", "--json", *config)
