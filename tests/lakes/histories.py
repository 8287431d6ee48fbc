"""Random histories of every family and framing, with the contents that the model gives for each of their times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, Protocol

from pyspark.sql import SparkSession

from tests.lakes import ticking
from tests.lakes.generated import FORMS, Tide, text_of
from tests.lakes.lake import Lake
from tests.lakes.positioned_table import NAMES, Table
from tests.lakes.ticking import TICKING
from tests.model.sources import Ticks, random_source
from tidelake import open_lake
from tidelake.lake import LakeCollection
from tidelake.model import positioned
from tidelake.store.entry import Collection


class History(Protocol):
    """A collection that is fed at random."""

    few: list[str]
    """Some of the columns."""

    where: str
    """A predicate that leaves out some rows."""

    @property
    def more(self) -> bool:
        """Whether there is more to read."""

    def tick(self) -> None:
        """Read the next piece."""

    def merge(self, token: int | None) -> None:
        """Compact as the settings say.

        A `SourceHistory` instead moves `since` at random, up to the `token` of a follower; without a token, it does
        nothing.
        """

    @property
    def collection(self) -> Collection:
        """The collection as it is stored now."""

    @property
    def followed(self) -> LakeCollection:
        """The collection as users open it."""

    @property
    def last(self) -> int:
        """The last sealed time; -1 before the first seal."""

    @property
    def known(self) -> Sequence[int]:
        """The sealed times whose contents are known, in order."""

    @property
    def times(self) -> Sequence[int]:
        """The known times that can be read."""

    def expected(self, time: int) -> Mapping[str, int]:
        """How many times each row occurs at a known time, by the text of the row."""

    def has_errors(self, time: int) -> bool:
        """Whether a key is in error at a time."""

    def text(self, row: dict[str, Any]) -> str:
        """A row as text, without its time and its diff."""


class _OfLake:
    """What all histories of a whole lake have in common."""

    rng: Random
    lake: Lake

    def merge(self, token: int | None) -> None:
        self.lake.compact(full=self.rng.random() < 0.6)

    @property
    def collection(self) -> Collection:
        return self.lake.collection

    @property
    def followed(self) -> LakeCollection:
        return open_lake(self.lake.file).collection(self.collection.name)

    def has_errors(self, time: int) -> bool:
        return False


class StreamHistory(_OfLake):
    """A generated topic, mangled in every way, that arrives in pieces."""

    few, where = ["customer"], "id % 2 = 0"

    def __init__(self, root: Path, spark: SparkSession, kind: str, rng: Random, length: int) -> None:
        self.rng = rng
        self.tide = Tide(root, spark, kind, rng, (4 * length, (2 * length) // 3), ("all", 0, 3))
        self.lake = self.tide.lake

    @property
    def more(self) -> bool:
        return bool(self.tide.files)

    def tick(self) -> None:
        self.tide.arrive(self.rng.randint(1, max(1, 2 * len(self.tide.files) // 3)))
        self.lake.run()

    @property
    def last(self) -> int:
        return (self.lake.table.value("upper") or 0) - 1

    @property
    def known(self) -> Sequence[int]:
        return range(self.last + 1)

    @property
    def times(self) -> Sequence[int]:
        return self.tide.readable

    def expected(self, time: int) -> Mapping[str, int]:
        return self.tide.expected(time)

    def text(self, row: dict[str, Any]) -> str:
        return text_of(row)


class SourceHistory:
    """Positioned statements of two partitions, with barriers, unavailable values and keys in error."""

    few, where = ["c1"], "id <> 'x'"

    def __init__(self, root: Path, spark: SparkSession, kind: str, rng: Random, length: int) -> None:
        self.rng = rng
        self.table, self.statements, self.since = Table(root, spark), list[positioned.PositionedStatement](), 0
        self.ticks = Ticks(rng, random_source(rng, 2, 2 * length), 40)

    @property
    def more(self) -> bool:
        return not self.ticks.done

    def tick(self) -> None:
        if read := list(dict.fromkeys(self.ticks.tick())):
            self.statements += read
            self.table.tick(read)

    def merge(self, token: int | None) -> None:
        if token is not None:
            self.since = self.rng.randint(self.since, token)
            self.table.compact(self.since, full=self.rng.random() < 0.6)

    @property
    def collection(self) -> Collection:
        return self.table.collection

    @property
    def followed(self) -> LakeCollection:
        return open_lake(self.table.file).collection(self.collection.name)

    @property
    def last(self) -> int:
        return max((statement.time for statement in self.statements), default=-1)

    @property
    def known(self) -> Sequence[int]:
        return range(self.last + 1)

    @property
    def times(self) -> Sequence[int]:
        return range(self.since, self.last + 1)

    def expected(self, time: int) -> Mapping[str, int]:
        rows = positioned.contents(self.statements, time).rows
        return {repr({"id": key, **dict(zip(NAMES, values, strict=True))}): 1 for key, values in rows.items()}

    def has_errors(self, time: int) -> bool:
        return bool(positioned.contents(self.statements, time).errors)

    def text(self, row: dict[str, Any]) -> str:
        return repr(row)


class TickHistory(_OfLake):
    """Records whose times are minted or are commits of transactions; some of the ticks are idle."""

    few, where = ["id"], "id % 2 = 0"

    def __init__(self, root: Path, spark: SparkSession, kind: str, rng: Random, length: int) -> None:
        more = {"timeline": "web"} if kind == "reclocked records" else {}
        self.rng, self.left = rng, length
        self.ticking: ticking.Ticking = TICKING[kind](root, spark, rng, keep=rng.choice(("all", 0, 200)), **more)
        self.lake = self.ticking.lake

    @property
    def more(self) -> bool:
        return self.left > 0

    def tick(self) -> None:
        self.left -= 1
        self.ticking.tick()

    @property
    def last(self) -> int:
        return self.ticking.last

    @property
    def known(self) -> Sequence[int]:
        return sorted(self.ticking.at)

    @property
    def times(self) -> Sequence[int]:
        return self.ticking.times if self.ticking.at else []

    def expected(self, time: int) -> Mapping[str, int]:
        return self.ticking.at[time]

    def text(self, row: dict[str, Any]) -> str:
        return ticking.text_of(row)


HISTORIES: dict[str, type[Any]] = {
    **dict.fromkeys(FORMS, StreamHistory),
    "positioned statements": SourceHistory,
    **dict.fromkeys(TICKING, TickHistory),
}
"""The kinds of histories: every family and framing."""


def random_history(root: Path, spark: SparkSession, kind: str, rng: Random, length: int) -> History:
    """A history of the given kind, with about `length` small changes or ticks."""
    history: History = HISTORIES[kind](root, spark, kind, rng, length)
    return history
