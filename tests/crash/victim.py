"""The work of a victim: attach to the running JVM, run the real jobs, and die or pause where its order says.

Each report of a job and each acknowledged commit is written to a file at once: what it says must still hold after a
kill.
"""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from jobs import compact, current, ingest, publish, seal, validate
from jobs.job import Report
from tests.lakes.early_sweeps import sweep_early
from tests.lakes.lake import NAME
from tidelake.catalog.catalog import Catalog
from tidelake.errors import Indeterminate, StoreUnreachable
from tidelake.settings.lake import Settings, load_settings
from tidelake.storage.location import Location
from tidelake.store.commit import Committed, OpenTable
from tidelake.store.decision import Count
from tidelake.store.failpoints import on_reach
from tidelake.store.files import read_rows, write_run
from tidelake.store.layout import RUN, TIME, Store, new_run
from tidelake.store.state import UPPER

# The data is tiny, so compiling a plan would take longer than running it.
_QUICK = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
}
_COMPILED = {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "CODEGEN_ONLY"}
_FAR = 10**9
"""A time that no statement is about, for decisions without effect."""


def attach(compiled: bool = False) -> SparkSession:
    """This process's own session in the JVM that the environment names.

    Args:
        compiled: whether plans are compiled, as they are for users.
    """
    gateway = launch_gateway()  # type: ignore[no-untyped-call]
    SparkContext._ensure_initialized(gateway=gateway)
    shared = gateway.jvm.SparkSession.getDefaultSession().get()
    context = gateway.jvm.JavaSparkContext.fromSparkContext(shared.sparkContext())
    python = SparkContext(jsc=context, gateway=gateway, conf=SparkConf(_jconf=context.getConf()))
    session = SparkSession(python, jsparkSession=shared.newSession())
    for name, value in (_COMPILED if compiled else _QUICK).items():
        session.conf.set(name, value)
    return session


def store_copies(path: Location, index: int) -> None:
    """Commit a run, as an ingest would, that repeats the stored updates at the open time with this index."""
    table = OpenTable(path)
    rows = read_rows(path, table.files(), table.schema())
    times = sorted(time for time in set(rows[TIME].to_pylist()) if time >= (table.value(UPPER) or 0))
    stored = rows.filter(pc.equal(rows[TIME], times[index])).drop_columns([RUN])
    copies = stored.group_by(stored.column_names).aggregate([])
    table.commit({}, write_run(path, new_run("ingest", table.seq), copies))


@dataclass
class Steps:
    """The steps of an order, by name, on the only collection of a lake."""

    spark: SparkSession
    settings: Settings

    @property
    def catalog(self) -> Catalog:
        return Catalog(Store(self.settings.store))

    def ingest(self) -> Report:
        return ingest.run(self.spark, self.settings)

    def seal(self) -> Report:
        return seal.run(self.spark, self.settings)

    def compact(self) -> Report:
        return compact.run(self.spark, self.settings)

    def merge(self) -> Report:
        """A compaction that is not full."""
        return compact.run(self.spark, self.settings, full=False)

    def validate(self) -> Report:
        return validate.run_full(self.spark, self.settings)

    def current(self) -> Report:
        return current.run(self.spark, self.settings)

    def publish(self, terms: str) -> Report:
        """Publish to `prices_out`; the terms are JSON."""
        asked = publish.Asked(str(self.settings.file.parent / "out" / "prices_out"), **json.loads(terms))
        return Report("publish", {NAME: publish.publish_collection(self.spark, self.settings, NAME, asked)})

    def decide(self) -> Report:
        self.catalog.decide(NAME, Count(time=_FAR, count=0, reason="tested", at_ms=0))
        return Report("decide")

    def withdraw(self) -> Report:
        self.catalog.withdraw(NAME, _FAR)
        return Report("withdraw")

    def fence(self) -> Report:
        self.catalog.fence(NAME, None)
        return Report("fence")

    def sweep(self) -> None:
        """Sweep all tables as another process, as if days had passed."""
        for table in self.catalog.find(NAME).tables:
            sweep_early(table)

    def overtake(self) -> None:
        """Store a copy of an update at an open time, as another ingest would."""
        store_copies(self.catalog.find(NAME).paths.updates, 1)

    def bump(self, table: str) -> None:
        """Commit as another process; the commit changes only the table's version."""
        OpenTable(self.catalog.find(NAME).paths.root / table).commit({})


def is_unanswered(done: object) -> bool:
    """Whether a job has stopped only because the store did not answer: the next run continues."""
    if not isinstance(done, Report) or done.ok:
        return False
    return all(isinstance(error, StoreUnreachable | Indeterminate) for error in done.errors.values())


@dataclass
class Victim:
    """The life of one process, as its order describes it."""

    order: Mapping[str, Any]
    steps: Steps
    passed: Counter[str] = field(default_factory=Counter)
    busy: bool = False
    """Whether another process is at work; the failpoints that it reaches are not counted."""

    def reach(self, name: str) -> None:
        """Count a failpoint. If the order says so, let another process take a step, or pause or kill this process."""
        if self.busy:
            return
        before = self.passed[name]
        self.passed[name] += 1
        meet = self.order.get("meet")
        if meet and name == meet[0] and before == 0:
            self.busy = True
            self.act(meet[1])
            self.busy = False
        if name == self.order.get("stop") and before == self.order.get("passing", 0):
            self.say({"stopped": name})
            os.kill(os.getpid(), getattr(signal, self.order.get("signal", "SIGKILL")))

    def act(self, step: str) -> dict[str, Any]:
        """Run a step, which may have an argument, as in `bump:updates`.

        With `repeats` in the order, a job runs again if it stopped because the store did not answer.
        """
        name, _, argument = step.partition(":")
        run: Callable[..., Any] = getattr(self.steps, name)
        done = run(argument) if argument else run()
        for _ in range(self.order.get("repeats", 0)):
            if not is_unanswered(done):
                break
            self.say({"unanswered": step, "errors": [str(error) for error in done.errors.values()]})
            done = run(argument) if argument else run()
        return done.as_json() if isinstance(done, Report) else {}

    def say(self, what: dict[str, Any]) -> None:
        """Write a line so that it outlives this process."""
        file = os.open(self.order["said"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(file, (json.dumps(what, default=str) + "\n").encode())
        os.close(file)


def live(order: Mapping[str, Any], spark: SparkSession) -> None:
    """Carry out an order: run all its `steps`, `rounds` times.

    With `stop`, the victim stops at that failpoint after passing it `passing` times. With `meet`, another process
    takes a step when the victim first reaches a failpoint.
    """
    victim = Victim(order, Steps(spark, load_settings(Path(order["config"]))))
    victim.say({"begun": os.getpid()})
    commit = OpenTable.commit

    def acknowledged(self: OpenTable, *args: Any, **more: Any) -> Committed:
        done = commit(self, *args, **more)
        victim.say({"table": str(self.path), "version": done.version, "nonce": done.nonce})
        return done

    OpenTable.commit = acknowledged  # type: ignore[method-assign]
    on_reach(victim.reach)
    for step in list(order["steps"]) * order.get("rounds", 1):
        report = victim.act(step)
        victim.say({"step": step, "report": report})
        if not report.get("ok", True):  # a schedule would stop here, too
            break
    victim.say({"passed": dict(victim.passed)})
