"""Checks this machine: packages, Java, jars, the port of the user interface, and temporary space."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tidelake import __version__
from tidelake.cli.doctor.finding import Finding
from tidelake.spark.installation import CHECKOUT, home
from tidelake.spark.jar_error import JarError
from tidelake.spark.jars import jars_folder, java_command, locked_jars, verify

JAVA_VERSIONS = ("17", "21")
_JAVA_TIMEOUT_S = 30.0
_PORT = 3000
_FREE_BYTES_MIN, _FREE_BYTES_WARN = 500_000_000, 5_000_000_000
_SET_UP = "run `make setup`" if CHECKOUT else "install Tidelake again, with its dependencies"


def machine_findings() -> Iterator[Finding]:
    """Check the machine. Nothing is written, and no session is started.

    Cost: a Java process that prints its version, and one read of each jar.
    """
    yield _packages()
    yield _java()
    yield _jars()
    scratch = Path(os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0] or tempfile.gettempdir())
    hint = "free some space, or let SPARK_LOCAL_DIRS name a folder on a larger disk: merges and large reads need it"
    yield disk_space("temporary space", scratch, hint)
    yield _port()


def disk_space(check: str, folder: Path, hint: str | None = None) -> Finding:
    """Check the free space of the disk that a folder is or will be on; `hint` replaces the advice about a store."""
    nearest = next(above for above in (folder, *folder.absolute().parents) if above.exists())
    usage = shutil.disk_usage(nearest)
    fact = f"{usage.free / 1e9:,.1f} GB of {usage.total / 1e9:,.1f} GB are free at {nearest}"
    if usage.free < _FREE_BYTES_MIN:
        of_store = "free some space: a full disk stops every commit, but no data is lost"
        return Finding(check, "fail", fact, hint or of_store)
    if usage.free < _FREE_BYTES_WARN:
        of_store = "free some space before it runs out; `tidelake compact --full` merges runs"
        return Finding(check, "warn", fact, hint or of_store)
    return Finding(check, "ok", fact)


def _packages() -> Finding:
    """Check that the installed versions are those that work together."""
    python = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info[:2] != (3, 11):
        return Finding("packages", "fail", f"this is Python {python}, not 3.11", "install Python 3.11")
    try:
        required = importlib.metadata.requires("tidelake") or []
    except importlib.metadata.PackageNotFoundError:
        return Finding("packages", "warn", f"tidelake {__version__} is not installed as a package", _SET_UP)
    wrong, pins = [], [pin for line in required if (pin := re.match(r"([\w.-]+)==([^;\s]+)", line))]
    for pin in pins:
        try:
            installed = importlib.metadata.version(pin[1])
        except importlib.metadata.PackageNotFoundError:
            installed = "missing"
        if installed != pin[2]:
            wrong.append(f"{pin[1]} is {installed}, not {pin[2]}")
    if wrong:
        return Finding("packages", "fail", "; ".join(wrong), f"{_SET_UP}, so that the versions match")
    return Finding("packages", "ok", f"tidelake {__version__}, Python {python}, {len(pins)} pinned packages")


def _java() -> Finding:
    java = java_command()
    hint = "install Java 17 or 21 (for example, apt-get install openjdk-17-jre-headless), or correct JAVA_HOME"
    environment = {name: value for name, value in os.environ.items() if not name.endswith("JAVA_OPTIONS")}
    try:
        done = subprocess.run(
            [java, "-version"], env=environment, capture_output=True, text=True, timeout=_JAVA_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        why = "does not answer" if isinstance(error, subprocess.TimeoutExpired) else "cannot be started"
        return Finding("java", "fail", f"{java} {why}", hint)
    version = re.search(r'version "([^"]+)"', done.stderr)
    if version is None:
        return Finding("java", "fail", f"{java} does not report its version", hint)
    if version[1].split(".")[0] not in JAVA_VERSIONS:
        return Finding("java", "fail", f"{java} is Java {version[1]}, but Spark needs 17 or 21", hint)
    return Finding("java", "ok", f"Java {version[1]} at {shutil.which(java) or java}")


def _jars() -> Finding:
    folder = jars_folder()
    try:
        jars = locked_jars()
        paths = [folder / jar.file_name for jar in jars]
        verify(paths, jars)
    except JarError as error:
        fact, _, hint = str(error).partition(" hint: ")
        return Finding("jars", "fail", fact, hint or _SET_UP)
    missing = [path.name for path in paths if not path.exists()]
    if missing:
        fact = f"{len(missing)} of {len(jars)} missing from {folder}"
        if not os.access(next(above for above in (folder, *folder.parents) if above.exists()), os.W_OK):
            return Finding(
                "jars", "fail", f"{fact}, which this user cannot write to", "set TIDELAKE_HOME to another folder"
            )
        return Finding("jars", "warn", fact, "the first job fetches them, which needs access to Maven Central")
    return Finding("jars", "ok", f"{len(jars)} jars in {folder}, each with its locked sha256")


def _port() -> Finding:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", _PORT))
        except OSError:
            hint = f"if that is not Dagster, choose another port: `make ui PORT={_PORT + 1}`"
            return Finding("port", "warn", f"something is listening on port {_PORT} of 127.0.0.1", hint)
    return Finding("port", "ok", f"port {_PORT} of 127.0.0.1 is free for Dagster")


def logs_folder() -> Finding:
    """Check that logs can be written."""
    folder = home() / ".logs"
    nearest = next(above for above in (folder, *folder.parents) if above.exists())
    if os.access(nearest, os.W_OK | os.X_OK):
        return Finding("logs", "ok", f"in {folder}")
    hint = "set TIDELAKE_HOME to a folder that this user can write to"
    return Finding("logs", "warn", f"this user cannot write to {nearest}, so Spark logs to the terminal", hint)
