"""The work of a process in a history: random calls.

Most calls need no JVM; a process with a session also reads through Spark, and merges.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from tests.crash.held import truth
from tests.crash.held.caller import Holder, Refused, asked_of, still_lives
from tidelake.compact.compaction import merge_runs
from tidelake.errors import Conflict, UpperError
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
    through: int | None = None
    subscription: Subscription[Any] | None = None


@dataclass
class Process(Holder):
    """Makes random calls; with a session, it also reads through Spark, and merges."""

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
        if self.spark is not None:
            actions |= {self.snapshot: 6, self.changes_between: 4}
        if self.order["role"] == "merger":
            actions[self.merge] = 6
        return actions

    # --- calls that write

    def append(self) -> None:
        """Commit the updates of the next times, and seal these times, in one commit."""
        table = OpenTable(self.paths.updates)
        lower, upper = table.value(UPPER) or 0, (table.value(UPPER) or 0) + self.rng.randint(1, 3)
        updates = truth.updates_between(self.seed, lower - 1, upper - 1)

        def do() -> dict[str, Any]:
            while True:
                with suppress(Conflict):  # a merge came first: this is the only process that moves upper
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

    # --- reads without a JVM, each under a capability that still lives when the read ends

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
            for row, _, diff in self._stored(held, lambda file: file.reach[0] <= as_of, lambda time: time <= as_of):
                sums[row] += diff
            return {"rows": [[row, diff] for row, diff in sums.items() if diff], "lives": still_lives(held)}

        self.holding(held, "read", asked_of(held) | {"as_of": as_of}, do)

    def changes(self) -> None:
        held = self.any_held()
        upper = self.frontiers()[1]
        if held is None or held.since >= upper:
            return
        after = self.rng.randint(held.since, upper - 1)
        through = self.rng.randint(after, upper - 1)
        asked = asked_of(held) | {"after": after, "through": through}
        self.holding(
            held, "changes", asked, lambda: {"updates": self._between(held, after, through), "lives": still_lives(held)}
        )

    def _between(self, held: ReadCapability, after: int, through: int) -> list[list[int]]:
        sums: Counter[tuple[int, int]] = Counter()
        for row, at, diff in self._stored(
            held,
            lambda file: file.reach[0] <= through and file.reach[1] > after,
            lambda time: after < time <= through,
        ):
            sums[row, at] += diff
        return [[row, at, diff] for (row, at), diff in sums.items() if diff]

    def _stored(
        self, held: ReadCapability, wants: Callable[[RunFile], bool], within: Callable[[int], bool]
    ) -> list[tuple[int, int, int]]:
        """Pin the files, and read the stored updates from them, as any engine could."""
        held.pin(OpenTable(self.paths.updates).seq, held.since)
        table = OpenTable(self.paths.updates)
        columns = ["id", TIME, DIFF]
        rows = read_rows(table.path, [file for file in table.files() if wants(file)], table.schema(), columns)
        ids, times, diffs = (integers(rows[column]).tolist() for column in columns)
        return [each for each in zip(ids, times, diffs, strict=True) if within(each[1])]

    # --- followers

    def follow(self) -> None:
        """Take the next batch: through Spark, if there is a session; else from the stored updates."""
        if self.follower is None:
            self._begin()
            return
        follower, held = self.follower, self.follower.held
        to = held.since if follower.through is None else follower.through
        asked = asked_of(held) | {"who": follower.who, "to": to}
        do = self._next_stored if self.spark is None else self._next_subscribed
        try:
            answer = self.call("batch", asked, lambda: do(follower, to))
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
        self.follower = Follower(f"{self.name} {self.count}", held)

    def _next_stored(self, follower: Follower, to: int) -> dict[str, Any]:
        held, upper = follower.held, self.frontiers()[1]
        held.downgrade(to)
        nothing = {"held": held.since, "after": None, "through": None}
        if to >= upper or (follower.through is not None and to == upper - 1):
            return nothing
        if follower.through is None:
            sums: Counter[int] = Counter()
            for row, _, diff in self._stored(held, lambda file: file.reach[0] <= to, lambda time: time <= to):
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
                self._session, as_of=to, snapshot=follower.through is None, capability=held, rows_max=10
            )
        try:
            batch = follower.subscription.next()
        except UpperError:  # the time of the snapshot is not sealed yet
            held.downgrade(to)
            return {"held": held.since, "after": None, "through": None}
        answer: dict[str, Any] = {"held": held.since, "after": None, "through": None}
        if batch is None:
            return answer
        rows = batch.updates.toArrow().to_pylist()
        answer |= {"after": batch.progress.after, "through": batch.progress.through}
        if batch.progress.after is None:
            return answer | {"rows": [[row["id"], row[DIFF]] for row in rows]}
        return answer | {"updates": [[row["id"], row[TIME], row[DIFF]] for row in rows]}

    # --- reads through Spark, without a capability

    @property
    def _session(self) -> SparkSession:
        assert self.spark is not None
        return self.spark

    def snapshot(self) -> None:
        since, upper = self.frontiers()
        as_of = self.rng.randint(max(0, since - 1), upper)

        def do() -> dict[str, Any]:
            found = self.collection.snapshot(self._session, as_of)
            rows = [[row["id"], row[DIFF]] for row in found.contents.toArrow().to_pylist()]
            return {"rows": rows, "since": found.since, "upper": found.upper}

        self.call("read", {"as_of": as_of}, do)

    def changes_between(self) -> None:
        since, upper = self.frontiers()
        after = self.rng.randint(max(0, since - 1), max(since, upper - 1))
        through = self.rng.randint(after, max(after, upper))

        def do() -> dict[str, Any]:
            found = self.collection.changes(self._session, after, through)
            rows = found.updates.toArrow().to_pylist()
            return {"updates": [[row["id"], row[TIME], row[DIFF]] for row in rows], "since": found.since}

        self.call("changes", {"after": after, "through": through}, do)


def live_held(order: dict[str, Any], spark: SparkSession | None) -> None:
    """Carry out an order."""
    Process(order, spark).live()
