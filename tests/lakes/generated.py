"""A lake whose topic is generated and arrives in pieces, and the contents of the lake in the in-memory model."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from tests.lakes.lake import NAME, Lake
from tidelake.errors import SinceError
from tidelake.generator.generate import Generated, generate
from tidelake.generator.options import GenerateOptions
from tidelake.model import events, keyed
from tidelake.read.snapshot import snapshot
from tidelake.store.state import CLOSED, UPPER

FORMS: dict[str, tuple[str, str | None]] = {
    "sum": ("plain", None),
    "append only": ("append_only", None),
    "upsert": ("upsert", "id"),
    "debezium with a key": ("debezium", "id"),
    "debezium without a key": ("debezium", None),
}
"""The family and the key of each form."""


def random_options(rng: Random, family: str, updates: int, times: int) -> GenerateOptions:
    """The options of one stream: a small history, mangled in every way; one source in three contradicts itself."""
    sealed = times - rng.choice((0, 0, 2))
    held_back: dict[str, Any] = {}
    if rng.random() < 0.34:
        kinds = ["conflicting_diff_at", "conflicting_count_at", "over_count_at"]
        kinds += [] if family == "plain" else ["breach_at"]
        held_back[rng.choice(kinds)] = (rng.randrange(sealed // 2, sealed),)
    return GenerateOptions(
        name=NAME,
        family=family,  # type: ignore[arg-type]
        seed=rng.randrange(2**32),
        updates=updates,
        times=times,
        keys=6,
        negative=0.3 if family == "plain" else 0.0,
        updates_per_message=5,
        times_per_statement=2,
        partitions=rng.choice((1, 2)),
        messages_per_file=4,
        writers=rng.choice((1, 2)),
        shards=rng.choice((1, 1, 2)),
        copies=0.3,
        copies_inside=0.1,
        shuffle=rng.choice(("none", "window", "full")),
        shuffle_window=8,
        split=0.3,
        late=3,
        undecodable=2,
        malformed=3,
        nulls=1,
        unsealed_times=times - sealed,
        far_future=rng.choice((0, 1)),
        **held_back,
    )


class Tide:
    """A lake whose topic is generated and arrives file by file.

    Args:
        root: the test's own folder.
        spark: the session.
        form: see `FORMS`.
        rng: the source of all randomness.
        size: how many updates and times the history has.
        keeps: the retention rules to choose from.
    """

    def __init__(
        self,
        root: Path,
        spark: SparkSession,
        form: str,
        rng: Random,
        size: tuple[int, int],
        keeps: Sequence[str | int] = ("all", 0, 1, 3),
    ) -> None:
        self.family, self.key = FORMS[form]
        self.made: Generated = generate(random_options(rng, self.family, *size), root / "made", root)
        self.files = sorted(self.made.topic.local.iterdir())
        keep = rng.choice(keeps)
        schema = json.loads(self.made.schema_path.read_text())
        key: dict[str, Any] = {} if self.key is None else {"key": self.key}
        self.lake = Lake(root, spark, family=self.family, schema=schema, keep=keep, **key)
        self.stated = [
            (row, time, diff)
            for row in pq.read_table(self.made.updates_path).to_pylist()
            for time, diff in [(row.pop("_time"), row.pop("_diff"))]
        ]

    def arrive(self, files: int) -> None:
        """Add more files to the topic."""
        for file in self.files[:files]:
            file.rename(self.lake.topic / file.name)
        self.files = self.files[files:]

    @property
    def readable(self) -> range:
        """The times that can be read now."""
        table = self.lake.table
        since = self.lake.collection.entry.since
        upper = self.made.truth.end if table.value(CLOSED) else table.value(UPPER) or 0
        return range(since[0] if since else upper, upper)

    def check(self, as_of: int) -> None:
        """Check that the contents AS OF a time equal those of the in-memory model."""
        found: Counter[str] = Counter()
        for row in snapshot(self.lake.spark, self.lake.collection, as_of).contents.toArrow().to_pylist():
            found[text_of(row)] += row.pop("_diff")
        assert dict(found) == self.expected(as_of), f"the contents AS OF {as_of} differ from the model's"

    def check_refused_before_since(self) -> None:
        """Check that a read before `since` is refused."""
        if self.readable.start > 0:
            try:
                snapshot(self.lake.spark, self.lake.collection, self.readable.start - 1)
            except SinceError:
                return
            raise AssertionError("a read before since was answered")

    def expected(self, as_of: int) -> dict[str, int]:
        """The contents of the in-memory model at a time: how many times each row occurs."""
        if self.family == "upsert":
            statements = [keyed.KeyedStatement(row["id"], text_of(row), time, diff) for row, time, diff in self.stated]
            return {str(value): 1 for value in keyed.contents(statements, as_of).values()}
        if self.family == "debezium":
            changes = [
                events.Event(_keyed(row["before"]), _keyed(row["after"]), time, diff) for row, time, diff in self.stated
            ]
            rows = (
                events.summed_contents(changes, as_of)
                if self.key is None
                else events.keyed_contents(changes, as_of, lambda row: row[0])  # type: ignore[index]
            )
            return {row[1]: diff for row, diff in rows.items()}  # type: ignore[index]
        sums: Counter[str] = Counter()
        for row, time, diff in self.stated:
            sums[text_of(row)] += diff if time <= as_of else 0
        return {row: diff for row, diff in sums.items() if diff}


def _keyed(row: dict[str, Any] | None) -> tuple[int, str] | None:
    return None if row is None else (row["id"], text_of(row))


def text_of(row: dict[str, Any]) -> str:
    """A row as text, the same for every engine."""
    shown = {name: value for name, value in row.items() if name != "_diff"}
    return repr(shown | {"placed_at": row["placed_at"].timestamp()})
