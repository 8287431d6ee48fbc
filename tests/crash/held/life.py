"""What a process of a history does: calls at random, each recorded before it begins and after it has ended.

A record is one write, so it outlives the process. Most calls need no JVM; a process with a session also reads through
Spark, and merges.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

from pyspark.sql import SparkSession

from tests.crash.held import truth
from tests.lakes.held import HeldLake
from tidelake.compact.compaction import merge_runs
from tidelake.errors import CapabilityError, Conflict, FrontierRegression, SinceError, TidelakeError, UpperError
from tidelake.read.holding import ReadCapability
from tidelake.read.subscription import Subscription
from tidelake.storage.arrow import integers
from tidelake.store.commit import OpenTable
from tidelake.store.files import RunFile, read_rows
from tidelake.store.handles import read_handles
from tidelake.store.layout import DIFF, TIME
from tidelake.store.state import UPPER

_HELD_MAX = 4
_LEASES_MS = (200, 400, 5_000, 15_000)
_TAIL_BYTES = 20_000


@dataclass
class Follower:
    """A consumer: its capability, and the last time that it has kept."""

    who: str
    held: ReadCapability
    through: int | None = None
    subscription: Subscription | None = None


@dataclass
class Holder:
    """A process, or what a killed one continues as.

    Args:
        order: the folder, the seed, the number of the process, how often it was started, and its role.
        spark: the session, of those that have one.
    """

    order: dict[str, Any]
    spark: SparkSession | None
    mine: list[ReadCapability] = field(default_factory=list)
    follower: Follower | None = None

    def __post_init__(self) -> None:
        folder, number, life = Path(self.order["folder"]), self.order["number"], self.order["life"]
        self.name, self.seed = f"p{number}", self.order["seed"]
        self.rng = Random(f"{self.seed} {number} {life}")
        self.lake = HeldLake(Path(self.order["lake"]))
        self.collection, self.paths = self.lake.collection, self.lake.stored.paths
        self.records = folder / f"{self.name}-{life}.jsonl"
        self.file = os.open(self.records, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self.others = [folder / f"p{other}-*" for other in range(self.order["processes"]) if other != number]
        self.count = life * 10**6

    def live(self) -> None:
        """Make calls until the order to stop is there."""
        stop = Path(self.order["stop"])
        actions = self._actions()
        while not stop.exists():
            (action,) = self.rng.choices(list(actions), weights=list(actions.values()))
            with suppress(TidelakeError):  # the record has it, and the validator judges it
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

    # --- records

    def call(self, name: str, asked: dict[str, Any], do: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Make a call between its two records; raise its error once it is recorded."""
        self._write({"name": name, "asked": asked})
        try:
            answer = do()
        except TidelakeError as error:
            self._write({"error": _described(error)})
            raise
        self._write({"answer": answer})
        return answer

    def _write(self, record: dict[str, Any]) -> None:
        os.write(self.file, (json.dumps(record | {"at": time.monotonic_ns()}) + "\n").encode())

    # --- those that write

    def append(self) -> None:
        """Commit the updates of the next times, and that they are sealed, in one commit."""
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
        """Merge what is stored, so that history is really forgotten."""
        assert self.spark is not None
        merge_runs(self.spark, self.lake.stored, full=True, rows_max=0)

    # --- capabilities

    def acquire(self) -> None:
        if len(self.mine) >= _HELD_MAX:
            self.drop()
        since, upper = self._frontiers()
        at = self.rng.choice((None, self.rng.randint(max(0, since - 2), upper + 2)))
        lease_ms = self.rng.choice(_LEASES_MS)

        def do() -> dict[str, Any]:
            return self._made(self.collection.acquire(at, timedelta(milliseconds=lease_ms)))

        self.call("acquire", {"at": at, "lease_ms": lease_ms}, do)

    def clone(self) -> None:
        if (held := self._any()) is None or len(self.mine) >= _HELD_MAX:
            return
        lease_ms = self.rng.choice(_LEASES_MS)
        asked = _asked(held) | {"at": held.since, "lease_ms": lease_ms}
        self._holding(held, "clone", asked, lambda: self._made(held.clone(timedelta(milliseconds=lease_ms))))

    def downgrade(self) -> None:
        if (held := self._any()) is None:
            return
        to = max(0, held.since + self.rng.choice((-1, 0, 1, 2, 4)))

        def do() -> dict[str, Any]:
            held.downgrade(to)
            return {"held": held.since}

        self._holding(held, "downgrade", _asked(held) | {"to": to}, do)

    def renew(self) -> None:
        if (held := self._any()) is None:
            return

        def do() -> dict[str, Any]:
            held.renew()
            return {}

        self._holding(held, "renew", _asked(held), do)

    def drop(self) -> None:
        if (held := self._any()) is None:
            return

        def do() -> dict[str, Any]:
            held.drop()
            self.mine.remove(held)
            return {}

        self._holding(held, "drop", _asked(held), do)

    def take(self) -> None:
        """Take over a capability of another process, or of an earlier life."""
        token = self._token_of_another()
        if token is None or len(self.mine) >= _HELD_MAX:
            return
        asked = {"id": token.split(".")[1], "token": token}
        self.call("take", asked, lambda: self._made(self.collection.capability(token)))

    def _token_of_another(self) -> str | None:
        paths = [path for pattern in self.others for path in self.records.parent.glob(pattern.name)]
        paths += [path for path in self.records.parent.glob(f"{self.name}-*") if path != self.records]
        if not paths:
            return None
        with self.rng.choice(sorted(paths)).open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
            lines = file.read().decode().split("\n")[1:-1]
        tokens = list(_tokens_in(map(json.loads, lines)).values())
        return self.rng.choice(tokens[-_HELD_MAX:]) if tokens else None

    def _any(self) -> ReadCapability | None:
        return self.rng.choice(self.mine) if self.mine else None

    def _made(self, held: ReadCapability) -> dict[str, Any]:
        self.mine.append(held)
        return {"id": held.id, "held": held.since, "token": held.token}

    def _holding(
        self, held: ReadCapability, name: str, asked: dict[str, Any], do: Callable[[], dict[str, Any]]
    ) -> dict[str, Any]:
        """Call a holder's capability; forget it once it is lost."""
        try:
            return self.call(name, asked, do)
        except CapabilityError:
            if held in self.mine:
                self.mine.remove(held)
            raise

    # --- reads without a JVM, each under a capability that still lives when it ends

    def observe(self) -> None:
        def do() -> dict[str, Any]:
            since, upper = self._frontiers()
            return {"since": since, "upper": upper}

        self.call("observe", {}, do)

    def _frontiers(self) -> tuple[int, int]:
        return read_handles(self.paths).since[0], OpenTable(self.paths.updates).value(UPPER) or 0

    def read(self) -> None:
        held = self._any()
        upper = self._frontiers()[1]
        if held is None or held.since >= upper:
            return
        as_of = self.rng.randint(held.since, upper - 1)

        def do() -> dict[str, Any]:
            sums: Counter[int] = Counter()
            for row, _, diff in self._stored(held, lambda file: file.reach[0] <= as_of, lambda time: time <= as_of):
                sums[row] += diff
            return {"rows": [[row, diff] for row, diff in sums.items() if diff], "lives": _lives(held)}

        self._holding(held, "read", _asked(held) | {"as_of": as_of}, do)

    def changes(self) -> None:
        held = self._any()
        upper = self._frontiers()[1]
        if held is None or held.since >= upper:
            return
        after = self.rng.randint(held.since, upper - 1)
        through = self.rng.randint(after, upper - 1)
        asked = _asked(held) | {"after": after, "through": through}
        self._holding(
            held, "changes", asked, lambda: {"updates": self._between(held, after, through), "lives": _lives(held)}
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
        """Read stored updates after the files are pinned, as any engine could."""
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
        asked = _asked(held) | {"who": follower.who, "to": to}
        do = self._next_stored if self.spark is None else self._next_subscribed
        try:
            answer = self.call("batch", asked, lambda: do(follower, to))
        except TidelakeError:
            self.follower = None
            raise
        if answer["through"] is not None:
            follower.through = answer["through"]
        if self.rng.random() < 0.1:  # leave it to others, or to its lease
            self.follower = None

    def _begin(self) -> None:
        """Follow from a capability of one's own, which nobody else calls."""
        self.acquire()
        held = self.mine.pop()
        self.count += 1
        self.follower = Follower(f"{self.name} {self.count}", held)

    def _next_stored(self, follower: Follower, to: int) -> dict[str, Any]:
        held, upper = follower.held, self._frontiers()[1]
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
        return nothing | batch if _lives(held) else nothing

    def _next_subscribed(self, follower: Follower, to: int) -> dict[str, Any]:
        held = follower.held
        if follower.subscription is None or self.rng.random() < 0.3:  # resumed from its token
            follower.subscription = self.collection.subscribe(
                self._session, as_of=to, snapshot=follower.through is None, capability=held, rows_max=10
            )
        try:
            batch = follower.subscription.next()
        except UpperError:  # the snapshot waits
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
        since, upper = self._frontiers()
        as_of = self.rng.randint(max(0, since - 1), upper)

        def do() -> dict[str, Any]:
            found = self.collection.snapshot(self._session, as_of)
            rows = [[row["id"], row[DIFF]] for row in found.contents.toArrow().to_pylist()]
            return {"rows": rows, "since": found.since, "upper": found.upper}

        self.call("read", {"as_of": as_of}, do)

    def changes_between(self) -> None:
        since, upper = self._frontiers()
        after = self.rng.randint(max(0, since - 1), max(since, upper - 1))
        through = self.rng.randint(after, max(after, upper))

        def do() -> dict[str, Any]:
            found = self.collection.changes(self._session, after, through)
            rows = found.updates.toArrow().to_pylist()
            return {"updates": [[row["id"], row[TIME], row[DIFF]] for row in rows], "since": found.since}

        self.call("changes", {"after": after, "through": through}, do)


def _tokens_in(records: Iterable[dict[str, Any]]) -> dict[str, str]:
    """The tokens, by id, of the capabilities that the process of these records may still have."""
    tokens: dict[str, str] = {}
    asked: dict[str, Any] = {}
    for record in records:
        asked = record.get("asked", asked)
        answer, is_lost = record.get("answer") or {}, "Capability" in (record.get("error") or {}).get("kind", "")
        if "token" in answer:
            tokens[answer["id"]] = answer["token"]
        if is_lost or record.get("name") == "drop":
            tokens.pop(asked.get("id", ""), None)
    return tokens


def _asked(held: ReadCapability) -> dict[str, Any]:
    return {"id": held.id, "token": held.token}


def _lives(held: ReadCapability) -> bool:
    """Whether a capability lives at the end of a read, so that nothing that the read needed can be missing."""
    try:
        held.renew()
    except CapabilityError:
        return False
    return True


def _described(error: TidelakeError) -> dict[str, Any]:
    described: dict[str, Any] = {"kind": type(error).__name__}
    if isinstance(error, SinceError):
        described["since"] = next(iter(error.since))
    if isinstance(error, UpperError):
        described["upper"] = next(iter(error.upper))
    if isinstance(error, FrontierRegression):
        described["fact"] = str(error)
    return described


def live_held(order: dict[str, Any], spark: SparkSession | None) -> None:
    """Carry out an order."""
    Holder(order, spark).live()
