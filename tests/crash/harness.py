"""What the tests use: the connection to a nursery, the state of a lake's tables, and checks of what victims report."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import Any

from pyspark.sql import SparkSession

from orchestration.settings import PROJECT
from tests.crash.references import VictimReferences
from tests.lakes.lake import NAME, Lake
from tidelake.catalog.catalog import Catalog
from tidelake.catalog.name_log import NameLog
from tidelake.plugins.framing import framing_of
from tidelake.storage.location import Location, locate
from tidelake.store.commit import OpenTable
from tidelake.store.entry import Collection
from tidelake.store.failpoints import TABLES
from tidelake.store.files import read_rows
from tidelake.store.layout import Store
from tidelake.store.quarantine import quarantine_rows
from tidelake.store.state import CLOSED, SINCE, UPPER, partitions_value
from tidelake.store.table_log import check_log, read_entry

WAIT_MAX_S = 300.0


class Nursery:
    """A nursery, which ends with the `with` block; its victims can use the session's JVM, if there is a session."""

    def __init__(self, spark: SparkSession | None) -> None:
        # No threads: a forked child would inherit locks that they hold, and nobody would release these.
        environment = os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        self._alive: set[int] = set()
        self._references: VictimReferences | None = None
        if spark is not None:
            gateway = spark.sparkContext._gateway
            assert gateway is not None
            self._references = VictimReferences(gateway)
            jvm = gateway.gateway_parameters
            environment |= {"PYSPARK_GATEWAY_PORT": str(jvm.port), "PYSPARK_GATEWAY_SECRET": jvm.auth_token}
        command = [sys.executable, "-m", "tests.crash.nursery"]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, cwd=PROJECT, env=environment, stdin=pipe, stdout=pipe, text=True)

    def __enter__(self) -> Nursery:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.communicate()

    def start(self, order: dict[str, Any]) -> int:
        """Fork a victim and return its process id."""
        victim = self._ask(order)
        self._alive.add(victim)
        return victim

    def wait(self, victim: int) -> int:
        """Wait until a victim ends, and return its exit code, or minus the number of the signal that killed it."""
        code = self._ask({"wait": victim})
        self._alive.discard(victim)
        if self._references is not None and not self._alive:
            self._references.release()
        return code

    def run(self, order: dict[str, Any]) -> int:
        """Fork a victim, wait until it ends, and return what `wait` returns."""
        return self.wait(self.start(order))

    def _ask(self, what: dict[str, Any]) -> int:
        assert self._process.stdin is not None and self._process.stdout is not None
        print(json.dumps(what), file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        assert answer, "the nursery has died; its own error is above"
        return int(answer)


def wait_until_stopped(process: int) -> None:
    """Wait until SIGSTOP has stopped a process."""
    end = time.monotonic() + WAIT_MAX_S
    while time.monotonic() < end:
        if is_stopped(process):
            return
        time.sleep(0.01)
    raise TimeoutError(f"process {process} was not stopped within {WAIT_MAX_S} s")


def is_stopped(process: int) -> bool:
    """Whether a process is stopped (SIGSTOP)."""
    return _state_of(process) == "T"


def has_ended(process: int) -> bool:
    """Whether a victim has ended; this works only before anyone waits for the victim."""
    return _state_of(process) == "Z"


def _state_of(process: int) -> str:
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]


def collection_of(lake: Lake) -> Collection:
    """The lake's collection, as the catalog has it now."""
    return Catalog(Store(lake.settings.store)).find(NAME)


def path_of(lake: Lake, table: str) -> Location:
    """The folder of a table."""
    return collection_of(lake).paths.root / table


def state_of(lake: Lake) -> dict[str, Any]:
    """Everything that must not depend on which process was killed, or when; it is read without Spark.

    Contents are summed in Python from the live files, at every time from `since` to just before `upper`.
    """
    collection = collection_of(lake)
    table = OpenTable(collection.paths.updates)
    upper, closed = table.value(UPPER) or 0, bool(table.value(CLOSED))
    rows = read_rows(collection.paths.updates, table.files(), table.schema()).to_pylist()
    since = collection.entry.since[0]
    partitions = range(table.value(partitions_value(NAME)) or 0)
    late = OpenTable(collection.paths.late)
    late_rows = read_rows(collection.paths.late, late.files(), late.schema()).to_pylist()
    return {
        "upper": upper,
        "closed": closed,
        "since": (since, table.value(SINCE)),
        "decisions": collection.entry.decisions,
        "offsets": table.values(f"offset/{NAME}/", [str(partition) for partition in partitions]),
        "contents": {as_of: contents(rows, as_of) for as_of in range(since, upper)},
        # Copies at an open time may or may not be stored, so only distinct rows are compared.
        "unsealed": {(row["id"], row["price"], row["_time"], row["_diff"]) for row in rows if row["_time"] >= upper},
        "quarantine": {
            (row["topic"], row["partition"], row["offset"], row["reason"], row["value"])
            for row in quarantine_rows(collection)
        },
        "late": {tuple(value for name, value in row.items() if name != "_run") for row in late_rows},
        "proofs": {
            time: (proof["announced"], proof["counted"], proof["decision"])
            for time, proof in framing_of(collection.entry.framing).proofs(collection, 0).items()
            if time < upper
        },
    }


def contents(rows: list[dict[str, Any]], as_of: int) -> dict[tuple[int, int | None], int]:
    """The contents AS OF a time: the multiplicity of each `(id, price)`."""
    sums: Counter[tuple[int, int | None]] = Counter()
    for row in rows:
        if row["_time"] <= as_of:
            sums[row["id"], row["price"]] += row["_diff"]
    return {data: diff for data, diff in sums.items() if diff}


def said(path: Path) -> list[dict[str, Any]]:
    """The lines that a victim has written; a line that does not end in a line break is left out."""
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").split("\n")
    return [json.loads(line) for line in lines[:-1]]


def check_acknowledged(lake: Lake, words: list[dict[str, Any]]) -> None:
    """Check that acknowledged commits are in their logs, logs have no gaps, and job reports are still true."""
    commits = [message for message in words if "nonce" in message]
    for commit in commits:
        entry = read_entry(locate(commit["table"]), commit["version"])
        if entry is not None:  # log cleanup may have removed it after a checkpoint
            assert {line["commitInfo"]["nonce"] for line in entry if "commitInfo" in line} == {commit["nonce"]}, commit
    places = [(commit["table"], commit["version"]) for commit in commits]
    assert len(set(places)) == len(places), "a version was acknowledged twice"
    collection = collection_of(lake)
    for name in TABLES:
        check_log(path_of(lake, name))
    check_log(NameLog.of(collection.paths.store, NAME).path)
    table = OpenTable(collection.paths.updates)
    for message in words:
        if message.get("step") == "seal":
            sealed = message["report"]["results"].get(NAME, {"upper": 0, "closed": False})
            assert (table.value(UPPER) or 0) >= sealed["upper"], message
            assert bool(table.value(CLOSED)) >= sealed["closed"], message
        if message.get("step") == "compact":
            compacted = message["report"]["results"].get(NAME, {"since": []})
            assert collection.entry.since >= tuple(compacted["since"]), message


def check_steps(words: list[dict[str, Any]]) -> None:
    """Check that no step has ended in failure."""
    for message in words:
        if "step" in message:
            report = message["report"]
            assert report.get("ok", True), report
