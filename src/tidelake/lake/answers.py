"""Answers from the store about one collection: its state, its history, and where it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from tidelake.errors import NotReclocked, UnknownTopic
from tidelake.lake.arguments import check_listing, check_number, check_text
from tidelake.lake.base import StoredCollection, engine_errors
from tidelake.protocol.binding import Binding
from tidelake.read.publication import PublishedContents, older_table, publication_of
from tidelake.read.status import CollectionStatus, read_status
from tidelake.settings.collection import CollectionSettings
from tidelake.storage.location import Location
from tidelake.store.bindings import read_bindings
from tidelake.store.commit import OpenTable
from tidelake.store.entry import Collection
from tidelake.store.head_start import use_head_start
from tidelake.store.late_notes import LateContradiction, LateNotes, late_verdicts
from tidelake.store.layout import RUN
from tidelake.store.quarantine import explanation_of, quarantine_rows
from tidelake.store.state import UPPER
from tidelake.store.transactions import Transaction, read_transactions
from tidelake.topic.open import open_topics

if TYPE_CHECKING:
    from tidelake.read.explain import Explanation
    from tidelake.read.fates import Fate
    from tidelake.read.history import History


@dataclass(frozen=True)
class LateReport:
    """Statements that arrived after their times were sealed."""

    verdicts: dict[str, int]
    """Number of late rows by verdict: `copy`, `contradiction`, `settled`, `untold`, or not compared yet (`late`)."""
    contradictions: int
    """Number of late facts that do not agree with what was published, including settled ones."""
    first: list[LateContradiction]
    """The first contradictions, by time."""


@dataclass(frozen=True)
class Places:
    """Where the tables of a collection are."""

    published: PublishedContents | None
    """The contents for other engines; None if they were never published."""
    older: Location | None
    """The contents that an earlier release published; None if there are none."""
    updates: Location
    """The statements, sealed and unsealed, which only Tidelake can read."""
    store_id: str
    """The id of the store: the random id of its catalog's table."""

    def as_json(self) -> dict[str, Any]:
        """Return the places as JSON values."""
        return {
            "publication": None if self.published is None else self.published.as_json(),
            "older": None if self.older is None else str(self.older),
            "updates": str(self.updates),
            "store_id": self.store_id,
        }


