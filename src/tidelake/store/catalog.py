"""The catalog: for each collection, its random id, its schema, `since`, its capabilities, its epoch and its decisions.

Each row of the catalog's table is a collection or a publication; a change replaces the row's run. Two changes from the
same state propose the same `seq`, so acquiring a capability and moving `since` cannot both succeed.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

import pyarrow as pa

from tidelake.errors import Conflict, DamagedTable, Fenced, FrontierRegression, UnknownCollection, WriterFenced
from tidelake.settings.collection import CollectionSpec
from tidelake.storage import blobs
from tidelake.storage.location import Location
from tidelake.store.bring_over import bring_over
from tidelake.store.commit import EPOCH, OpenTable, create_table, is_table, maintain
from tidelake.store.compatibility import check_same, with_columns
from tidelake.store.decision import Acknowledge, Decision, Offsets, replaces, time_of
from tidelake.store.entry import Capability, Collection, Entry
from tidelake.store.failpoints import reach
from tidelake.store.files import RunFile, discard_run, read_rows, write_run
from tidelake.store.format import CATALOG_VERSION, FORMAT, FORMAT_VERSION
from tidelake.store.layout import (
    BINDINGS_SCHEMA,
    PROGRESS_SCHEMA,
    PROOFS_SCHEMA,
    QUARANTINE_SCHEMA,
    RUN,
    Store,
    new_run,
)
from tidelake.store.notices import warn
from tidelake.store.publication import Publication, folder_of_name, holds_publication, run_kind
from tidelake.store.retry import ATTEMPTS_MAX, retry_commit

_UPGRADED = "tables were upgraded to a new format: earlier releases refuse them from now on"
T = TypeVar("T")
_SCHEMA = pa.schema([pa.field("name", pa.string()), pa.field("document", pa.string()), pa.field(RUN, pa.string())])


class Catalog:
    """The collections of a store, by name. Every call reads the newest state."""

    def __init__(self, store: Store, writer: str | None = None) -> None:
        """Open a store's catalog; nothing is written.

        Args:
            store: the store.
            writer: this writer's name when it opens collections for writing; None if it has none.
        """
        self.store, self.writer = store, writer

    def exists(self) -> bool:
        """Return whether the store has a catalog that was created completely."""
        return is_table(self.store.catalog)

    def entries(self) -> list[Entry]:
        """Return the entries of all collections, sorted by name."""
        if not self.exists():
            self._check_not_lost()
            return []
        return sorted(self._read(OpenTable(self.store.catalog)).values(), key=lambda entry: entry.name)

    def find(self, name: str) -> Collection:
        """Return the collection of this name.

        Raises:
            UnknownCollection: the store has no such collection.
        """
        found = self.collections().get(name)
        if found is None:
            raise UnknownCollection(str(self.store.root), name)
        return found

    def collections(self) -> dict[str, Collection]:
        """Return all collections, by name."""
        return {entry.name: Collection(entry, self.store.collection(entry.id)) for entry in self.entries()}

    def publication(self, name: str) -> Publication | None:
        """Return the publication of this name; None if nothing was ever published under it.

        Cost: the catalog's log is opened, and one small file is read.
        """
        if not self.exists():
            return None
        return next(iter(self._publications(OpenTable(self.store.catalog), name).values()), None)

    def publish(self, collection: Collection) -> Publication:
        """Bind a collection's name to it, so that its contents may be published, and return the publication.

        If the name is bound to another collection, which was dropped or has a different name now, it is bound anew. If
        it is bound to this one, nothing is written.

        Raises:
            UnknownCollection: the store does not have this collection under this name any more.
            Fenced: the collection's epoch was raised after it was opened.
        """
        entry = collection.entry

        def commit(table: OpenTable) -> Publication:
            newest = next((other for other in self._read(table).values() if other.id == entry.id), None)
            if newest is None or newest.name != entry.name:
                raise UnknownCollection(str(self.store.root), entry.name)
            if newest.epoch != entry.epoch:
                raise Fenced(str(self.store.publication(folder_of_name(entry.name))), entry.epoch, newest.epoch)
            bound = self._publications(table, entry.name)
            for publication in bound.values():
                if publication.collection_id == entry.id:
                    return publication
            publication = Publication(
                name=entry.name,
                folder=next((earlier.folder for earlier in bound.values()), folder_of_name(entry.name)),
                collection_id=entry.id,
                bound_at_ms=int(time.time() * 1000),
            )
            document, values = publication.model_dump_json(), {FORMAT: CATALOG_VERSION}
            self._swap(table, run_kind(entry.name), entry.name, document, list(bound), values)
            return publication

        return self._retry(commit)

    def check(self, specs: Iterable[CollectionSpec]) -> frozenset[str]:
        """Refuse settings that do not fit what the store holds, before anything is written.

        Returns:
            The names of all collections in the store.

        Raises:
            ConfigurationError: a collection exists with a different envelope or schema; those are fixed.
        """
        entries = {entry.name: entry for entry in self.entries()}
        for spec in specs:
            if spec.name in entries:
                check_same(entries[spec.name], spec)
                with_columns(entries[spec.name], spec)
        return frozenset(entries)

    def open_or_create(self, spec: CollectionSpec) -> Collection:
        """Open for writing the collection that the settings describe; create it with its tables if it does not exist.

        Raises:
            ConfigurationError: it exists with a different envelope or schema; those are fixed when it is created.
            WriterFenced: it was given to another writer; nothing was written.
        """
        if not self.exists():
            self._check_not_lost()
        create_table(self.store.catalog, _SCHEMA)

        def create(entries: dict[str, Entry]) -> Entry:
            for entry in entries.values():
                if entry.name == spec.name:
                    if entry.writer not in (None, self.writer):
                        raise WriterFenced(spec.name, self.writer, entry.writer)
                    check_same(entry, spec)
                    return with_columns(entry, spec)
            return Entry(
                id=secrets.token_hex(16),
                name=spec.name,
                framing=spec.framing,
                envelope=spec.envelope,
                format=spec.format,
                record_schema=spec.record_schema,
                value_schema=spec.value_schema,
                key=spec.key,
                before=spec.before,
                capabilities=(Capability(id=f"critical-{secrets.token_hex(8)}", kind="critical", since=(0,)),),
                created_at_ms=int(time.time() * 1000),
                tables_format=FORMAT_VERSION,
            )

        entry = self._change(create)
        collection = Collection(entry, self.store.collection(entry.id))
        if not entry.tables_made:
            self._create_tables(collection)
            entry = self.update(entry.name, lambda newest: newest.model_copy(update={"tables_made": True}))
        entry = self._upgrade_tables(entry)
        if entry.epoch:
            self._carry_epoch(entry)
        opened = Collection(entry, collection.paths)
        if entry.added:
            reach("columns.after_catalog")
            opened.carry_columns()
        return opened

    def _check_not_lost(self) -> None:
        """Check that a store without a catalog has no collections.

        Raises:
            DamagedTable: the store has collections.
        """
        if blobs.list_names(self.store.collections):
            raise DamagedTable(str(self.store.catalog), "it is missing, but there are collections")

    def update(self, name: str, change: Callable[[Entry], Entry]) -> Entry:
        """Replace a collection's newest entry with `change(entry)`, and return the new entry.

        Raises:
            UnknownCollection: the store has no such collection.
            FrontierRegression: the change would move `since` backwards.
        """

        def apply(entries: dict[str, Entry]) -> Entry:
            for entry in entries.values():
                if entry.name == name:
                    changed = change(entry)
                    if not entry.since_frontier.less_equal_frontier(changed.since_frontier):
                        raise FrontierRegression(f"since of '{name}'", entry.since_frontier, changed.since_frontier)
                    return changed
            raise UnknownCollection(str(self.store.root), name)

        return self._change(apply)

    def decide(self, name: str, decision: Decision) -> Entry:
        """Store a decision. A new count for a time replaces the earlier count."""

        def add(entry: Entry) -> Entry:
            others = [earlier for earlier in entry.decisions if not replaces(decision, earlier)]
            return entry.model_copy(update={"decisions": (*others, decision)})

        return self.update(name, add)

    def withdraw(self, name: str, time: int) -> Entry:
        """Withdraw all decisions about a time. The caller ensures that the time is not sealed."""
        return self._withdraw(name, lambda decision: time_of(decision) == time)

    def withdraw_acknowledgement(self, name: str, offsets: Offsets) -> Entry:
        """Withdraw the acknowledgement of these offsets."""
        return self._withdraw(name, lambda decision: isinstance(decision, Acknowledge) and decision.offsets == offsets)

    def _withdraw(self, name: str, matches: Callable[[Decision], bool]) -> Entry:
        def remove(entry: Entry) -> Entry:
            others = tuple(decision for decision in entry.decisions if not matches(decision))
            return entry.model_copy(update={"decisions": others})

        return self.update(name, remove)

    def fence(self, name: str, writer: str | None) -> Entry:
        """Raise the epoch and set the collection's writer.

        Processes that have the collection open can then no longer commit.

        Args:
            name: the collection.
            writer: the only writer that may open the collection from now on, even after a restart; None allows any.
        """

        def replace(newest: Entry) -> Entry:
            return newest.model_copy(update={"epoch": newest.epoch + 1, "writer": writer})

        entry = self._upgrade_tables(self.update(name, replace))
        reach("catalog.after_epoch")
        self._carry_epoch(entry)
        return entry

    def _carry_epoch(self, entry: Entry) -> None:
        """Write the entry's epoch to the tables that it fences. After an interruption, `open_or_create` does so."""
        paths = self.store.collection(entry.id)
        bindings = [paths.bindings] if entry.mints_times else []
        for path in (paths.updates, paths.progress, paths.proofs, paths.quarantine, paths.late, *bindings):
            _raise_epoch(path, entry.epoch)

    def _upgrade_tables(self, entry: Entry) -> Entry:
        """Upgrade a collection's tables to the newest format, before anything is committed to them.

        The catalog was upgraded already, so no process of an earlier release creates further tables.
        """
        if entry.tables_format == FORMAT_VERSION:
            return entry
        tables = Collection(entry, self.store.collection(entry.id)).tables
        upgraded = [table.name for table in tables if (entry.tables_made or is_table(table)) and bring_over(table)]
        reach("format.after_tables")
        if upgraded:
            warn(_UPGRADED, store=str(self.store.root), collection=entry.name, tables=upgraded)
        return self.update(entry.name, lambda newest: newest.model_copy(update={"tables_format": FORMAT_VERSION}))

    def _create_tables(self, collection: Collection) -> None:
        from tidelake.store.table_schema import (  # imported late: `status` reads catalogs without Spark
            late_schema,
            updates_schema,
        )

        paths, schema = collection.paths, collection.entry.record_schema
        create_table(paths.progress, PROGRESS_SCHEMA, {EPOCH: 0})
        create_table(paths.proofs, PROOFS_SCHEMA, {EPOCH: 0})
        create_table(paths.quarantine, QUARANTINE_SCHEMA, {EPOCH: 0})
        create_table(paths.late, late_schema(schema), {EPOCH: 0})
        if collection.entry.mints_times:
            create_table(paths.bindings, BINDINGS_SCHEMA, {EPOCH: 0})
        create_table(
            paths.updates,
            updates_schema(schema, collection.entry.positioned),
            {EPOCH: 0, "upper": 0, "closed": 0, "since": 0},
        )

    def _read(self, table: OpenTable) -> dict[str, Entry]:
        documents = self._documents([file for file in table.files() if not holds_publication(file.run)])
        return {run: Entry.model_validate_json(text) for run, text in documents.items()}

    def _publications(self, table: OpenTable, name: str) -> dict[str, Publication]:
        documents = self._documents([file for file in table.files() if holds_publication(file.run, name)])
        return {run: Publication.model_validate_json(text) for run, text in documents.items()}

    def _documents(self, files: Sequence[RunFile]) -> dict[str, str]:
        """Return the document of each of these runs."""
        rows = read_rows(self.store.catalog, files, _SCHEMA)
        return dict(zip(rows[RUN].to_pylist(), rows["document"].to_pylist(), strict=True))

    def _change(self, change: Callable[[dict[str, Entry]], Entry]) -> Entry:
        def commit(table: OpenTable) -> Entry:
            entries = self._read(table)
            entry = change(entries)
            if table.format < FORMAT_VERSION:
                if bring_over(table.path):
                    warn(_UPGRADED, store=str(self.store.root), collection=None, tables=[table.path.name])
                reach("format.after_catalog")
                return commit(OpenTable(table.path))
            if entry in entries.values():
                return entry
            removes = [old_run for old_run, old in entries.items() if old.id == entry.id]
            self._swap(table, "entry", entry.name, entry.model_dump_json(), removes)
            return entry

        return self._retry(commit)

    def _swap(
        self,
        table: OpenTable,
        kind: str,
        name: str,
        document: str,
        removes: Sequence[str],
        values: Mapping[str, int] | None = None,
    ) -> None:
        """Commit a row in place of earlier runs."""
        run = new_run(kind, table.seq)
        added = write_run(self.store.catalog, run, pa.table({"name": [name], "document": [document]}))
        try:
            table.commit(values or {}, added, removes)
        except Conflict:
            discard_run(self.store.catalog, run)
            reach("catalog.after_conflict")
            raise
        reach("catalog.after_commit")
        maintain(self.store.catalog)

    def _retry(self, commit: Callable[[OpenTable], T]) -> T:
        failure = f"{ATTEMPTS_MAX} attempts to change the catalog failed"
        return retry_commit(self.store.catalog, commit, failure, pause_s=0.002)


def _raise_epoch(path: Location, epoch: int) -> None:
    def commit(table: OpenTable) -> None:
        if (table.value(EPOCH) or 0) < epoch:
            table.commit({EPOCH: epoch})

    retry_commit(path, commit, f"{ATTEMPTS_MAX} attempts to fence failed")
