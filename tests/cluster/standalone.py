"""A Spark standalone cluster on this machine for a test: a master and its workers, each in a process of its own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pyspark

START_TIMEOUT_S = 90.0
_STOP_TIMEOUT_S = 20.0
_SPARK_HOME = Path(pyspark.__file__).parent
_DEPLOY = "org.apache.spark.deploy"
_OWN_MOUNTS = ("unshare", "--mount", "sh", "-c")


@dataclass(frozen=True)
class Standalone:
    """A running cluster."""

    url: str
    """The URL of the master."""
    workers: tuple[Path, ...]
    """The folder of each worker; it contains a folder for each application that had an executor there."""


@contextmanager
def standalone(folder: Path, workers: int, memory: str, hidden: Path | None = None) -> Iterator[Standalone]:
    """Start a master and workers with one core each, on free ports of 127.0.0.1; always stop them at the end.

    Args:
        folder: the folder for logs and for the folders of the workers.
        workers: the number of workers.
        memory: how much memory each worker offers to executors.
        hidden: a folder that appears empty to the workers, as on separate machines, if this process can hide folders.
    """
    with ExitStack() as running:
        log = folder / "master.log"
        running.enter_context(_process(log, f"{_DEPLOY}.master.Master"))
        url = _wait_for(log, r"Starting Spark master at (spark://127\.0\.0\.1:\d+)")[0]
        folders = tuple(folder / f"worker-{number}" for number in range(workers))
        for worker_folder in folders:
            options = ["--cores", "1", "--memory", memory, "--work-dir", str(worker_folder), url]
            log_of_worker = folder / f"{worker_folder.name}.log"
            running.enter_context(_process(log_of_worker, f"{_DEPLOY}.worker.Worker", *options, hidden=hidden))
        _wait_for(log, r"Registering worker", workers)
        yield Standalone(url, folders)


@contextmanager
def _process(log: Path, java_class: str, *options: str, hidden: Path | None = None) -> Iterator[None]:
    """Run one of Spark's daemons in the foreground; `spark-class` becomes the JVM, so its pid is the daemon's."""
    command = [str(_SPARK_HOME / "bin" / "spark-class"), java_class]
    command += ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0", *options]
    if hidden is not None and can_hide_folders():
        command = [*_OWN_MOUNTS, 'mount -t tmpfs none "$0" && exec "$@"', str(hidden), *command]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK", "PYSPARK"))}
    environment |= {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_MEMORY": "256m"}
    with log.open("wb") as output:
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=output, stdin=subprocess.DEVNULL)
        try:
            yield
        finally:
            process.terminate()
            try:
                process.wait(_STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def can_hide_folders() -> bool:
    """Whether this process can give other processes their own mounts; on Linux, this requires root."""
    if shutil.which("unshare") is None:
        return False
    with TemporaryDirectory() as folder:
        command = [*_OWN_MOUNTS, 'mount -t tmpfs none "$0"', folder]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _wait_for(log: Path, pattern: str, times: int = 1) -> list[str]:
    """Wait until a log contains this many matches of a pattern; return the matches."""
    end = time.monotonic() + START_TIMEOUT_S
    while True:
        matches = re.findall(pattern, log.read_text(encoding="utf-8", errors="replace"))
        if len(matches) >= times:
            return matches
        assert time.monotonic() < end, f"{log} does not say {pattern!r} {times} times:\n{log.read_text()}"
        time.sleep(0.1)
