"""Decisions about one collection, its writer, and its integrity."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tidelake.decisions import Decision, Offsets, check_decision, check_withdrawal
from tidelake.errors import ArgumentRefused
from tidelake.integrity.verification import Damage, Verification, repair_log, repair_name, verify_name, verify_table
from tidelake.lake.arguments import check_text
from tidelake.lake.base import StoredCollection, engine_errors
from tidelake.settings.lake import WRITER_RULE, is_writer_name
from tidelake.storage import blobs
from tidelake.store.holds import check_time
from tidelake.topic.open import open_topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Care(StoredCollection):
    """Decisions, fences, and repairs."""

    # --- decisions about it ------------------------------------------------------------------------------------------

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """The decisions in force, oldest first."""
        return self._stored().entry.decisions

    def decide(self, decision: Decision) -> Decision:
        """Store a standing rule; see `tidelake.decisions` for the kinds.

        The next ingest or seal applies it; an acknowledgement takes effect at once. A new count for a time replaces the
        earlier one. For `AcceptTopic`, the topic's current identity and the offsets to start from are looked up.

        Returns:
            The decision as it is stored.

        Raises:
            DecisionRefused, StatementRefused, DataRefused: it cannot have an effect, or does not match the collection.
            TopicChanged, TopicUnreachable: its gap or topic cannot be looked up.
        """
        if not isinstance(decision, Decision):
            rule, fix = "but must be a decision", "see `tidelake.decisions` for the six kinds"
            raise ArgumentRefused("decision", decision, rule, fix)
        checked = check_decision(self._stored(), self.settings, decision)
        self._catalog.decide(self.name, checked)
        return checked

    def withdraw(self, subject: int | Offsets) -> None:
        """Withdraw every decision about the unsealed time `subject`, or the acknowledgement of the offsets `subject`.

        Raises:
            DecisionRefused: there is no such decision, or the time is sealed.
        """
        if not isinstance(subject, Offsets):
            check_time("subject", subject)
        check_withdrawal(self._stored(), subject)
        if isinstance(subject, Offsets):
            self._catalog.withdraw_acknowledgement(self.name, subject)
        else:
            self._catalog.withdraw(self.name, subject)

    # --- who may write to it -----------------------------------------------------------------------------------------

    def fence(self, writer: str | None) -> int:
        """Admit one writer and keep out every other, even after a restart; running processes have to be restarted.

        Args:
            writer: the name that the writer has in its settings; None admits any writer.

        Returns:
            The new epoch.

        Raises:
            ArgumentRefused: no writer can have this name; nothing was changed.
        """
        if writer is not None:
            check_text("writer", writer)
        if writer is not None and not is_writer_name(writer):
            raise ArgumentRefused("writer", writer, "which no writer can have as its name", f"give {WRITER_RULE}")
        return self._catalog.fence(self._stored().name, writer).epoch

    # --- its integrity -----------------------------------------------------------------------------------------------

    def verify(self, deep: bool = False) -> Verification:
        """Verify the catalog, the name and the collection: each log entry, and the size, rows and digest of each file.

        Args:
            deep: whether to read every page of every file, and verify the checksums.
        """
        found, store = Verification(), self._catalog.store
        with engine_errors():
            verify_table(store.catalog, deep, found)
            handles = verify_name(store, self.name, found)
            if handles is not None:
                verify_table(handles, deep, found)
            if not found.damages:
                stored = self._stored()
                since = next(iter(stored.entry.since), None)
                for table in stored.tables:
                    verify_table(table, deep, found, since=since)
        return found

    def repair(self, accept_newest_entry: bool = False) -> list[Damage]:
        """Restore damaged log entries from their markers, and markers from entries; return what was restored.

        The marker of an entry is a copy, which was made when the entry was acknowledged.

        Damaged bytes are set aside. What `verify` still finds afterwards cannot be restored in this way.

        Args:
            accept_newest_entry: whether a log that has lost all of its markers is marked again. Its newest entry is
                taken as it is: nothing proves that it is undamaged, or that no later commit was lost.
        """
        with engine_errors():
            store, left = self._catalog.store, Verification()
            restored = repair_log(store.catalog, accept_newest_entry)
            restored += repair_name(store, self.name, accept_newest_entry)
            verify_table(store.catalog, False, left)
            handles = verify_name(store, self.name, left)
            if handles is not None:
                restored += repair_log(handles, accept_newest_entry)
                verify_table(handles, False, left)
            if left.damages:  # the tables of the collection are unknown
                return restored
            tables = self._stored().tables
            return restored + [damage for table in tables for damage in repair_log(table, accept_newest_entry)]

    def repair_files(self, spark: SparkSession) -> tuple[list[Damage], list[Damage]]:
        """Recreate damaged data files of `updates` from the topic, with the bytes that were committed.

        The log must still have the entry of the tick that wrote the file, and the topic must still have what the tick
        read. Damaged bytes are set aside.

        Returns:
            What was restored, and what is left; the remedy of each damage says why it could not be restored.

        Cost: that of `verify(deep=True)`; each tick that wrote a damaged file is also run once more.
        """
        from tidelake.ingest.restoration import restore_files

        damages = self.verify(deep=True).damages
        chosen = [damage for damage in damages if damage.is_in_data and damage.is_restorable]
        if not chosen:
            return [], damages
        stored = self._stored()
        blobs.check_writable(stored.paths.updates)
        topics = open_topics(self.settings, stored.entry.decisions)
        with engine_errors():
            outcomes = restore_files(spark, stored, self.settings, topics, [damage.file for damage in chosen])
        left = [damage for damage in damages if damage not in chosen]
        for damage in chosen:
            if (why := outcomes[damage.file]) is not None:
                left.append(replace(damage, remedy=str(why), is_restorable=False))
        return [damage for damage in chosen if outcomes[damage.file] is None], left
