"""The base of all measurements: the session, the meter, a folder for their data, and Tidelake stores in that folder."""

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
from tidelake.catalog.catalog import Catalog
from tidelake.settings.lake import Settings, load_settings
from tidelake.store.entry import Collection
from tidelake.store.layout import Store


@dataclass
class Bench:
    """One run of measurements."""

    spark: SparkSession
    root: Path
    rounds: int
    quick: bool = False
    """Whether only the most relevant peers take part."""
    say: Callable[[str], None] = print
    end: float = math.inf
    """A time on the monotonic clock, after which no further round begins."""
    warm: bool = False
    """Whether the session has run enough ticks to reach its full speed."""
    meter: Meter = field(init=False)

    def __post_init__(self) -> None:
        """Limit the jobs' own log to warnings."""
        structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(30))
        self.meter = Meter(self.spark)

    def interleave(self, contestants: Mapping[str, Callable[[int], Measured]]) -> Samples:
        """Measure the contestants in turn."""
        return interleave(contestants, self.rounds, self.say, self.end)

    def folder(self, name: str) -> Path:
        """Create an empty folder of this name."""
        folder = self.root / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        return folder


class Lake:
    """A Tidelake store with some collections, each with a topic of the same name."""

    def __init__(
        self,
        spark: SparkSession,
        root: Path,
        families: dict[str, str],
        keep: dict[str, int] | None = None,
        raw: dict[str, dict[str, Any]] | None = None,
    ) -> None:
        """Write `collections.yaml`, and create empty topics.

        Args:
            spark: the session.
            root: the lake's own folder.
            families: the family of each collection.
            keep: by collection, how much history compaction keeps; all of it by default.
            raw: additional collections, each with its whole block.
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
        """Open the store of existing settings in another session."""
        lake = cls.__new__(cls)
        lake.spark, lake.root, lake.settings = spark, file.parent, load_settings(file)
        return lake

    @property
    def store(self) -> Path:
        """The folder of all tables."""
        return self.root / "store"

    def topic(self, name: str) -> Path:
        """Return the folder of a topic."""
        return self.root / "topics" / name

    def add_file(self, name: str, file: Path) -> None:
        """Link a file into a topic."""
        (self.topic(name) / file.name).hardlink_to(file)

    def collection(self, name: str) -> Collection:
        """Return the collection from the catalog."""
        return Catalog(Store(self.settings.store)).find(name)

    def tick(self, name: str) -> None:
        """Run the jobs `ingest` and `seal`; everything must be sealed afterwards."""
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
    """Return a measurement that starts each round with an empty store and the whole topic.

    Args:
        bench: the run.
        root: the folder of the store.
        name: the name of the collection and its topic.
        files: the files of the topic.
        block: the collection's family, or its whole block.
        act: the action to measure.
    """
    families, raw = ({name: block}, None) if isinstance(block, str) else ({}, {name: block})

    def turn(number: int) -> Measured:
        shutil.rmtree(root, ignore_errors=True)
        lake = Lake(bench.spark, root, families, raw=raw)
        for file in files:
            lake.add_file(name, file)
        return bench.meter.measure(lambda: act(lake), [lake.store])

    return turn


def _block(name: str, family: str) -> dict[str, Any]:
    block: dict[str, Any] = {"family": family, "topic": name, "schema": RECORD, "messages_per_tick_max": 100_000}
    return block | ({"key": KEY} if family == "upsert" else {})