class Answers(StoredCollection):
    """Questions about a collection that can be answered without reading its contents."""

    # --- its state ---------------------------------------------------------------------------------------------------

    def status(self) -> CollectionStatus | None:
        """Return the collection's state, and what it is waiting for; None if it was never ingested.

        The ends of its topics are looked up.

        Raises:
            TidelakeError: the store cannot be read, or is damaged.
        """
        with engine_errors():
            use_head_start(self._catalog.store, self.name, follows=True)
            return status_with_topics(self.settings, self._catalog.get(self.name))

    def explain(self, time: int | None = None) -> Explanation:
        """Explain a time: who proved it and how, or what it is waiting for. Does not start a JVM.

        Args:
            time: the time; None means the first time that is not sealed or, if the stream is closed or the collection
                is reclocked, the last sealed time.

        Raises:
            DamagedTable: a table that the answer depends on is damaged.
        """
        from tidelake.read.explain import explain

        with engine_errors():
            return explain(self._stored(), time)

    def quarantine(self) -> list[dict[str, Any]]:
        """Return the messages that could not be used: first the unexplained, then the explained ones, both by place.

        Each has `topic`, `partition`, `offset`, `timestamp_ms`, `reason`, `detail`, `times` (those that are known to
        wait for it), `key` and `value` as bytes, and `explained`: why it no longer needs attention, or None.
        """
        stored = self._stored()
        rows = [{name: value for name, value in row.items() if name != RUN} for row in quarantine_rows(stored)]
        for row in rows:
            row["explained"] = explanation_of(row, stored.entry.decisions)
        return sorted(rows, key=lambda row: row["explained"] is not None)

    def late(self, limit: int = 20) -> LateReport:
        """Return how many statements arrived after their times were sealed, and the first `limit` contradictions."""
        check_number("limit", limit)
        stored = self._stored()
        notes = LateNotes(stored)
        return LateReport(late_verdicts(stored), notes.contradictions, notes.first(limit))

    def transactions(self) -> list[Transaction]:
        """Return the sealed transactions and snapshots of a collection with `framing: transactions`, oldest first.

        Transactions without an event in the collection's table are included. With another framing, the result is empty.

        Cost: the table `transactions/`.
        """
        stored = self._stored()
        if not stored.entry.counts_positions:
            return []
        return read_transactions(stored, upper=OpenTable(stored.paths.updates).value(UPPER) or 0)

    def times(self) -> list[Binding]:
        """Return the times of a reclocked collection, oldest first, each with its offsets.

        Raises:
            NotReclocked: its times are stated by its topic.
        """
        stored = self._stored()
        if not stored.entry.mints_times:
            raise NotReclocked(self.name)
        return read_bindings(stored, OpenTable(stored.paths.updates))

    def trace(self, topic: str, partition: int, offset: int) -> list[Fate]:
        """Return what became of a message: an answer for each name under which it was read, oldest first.

        If it was not read, there is one answer.

        Args:
            topic: the topic's name, or a name under which it was accepted again, such as `orders#1`.
            partition: the partition of the message.
            offset: its offset.

        Raises:
            UnknownTopic: the collection does not read this topic.

        Cost: the small tables, and the rows of `updates/` at the times that the message states.
        """
        from tidelake.read.trace import trace_message  # imported late: only this needs a codec and the topics

        check_text("topic", topic)
        check_number("partition", partition)
        check_number("offset", offset)
        with engine_errors():
            stored = self._catalog.get(self.name)
            fates = trace_message(stored, self.settings, topic, partition, offset)
        if not fates:
            raise UnknownTopic(topic, self.settings.topics, self.name)
        return fates

    def history(self, limit: int | None = None, kinds: Sequence[str] = ()) -> History:
        """Return the history of the collection, oldest first: seals, validations, decisions, compactions, ….

        Args:
            limit: the maximum number of events; the newest are returned. None means all.
            kinds: only events of these kinds (`tidelake.read.events.KINDS`); empty means all.

        Cost: the table `proofs/`, or `bindings/`, and the entries that the logs still have.
        """
        from tidelake.read.history import read_history

        check_listing(limit, kinds)
        with engine_errors():
            return read_history(self._stored(), limit, kinds)

    # --- where it is -------------------------------------------------------------------------------------------------

    @property
    def path(self) -> str:
        """Where its own tables are: a path or a URI; `publication` says where its contents are for other engines."""
        return str(self._stored().paths.root)

    @property
    def publication(self) -> PublishedContents | None:
        """Its publication: the table for other engines, and what the table shows; None if it was never published."""
        return publication_of(self._stored())

    def places(self) -> Places:
        """Return where its tables are, for people and for other engines."""
        with engine_errors():
            stored, store_id = self._stored(), OpenTable(self._catalog.store.catalog).id
            return Places(publication_of(stored), older_table(stored), stored.paths.updates, store_id)

    def view_sql(self, dialect: Literal["spark", "duckdb"]) -> str:
        """Return a statement that creates a view in another engine, showing the contents AS OF the last sealed time.

        The view never shows another time: it reads the files of the version that was current when the statement was
        made, and fails once they are gone. A file that a later merge replaces is deleted a day after the merge. Spark
        finds the files in the log, which forgets a version once it is six hours old and two checkpoints follow it. No
        JVM is started.

        Raises:
            UpperError: nothing is sealed yet.
            NoView: the contents cannot be stated as a query; the published table has them.
        """
        from tidelake.read.view_sql import view_sql

        with engine_errors():
            return view_sql(self._stored(), dialect)


def status_with_topics(settings: CollectionSettings, stored: Collection | None) -> CollectionStatus | None:
    """Return the state of a collection; None if it was never ingested."""
    if stored is None:
        return None
    with engine_errors():
        topics = open_topics(settings, stored.entry.decisions)
        return read_status(stored, topics, settings.stalled_after_s, settings=settings)
