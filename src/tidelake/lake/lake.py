"""A lake: a store, its topics and its collections, as `collections.yaml` describes them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from tidelake.errors import ArgumentRefused, TidelakeError, UnknownTopic
from tidelake.lake.answers import status_with_topics
from tidelake.lake.arguments import check_flag, check_listing, check_name, check_number, check_session, check_text
from tidelake.lake.base import OpenedStore, engine_errors
from tidelake.lake.collection import LakeCollection
from tidelake.read.orphaned import Orphaned, read_orphaned
from tidelake.read.status import CollectionStatus
from tidelake.settings.collection import CollectionSettings
from tidelake.settings.framings import NAME_RULE, is_collection_name
from tidelake.settings.lake import load_settings, load_valid_settings
from tidelake.storage import blobs
from tidelake.store.head_start import use_head_start

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidelake.compact.garbage import Garbage
    from tidelake.query.spark_sql import SparkAnswer
    from tidelake.query.sql import QueryAnswer
    from tidelake.read.dropping import Dropping
    from tidelake.read.fates import Fate
    from tidelake.read.history import History
    from tidelake.read.holding import HeldTime
    from tidelake.read.moment import Moment
    from tidelake.store.entry import Collection

CONFIG_VARIABLE, CONFIG_FILE = "TIDELAKE_CONFIG", "collections.yaml"


class Lake(OpenedStore):
    """A store, its topics and its collections."""

    @classmethod
    def open(cls, file: str | Path | None = None, *, skip_invalid: bool = False, read_only: bool = False) -> Lake:
        """Read a `collections.yaml`; by default the file that TIDELAKE_CONFIG names, or else ./collections.yaml.

        Args:
            file: the path.
            skip_invalid: leave out collections whose block is invalid. `status` gives their errors, and `collection`
                raises them.
            read_only: write nothing to the store, not even to finish what a process left undone when it died: its
                last commit may then be missing. Every call that would write raises `LakeReadOnly`.

        Raises:
            ConfigurationError: the error names the file, the field or line, what is wrong and what to do.
        """
        path = Path(file or os.environ.get(CONFIG_VARIABLE) or CONFIG_FILE)
        if not skip_invalid:
            return cls(load_settings(path), read_only=read_only)
        loaded = load_valid_settings(path)
        return cls(loaded.settings, loaded.refused, read_only)

    def collections(self) -> list[LakeCollection]:
        """Return the collections in the order of the file, including those that have never been ingested."""
        return [LakeCollection(self, settings) for settings in self.settings.collections]

    def collection(self, name: str) -> LakeCollection:
        """Return a collection by its name.

        Raises:
            ConfigurationError: the file names no such collection, or its block is invalid.
        """
        check_name("name", name)
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
        """Choose one time for several collections of a timeline; the result reads all of them AS OF this time.

        Args:
            time: a time that all of them have; `latest` chooses the last such time.
            names: the collections; by default all collections of the lake.
            not_before: a time that this session has read before: `latest` is never earlier, and an earlier `time` is
                refused.
            wait_s: how long to wait, in seconds, if a collection does not have the time yet.

        Returns:
            A moment: `time`, `snapshot(spark, name)`, and `facts`, which say why the time was chosen. Its reads use the
            versions that the tables had when it was chosen.

        Raises:
            ArgumentRefused: an argument is out of its range.
            TimelinesDiffer: two of the collections are on different timelines.
            CollectionLags: one of them does not have the time yet; the error says which one, and by how much it lags.
            SnapshotTorn: the connector abandoned a snapshot, and at this time only some of the collections have it.
            CollectionForgot: the time is before `since` of one of them.

        Cost: the log and the handles of each collection; no JVM is started.
        """
        return self._moment("time", time, names, not_before, wait_s)

    def _moment(
        self, argument: str, time: int | Literal["latest"], names: Sequence[str], not_before: int | None, wait_s: float
    ) -> Moment:
        """Do what `at` does; `argument` is what the caller calls the time, for errors."""
        from tidelake.read.moment import moment

        for name in names:
            check_name("name", name)
        settings = [self.collection(name).settings for name in dict.fromkeys(names)] or self.settings.collections
        with engine_errors():
            return moment(self.catalog, settings, time, not_before, wait_s, argument=argument)

    def query(
        self,
        query: str,
        as_of: int | Literal["latest"] = "latest",
        *,
        not_before: int | None = None,
        wait_s: float = 0.0,
        skip_errors: bool = False,
    ) -> QueryAnswer:
        """Run SQL over the collections that it names, all AS OF one time, with DuckDB. Does not start a JVM.

        A collection with a key has one row for each key. One without a key also has `_diff`: how often a row occurs.

        Args:
            query: a SELECT in DuckDB's dialect, over collections of this lake and nothing else.
            as_of: as for `at`.
            not_before: as for `at`: pass the `time` of the last answer, and no answer goes back in time.
            wait_s: as for `at`.
            skip_errors: leave out keys whose newest value cannot be used.

        Returns:
            An answer: `table` is an Arrow table; `time` and `facts` say which time was chosen and why.

        Raises:
            QueryRefused: the query is invalid, reads something else, calls a function that is not accepted, or fails.
            TimelinesDiffer, CollectionLags, SnapshotTorn, CollectionForgot: as for `at`.
            KeysInError: there are keys in error at that time, and `skip_errors` is not set.
        """
        from tidelake.query.sql import answer, checked_query

        check_text("query", query)
        check_flag("skip_errors", skip_errors)
        known = [settings.name for settings in self.settings.collections] + list(self.refused)
        checked = checked_query(query, known)
        names = tuple(dict.fromkeys(checked.collections.values()))
        found = self._moment("as_of", as_of, names, not_before, wait_s) if names else None
        with engine_errors():
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
            spark: the session of the DataFrame. The query sees none of its views, functions, variables or settings.
            query: a SELECT in Spark's dialect, over collections of this lake and nothing else.
            as_of: as for `at`.
            not_before: as for `query`.
            wait_s: as for `at`.
            skip_errors: leave out keys whose newest value cannot be used.

        Returns:
            An answer: `frame` is a lazy DataFrame; `time` and `facts` say which time was chosen and why.

        Raises:
            QueryRefused: the query is invalid, reads something else, or calls a function that is not accepted. A
                failure while rows are read is a Spark error.
            TimelinesDiffer, CollectionLags, SnapshotTorn, CollectionForgot: as for `at`.
            KeysInError: there are keys in error at that time, and `skip_errors` is not set.

        Cost: the log of each collection, one analysis on the driver, and a search for keys in error if any were stored.
        """
        from tidelake.query.spark_sql import checked_sql, sql_answer

        check_session(spark)
        check_text("query", query)
        check_flag("skip_errors", skip_errors)
        known = [settings.name for settings in self.settings.collections] + list(self.refused)
        checked = checked_sql(spark, query, known)
        names = tuple(dict.fromkeys(checked.collections.values()))
        found = self._moment("as_of", as_of, names, not_before, wait_s) if names else None
        with engine_errors():
            return sql_answer(spark, checked, found, skip_errors)

    def status(self, *names: str) -> dict[str, CollectionStatus | TidelakeError | None]:
        """Return the status of all collections, or of those that are named.

        A collection that was never ingested has None instead; one whose status cannot be read has the error.

        Raises:
            ConfigurationError: the file names no such collection.

        Cost: for each collection, what `Catalog.lookup` and `read_status` cost.
        """
        for name in names:
            check_name("name", name)
        refused = {name: error for name, error in self.refused.items() if not names or name in names}
        valid = tuple(name for name in names if name not in refused)
        chosen = self.settings.only(valid).collections if valid or not names else ()
        return self._status_of(chosen) | refused

    def _status_of(self, chosen: Sequence[CollectionSettings]) -> dict[str, CollectionStatus | TidelakeError | None]:
        store = self.catalog.store
        if store.root.is_local:
            return self._read_status(chosen)
        found: dict[str, CollectionStatus | TidelakeError | None] = {}
        for settings in chosen:  # one by one, because a process caches a limited number of logs
            use_head_start(store, settings.name, follows=True)
            found |= self._read_status([settings])
        return found

    def _read_status(self, chosen: Sequence[CollectionSettings]) -> dict[str, CollectionStatus | TidelakeError | None]:
        try:
            with engine_errors():
                stored = self.catalog.lookup(settings.name for settings in chosen)
        except TidelakeError as error:
            return dict.fromkeys((settings.name for settings in chosen), error)
        found: dict[str, CollectionStatus | TidelakeError | None] = {}
        for settings in chosen:
            each = stored[settings.name]
            try:
                found[settings.name] = each if isinstance(each, TidelakeError) else status_with_topics(settings, each)
            except TidelakeError as error:
                found[settings.name] = error
        return found

    def orphaned(self) -> list[Orphaned]:
        """Return the collections of the store that the settings do not name, sorted by name; errors are in the result.

        Cost: the folder of all names is listed; for each name that the settings do not have, two logs are opened.
        """
        return read_orphaned(self.catalog.store, self._names)

    def history(self, name: str, limit: int | None = None, kinds: Sequence[str] = ()) -> History:
        """Return the history of a collection of the store, even if it is orphaned or was dropped. Does not start a JVM.

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

        check_name("name", name)
        check_listing(limit, kinds)
        stored = self.stored(name)
        with engine_errors():
            if stored.entry.dropped is None:
                return read_history(stored, limit, kinds)
            return read_dropped_history(stored, limit, kinds)

    def stored(self, name: str) -> Collection:
        """Return a collection as the store has it, even if it is orphaned or was dropped.

        Args:
            name: its name; the settings do not have to name it.

        Raises:
            ConfigurationError, UnknownCollection: as for `history`.

        Cost: two logs are opened, and one small file is read; four logs if no collection has the name now.
        """
        check_name("name", name)
        with engine_errors():
            stored = self.catalog.get(name) or self.catalog.dropped(name)
        return self.collection(name).stored() if stored is None else stored

    def holds(self, name: str) -> list[HeldTime]:
        """Return the holds of a collection, even if it is orphaned or was dropped; see `LakeCollection.holds`.

        A hold on a dropped collection keeps all files of the collection, so its `rows` and `bytes` count all of them.

        Args:
            name: its name; the settings do not have to name it.

        Raises:
            ConfigurationError, UnknownCollection: as for `history`.

        Cost: that of `LakeCollection.holds`.
        """
        from tidelake.read.holding import held_times

        stored = self.stored(name)
        with engine_errors():
            return held_times(stored)

    def renew(self, name: str, token: str) -> None:
        """Renew the lease of the capability of this token; see `LakeCollection.renew`.

        Args:
            name: the collection's name in the store; the settings do not have to name it.
            token: the token.

        Raises:
            ArgumentRefused: it is not a token.
            CapabilityError: as for `LakeCollection.renew`.

        Cost: one commit to the collection's handles.
        """
        from tidelake.read.holding import renew

        check_name("name", name)
        with engine_errors():
            renew(self.catalog.store, name, token)

    def release(self, name: str, token: str) -> bool:
        """Drop the capability of this token; see `LakeCollection.release`.

        Args:
            name: the collection's name in the store; the settings do not have to name it.
            token: the token.

        Returns:
            Whether the collection of the capability has been dropped.

        Raises:
            ArgumentRefused: it is not a token.
            CapabilityError: as for `LakeCollection.release`.

        Cost: one commit to the collection's handles.
        """
        from tidelake.read.holding import release

        check_name("name", name)
        with engine_errors():
            return release(self.catalog.store, name, token)

    def rename(self, name: str, other: str) -> None:
        """Give a collection of the store another name, which the settings must use from then on. Does not start a JVM.

        The collection keeps its id, its history and its holds; the table that was published with the earlier name is
        no longer updated. If the call is interrupted, the next one finishes it.

        Args:
            name: its name; the settings do not have to name it.
            other: its new name.

        Raises:
            ArgumentRefused: the new name is not valid in the settings, or the collection already has it.
            UnknownCollection, CollectionRenamed: the store has no such collection, or it now has another name.
            NameTaken: another collection has the new name.

        Cost: two commits to the handles, and one to the log of the new name.
        """
        check_name("name", name)
        check_name("other", other)
        if not is_collection_name(other):
            raise ArgumentRefused("other", other, "which is not a valid name", f"use {NAME_RULE}")
        with engine_errors():
            self.catalog.rename(name, other)

    def dropping(self, name: str) -> Dropping:
        """Return the stored state of a collection that is to be dropped, or was dropped. Does not start a JVM.

        Raises:
            UnknownCollection: the store has no such collection.
        """
        from tidelake.read.dropping import read_dropping

        check_name("name", name)
        with engine_errors():
            return read_dropping(self.catalog.store, name)

    def drop(self, name: str) -> None:
        """Drop a collection of the store: it can no longer be read, and its name is free. Does not start a JVM.

        Readers that have a version open can still finish. Once `drop` or `gc` has found no hold on the collection, its
        tables stay for a day; a later `gc` deletes them. There is no way back. If the call is interrupted, the next one
        finishes it.

        Args:
            name: its name; the settings do not have to name it.

        Raises:
            UnknownCollection: the store has no such collection.

        Cost: two commits to the handles, and one to every other table.
        """
        check_name("name", name)
        with engine_errors():
            self.catalog.drop(name)

    def gc(self, dry_run: bool = False) -> Garbage:
        """Delete what is no longer needed, and say why the rest stays. Does not start a JVM.

        Args:
            dry_run: whether to delete nothing, and only say what would be deleted.

        Returns:
            `items`, each with `kind`, `name`, `place`, `goes`, `why` and `bytes`; and the number of `tombstones`.

        Cost: the logs of all names and tables of the store are opened, and their folders are listed.
        """
        from tidelake.compact.garbage import collect_garbage

        store = self.catalog.store
        if not dry_run:
            blobs.check_writable(store.root)  # otherwise, each failed deletion would become an item
        with engine_errors():
            return collect_garbage(store, self._names, dry_run)

    @property
    def _names(self) -> set[str]:
        """The names of all collections in the file, including those that were not chosen or are refused."""
        return {*self.settings.names, *(each.name for each in self.settings.collections), *self.refused}

    def upgrade(self) -> list[str]:
        """Upgrade the whole store to the newest format; return the names of its collections.

        Every job upgrades the collections that it writes to. Earlier releases refuse the store from then on.

        Cost: a few commits for each collection of a store that was created before the newest format.
        """
        with engine_errors():
            return self.catalog.upgrade()

    def trace(self, topic: str, partition: int, offset: int) -> dict[str, list[Fate] | TidelakeError]:
        """Return what became of a message in each collection that reads its topic, or the error of that collection.

        Args:
            topic: the topic's name, or a name under which it was accepted again, such as `orders#1`.
            partition: the partition of the message.
            offset: its offset.

        Raises:
            UnknownTopic: no collection reads this topic.
        """
        check_text("topic", topic)
        check_number("partition", partition)
        check_number("offset", offset)
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
            topics = sorted({name for each in self.settings.collections for name in each.topics})
            raise UnknownTopic(topic, topics, None)
        return found
