"""`make ui`: a port that is not free is reported before Dagster starts."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest

from orchestration.settings import PROJECT


def check(port: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "orchestration.port", port]
    return subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)


def test_a_busy_port_is_reported_with_a_suggestion() -> None:
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        port = busy.getsockname()[1]
        done = check(str(port))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"error: the port {port} of 127.0.0.1 cannot be used: address already in use\nhint: ")
    assert "make ui PORT=3001" in done.stderr
    assert check(str(port)).returncode == 0


@pytest.mark.parametrize("port", ["0", "65536", "80a", "", "-1", "²"])
def test_a_value_that_is_not_a_port_is_refused(port: str) -> None:
    done = check(port)
    assert (done.returncode, done.stderr.partition("\n")[0]) == (1, f"error: {port!r} is not a port")


def test_make_checks_the_port_before_it_starts_dagster() -> None:
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        command = ["make", "--dry-run", "ui", f"PORT={busy.getsockname()[1]}"]
        planned = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=True).stdout
    check_at = planned.index("orchestration.port")
    assert check_at < planned.index("dg dev")
    assert f'--port "{command[-1].removeprefix("PORT=")}"' in planned
