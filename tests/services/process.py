"""A server as a child process, with a log, a time limit for its start, and a guaranteed end."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tidelake.spark.jars import SERVICES_FOLDER, SERVICES_LOCK, java_command, locked_jars, resolve

START_TIMEOUT_S = 180.0
"""The time limit for a start, far longer than a start takes on an idle machine."""
_STOP_TIMEOUT_S = 30.0
_PR_SET_PDEATHSIG = 1
_POLL_S = 0.05


class Server:
    """A process that can be stopped, killed and restarted with the same command."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log: Path,
        *,
        stop_signal: int = signal.SIGTERM,
        orphan_signal: int = signal.SIGKILL,
        user: int | None = None,
    ) -> None:
        """Describe a server; nothing is started yet.

        Args:
            name: the name of the server in errors.
            command: a command that stays in the foreground.
            log: the file to which standard output and error are appended.
            stop_signal: the signal that asks the server to end.
            orphan_signal: what the kernel sends the server when the test process ends, for whatever reason.
            user: the user id that the server runs under; None: that of the tests.
        """
        self.name, self.command, self.log = name, list(command), log
        self._stop_signal, self._orphan_signal, self._user = stop_signal, orphan_signal, user
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, ready: Callable[[], bool], environment: Mapping[str, str] | None = None) -> None:
        """Start the server, and return as soon as `ready` is true.

        Raises:
            AssertionError: the server ended, or was not ready in time; the message contains the end of the log.
        """
        assert self._process is None, f"{self.name} is already running"
        libc = ctypes.CDLL(None)

        def end_with_the_tests() -> None:
            libc.prctl(_PR_SET_PDEATHSIG, self._orphan_signal)

        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, **(environment or {})},
                start_new_session=True,  # Ctrl-C goes to the tests, which then stop their servers in order
                preexec_fn=end_with_the_tests,
                user=self._user,
                group=self._user,
                extra_groups=None if self._user is None else [],
            )
        end = time.monotonic() + START_TIMEOUT_S
        while not ready():
            if self._process.poll() is not None:
                code, self._process = self._process.returncode, None
                raise AssertionError(f"{self.name} ended with {code} before it was ready:\n{self.said()}")
            if time.monotonic() > end:
                self.kill()
                raise AssertionError(f"{self.name} is not ready after {START_TIMEOUT_S:.0f} s:\n{self.said()}")
            time.sleep(_POLL_S)

    @property
    def running(self) -> bool:
        """Whether the process is running."""
        return self._process is not None and self._process.poll() is None

    def stop(self) -> None:
        """Terminate the process, and kill it if it does not end; do nothing if it is not running."""
        if self._process is None:
            return
        self._process.send_signal(self._stop_signal)
        try:
            self._process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def kill(self) -> None:
        """Kill the process; do nothing if it is not running."""
        if self._process is None:
            return
        self._process.kill()
        self._process.wait()
        self._process = None

    def said(self) -> str:
        """The end of the server's log."""
        return "\n".join(self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-40:])


def java(main_class: str, *arguments: str, heap: str = "256m", options: Sequence[str] = ()) -> list[str]:
    """The command that runs a class from the services' jars, with little memory and a quick start.

    Raises:
        JarError: jars are missing and cannot be downloaded.
    """
    jars = resolve(SERVICES_FOLDER, java=java_command(), jars=locked_jars(SERVICES_LOCK))
    return [
        java_command(),
        f"-Xmx{heap}",
        *("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-Djava.awt.headless=true"),
        *("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-Dorg.slf4j.simpleLogger.showDateTime=true"),
        *options,
        *("-cp", ":".join(str(jar) for jar in jars if jar.suffix == ".jar")),
        main_class,
        *arguments,
    ]


def free_ports(count: int) -> list[int]:
    """`count` different ports of 127.0.0.1 on which no process listens."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for listener in sockets:
            listener.bind(("127.0.0.1", 0))
        return [listener.getsockname()[1] for listener in sockets]
    finally:
        for listener in sockets:
            listener.close()


def write_properties(path: Path, properties: Mapping[str, object]) -> Path:
    """Write Java properties, one on each line, and return the path."""
    path.write_text("".join(f"{name}={value}\n" for name, value in properties.items()), encoding="utf-8")
    return path
