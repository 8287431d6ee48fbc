"""A process that holds capabilities, and records each call before it begins and after it has ended.

Each record is a single write, so it outlives the process.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

from pyspark.sql import SparkSession

from tests.lakes.held import HeldLake
from tidelake.catalog.handles import read_handles
from tidelake.errors import CapabilityError, SinceError, TidelakeError, UpperError
from tidelake.read.holding import ReadCapability
from tidelake.store.commit import OpenTable
from tidelake.store.state import UPPER

_HELD_MAX = 4
_LEASES_MS = (200, 400, 5_000, 15_000)
_TAIL_BYTES = 20_000


class Refused(Exception):
    """A call was refused, and the record says why. Any other error ends the process, and with it the history."""


@dataclass
class Holder:
    """A process, or the successor of a killed one: its records, and its calls as a holder.

    Args:
        order: the folder, the seed, the number of the process, how many times it was started before, and its role.
        spark: the session, if the process has one.
    """

    order: dict[str, Any]
    spark: SparkSession | None
    mine: list[ReadCapability] = field(default_factory=list)

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

    def frontiers(self) -> tuple[int, int]:
        return read_handles(self.paths).since[0], OpenTable(self.paths.updates).value(UPPER) or 0

    # --- records

    def call(self, name: str, asked: dict[str, Any], do: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Make a call, and record it before and after; if it fails, record the error and raise `Refused`."""
        self._write({"name": name, "asked": asked})
        try:
            answer = do()
        except TidelakeError as error:
            self._write({"error": _described(error)})
            raise Refused from error
        self._write({"answer": answer})
        return answer

    def _write(self, record: dict[str, Any]) -> None:
        os.write(self.file, (json.dumps(record | {"at": time.monotonic_ns()}) + "\n").encode())

    # --- capabilities

    def acquire(self) -> None:
        if len(self.mine) >= _HELD_MAX:
            self.drop()
        since, upper = self.frontiers()
        at = self.rng.choice((None, self.rng.randint(max(0, since - 2), upper + 2)))
        lease_ms = self.rng.choice(_LEASES_MS)

        def do() -> dict[str, Any]:
            return self._made(self.collection.acquire(at, timedelta(milliseconds=lease_ms)))

        self.call("acquire", {"at": at, "lease_ms": lease_ms}, do)

    def clone(self) -> None:
        if (held := self.any_held()) is None or len(self.mine) >= _HELD_MAX:
            return
        lease_ms = self.rng.choice(_LEASES_MS)
        asked = asked_of(held) | {"at": held.since, "lease_ms": lease_ms}
        self.holding(held, "clone", asked, lambda: self._made(held.clone(timedelta(milliseconds=lease_ms))))

    def downgrade(self) -> None:
        if (held := self.any_held()) is None:
            return
        to = max(0, held.since + self.rng.choice((-1, 0, 1, 2, 4)))

        def do() -> dict[str, Any]:
            held.downgrade(to)
            return {"held": held.since}

        self.holding(held, "downgrade", asked_of(held) | {"to": to}, do)

    def renew(self) -> None:
        if (held := self.any_held()) is None:
            return

        def do() -> dict[str, Any]:
            held.renew()
            return {}

        self.holding(held, "renew", asked_of(held), do)

    def drop(self) -> None:
        if (held := self.any_held()) is None:
            return

        def do() -> dict[str, Any]:
            held.drop()
            self.mine.remove(held)
            return {}

        self.holding(held, "drop", asked_of(held), do)

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

    def any_held(self) -> ReadCapability | None:
        return self.rng.choice(self.mine) if self.mine else None

    def _made(self, held: ReadCapability) -> dict[str, Any]:
        self.mine.append(held)
        return {"id": held.id, "held": held.since, "token": held.token}

    def holding(
        self, held: ReadCapability, name: str, asked: dict[str, Any], do: Callable[[], dict[str, Any]]
    ) -> dict[str, Any]:
        """Make a call on a held capability; forget the capability if the call shows that it is lost."""
        try:
            return self.call(name, asked, do)
        except Refused as refused:
            if isinstance(refused.__cause__, CapabilityError) and held in self.mine:
                self.mine.remove(held)
            raise


def _tokens_in(records: Iterable[dict[str, Any]]) -> dict[str, str]:
    """The tokens, by id, of the capabilities that a process with these records may still have."""
    tokens: dict[str, str] = {}
    asked: dict[str, Any] = {}
    for record in records:
        asked = record.get("asked", asked)
        if record.get("name") == "take":  # the process may have been killed before it had the new token
            tokens[asked["id"]] = asked["token"]
        answer, is_lost = record.get("answer") or {}, "Capability" in (record.get("error") or {}).get("kind", "")
        if "token" in answer:
            tokens[answer["id"]] = answer["token"]
        if is_lost or record.get("name") == "drop":
            tokens.pop(asked.get("id", ""), None)
    return tokens


def asked_of(held: ReadCapability) -> dict[str, Any]:
    return {"id": held.id, "token": held.token}


def still_lives(held: ReadCapability) -> bool:
    """Whether a capability still lives at the end of a read; if so, nothing that the read needed can be missing."""
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
    return described
