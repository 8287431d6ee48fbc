"""The public interface: a lake and its collections, as `collections.yaml` describes them. The command line uses it too.

Methods that need Spark take a session, and Spark is imported only then; no other method starts a JVM.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
from deltalake.exceptions import DeltaError

from tidelake.catalog.catalog import Catalog
from tidelake.decisions import Decision, Offsets, check_decision, check_withdrawal
from tidelake.errors import (
    ArgumentRefused,
    ConfigurationError,
    NotReclocked,
    StoreUnreadable,
    TidelakeError,
    UnknownTopic,
)
from tidelake.integrity.verification import Damage, Verification, repair_log, repair_name, verify_name, verify_table
from tidelake.protocol.binding import Binding
from tidelake.read.orphaned import Orphaned, read_orphaned
from tidelake.read.publication import PublishedContents, older_table, publication_of
from tidelake.read.status import CollectionStatus, read_status
from tidelake.schema.columns import Column
from tidelake.settings.collection import CollectionSettings
from tidelake.settings.framings import NAME_RULE, is_collection_name
from tidelake.settings.lake import WRITER_RULE, Settings, is_writer_name, load_settings, load_valid_settings
from tidelake.storage.location import Location
from tidelake.store.bindings import read_bindings
from tidelake.store.commit import OpenTable
from tidelake.store.entry import Collection
from tidelake.store.head_start import use_head_start
from tidelake.store.late_notes import LateContradiction, LateNotes, late_verdicts
from tidelake.store.layout import RUN, Store
from tidelake.store.quarantine import explanation_of, quarantine_rows
from tidelake.store.state import UPPER
from tidelake.store.transactions import Transaction, read_transactions
from tidelake.topic.open import open_topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidelake.compact.garbage import Garbage
    from tidelake.query.contents import Contents, Updates
    from tidelake.query.contents import Difference as RowDifference
    from tidelake.query.spark_sql import SparkAnswer
    from tidelake.query.sql import QueryAnswer
    from tidelake.read.changes import Changes
    from tidelake.read.diff import Difference
    from tidelake.read.dropping import Dropping
    from tidelake.read.explain import Explanation
    from tidelake.read.fates import Fate
    from tidelake.read.history import History
    from tidelake.read.holding import HeldTime, ReadCapability
    from tidelake.read.moment import Moment
    from tidelake.read.snapshot import Snapshot
    from tidelake.read.subscription import Subscription

CONFIG_VARIABLE, CONFIG_FILE = "TIDELAKE_CONFIG", "collections.yaml"
_LEASE = timedelta(hours=1)


class Lake:
    """A store, its topics and its collections."""

    def __init__(
        self, settings: Settings, refused: Mapping[str, ConfigurationError] | None = None, read_only: bool = False
    ) -> None:
        """Take settings that have already been read; nothing is opened yet.

        Args:
            settings: the settings of the lake and of its valid collections.
            refused: the error of each collection whose block is invalid, by name.
            read_only: see `open`.
        """
        self.settings, self.refused, self.read_only = settings, dict(refused or {}), read_only

    @classmethod
    def open(cls, file: str | Path | None = None, *, skip_invalid: bool = False, read_only: bool = False) -> Lake:
        """Read a `collections.yaml`; by default the file that TIDELAKE_CONFIG names, or else ./collections.yaml.

        Args:
            file: the path.
            skip_invalid: leave out collections whose block is invalid. `status` gives their errors, and `collection`
                raises them.
            read_only: write nothing to the store, not even to finish what a process left when it died: its last commit
                may then be missing. Every call that would write raises `LakeReadOnly`.

        Raises:
            ConfigurationError: the error names the file, the field or line, what is wrong and what to do.
        """
        path = Path(file or os.environ.get(CONFIG_VARIABLE) or CONFIG_FILE)
        if not skip_invalid:
            return cls(load_settings(path), read_only=read_only)
        loaded = load_valid_settings(path)
        return cls(loaded.settings, loaded.refused, read_only)

    @property
    def catalog(self) -> Catalog:
        """The catalog of the store; nothing is opened yet."""
        return Catalog(Store(self.settings.store, self.read_only))

    def collections(self) -> list[LakeCollection]:
        """Return the collections in the order of the file, including those that have never been ingested."""
        return [LakeCollection(self, settings) for settings in self.settings.collections]

    def collection(self, name: str) -> LakeCollection:
        """Return a collection by its name.

        Raises:
            ConfigurationError: the file names no such collection, or its block is invalid.
        """
        if name in self.refused:
            raise self.refused[name]
        return LakeCollection(self, self.settings.collection(name))

    def at(
        self,
        time: int | Literal["latest"] = "latest",
        *names: str,
        not_before: int | None = None,
        wait_s: float = 0.0,
    ) -> Moment:
        """Choose one time for several collections of a timeline; the views of the result read all of them AS OF it.

        Args:
            time: a time that all of them have, or `latest`: the greatest such time.
            names: the collections; by default all of the lake.
            not_before: a time that this session has read before: `latest` is never earlier.
            wait_s: how long to wait, in seconds, if a collection does not have the time yet.

        Returns:
            A moment: `time`, `snapshot(spark, name)`, and `facts`, which say why the time was chosen. It stays at the
            versions that the tables had.

        Raises:
            ArgumentRefused: an argument is out of its range.
            TimelinesDiffer: two of the collections are on different timelines.
            CollectionLags: one of them does not have the time yet; the error says which one, and by how much it lags.
            SnapshotTorn: only some of them show a snapshot that the source never finished.
            CollectionForgot: the time is before `since` of one of them.

        Cost: the log and the handles of each collection; no JVM is started.
        """
        from tidelake.read.moment import moment

        settings = [self.collection(name).settings for name in dict.fromkeys(names)] or self.settings.collections
        with _engine_errors():
            return moment(self.catalog, settings, time, not_before, wait_s)

    def query(
        self,
        query: str,
        as_of: int | Literal["latest"] = "latest",
        *,
        not_before: int | None = None,
        wait_s: float = 0.0,
        skip_errors: bool = False,
    ) -> QueryAnswer:
        """Run SQL over the collections that it names, all AS OF one time, with DuckDB. Starts no JVM.

        A collection with a key has one row for each key; one without a key also has `_diff`, how often a row occurs.

        Args:
            query: a SELECT in DuckDB's dialect, over collections of this lake and nothing else.
            as_of: as for `at`.
            not_before: as for `at`: pass the `time` of the last answer, and no answer goes back in time.
            wait_s: as for `at`.
            skip_errors: leave out keys whose newest value could not be decoded.

        Returns:
            An answer: `table` is an Arrow table; `time` and `facts` say which time was chosen and why.

        Raises:
            QueryRefused: the query is invalid, reads something else, calls a function that is not accepted, or fails.
            TimelinesDiffer, CollectionLags, CollectionForgot: as for `at`.
            KeysInError: there are keys in error at that time, and `skip_errors` is not set.
        """
        from tidelake.query.sql import answer, checked_query

        known = [settings.name for settings in self.settings.collections] + list(self.refused)
        checked = checked_query(query, known)
        names = tuple(dict.fromkeys(checked.collections.values()))
        found = self.at(as_of, *names, not_before=not_before, wait_s=wait_s) if names else None
        with _engine_errors():
            return answer(checked, found, skip_errors)

    def sql(
        self,
        spark: SparkSession,
        query: str,
        as_of: int | Literal["latest"] = "latest",
        *,
        not_before: int | None = None,
        wait_s: float = 0.0,
        skip_errors: bool = False,
    ) -> SparkAnswer:
        """Plan SQL in Spark's dialect over the collections that it names, all AS OF one time; see `query`.

        Args:
            spark: the session of the frame. The query sees none of its views, functions, variables and settings.
            query: a SELECT in Spark's dialect, over collections of this lake and nothing else.
            as_of: as for `at`.
            not_before: as for `query`.
            wait_s: as for `at`.
            skip_errors: leave out keys whose newest value could not be decoded.

        Returns:
            An answer: `frame` is a lazy frame; `time` and `facts` say which time was chosen and why.

        Raises:
            QueryRefused: the query is invalid, reads something else, or calls a function that is not accepted. What
                fails while rows are read is an error of Spark.
            TimelinesDiffer, CollectionLags, CollectionForgot: as for `at`.
            KeysInError: there are keys in error at that time, and `skip_errors` is not set.

        Cost: the log of each collection, one analysis on the driver, and a search for keys in error where some were
            stored.
        """
        from tidelake.query.spark_sql import checked_sql, sql_answer

        known = [settings.name for settings in self.settings.collections] + list(self.refused)
        checked = checked_sql(spark, query, known)
        names = tuple(dict.fromkeys(checked.collections.values()))
        found = self.at(as_of, *names, not_before=not_before, wait_s=wait_s) if names else None
        with _engine_errors():
            return sql_answer(spark, checked, found, skip_errors)

    def status(self, *names: str) -> dict[str, CollectionStatus | TidelakeError | None]:
        """Return the status of all collections, or of those that are named; an error takes the place of a status.

        Raises:
            ConfigurationError: the file names no such collection.

        Cost: for each collection, what `Catalog.find` and `read_status` cost.
        """
        refused = {name: error for name, error in self.refused.items() if not names or name in names}
        valid = tuple(name for name in names if name not in refused)
        chosen = self.settings.only(valid).collections if valid or not names else ()
        return self._status_of(chosen) | refused

    def _status_of(self, chosen: Sequence[CollectionSettings]) -> dict[str, CollectionStatus | TidelakeError | None]:
        store = Store(self.settings.store)
        if store.root.is_local:
            return self._read_status(chosen)
        found: dict[str, CollectionStatus | TidelakeError | None] = {}
        for settings in chosen:  # one by one, as a process remembers a bounded number of logs
            use_head_start(store, settings.name, follows=True)
            found |= self._read_status([settings])
        return found

    def _read_status(self, chosen: Sequence[CollectionSettings]) -> dict[str, CollectionStatus | TidelakeError | None]:
        try:
            with _engine_errors():
                stored = self.catalog.lookup(settings.name for settings in chosen)
        except TidelakeError as error:
            return dict.fromkeys((settings.name for settings in chosen), error)
        found: dict[str, CollectionStatus | TidelakeError | None] = {}
        for settings in chosen:
            each = stored[settings.name]
            try:
                found[settings.name] = each if isinstance(each, TidelakeError) else _status_with_topics(settings, each)
            except TidelakeError as error:
                found[settings.name] = error
        return found

    def orphaned(self) -> list[Orphaned]:
        """Return the collections of the store that the settings do not name, by name; errors are in the result.

        Cost: the folder of all names is listed; for each name that the settings do not have, two logs are opened.
        """
        return read_orphaned(Store(self.settings.store), self._names)

    def history(self, name: str, limit: int | None = None, kinds: Sequence[str] = ()) -> History:
        """Return what was done to a collection of the store, also if it is orphaned or was dropped. Starts no JVM.

        Args:
            name: its name; the settings do not have to name it.
            limit: as for `LakeCollection.history`.
            kinds: as for `LakeCollection.history`.

        Raises:
            ConfigurationError: neither the settings nor the store know the name.
            UnknownCollection: the settings name it, but it was never ingested.

        Cost: that of `LakeCollection.history`; of a dropped collection, only its handles are read.
        """
        from tidelake.read.history import read_dropped_history, read_history

        with _engine_errors():
            stored = self.catalog.get(name)
            if stored is not None:
                return read_history(stored, limit, kinds)
            dropped = self.catalog.dropped(name)
            if dropped is not None:
                return read_dropped_history(dropped, limit, kinds)
        return self.collection(name).history(limit, kinds)

    def rename(self, name: str, other: str) -> None:
        """Give a collection of the store another name, which the settings must use from then on. Starts no JVM.

        The collection keeps its id, its history and its holds; the table that was published with the earlier name is
        not updated any more. If the call is interrupted, the next one finishes it.

        Args:
            name: its name; the settings do not have to name it.
            other: its new name.

        Raises:
            ArgumentRefused: the settings could not name a collection like this.
            UnknownCollection, CollectionRenamed: the store has no such collection, or it has another name now.
            NameTaken: another collection has the new name.

        Cost: two commits to the handles, and one to the log of the new name.
        """
        if not is_collection_name(other):
            raise ArgumentRefused("name", other, "which is not a valid name", f"use {NAME_RULE}")
        with _engine_errors():
            Catalog(Store(self.settings.store)).rename(name, other)

    def dropping(self, name: str) -> Dropping:
        """Return what the store has of a collection that somebody wants to drop, or has dropped. Starts no JVM.

        Raises:
            UnknownCollection: the store has no such collection.
        """
        from tidelake.read.dropping import read_dropping

        with _engine_errors():
            return read_dropping(Store(self.settings.store), name)

    def drop(self, name: str) -> None:
        """Drop a collection of the store: nobody can read it any more, and its name is free. Starts no JVM.

        Whoever reads a version of it may finish. `gc` deletes its tables a day after nobody holds a time of it any
        more. There is no way back. If the call is interrupted, the next one finishes it.

        Args:
            name: its name; the settings do not have to name it.

        Raises:
            UnknownCollection: the store has no such collection.

        Cost: two commits to the handles, and one to each other table.
        """
        with _engine_errors():
            Catalog(Store(self.settings.store)).drop(name)

    def gc(self, dry_run: bool = False) -> Garbage:
        """Delete what nobody can need any more, and say why the rest stays. Starts no JVM.

        Args:
            dry_run: whether to delete nothing, and only say what would be deleted.

        Returns:
            `items`, each with `kind`, `name`, `place`, `goes`, `why` and `bytes`; and the number of `tombstones`.

        Cost: the logs of all names and tables of the store are opened, and their folders are listed.
        """
        from tidelake.compact.garbage import collect_garbage

        with _engine_errors():
            return collect_garbage(Store(self.settings.store), self._names, dry_run)

    @property
    def _names(self) -> set[str]:
        """The names of all collections in the file, including those that were not chosen or are refused."""
        return {*self.settings.names, *(each.name for each in self.settings.collections), *self.refused}

    def upgrade(self) -> list[str]:
        """Upgrade the whole store to the newest format; return the names of its collections.

        Every job does so for the collections that it writes to. Earlier versions refuse the store from then on.

        Cost: a few commits for each collection of a store that was created before the newest format.
        """
        with _engine_errors():
            return self.catalog.upgrade()

    def trace(self, topic: str, partition: int, offset: int) -> dict[str, list[Fate] | TidelakeError]:
        """Return what became of a message in each collection that reads its topic; an error takes the place of fates.

        Args:
            topic: the topic's name, or a name under which a collection has stored it since it was accepted again.
            partition: the partition of the message.
            offset: its offset.

        Raises:
            UnknownTopic: no collection reads this topic.
        """
        found: dict[str, list[Fate] | TidelakeError] = {}
        for collection in self.collections():
            try:
                fates = collection.trace(topic, partition, offset)
            except UnknownTopic:
                continue
            except TidelakeError as error:
                found[collection.name] = error
            else:
                found[collection.name] = fates
        if not found:
            raise UnknownTopic(topic, sorted({name for each in self.settings.collections for name in each.topics}))
        return found

    def __repr__(self) -> str:
        return f"Lake({str(self.settings.file)!r})"


@dataclass(frozen=True)
class LateReport:
    """Statements about times that were sealed before they arrived."""

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
    """The contents that an earlier version published; None if there are none."""
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


class LakeCollection:
    """One collection of a lake. Every call reads the newest state of the store.

    If nothing has been ingested yet, `status` is None, `trace` says that the message was not read, and every other call
    raises `UnknownCollection`.
    """

    def __init__(self, lake: Lake, settings: CollectionSettings) -> None:
        """Take the collection's settings; nothing is opened yet."""
        self.lake, self.settings = lake, settings

    @property
    def name(self) -> str:
        """Its name in the file."""
        return self.settings.name

    @property
    def id(self) -> str:
        """The id of the collection that has this name now; no other collection ever gets it."""
        return self._stored().entry.id

    # --- what is in it, read in this process -------------------------------------------------------------------------

    def rows(
        self,
        as_of: int | None = None,
        columns: Sequence[str] = (),
        where: str | None = None,
        skip_errors: bool = False,
    ) -> Contents:
        """Read the contents AS OF a time with DuckDB, in this process. Starts no JVM.

        Args:
            as_of: a time in [since, upper), or at or after `since` if the stream is closed; by default the last one.
            columns: the columns to read; empty means all. Diffs of rows that are equal in these columns are summed.
            where: a condition on the columns of the contents, and nothing else, in DuckDB's SQL.
            skip_errors: leave out keys whose newest value could not be decoded.

        Returns:
            Contents: `rows` has the columns and `_diff` bigint, how often a row occurs. `rows.table()` gives an Arrow
            table, `rows.reader()` a stream; the other fields are those of a snapshot.

        Raises:
            SinceError, UpperError: the time can no longer be read, or cannot be read yet.
            KeysInError: there are keys in error at that time, and `skip_errors` is not set.
            UnknownColumn, PredicateRefused: a column does not exist, or the condition is not accepted.
            EngineRefused: the envelope is from another package; use `snapshot`.

        Cost: the files with rows at or before the time, when the rows are asked for; only their needed columns.
        """
        from tidelake.query.contents import contents

        with _engine_errors():
            return contents(self._stored(), as_of, columns, where, skip_errors)

    def rows_between(
        self,
        first: int,
        last: int,
        columns: Sequence[str] = (),
        where: str | None = None,
        skip_errors: bool = False,
    ) -> RowDifference:
        """Read the difference between the contents AS OF two times with DuckDB; see `diff` and `rows`.

        Returns:
            A difference: `rows` has the columns and `_diff` bigint, never 0; `keys` has the number of keys that were
            set, changed and deleted.

        Raises:
            SinceError, UpperError, KeysInError, UnknownColumn, PredicateRefused: as for `rows`, at either time.
        """
        from tidelake.query.contents import difference

        with _engine_errors():
            return difference(self._stored(), first, last, columns, where, skip_errors)

    def updates(
        self,
        after: int | None,
        through: int | None = None,
        columns: Sequence[str] = (),
        where: str | None = None,
        skip_errors: bool = False,
    ) -> Updates:
        """Read what changed after a time, up to and including another, with DuckDB; see `changes` and `rows`.

        Returns:
            Updates: `rows` has the columns, `_time` bigint and `_diff` bigint, never 0; other fields say how many files
            may be opened, and how many rows these have.

        Raises:
            SinceError, UpperError, ArgumentRefused, KeysInError, UnknownColumn, PredicateRefused: as for `changes`.
        """
        from tidelake.query.contents import updates

        with _engine_errors():
            return updates(self._stored(), after, through, columns, where, skip_errors)

    # --- what is in it, read by Spark --------------------------------------------------------------------------------

    def snapshot(
        self,
        spark: SparkSession,
        as_of: int | None = None,
        columns: Sequence[str] = (),
        where: str | None = None,
        skip_errors: bool = False,
    ) -> Snapshot:
        """Read the contents AS OF a time as a lazy frame.

        Args:
            spark: the session; `tidelake.spark.session.start_session()` starts a suitable one.
            as_of: a time in [since, upper), or at or after `since` if the stream is closed; by default the last one.
            columns: the columns to read; empty means all. Diffs of rows that are equal in these columns are summed.
            where: a Spark SQL predicate on the columns of the contents, and nothing else.
            skip_errors: leave out keys whose newest value could not be decoded.

        Returns:
            A snapshot: `contents` has the columns and `_diff` bigint, the multiplicity of a row, never 0; the other
            fields are `as_of`, `since`, `upper`, `closed` and the `version` of the table.

        Raises:
            SinceError, UpperError: the time can no longer be read, or cannot be read yet.
            KeysInError: there are keys in error at that time, and `skip_errors` is not set.
            UnknownColumn, PredicateRefused: a column does not exist, or the predicate is not accepted.
        """
        from tidelake.read.snapshot import snapshot

        return snapshot(spark, self._stored(), as_of, columns, where, skip_errors)

    def diff(
        self,
        spark: SparkSession,
        first: int,
        last: int,
        columns: Sequence[str] = (),
        where: str | None = None,
        skip_errors: bool = False,
    ) -> Difference:
        """Read the difference between the contents AS OF two times as a lazy frame, from one version of the table.

        Args:
            spark: the session, as for `snapshot`.
            first: the time whose contents are subtracted.
            last: the time whose contents are added; it may also be before `first`.
            columns: the columns to compare; empty means all. Diffs of rows that are equal in these columns are summed.
            where: a predicate, as for `snapshot`; other rows are left out on both sides.
            skip_errors: leave out keys whose newest value could not be decoded, at either time.

        Returns:
            A difference: `rows` has the columns and `_diff` bigint, never 0: a row's multiplicity at `last` minus its
            multiplicity at `first`.

        Raises:
            SinceError, UpperError, KeysInError, UnknownColumn, PredicateRefused: as for `snapshot`, at either time.
        """
        from tidelake.read.diff import difference

        return difference(spark, self._stored(), (first, last), columns, where, skip_errors)

    def changes(
        self,
        spark: SparkSession,
        after: int | None,
        through: int | None = None,
        columns: Sequence[str] = (),
        where: str | None = None,
        skip_errors: bool = False,
    ) -> Changes:
        """Read what changed after a time, up to and including another, as a lazy frame of consolidated updates.

        The contents AS OF `after` and these updates add up to the contents AS OF `through`.

        Args:
            spark: the session, as for `snapshot`.
            after: a time in [since, upper); the range begins after it. None begins with the contents AS OF `since`,
                which then have the time `since`.
            through: a time in [since, upper), at or after `after`; the range includes it. By default the last time.
            columns: the columns to read; empty means all. Diffs of rows that are equal in these columns are summed.
            where: a predicate, as for `snapshot`; other rows are left out.
            skip_errors: treat keys in error as keys without a row: their rows are retracted.

        Returns:
            Changes: `updates` has the columns, `_time` bigint and `_diff` bigint, never 0; other fields say how many
            files may be opened, and how many rows these have.

        Raises:
            SinceError, UpperError: a time can no longer be read, or cannot be read yet.
            ArgumentRefused: `after` is later than `through`.
            KeysInError: there are keys in error at `after` or at a time in the range, and `skip_errors` is not set.
            UnknownColumn, PredicateRefused: as for `snapshot`.

        Cost: if diffs are summed, the files with rows in the range. Otherwise also one scan of earlier rows, from which
        only those of touched keys are taken.
        """
        from tidelake.read.changes import changes

        return changes(spark, self._stored(), after, through, columns, where, skip_errors)

    def subscribe(
        self,
        spark: SparkSession,
        as_of: int | None = None,
        snapshot: bool = True,
        columns: Sequence[str] = (),
        where: str | None = None,
        skip_errors: bool = False,
        *,
        wait_s: float | None = 0.0,
        poll_s: float = 1.0,
        until: int | None = None,
        rows_max: int = 1_000_000,
        lease: timedelta | None = _LEASE,
        capability: ReadCapability | None = None,
        purpose: str = "a subscription",
    ) -> Subscription:
        """Follow the collection: its contents AS OF a time, then the changes, one complete time after another.

        Each batch is a pair of `updates`, a frame with the columns, `_time` and `_diff`, and `progress`, whose
        `through` is the token: `subscribe(as_of=token, snapshot=False)` continues after this batch. A hold follows the
        subscription, so that compaction does not pass it, and sweeps leave the files that it reads. A lake that is
        read-only holds nothing.

        Args:
            spark: the session, as for `snapshot`.
            as_of: the time of the snapshot, or the token; by default the `since` of `capability`, or the last time that
                can be read. If it is not sealed yet, the first batch waits for it.
            snapshot: whether the first batch is the contents AS OF that time.
            columns: the columns to read; empty means all. Diffs of rows that are equal in these columns are summed.
            where: a predicate, as for `snapshot`; other rows are left out.
            skip_errors: treat keys in error as keys without a row: their rows are retracted.
            wait_s: how long to wait for the next batch, in seconds; None means forever.
            poll_s: how often to look whether anything was sealed.
            until: the last time to deliver.
            rows_max: how many stored rows a batch of several times may come from.
            lease: how long the hold lives after each batch; None holds nothing.
            capability: a hold of the caller, which moves with the subscription and stays when it ends.
            purpose: what the hold is for.

        Raises:
            ArgumentRefused: an argument is out of its range.
            SinceError: `as_of` is not at or after `since`.
            UpperError: nothing is sealed yet, so there is no last time to begin after.

        Cost: a commit to the collection's handles; for each batch, another one and what `changes` costs.
        """
        from tidelake.read.subscription import Bounds, Selection, subscribe

        selection, bounds = Selection(columns, where, skip_errors), Bounds(wait_s, poll_s, until, rows_max)
        held = None if self.lake.read_only else lease
        with _engine_errors():
            return subscribe(
                spark, self._catalog, self.name, as_of, snapshot, selection, bounds, held, capability, purpose
            )

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns of the contents, each with its name, its type and whether it may be null."""
        from tidelake.query.forms import contents_types, is_known

        entry = self._stored().entry
        if is_known(entry):
            return contents_types(entry)
        from tidelake.plugins.envelope import envelope_of  # imported late: envelopes import Spark

        return envelope_of(entry.envelope).contents_types(entry)

    def stored(self) -> Collection:
        """Return the collection as the store has it: its newest entry, and where its tables are."""
        with _engine_errors():
            return self._stored()

    @property
    def since(self) -> int | None:
        """The first time that can be read; None if the collection is unreadable."""
        stored = self._stored()
        since, _, _ = stored.readable_range(OpenTable(stored.paths.updates))
        return since[0] if since else None

    @property
    def upper(self) -> int | None:
        """The first time that is not sealed; None if the stream is closed: then every time is sealed."""
        stored = self._stored()
        _, upper, closed = stored.readable_range(OpenTable(stored.paths.updates))
        return None if closed else upper

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
        with _engine_errors():
            stored, store_id = self._stored(), OpenTable(self._catalog.store.catalog).id
            return Places(publication_of(stored), older_table(stored), stored.paths.updates, store_id)

    def view_sql(self, dialect: Literal["spark", "duckdb"]) -> str:
        """Return a statement that creates a view of the contents AS OF the last sealed time in another engine.

        The view reads the files of the version for which it was printed, and shows this time for good. Files that are
        merged later are deleted a day later. No JVM is started.

        Raises:
            UpperError: nothing is sealed yet.
            NoView: the contents cannot be stated as a query; the published table has them.
        """
        from tidelake.read.view_sql import view_sql

        with _engine_errors():
            return view_sql(self._stored(), dialect)

    # --- holding a time ----------------------------------------------------------------------------------------------

    def acquire(self, at: int | None = None, lease: timedelta = _LEASE, purpose: str = "") -> ReadCapability:
        """Hold a time: the collection stays readable at every time at or after it, whatever compaction does.

        Args:
            at: a time at or after `since`, which may also be beyond upper; by default the last one that can be read.
            lease: how long the capability lives after each call, from a millisecond to 366 days.
            purpose: what it is for, in at most 200 characters; it is shown with the hold.

        Returns:
            A read capability: `since`, `token`, `downgrade(to)`, `renew()`, `clone()` and `drop()`.

        Raises:
            ArgumentRefused: an argument is out of its range, or there are too many holds.
            SinceError: `at` is not at or after `since`.

        Cost: one commit to the collection's handles.
        """
        from tidelake.read.holding import acquire

        with _engine_errors():
            return acquire(self._catalog, self._stored(), at, lease, purpose)

    def capability(self, token: str) -> ReadCapability:
        """Take over the capability of this token, which another holder has passed on. The token is used up.

        Raises:
            ArgumentRefused: it is not a token.
            CapabilityError: the capability has ended, belongs to another collection, or was taken over already.

        Cost: one commit to the collection's handles.
        """
        from tidelake.read.holding import take_over

        with _engine_errors():
            return take_over(self._catalog.store, self.name, token)

    def renew(self, token: str) -> None:
        """Renew the lease of the capability of this token, which stays with its holder.

        Raises:
            ArgumentRefused: it is not a token.
            CapabilityError: the capability has ended, belongs to another collection, or was taken over.
        """
        from tidelake.read.holding import renew

        with _engine_errors():
            renew(self._catalog.store, self.name, token)

    def release(self, token: str) -> None:
        """Drop the capability of this token.

        Raises:
            ArgumentRefused: it is not a token.
            CapabilityError: the capability has ended, belongs to another collection, or was taken over.
        """
        from tidelake.read.holding import release

        with _engine_errors():
            release(self._catalog.store, self.name, token)

    def holds(self) -> list[HeldTime]:
        """Return the holds of the collection, the earliest time first: who holds it, until when, and what that costs.

        Cost: the log of the table, and one column of the files with both rows that are held and others.
        """
        from tidelake.read.holding import held_times

        with _engine_errors():
            return held_times(self._stored())

    # --- its state ---------------------------------------------------------------------------------------------------

    def status(self) -> CollectionStatus | None:
        """Return its state and what it waits for; None if it was never ingested. The ends of its topics are looked up.

        Raises:
            TidelakeError: the store cannot be read, or is damaged.
        """
        with _engine_errors():
            use_head_start(self._catalog.store, self.name, follows=True)
            return _status_with_topics(self.settings, self._catalog.get(self.name))

    def explain(self, time: int | None = None) -> Explanation:
        """Explain a time: who proved it and how, or what it waits for. Starts no JVM.

        Args:
            time: the time; None means the first time that is not sealed, or the last one if every time is.

        Raises:
            DamagedTable: a table that the answer depends on is damaged.
        """
        from tidelake.read.explain import explain

        with _engine_errors():
            return explain(self._stored(), time)

    def quarantine(self) -> list[dict[str, Any]]:
        """Return the messages that could not be used: unexplained messages first, then the others, both by place.

        Each has `topic`, `partition`, `offset`, `timestamp_ms`, `reason`, `detail`, `times` (those that are known to
        wait for it), `key` and `value` in bytes, and `explained`: why it no longer needs attention, or None.
        """
        stored = self._stored()
        rows = [{name: value for name, value in row.items() if name != RUN} for row in quarantine_rows(stored)]
        for row in rows:
            row["explained"] = explanation_of(row, stored.entry.decisions)
        return sorted(rows, key=lambda row: row["explained"] is not None)

    def late(self, limit: int = 20) -> LateReport:
        """Return what was stated about sealed times after they were sealed, with the first `limit` contradictions."""
        stored = self._stored()
        notes = LateNotes(stored)
        return LateReport(late_verdicts(stored), notes.contradictions, notes.first(limit))

    def transactions(self) -> list[Transaction]:
        """Return the sealed transactions and snapshots of a collection with `framing: transactions`, oldest first.

        Transactions without an event in the collection's table are included. Other collections have none.

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
        """Return what became of a message: an answer for each topic of this name that had the offset, oldest first.

        Args:
            topic: the topic's name, or a name under which the collection has stored it since it was accepted again.
            partition: the partition of the message.
            offset: its offset.

        Raises:
            UnknownTopic: the collection does not read this topic.

        Cost: the small tables, and the rows of `updates/` at the times that the message states.
        """
        from tidelake.read.trace import trace_message  # imported late: only this needs a codec and the topics

        with _engine_errors():
            stored = self._catalog.get(self.name)
            fates = trace_message(stored, self.settings, topic, partition, offset)
        if not fates:
            raise UnknownTopic(topic, self.settings.topics)
        return fates

    def history(self, limit: int | None = None, kinds: Sequence[str] = ()) -> History:
        """Return what was done to the collection, oldest first: seals, validations, decisions, compactions, ….

        Args:
            limit: the maximum number of events; the newest are returned. None means all.
            kinds: only events of these kinds (`tidelake.read.events.KINDS`); empty means all.

        Cost: the table `proofs/`, or `bindings/`, and the entries that the logs still have.
        """
        from tidelake.read.history import read_history

        with _engine_errors():
            return read_history(self._stored(), limit, kinds)

    # --- decisions about it ------------------------------------------------------------------------------------------

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """The decisions in force, oldest first."""
        return self._stored().entry.decisions

    def decide(self, decision: Decision) -> Decision:
        """Store a standing rule that the next ingest or seal applies; see `tidelake.decisions` for the kinds.

        A new count for a time replaces the earlier one. `AcceptTopic` needs only the topic's name: its current identity
        and the offsets to start from are looked up.

        Returns:
            The decision as it is stored.

        Raises:
            DecisionRefused, StatementRefused, DataRefused: it cannot have an effect, or does not match the collection.
            TopicChanged, TopicUnreachable: its gap or topic cannot be looked up.
        """
        checked = check_decision(self._stored(), self.settings, decision)
        self._catalog.decide(self.name, checked)
        return checked

    def withdraw(self, subject: int | Offsets) -> None:
        """Withdraw every decision about an open time, or the acknowledgement of these offsets.

        Raises:
            DecisionRefused: there is no decision about it, or the time is sealed.
        """
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
        if writer is not None and not is_writer_name(writer):
            raise ArgumentRefused("writer", writer, "which no writer can have as its name", f"give {WRITER_RULE}")
        return self._catalog.fence(self._stored().name, writer).epoch

    # --- whether it is still what was committed ----------------------------------------------------------------------

    def verify(self, deep: bool = False) -> Verification:
        """Verify the catalog, the name and the collection: each log entry, and the size, rows and digest of each file.

        Args:
            deep: whether to read every page of every file, and verify the checksums.
        """
        found, store = Verification(), self._catalog.store
        with _engine_errors():
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
        """Restore damaged log entries from acknowledged copies, and copies from entries; return what was restored.

        Damaged bytes are set aside. What `verify` still finds afterwards cannot be restored in this way.

        Args:
            accept_newest_entry: whether a log that has lost all of its markers is marked again. Its newest entry is
                taken as it is: nothing proves that it is undamaged, or that no later commit is lost.
        """
        with _engine_errors():
            store, left = self._catalog.store, Verification()
            restored = repair_log(store.catalog, accept_newest_entry)
            restored += repair_name(store, self.name, accept_newest_entry)
            verify_table(store.catalog, False, left)
            handles = verify_name(store, self.name, left)
            if handles is not None:
                restored += repair_log(handles, accept_newest_entry)
                verify_table(handles, False, left)
            if left.damages:  # it is not known what the collection consists of
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
        topics = open_topics(self.settings, stored.entry.decisions)
        with _engine_errors():
            outcomes = restore_files(spark, stored, self.settings, topics, [damage.file for damage in chosen])
        left = [damage for damage in damages if damage not in chosen]
        for damage in chosen:
            if (why := outcomes[damage.file]) is not None:
                left.append(replace(damage, remedy=str(why), is_restorable=False))
        return [damage for damage in chosen if outcomes[damage.file] is None], left

    def __repr__(self) -> str:
        return f"LakeCollection({self.name!r})"

    @property
    def _catalog(self) -> Catalog:
        return self.lake.catalog

    def _stored(self) -> Collection:
        return self._catalog.find(self.name)


def _status_with_topics(settings: CollectionSettings, stored: Collection | None) -> CollectionStatus | None:
    """Return the state of a collection; None if it was never ingested."""
    if stored is None:
        return None
    with _engine_errors():
        topics = open_topics(settings, stored.entry.decisions)
        return read_status(stored, topics, settings.stalled_after_s, settings=settings)


@contextmanager
def _engine_errors() -> Iterator[None]:
    """Raise an engine's error about a store's files as a Tidelake error."""
    try:
        yield
    except (OSError, pa.ArrowException, DeltaError) as error:
        fact = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise StoreUnreadable(fact) from error
