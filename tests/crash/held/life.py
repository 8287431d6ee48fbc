"""The work of a process in a history: random calls.

A process reads stored updates itself, or uses its engine: Spark if it has a session, otherwise DuckDB. The merger has a
session. In a history with sweeps, it also deletes every file that neither the current version nor a pin needs, so all
reads are under pins.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.crash.held import truth
from tests.crash.held.caller import Holder, Refused, asked_of, still_lives
from tests.read.followers import sweep_unpinned
from tidelake.compact.compaction import merge_runs
from tidelake.errors import Conflict, DamagedTable, UpperError
from tidelake.query.answer import Answer
from tidelake.read.holding import ReadCapability
from tidelake.read.subscription import Subscription
from tidelake.storage.arrow import integers
from tidelake.store.commit import OpenTable
from tidelake.store.files import RunFile, read_rows
from tidelake.store.layout import DIFF, TIME
from tidelake.store.state import UPPER


@dataclass
class Follower:
    """A consumer: its capability, and the time through which it has kept updates."""

    who: str
    held: ReadCapability
    subscribes: bool
    through: int | None = None
    subscription: Subscription[Any] | None = None


@dataclass
class Process(Holder):
    """Makes random calls."""

    follower: Follower | None = None

    def live(self) -> None:
        """Make calls until the order to stop arrives."""
        stop = Path(self.order["stop"])
        actions = self._actions()
        while not stop.exists():
            (action,) = self.rng.choices(list(actions), weights=list(actions.values()))
            with suppress(Refused):  # the record says why, and the validator judges it
                action()

    def _actions(self) -> dict[Callable[[], object], int]:
        actions: dict[Callable[[], object], int] = {
            self.acquire: 5,
            self.clone: 2,
            self.downgrade: 6,
            self.renew: 3,
            self.take: 4,
            self.drop: 3,
            self.observe: 2,
            self.read: 5,
            self.changes: 4,
            self.follow: 4,
            self.compact: 2,
        }
        if self.order["role"] == "writer":
            actions[self.append] = 12
        if not self.order["sweeps"]:  # a sweep deletes the files of reads that hold nothing, as if a day had passed
            actions |= {self.snapshot: 6 if self.spark else 3, self.changes_between: 4 if self.spark else 2}
        if self.order["role"] == "merger":
            actions[self.merge] = 30 if self.order["sweeps"] else 6
        return actions

    # --- calls that write

    def append(self) -> None:
        """Commit the updates of the next times, and seal these times, in one commit."""
        table = OpenTable(self.paths.updates)
        lower, upper = table.value(UPPER) or 0, (table.value(UPPER) or 0) + self.rng.randint(1, 3)
        updates = truth.updates_between(self.seed, lower - 1, upper - 1)

        def do() -> dict[str, Any]:
            while True:
                with suppress(Conflict):  # a merge or a sweep was faster; no other process moves upper
                    self.lake.append(*((row, at, diff) for (row, at), diff in updates.items()), upper=upper)
                    return {"upper": upper}

        self.call("append", {"lower": lower, "upper": upper}, do)

    def compact(self) -> None:
        """Move since."""
        keep = self.rng.choice((0, 0, 2, 5))
        self.call("compact", {"keep": keep}, lambda: {"since": self.lake.compact(keep)})

    def merge(self) -> None:
        """Merge the stored runs, so that history is really forgotten."""
        assert self.spark is not None
        session = self.spark

        def do() -> dict[str, Any]:
            merge_runs(session, self.lake.stored, full=True, rows_max=0)
            return {}

        self.call("merge", {}, do)
        if self.order["sweeps"]:
            self.sweep()

    def sweep(self) -> None:
        """Delete the files that nobody needs, as if everything were old enough."""
        self.call("sweep", {}, lambda: {"folders": sweep_unpinned(self.paths)})

    # --- reads; a read under a capability also returns whether the capability is still alive at its end

    def observe(self) -> None:
        def do() -> dict[str, Any]:
            since, upper = self.frontiers()
            return {"since": since, "upper": upper}

        self.call("observe", {}, do)

    def read(self) -> None:
        held = self.any_held()
        upper = self.frontiers()[1]
        if held is None or held.since >= upper:
            return
        as_of = self.rng.randint(held.since, upper - 1)

        def do() -> dict[str, Any]:
            sums: Counter[int] = Counter()
            for row, _, diff in self._stored(held, lambda file: file.reach[0] <= as_of, lambda at: at <= as_of):
                sums[row] += diff
            return {"rows": [[row, diff] for row, diff in sums.items() if diff], "lives": still_lives(held)}

        self.holding(held, "read", asked_of(held) | {"as_of": as_of}, lambda: pinned(held, do))

    def changes(self) -> None:
        held = self.any_held()
        upper = self.frontiers()[1]
        if held is None or held.since >= upper:
            return
        after = self.rng.randint(held.since, upper - 1)
        through = self.rng.randint(after, upper - 1)
        asked = asked_of(held) | {"after": after, "through": through}

        def do() -> dict[str, Any]:
            return {"updates": self._between(held, after, through), "lives": still_lives(held)}

        self.holding(held, "changes", asked, lambda: pinned(held, do))

    def _between(self, held: ReadCapability, after: int, through: int) -> list[list[int]]:
        sums: Counter[tuple[int, int]] = Counter()
        for row, at, diff in self._stored(
            held,
            lambda file: file.reach[0] <= through and file.reach[1] > after,
            lambda at: after < at <= through,
        ):
            sums[row, at] += diff
        return [[row, at, diff] for (row, at), diff in sums.items() if diff]

    def _stored(
        self, held: ReadCapability, wants: Callable[[RunFile], bool], within: Callable[[int], bool]
    ) -> list[tuple[int, int, int]]:
        """Pin the files, and read the stored updates from them, as any engine could."""
        held.pin(OpenTable(self.paths.updates).seq, held.since)
        table = OpenTable(self.paths.updates)
        columns, files = ["id", TIME, DIFF], [file for file in table.files() if wants(file)]
        if self.order["sweeps"]:  # a long read: merges and sweeps come in between
            time.sleep(self.rng.choice((0.0, 0.0, 1.5)))
        rows = read_rows(table.path, files, table.schema(), columns)
        ids, times, diffs = (integers(rows[column]).tolist() for column in columns)
        return [each for each in zip(ids, times, diffs, strict=True) if within(each[1])]

    # --- followers

    def follow(self) -> None:
        """Take the next batch, either from a subscription with the process's engine, or from the stored updates."""
        if self.follower is None:
            self._begin()
            return
        follower, held = self.follower, self.follower.held
        to = held.since if follower.through is None else follower.through
        asked = asked_of(held) | {"who": follower.who, "to": to}
        do = self._next_subscribed if follower.subscribes else self._next_stored
        try:
            answer = self.call("batch", asked, lambda: pinned(held, lambda: do(follower, to)))
        except Refused:
            self.follower = None
            raise
        if answer["through"] is not None:
            follower.through = answer["through"]
        if self.rng.random() < 0.1:  # another process may take the capability over; otherwise its lease ends
            self.follower = None

    def _begin(self) -> None:
        """Begin to follow, with a new capability that no other call of this process uses."""
        self.acquire()
        held = self.mine.pop()
        self.count += 1
        subscribes = self.spark is not None or self.rng.random() < 0.5
        self.follower = Follower(f"{self.name} {self.count}", held, subscribes)

    def _next_stored(self, follower: Follower, to: int) -> dict[str, Any]:
        held, upper = follower.held, self.frontiers()[1]
        held.downgrade(to)
        nothing = {"held": held.since, "after": None, "through": None}
        if to >= upper or (follower.through is not None and to == upper - 1):
            return nothing
        if follower.through is None:
            sums: Counter[int] = Counter()
            for row, _, diff in self._stored(held, lambda file: file.reach[0] <= to, lambda at: at <= to):
                sums[row] += diff
            batch: dict[str, Any] = {"through": to, "rows": [[row, diff] for row, diff in sums.items() if diff]}
        else:
            through = self.rng.randint(to + 1, upper - 1)
            batch = {"after": to, "through": through, "updates": self._between(held, to, through)}
        return nothing | batch if still_lives(held) else nothing

    def _next_subscribed(self, follower: Follower, to: int) -> dict[str, Any]:
        held = follower.held
        if follower.subscription is None or self.rng.random() < 0.3:  # resume from the token
            follower.subscription = self.collection.subscribe(
                self.spark,
                as_of=to,
                snapshot=follower.through is None,
                capability=held,
                rows_max=10,
            )
        try:
            batch = follower.subscription.next()
        except UpperError:  # the time of the snapshot is not sealed yet
            held.downgrade(to)
            return {"held": held.since, "after": None, "through": None}
        answer: dict[str, Any] = {"held": held.since, "after": None, "through": None}
        if batch is None:
            held.renew()  # `next` has renewed the capability only if that was due
            return answer
        rows = table_of(batch.updates).to_pylist()
        answer |= {"after": batch.progress.after, "through": batch.progress.through}
        if batch.progress.after is None:
            return answer | {"rows": [[row["id"], row[DIFF]] for row in rows]}
        return answer | {"updates": [[row["id"], row[TIME], row[DIFF]] for row in rows]}

    # --- reads without a capability, with the process's engine

    def snapshot(self) -> None:
        since, upper = self.frontiers()
        as_of = self.rng.randint(max(0, since - 1), upper)

        def do() -> dict[str, Any]:
            if self.spark is None:
                contents = self.collection.rows(as_of)
                rows, since, upper = contents.rows.table(), contents.since, contents.upper
            else:
                found = self.collection.snapshot(self.spark, as_of)
                rows, since, upper = found.contents.toArrow(), found.since, found.upper
            return {"rows": [[row["id"], row[DIFF]] for row in rows.to_pylist()], "since": since, "upper": upper}

        self.call("read", {"as_of": as_of}, do)

    def changes_between(self) -> None:
        since, upper = self.frontiers()
        after = self.rng.randint(max(0, since - 1), max(since, upper - 1))
        through = self.rng.randint(after, max(after, upper))

        def do() -> dict[str, Any]:
            if self.spark is None:
                updates = self.collection.updates(after, through)
                rows, since = updates.rows.table(), updates.since
            else:
                found = self.collection.changes(self.spark, after, through)
                rows, since = found.updates.toArrow(), found.since
            return {"updates": [[row["id"], row[TIME], row[DIFF]] for row in rows.to_pylist()], "since": since}

        self.call("changes", {"after": after, "through": through}, do)


def table_of(found: Any) -> pa.Table:
    """The rows that an engine answered with."""
    table: pa.Table = found.table() if isinstance(found, Answer) else found.toArrow()
    return table


def pinned(held: ReadCapability, read: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Read under a pin. Unless the capability has ended, no sweep may have deleted what the read needs."""
    try:
        return read()
    except (DamagedTable, PySparkException, Py4JJavaError) as error:
        held.renew()  # if it has ended, this says why
        raise AssertionError("a file that a living capability pins cannot be read") from error


def live_held(order: dict[str, Any], spark: SparkSession | None) -> None:
    """Carry out an order."""
    Process(order, spark).live()
