"""Everything that a reader can ask about a collection, to check that damage makes no answer wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from pyspark.sql import SparkSession

from jobs import ingest, seal
from jobs.job import Report
from tests.lakes.whole_store import WholeStore
from tidelake.catalog.catalog import Catalog
from tidelake.decisions import Acknowledge, Offsets
from tidelake.errors import NotReclocked, TidelakeError
from tidelake.lake import LakeCollection
from tidelake.storage.location import Location, locate
from tidelake.store.commit import OpenTable
from tidelake.store.layout import Store
from tidelake.store.state import partitions_value

NOT_COMPARED = ("lag_s", "times_ahead_s", "upper_age_s", "publication")
"""Fields of a status that differ even without damage: those that depend on a clock, and the published table's path."""
STEPS = ("decide", "ingest", "seal")
"""The next steps of a collection: an operator acknowledges a message, ingest reads more, and seal moves upper."""


@dataclass(frozen=True)
class Refused:
    """An error in place of an answer."""

    error: str
    """The class of the error, which is one of Tidelake's."""


@dataclass
class Reader:
    """Asks questions about a collection.

    Args:
        spark: the session; if None, contents are not read.
        lake: the store.
        name: the collection.
        known: contents that were already read; the same files are not read again.
        moments: the times at which contents are read: 0 is since, 1 a time in the middle, and 2 the last time.
        skips_known: whether to skip a read if everything that it depends on is known: the catalog, the log, and all
            bytes of all files. In that case, `snapshot` would only verify known files again.
    """

    spark: SparkSession | None
    lake: WholeStore
    name: str
    known: dict[Any, Counter[str]] = field(default_factory=dict)
    moments: tuple[int, ...] = (0, 1, 2)
    skips_known: bool = False

    def answers(self, *questions: str) -> dict[str, Any]:
        """Return the answer to each question, or the error; each field of status counts as a question."""
        found: dict[str, Any] = {}
        collection = self.lake.collection(self.name)
        for question, ask in self._questions(collection).items():
            if not questions or question in questions:
                found[question] = asked(ask)
        status = found.pop("status")
        if isinstance(status, Refused):
            return found | {"status": status}
        return found | {f"status {field}": answer for field, answer in status.items()}

    def _questions(self, collection: LakeCollection) -> dict[str, Callable[[], Any]]:
        reads = {
            f"contents {moment}": self._contents_at(collection, moment)
            for moment in (self.moments if self.spark else ())
        }
        return {
            "status": lambda: _status(collection),
            "decisions": lambda: [repr(decision) for decision in collection.decisions],
            "quarantine": lambda: [repr(row) for row in collection.quarantine()],
            "late": lambda: asdict(collection.late()),
            "times": lambda: _times(collection),
            "offsets": lambda: self._offsets(collection),
            **reads,
        }

    def _offsets(self, collection: LakeCollection) -> dict[str, int]:
        table = OpenTable(locate(collection.path) / "updates")
        offsets: dict[str, int] = {}
        for topic in collection.settings.topics:
            places = [f"{topic}/{number}" for number in range(table.value(partitions_value(topic)) or 0)]
            offsets |= table.values("offset/", places)
        return offsets

    def _contents_at(self, collection: LakeCollection, moment: int) -> Callable[[], Any]:
        return lambda: self._contents(collection, moment)

    def _contents(self, collection: LakeCollection, moment: int) -> Any:
        """Read AS OF the first, a middle or the last time.

        `snapshot` verifies each file before Spark may read it. What Spark then shows depends only on these files, the
        catalog and the log. If all of these were the same in an earlier read, its rows are used.
        """
        assert self.spark is not None
        since = collection.since
        last = (collection.upper or 0) - 1
        as_of = None if moment == 2 or since is None or last < since else since + moment * (last - since) // 2
        table = OpenTable(locate(collection.path) / "updates")
        files = tuple((file, _bytes_of(table.path / file.path)) for file in table.files())
        columns = (str(table.schema()), str(collection.columns))
        entry = Catalog(Store(self.lake.lake.settings.store)).find(self.name).entry
        read = (as_of, since, collection.upper, table.version, files, *columns, repr(entry))
        if self.skips_known and read in self.known:
            return self.known[read]
        snapshot = collection.snapshot(self.spark, as_of, skip_errors=True)
        said = (snapshot.as_of, snapshot.since, snapshot.upper, snapshot.closed, snapshot.version)
        whole = (said, files, *columns)
        if whole not in self.known:
            self.known[whole] = Counter(repr(row) for row in snapshot.contents.collect())
        self.known[read] = self.known[whole]
        return self.known[whole]


def asked(ask: Callable[[], Any]) -> Any:
    """Return the answer, or Tidelake's error. Any other error is raised, because it does not name the damage."""
    try:
        return ask()
    except TidelakeError as error:
        return Refused(type(error).__name__)


def _bytes_of(file: Location) -> bytes | None:
    """The bytes of a file; None, not an error, if it is lost: a read AS OF an earlier time might not need the file."""
    return file.local.read_bytes() if file.local.exists() else None


def _status(collection: LakeCollection) -> dict[str, Any]:
    status = collection.status()
    assert status is not None, "an ingested collection has a status"
    if status.damaged is not None or status.late_problem is not None:  # its numbers mean nothing
        raise TidelakeError
    return {name: value for name, value in asdict(status).items() if name not in NOT_COMPARED}


def _times(collection: LakeCollection) -> list[Any]:
    try:
        return list(collection.times())
    except NotReclocked:
        return []


def go_on(spark: SparkSession, lake: WholeStore, name: str) -> Iterator[str]:
    """Take the next steps of a collection, and yield the name of each that succeeded; stop at the first that fails."""
    settings = lake.lake.settings.only((name,))
    for step in STEPS:
        if step == "decide":
            done = not isinstance(asked(lambda: _acknowledge(lake.collection(name))), Refused)
        else:
            job: Callable[..., Report] = {"ingest": ingest.run, "seal": seal.run}[step]
            done = not isinstance(report := asked(lambda job=job: job(spark, settings)), Refused) and report.ok  # type: ignore[misc]
        if not done:
            return
        yield step


def _acknowledge(collection: LakeCollection) -> None:
    """Acknowledge the first quarantined message that nothing explains yet, if there is one."""
    for row in collection.quarantine():
        if row["explained"] is None:
            place = Offsets(topic=row["topic"], partition=row["partition"], start=row["offset"], end=row["offset"] + 1)
            collection.decide(Acknowledge(offsets=place, reason="tested", at_ms=0))
            return
