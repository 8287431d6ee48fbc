"""A lake in an object store behind a proxy that counts the requests of each step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from tests.lakes.lake import NAME, Lake, progress, updates
from tests.services.faulty_proxy import FaultyProxy, Request
from tidelake import open_lake
from tidelake.catalog.name_log import forget_noted
from tidelake.read.status import CollectionStatus
from tidelake.storage import blobs
from tidelake.store.commit import OpenTable, maintain
from tidelake.store.followed import forget_all
from tidelake.store.head_start import forget_swept
from tidelake.store.put_files import forget_files


@dataclass(frozen=True)
class Requests:
    """The requests of a step."""

    served: tuple[Request, ...]

    def __len__(self) -> int:
        return len(self.served)

    @property
    def verbs(self) -> dict[str, int]:
        """The number of requests by verb."""
        return dict(sorted(Counter(request.verb for request in self.served).items()))

    @property
    def bytes(self) -> int:
        """The size of all bodies."""
        return sum(request.bytes for request in self.served)

    @property
    def lists_of_files(self) -> list[str]:
        """The listings of folders with data files."""
        lists = [request.target for request in self.served if request.verb == "list"]
        return [target for target in lists if "/_acked/" not in target and "/_delta_log/" not in target]


class CountedLake:
    """A collection whose ticks are all alike: two updates at a new time, and a statement that announces them."""

    def __init__(self, root: Path, spark: SparkSession, proxy: FaultyProxy, settings: Mapping[str, Any]) -> None:
        """Write the settings; nothing is sent yet.

        Args:
            root: the folder of the topic and the settings.
            spark: the session.
            proxy: the proxy.
            settings: the settings of a store behind the proxy.
        """
        self.lake, self.proxy, self.times = Lake(root, spark, lake=settings), proxy, 0

    def send(self) -> None:
        """Send the next tick's messages."""
        time, self.times = self.times, self.times + 1
        self.lake.send(
            updates(((time, 10), time, 1), ((1_000_000 + time, None), time, 1)), progress([time], [time + 1], {time: 2})
        )

    def tick(self) -> tuple[Requests, Requests]:
        """Send messages; return the requests of ingest and of seal."""
        self.send()
        ingested, sealed = self.count(self.lake.ingest), self.count(self.lake.seal)
        assert self.status().upper == self.times
        return ingested, sealed

    def status(self) -> CollectionStatus:
        """Read the status, like a server that shows it from time to time."""
        found = open_lake(self.lake.file).status()[NAME]
        assert isinstance(found, CollectionStatus), found
        return found

    def lengthen_logs(self, commits: int) -> None:
        """Add commits without rows to the tables that a tick writes."""
        paths = self.lake.collection.paths
        for path in (paths.updates, paths.progress, paths.proofs):
            for _ in range(commits):
                OpenTable(path, may_be_stale=True).commit({})
                maintain(path)

    def count(self, step: Callable[[], object]) -> Requests:
        """Return the requests of a step."""
        before = len(self.proxy.served)
        step()
        return Requests(tuple(self.proxy.served[before:]))

    def count_afresh(self, step: Callable[[], object]) -> Requests:
        """Return the requests of a step in a process that has not seen the store."""
        forget_process()
        return self.count(step)


def forget_process() -> None:
    """Forget all that this process knows of object stores, as if it were new."""
    forget_all()
    forget_files()
    forget_noted()
    forget_swept()
    blobs.disconnect()
