"""Scripts about reads and holds: one collection whose times are held, read and followed, in memory or in a store.

A case is a title and lines, as in `tests.lakes.scripts`. A row is an id, and NAME is a name that the case gives to a
capability or a subscription. Commands without an answer are inputs:

    append [id,time,diff] ...       add updates at or after upper
    seal TIME                       move upper; `seal []` closes the stream
    wait SECONDS                    advance the store's clock
    forget                          make the collection unreadable forever
    elsewhere NAME TIME             acquire a capability of another collection

These commands are answered. If one is refused, its answer is the error, with the frontier if the error names one, as
in `! SinceError [5]`:

    acquire NAME [TIME] [lease=S]   answers with the time, by default the last one
    clone NAME OTHER                clone NAME's capability as OTHER; answers with its time
    pass NAME OTHER                 take over NAME's capability by its token, as OTHER; NAME keeps the used token
    renew NAME, downgrade NAME TIME, drop NAME
                                    calls of the holder; answered with the time, or with `gone`
    renew-token NAME, release NAME  the calls by token
    holds                           the times that are held
    compact KEEP                    end expired leases, move since, and merge if there is a session; answers with since
    frontiers                       since and upper
    read TIME                       the contents, each row as [id,count]
    changes AFTER THROUGH           the updates, each as [id,time,diff]; AFTER `since` and THROUGH `last` pass None
    subscribe NAME [as_of=T] [until=T] [lease=S] [no-snapshot] [no-hold] [with=CAPABILITY]
    next NAME                       the next batch, as `after..through` and its updates; `nothing`, or `over`
    close NAME                      close the subscription; answers with `closed`
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Protocol

from pyspark.sql import SparkSession

from tests.lakes.held import HeldLake
from tests.protocol.scripts import split_values
from tidelake.compact.compaction import merge_runs
from tidelake.errors import CapabilityError, SinceError, TidelakeError, UpperError
from tidelake.lake import LakeCollection
from tidelake.model.holding import HeldCollection, MemoryHold, MemorySubscription
from tidelake.read.holding import ReadCapability
from tidelake.read.subscription import Subscription
from tidelake.store.layout import DIFF, TIME

_LEASE_S = 3_600
Updates = list[tuple[int, int, int]]


class Shelf(Protocol):
    """A collection under test, and another one whose capabilities are foreign to it."""

    def append(self, updates: Updates) -> None: ...
    def seal(self, upper: int | None) -> None: ...
    def wait(self, seconds: float) -> None: ...
    def forget(self) -> None: ...
    def compact(self, keep: int) -> None: ...
    def frontiers(self) -> tuple[Sequence[int], Sequence[int]]: ...
    def holds(self) -> list[int]: ...
    def acquire(self, at: int | None, lease_s: float) -> Any: ...
    def elsewhere(self, at: int) -> Any: ...
    def calls(self) -> Any: ...
    def read(self, as_of: int) -> dict[int, int]: ...
    def changes(self, after: int | None, through: int | None) -> Updates: ...
    def subscribe(self, **arguments: Any) -> Any: ...
    def next(self, subscription: Any) -> tuple[int | None, int, Updates] | None: ...


@dataclass
class MemoryShelf:
    """The in-memory model."""

    slack_ms: int = 0
    now_ms: float = 0.0
    collection: HeldCollection = field(init=False)

    def __post_init__(self) -> None:
        self.collection, self.other = HeldCollection("1", self.slack_ms), HeldCollection("2")

    def append(self, updates: Updates) -> None:
        self.collection.append(list(updates))

    def seal(self, upper: int | None) -> None:
        self.collection.seal(upper)

    def wait(self, seconds: float) -> None:
        self.now_ms += seconds * 1000

    def forget(self) -> None:
        self.collection.forget()

    def compact(self, keep: int) -> None:
        self.collection.compact(keep, int(self.now_ms))

    def frontiers(self) -> tuple[Sequence[int], Sequence[int]]:
        return self.collection.since, self.collection.upper

    def holds(self) -> list[int]:
        return self.collection.holds()

    def acquire(self, at: int | None, lease_s: float) -> MemoryHold:
        return self.collection.acquire(at, int(lease_s * 1000))

    def elsewhere(self, at: int) -> MemoryHold:
        return self.other.acquire(at)

    def calls(self) -> HeldCollection:
        return self.collection

    def read(self, as_of: int) -> dict[int, int]:
        return {int(str(row)): diff for row, diff in self.collection.read(as_of).items()}

    def changes(self, after: int | None, through: int | None) -> Updates:
        return [(row, time, diff) for row, time, diff in self.collection.changes(after, through)]  # type: ignore[misc]

    def subscribe(self, **arguments: Any) -> MemorySubscription:
        lease_s = arguments.pop("lease_s")
        return self.collection.subscribe(lease_ms=None if lease_s is None else int(lease_s * 1000), **arguments)

    def next(self, subscription: MemorySubscription) -> tuple[int | None, int, Updates] | None:
        batch = subscription.next()
        if batch is None:
            return None
        after, through, updates = batch
        return after, through, [(row, time, diff) for row, time, diff in updates]  # type: ignore[misc]


@dataclass
class StoreShelf:
    """The collection of a lake; `lake` and `other` are in the same kind of store."""

    lake: HeldLake
    other: HeldLake
    spark: SparkSession | None
    """Only DataFrames need the session; if there is one, `compact` also merges."""
    move_clock: Callable[[float], None]

    def append(self, updates: Updates) -> None:
        self.lake.append(*updates)

    def seal(self, upper: int | None) -> None:
        if upper is not None:
            self.lake.seal(upper)
            return
        times = [file.reach[1] + 1 for file in self._table.files()]
        self.lake.seal(max([self._table.value("upper") or 0, *times]), closed=True)

    def wait(self, seconds: float) -> None:
        self.move_clock(seconds)

    def forget(self) -> None:
        self.lake.catalog.update(self.lake.stored.name, lambda entry: entry.model_copy(update={"since": ()}))

    def compact(self, keep: int) -> None:
        self.lake.compact(keep)
        if self.spark is not None:
            merge_runs(self.spark, self.lake.stored, full=True, rows_max=0)

    def frontiers(self) -> tuple[Sequence[int], Sequence[int]]:
        since, upper = self._collection.since, self._collection.upper
        return () if since is None else (since,), () if upper is None else (upper,)

    def holds(self) -> list[int]:
        return [held.since for held in self._collection.holds()]

    def acquire(self, at: int | None, lease_s: float) -> ReadCapability:
        return self._collection.acquire(at, timedelta(seconds=lease_s))

    def elsewhere(self, at: int) -> ReadCapability:
        return self.other.collection.acquire(at)

    def calls(self) -> LakeCollection:
        return self._collection

    def read(self, as_of: int) -> dict[int, int]:
        rows = self._collection.snapshot(self._session, as_of).contents.toArrow().to_pylist()
        assert len({row["id"] for row in rows}) == len(rows)
        return {row["id"]: row[DIFF] for row in rows}

    def changes(self, after: int | None, through: int | None) -> Updates:
        return _triples(self._collection.changes(self._session, after, through).updates)

    def subscribe(self, **arguments: Any) -> Subscription[Any]:
        lease_s = arguments.pop("lease_s")
        lease = None if lease_s is None else timedelta(seconds=lease_s)
        return self._collection.subscribe(self._session, lease=lease, **arguments)

    def next(self, subscription: Subscription[Any]) -> tuple[int | None, int, Updates] | None:
        batch = subscription.next()
        if batch is None:
            return None
        updates = _triples(batch.updates)
        assert not (batch.progress.is_empty and updates)
        return batch.progress.after, batch.progress.through, updates

    @property
    def _collection(self) -> LakeCollection:
        return self.lake.collection

    @property
    def _table(self) -> Any:
        from tidelake.store.commit import OpenTable

        return OpenTable(self.lake.stored.paths.updates)

    @property
    def _session(self) -> SparkSession:
        assert self.spark is not None, "a case in this folder reads no DataFrames"
        return self.spark


def _triples(frame: Any) -> Updates:
    return [(row["id"], row[TIME], row[DIFF]) for row in frame.toArrow().to_pylist()]


class Script:
    """Runs the commands of a case against one collection."""

    def __init__(self, shelf: Shelf) -> None:
        self.shelf = shelf
        self.held: dict[str, Any] = {}
        self.subscriptions: dict[str, Any] = {}

    def replay(self, lines: list[str]) -> list[str]:
        """Run the commands of a case, and return the case with the answers that they get now."""
        replayed = []
        for line in lines:
            if line.startswith("= "):
                continue
            word, *arguments = line.split(" ", 1)
            answer = self._answer(word, arguments[0] if arguments else "")
            replayed += [line] if answer is None else [line, f"= {answer}"]
        return replayed

    def _answer(self, word: str, rest: str) -> str | None:
        try:
            result: str | None = getattr(self, f"do_{word.replace('-', '_')}")(rest)
        except TidelakeError as error:
            return f"! {_named(error)}"
        return result

    # --- what happens

    def do_append(self, rest: str) -> None:
        self.shelf.append([tuple(json.loads(text)) for text in split_values(rest)])

    def do_seal(self, rest: str) -> None:
        self.shelf.seal(None if rest == "[]" else int(rest))

    def do_wait(self, rest: str) -> None:
        self.shelf.wait(float(rest))

    def do_forget(self, _: str) -> None:
        self.shelf.forget()

    def do_compact(self, rest: str) -> str:
        self.shelf.compact(int(rest))
        return f"since {list(self.shelf.frontiers()[0])}"

    def do_frontiers(self, _: str) -> str:
        since, upper = self.shelf.frontiers()
        return f"since {list(since)}, upper {list(upper)}"

    # --- capabilities

    def do_acquire(self, rest: str) -> str:
        name, times, options = _arguments(rest)
        held = self.shelf.acquire(int(times[0]) if times else None, float(options.get("lease", _LEASE_S)))
        return self._note(name, held)

    def do_elsewhere(self, rest: str) -> None:
        name, times, _ = _arguments(rest)
        self._note(name, self.shelf.elsewhere(int(times[0])))

    def do_clone(self, rest: str) -> str:
        name, (other,), _ = _arguments(rest)
        return self._note(other, self.held[name].clone())

    def do_pass(self, rest: str) -> str:
        name, (other,), _ = _arguments(rest)
        return self._note(other, self.shelf.calls().capability(self.held[name].token))

    def do_renew(self, name: str) -> str:
        self.held[name].renew()
        return f"at {self.held[name].since}"

    def do_downgrade(self, rest: str) -> str:
        name, (to,), _ = _arguments(rest)
        self.held[name].downgrade(int(to))
        return f"at {self.held[name].since}"

    def do_drop(self, name: str) -> str:
        self.held[name].drop()
        return "gone"

    def do_renew_token(self, name: str) -> str:
        self.shelf.calls().renew(self.held[name].token)
        return f"at {self.held[name].since}"

    def do_release(self, name: str) -> str:
        self.shelf.calls().release(self.held[name].token)
        return "gone"

    def do_holds(self, _: str) -> str:
        return " ".join(map(str, self.shelf.holds())) or "nothing"

    def _note(self, name: str, held: Any) -> str:
        self.held[name] = held
        return f"at {held.since}"

    # --- reads

    def do_read(self, rest: str) -> str:
        return _listed([row, count] for row, count in self.shelf.read(int(rest)).items())

    def do_changes(self, rest: str) -> str:
        after, through = rest.split()
        times = None if after == "since" else int(after), None if through == "last" else int(through)
        return _listed(map(list, self.shelf.changes(*times)))

    def do_subscribe(self, rest: str) -> str:
        name, words, options = _arguments(rest)
        arguments: dict[str, Any] = {word: int(options[word]) for word in ("as_of", "until") if word in options}
        arguments["lease_s"] = None if "no-hold" in words else float(options.get("lease", _LEASE_S))
        if "with" in options:
            arguments["capability"] = self.held[options["with"]]
        self.subscriptions[name] = self.shelf.subscribe(snapshot="no-snapshot" not in words, **arguments)
        return "begins"

    def do_next(self, name: str) -> str:
        subscription = self.subscriptions[name]
        batch = self.shelf.next(subscription)
        if batch is None:
            return "over" if subscription.is_complete else "nothing"
        after, through, updates = batch
        return f"{'' if after is None else after}..{through} {_listed(map(list, updates))}"

    def do_close(self, name: str) -> str:
        self.subscriptions[name].close()
        return "closed"


def _arguments(rest: str) -> tuple[str, list[str], dict[str, str]]:
    """The name, the words and the options `name=value` of a command."""
    name, *words = rest.split()
    options = dict(word.split("=") for word in words if "=" in word)
    return name, [word for word in words if "=" not in word], options


def _listed(values: Any) -> str:
    return " ".join(sorted(json.dumps(value, separators=(",", ":")) for value in values)) or "nothing"


def _named(error: TidelakeError) -> str:
    kind = type(error).__name__
    if isinstance(error, SinceError | UpperError) and not isinstance(error, CapabilityError):
        frontier = error.since if isinstance(error, SinceError) else error.upper
        return f"{kind} {[int(str(time)) for time in frontier]}"
    return kind
