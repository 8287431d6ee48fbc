"""What all measurements share: the session, the meter, a folder for their data, and a Tidelake store in it."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import structlog
import yaml
from pyspark.sql import SparkSession

from benchmarks.data import KEY, RECORD
from benchmarks.measure import Measured, Meter, Samples, interleave
from jobs import ingest, seal
from jobs.job import Report
from tidelake.configuration import Settings, load_settings
from tidelake.delta.catalog import Catalog, Collection
from tidelake.delta.layout import Store


@dataclass
class Bench:
    """One run of measurements."""

    spark: SparkSession
    root: Path
    rounds: int
    quick: bool = False
    """Whether only the most telling peers take part."""
    say: Callable[[str], None] = print
    end: float = math.inf
    """On the monotonic clock: no further round begins after it."""
    warm: bool = False
    """Whether the session has done so many ticks that it gets no faster."""
    meter: Meter = field(init=False)

    def __post_init__(self) -> None:
        """Keep the jobs' own log to warnings."""
        structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(30))
        self.meter = Meter(self.spark)

    def interleave(self, contestants: Mapping[str, Callable[[int], Measured]]) -> Samples:
        """Measure them by turns."""
        return interleave(contestants, self.rounds, self.say, self.end)

    def folder(self, name: str) -> Path:
        """A fresh folder of this name."""
        folder = self.root / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        return folder


class Lake:
    """A Tidelake store with some collections, each on the topic of its own name."""

    def __init__(
        self,
        spark: SparkSession,
        root: Path,
        families: dict[str, str],
        keep: dict[str, int] | None = None,
        raw: dict[str, dict[str, Any]] | None = None,
    ) -> None:
        """Write `collections.yaml`; nothing else is there yet.

        Args:
            spark: the session.
            root: a folder of its own.
            families: by collection.
            keep: how much history a compaction keeps of a collection; all of it where nothing is said.
            raw: further collections, with the whole block of each.
        """
        self.spark, self.root = spark, root
        blocks = {name: _block(name, family) for name, family in families.items()} | (raw or {})
        for name in blocks:
            self.topic(name).mkdir(parents=True, exist_ok=True)
        for name, distance in (keep or {}).items():
            blocks[name]["keep"] = distance
        document = {"store": "store", "topics": "topics", "data_docs": "docs", "collections": blocks}
        file = root / "collections.yaml"
        file.write_text(yaml.safe_dump(document), encoding="utf-8")
        self.settings: Settings = load_settings(file)

    @classmethod
    def opened(cls, spark: SparkSession, file: Path) -> Lake:
        """The store that settings name, in another session."""
        lake = cls.__new__(cls)
        lake.spark, lake.root, lake.settings = spark, file.parent, load_settings(file)
        return lake

    @property
    def store(self) -> Path:
        """Where all tables lie."""
        return self.root / "store"

    def topic(self, name: str) -> Path:
        """A topic's folder."""
        return self.root / "topics" / name

    def show(self, name: str, file: Path) -> None:
        """Let a file appear in a topic."""
        (self.topic(name) / file.name).hardlink_to(file)

    def collection(self, name: str) -> Collection:
        """The collection as the catalog has it."""
        return Catalog(Store(self.settings.store)).find(name)

    def tick(self, name: str) -> None:
        """Ingest and seal, by the jobs; all that is there has to be sealed."""
        self.run(name, ingest.run)
        sealed = self.run(name, seal.run)
        assert not sealed.waiting_for, sealed

    def run(self, name: str, job: Callable[[SparkSession, Settings], Report]) -> Any:
        """Run a job for one collection."""
        report = job(self.spark, self.settings.only((name,)))
        assert report.ok, report.errors
        return report.results[name]


def afresh(
    bench: Bench, root: Path, name: str, files: Sequence[Path], block: str | dict[str, Any], act: Callable[[Lake], Any]
) -> Callable[[int], Measured]:
    """What measures an act on a collection that begins with an empty store, in every round, and a whole topic.

    Args:
        bench: the run.
        root: where the store goes.
        name: the collection's, and its topic's.
        files: the topic's.
        block: the collection's family, or its whole block.
        act: what is measured.
    """
    families, raw = ({name: block}, None) if isinstance(block, str) else ({}, {name: block})

    def turn(number: int) -> Measured:
        shutil.rmtree(root, ignore_errors=True)
        lake = Lake(bench.spark, root, families, raw=raw)
        for file in files:
            lake.show(name, file)
        return bench.meter.measure(lambda: act(lake), [lake.store])

    return turn


def _block(name: str, family: str) -> dict[str, Any]:
    block: dict[str, Any] = {"family": family, "topic": name, "schema": RECORD, "messages_per_tick_max": 100_000}
    return block | ({"key": KEY} if family == "upsert" else {})
