"""The catalog: finds, creates and changes the collections of a store by their names.

Each name has a log that binds it to a collection, and each collection has a table of its own that holds its schema,
`since`, capabilities, epoch and decisions. So a call about one collection costs the same whether the store has ten
collections or thousands, and changes to different collections never conflict. See docs/decisions/catalog.md.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress

from tidelake.catalog.absence import absence
from tidelake.catalog.collection_tables import carry_epoch, create_tables, upgrade_tables
from tidelake.catalog.compatibility import check_same, with_columns
from tidelake.catalog.drop import drop
from tidelake.catalog.handles import ENTRIES_SCHEMA, change_handles, create_handles, read_handles
from tidelake.catalog.name_log import Binding, NameLog, name_logs
from tidelake.catalog.rename import finish_renaming, is_about_to_have, rename
from tidelake.catalog.undivided import catalog_entries, catalog_publications, divide, is_divided
from tidelake.errors import (
    CollectionRenamed,
    CommitRefused,
    Conflict,
    DamagedTable,
    Fenced,
    FrontierRegression,
    TidelakeError,
    UnknownCollection,
    WriterFenced,
)
from tidelake.settings.collection import CollectionSpec
from tidelake.storage import blobs
from tidelake.storage.location import HIDDEN
from tidelake.store.commit import OpenTable, create_table, is_table
from tidelake.store.decision import Acknowledge, Decision, Offsets, replaces, time_of
from tidelake.store.entry import Capability, Collection, Entry
from tidelake.store.failpoints import reach
from tidelake.store.followed import last_seen
from tidelake.store.format import CATALOG_VERSION, DIVIDED, FORMAT, FORMAT_VERSION
from tidelake.store.layout import CollectionPaths, Store
from tidelake.store.publication import Publication, folder_of_name
from tidelake.store.retry import ATTEMPTS_MAX


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
        """Return the entries of all collections, sorted by name.

        Raises:
            DamagedTable: an entry cannot be read.

        Cost: the log of each name and the handles of each collection.
        """
        catalog = self._undivided()
        entries = {} if catalog is None else catalog_entries(catalog)
        for log in name_logs(self.store):
            binding = log.binding
            if binding is None:
                continue
            entries.pop(binding.name, None)
            if (entry := log.entry()) is not None:
                entries[entry.name] = entry
        return sorted(entries.values(), key=lambda entry: entry.name)

    def collections(self) -> dict[str, Collection]:
        """Return all collections, by name. Cost and errors: as for `entries`."""
        return {entry.name: self._collection(entry) for entry in self.entries()}

    def find(self, name: str) -> Collection:
        """Return the collection with this name.

        Raises:
            UnknownCollection: the store has no such collection; CollectionRenamed, CollectionDropped: it had one.
            DamagedTable: its handles, or the log of its name, are damaged.

        Cost: two logs are opened, and one small file is read.
        """
        found = self.get(name)
        if found is None:
            raise self.absence(name)
        return found

    def absence(self, name: str) -> UnknownCollection:
        """Return the error that says why the store has no collection with this name. Cost: two logs are opened."""
        return absence(self.store, name, NameLog.of(self.store, name).bound_entry())

    def get(self, name: str) -> Collection | None:
        """Return the collection with this name, or None. Cost and errors: as for `find`."""
        found = self.lookup((name,))[name]
        if isinstance(found, TidelakeError):
            raise found
        return found

    def lookup(self, names: Iterable[str]) -> dict[str, Collection | TidelakeError | None]:
        """Return, for each of these names, the collection, or None if there is none, or the error if it cannot be read.

        Cost: as for `find`, for each of these names; no other entry is read. An undivided catalog is read once.
        """
        found = {name: self._found(name) for name in names}
        unknown = [name for name, collection in found.items() if collection is None]
        if unknown:
            try:
                found |= self._lookup_undivided(unknown)
            except TidelakeError as error:
                found |= dict.fromkeys(unknown, error)
        return found

    def _lookup_undivided(self, names: list[str]) -> dict[str, Collection | TidelakeError | None]:
        """Look up, in an undivided catalog, names that led to no collection when their logs were read a moment ago."""
        catalog = self._undivided()
        if catalog is None:  # another process may have divided it in the meantime
            return {name: self._found(name) for name in names}
        entries = catalog_entries(catalog)
        return {name: self._collection(entries[name]) if name in entries else None for name in names}

    def _found(self, name: str) -> Collection | TidelakeError | None:
        try:
            entry = self._entry_of_published(name)
            if entry is None:
                entry = NameLog.of(self.store, name).entry()
        except TidelakeError as error:
            return error
        return None if entry is None else self._collection(entry)

    def _entry_of_published(self, name: str) -> Entry | None:
        """Return the newest entry of the collection with this name, found through a binding that may be out of date.

        A name is rebound only after its collection has given it up. So if the newest handles of the collection have the
        name, the binding is valid; otherwise the result is None. It is also None if the store is on a disk, if this
        process has not yet read the log of the name, or if it found no publication in the name's binding.
        """
        if last_seen(self.store.log_of_name(name)) is None:  # on a disk, logs are not followed
            return None
        log = NameLog.of(self.store, name, may_be_stale=True)
        return None if log.binding is None or log.binding.publication is None else log.entry()

    def _collection(self, entry: Entry) -> Collection:
        return Collection(entry, self.store.collection(entry.id))

    def _undivided(self) -> OpenTable | None:
        """Return the catalog if it still has rows, as in formats before 4; None if it was divided or does not exist.

        Raises:
            DamagedTable: the catalog is missing, but the store has collections.
        """
        if not self.exists():
            self._check_not_lost()
            return None
        catalog = OpenTable(self.store.catalog, may_be_stale=True)  # `exists` has just looked
        return None if is_divided(catalog) else catalog

    def divide(self) -> int:
        """Divide the catalog of a store in a format before 4; return how many collections its rows had.

        Each collection gets handles of its own, and each name a log. If an earlier call was interrupted, this call
        finishes its work. Nothing is written if the catalog is already divided. A store without a catalog gets one.
        """
        if not self.exists():
            self._check_not_lost()
            create_table(self.store.catalog, ENTRIES_SCHEMA, {FORMAT: CATALOG_VERSION, DIVIDED: 1})
        return divide(self.store)

    def upgrade(self) -> list[str]:
        """Upgrade the whole store to the newest format; return the names of all collections."""
        if not self.exists():
            self._check_not_lost()
            return []
        self.divide()
        return [self._upgraded(entry).name for entry in self.entries()]

    def others(self, names: Iterable[str]) -> dict[str, Entry | TidelakeError]:
        """Return, by name, the entry of each collection whose name is not among `names`.

        If an entry cannot be read, the result has the error instead, by the folder of the name.

        Args:
            names: the names in the settings.

        Cost: a listing of the folder of all names; then, for every other name that was ever bound, what `find` costs.
        """
        known = set(names)
        folders = set(blobs.list_names(self.store.names))
        if not folders:
            catalog = self._undivided()
            entries = {} if catalog is None else catalog_entries(catalog)
            return {name: entry for name, entry in sorted(entries.items()) if name not in known}
        found: dict[str, Entry | TidelakeError] = {}
        for folder in sorted(folders - {folder_of_name(name) for name in known}):
            if folder.startswith(HIDDEN):
                continue
            try:
                entry = NameLog(self.store, folder).entry()
            except TidelakeError as error:
                found[folder] = error
            else:
                if entry is not None:
                    found[entry.name] = entry
        return found

    def name_now(self, name: str) -> str | None:
        """Return the current name of the collection that had this name; None if it was not renamed, or was dropped.

        Cost: two logs are opened.
        """
        entry = NameLog.of(self.store, name).bound_entry()
        return None if entry is None or entry.dropped is not None or entry.name == name else entry.name

    def dropped(self, name: str) -> Collection | None:
        """Return the collection that had this name until it was dropped.

        None if a collection has the name now, if the last one that had it was renamed, or if none ever had it.

        Cost: two logs are opened.
        """
        entry = NameLog.of(self.store, name).bound_entry()
        return None if entry is None or entry.dropped is None or entry.name != name else self._collection(entry)

    def orphans(self) -> list[str]:
        """Return the ids of collections that have a folder but no name, although they were not dropped.

        A name is bound before its collection gets a folder, so each of these had a name, whose log must have been lost.

        Cost: as for `entries`, and the folder of all collections is listed.
        """
        listed = blobs.list_names(self.store.collections)  # first: a name is bound before its collection has a folder
        folders = {folder for folder in listed if not folder.startswith(HIDDEN)}
        if (catalog := self._undivided()) is not None:
            folders -= {entry.id for entry in catalog_entries(catalog).values()}
        folders -= {log.binding.id for log in name_logs(self.store) if log.binding is not None}
        return sorted(folder for folder in folders if not self._is_dropped(folder))

    def _is_dropped(self, collection_id: str) -> bool:
        try:
            return read_handles(self.store.collection(collection_id)).dropped is not None
        except DamagedTable:
            return False

    def publication(self, name: str, may_be_stale: bool = False) -> Publication | None:
        """Return the publication of this name; None if nothing was ever published under it.

        Args:
            name: the name.
            may_be_stale: see `OpenTable`.

        Cost: the log of the name is opened.
        """
        for _ in range(2):  # another process may divide the catalog between the first look and the second
            binding = NameLog.of(self.store, name, may_be_stale).binding
            if binding is not None:
                return binding.publication
            catalog = self._undivided()
            if catalog is not None:
                return catalog_publications(catalog, name).get(name)
        return None

    def publish(self, collection: Collection) -> Publication:
        """Give a collection the publication of its name, so that its contents can be published, and return it.

        If the publication belongs to another collection, which was dropped or has a different name now, it passes to
        this one. If it already belongs to this one, nothing is written.

        Raises:
            UnknownCollection: the store no longer has this collection under this name.
            Fenced: the collection's epoch was raised after it was opened.
        """
        entry = collection.entry
        for log in self._attempts(entry.name):
            newest = log.entry()
            if log.binding is None or newest is None or newest.id != entry.id:
                own = read_handles(collection.paths)
                raise absence(self.store, entry.name, own, has_successor=newest is not None)
            if newest.epoch != entry.epoch:
                raise Fenced(str(self.store.publication(folder_of_name(entry.name))), entry.epoch, newest.epoch)
            bound = log.binding.publication
            if bound is not None and bound.collection_id == entry.id:
                return bound
            publication = Publication(
                name=entry.name,
                folder=folder_of_name(entry.name) if bound is None else bound.folder,
                collection_id=entry.id,
                bound_at_ms=int(time.time() * 1000),
            )
            with suppress(Conflict):
                log.commit(log.binding.model_copy(update={"publication": publication}))
                return publication
        raise Conflict(str(self.store.names), None, f"{ATTEMPTS_MAX} attempts to bind the name '{entry.name}' failed")

    def check(self, specs: Iterable[CollectionSpec], names: Iterable[str] = ()) -> frozenset[str]:
        """Refuse settings that contradict what the store holds, before anything is written.

        Args:
            specs: the specifications.
            names: the names of all collections in the settings; by default those of the specifications.

        Returns:
            The names of the specified collections that the store has. Damaged collections are included: opening one
            raises the error.

        Raises:
            ConfigurationError: a specification contradicts its collection; see `check_same` and `with_columns`.
            CollectionRenamed: a collection was renamed, and the settings do not have its new name.

        Cost: as for `find`, for each specification; no other entry is read.
        """
        by_name = {spec.name: spec for spec in specs}
        known = {*by_name, *names}
        found = {name: each for name, each in self.lookup(by_name).items() if each is not None}
        for name, each in found.items():
            if isinstance(each, Collection):
                check_same(each.entry, by_name[name])
                with_columns(each.entry, by_name[name])
        for name in by_name.keys() - found.keys():
            other = self.name_now(name)
            if other is not None and other not in known:
                raise CollectionRenamed(str(self.store.root), name, other)
        return frozenset(found)

    def open_or_create(self, spec: CollectionSpec, just_checked: bool = False) -> Collection:
        """Open a collection for writing; create it with its tables if it does not exist.

        Args:
            spec: the collection as the settings describe it.
            just_checked: whether `check` has just read the handles, so that they are not read again. A change made
                since `check` then counts as made after this call.

        Raises:
            ConfigurationError: the specification contradicts the collection, as for `check`.
            WriterFenced: the collection was given to another writer; nothing was written.
        """

        def adopt(entry: Entry) -> Entry:
            if not entry.has_name(spec.name):  # it was renamed or dropped in the meantime
                raise absence(self.store, spec.name, entry)
            if entry.writer not in (None, self.writer):
                raise WriterFenced(spec.name, self.writer, entry.writer)
            check_same(entry, spec)
            return with_columns(entry, spec)

        if self._undivided() is not None and (found := self.get(spec.name)) is not None:
            adopt(found.entry)  # before the catalog is divided: a writer that is refused writes nothing
        paths, entry = self._bound(spec, just_checked)
        if entry is None or adopt(entry) != entry:
            entry = change_handles(paths, adopt)
        collection = self._collection(entry)
        if not entry.tables_made:
            create_tables(collection)
            entry = self.update(entry.name, lambda newest: newest.model_copy(update={"tables_made": True}))
        opened = self._collection(self._upgraded(entry))
        if opened.entry.epoch:
            carry_epoch(opened)
        if opened.entry.added:
            reach("columns.after_catalog")
            opened.carry_columns()
        return opened

    def _bound(self, spec: CollectionSpec, may_be_stale: bool) -> tuple[CollectionPaths, Entry | None]:
        """Return the location of the collection that a specification names; create the collection if there is none.

        The newest entry is returned as well, unless the collection has just been created.
        """
        seen = NameLog.of(self.store, spec.name, may_be_stale=True)
        if seen.binding is not None and seen.binding.state == "live":
            seen.finish()
            entry = seen.entry(may_be_stale)
            if entry is not None:
                return self.store.collection(entry.id), entry
        for log in self._attempts(spec.name, creates=True):
            log.finish()
            binding = log.binding
            if binding is not None and binding.state == "creating":
                assert binding.begins_as is not None
                create_handles(self.store.collection(binding.begins_as.id), binding.begins_as)
                reach("catalog.after_handles")
                binding = binding.model_copy(update={"state": "live", "begins_as": None})
            else:
                entry = log.bound_entry()
                if entry is not None and entry.has_name(spec.name):
                    return self.store.collection(entry.id), entry
                if entry is not None and is_about_to_have(entry, spec.name):
                    finish_renaming(self.store, entry)
                    continue
                fresh = _first_entry(spec)
                publication = None if binding is None else binding.publication
                binding = Binding(
                    name=spec.name, id=fresh.id, state="creating", begins_as=fresh, publication=publication
                )
            with suppress(Conflict):
                log.commit(binding)
                reach("catalog.after_name")
        raise Conflict(str(self.store.names), None, f"{ATTEMPTS_MAX} attempts to create '{spec.name}' failed")

    def _attempts(self, name: str, creates: bool = False) -> Iterator[NameLog]:
        """Yield the log of a name for each attempt to change it; a catalog of an earlier format is divided first.

        Args:
            name: the name.
            creates: whether a store that has no catalog gets one.
        """
        for attempt in range(ATTEMPTS_MAX):
            log = NameLog.of(self.store, name)
            if log.binding is None and attempt == 0 and (creates or self.exists()):
                self.divide()
                log = NameLog.of(self.store, name)
            yield log
            time.sleep(min(0.002 * attempt, 0.1))

    def _check_not_lost(self) -> None:
        """Check that a store without a catalog has no collections.

        Raises:
            DamagedTable: the store has collections.
        """
        are_named = blobs.list_names(self.store.collections) or blobs.list_names(self.store.names)
        if are_named and not self.exists():  # looked up last: another process may have just created the store
            raise DamagedTable(str(self.store.catalog), "it is missing, but there are collections")

    def update(self, name: str, change: Callable[[Entry], Entry]) -> Entry:
        """Replace a collection's newest entry with `change(entry)`, and return the new entry.

        Raises:
            UnknownCollection: the store has no such collection.
            FrontierRegression: the change would move `since` backwards.
        """

        def apply(entry: Entry) -> Entry:
            if not entry.has_name(name):  # it was renamed or dropped, perhaps in the meantime
                raise absence(self.store, name, entry)
            changed = change(entry)
            if (changed.name, changed.id) != (entry.name, entry.id):
                raise CommitRefused("a change of an entry cannot change the collection's name or id", "keep both")
            if not entry.since_frontier.less_equal_frontier(changed.since_frontier):
                raise FrontierRegression(f"since of '{name}'", entry.since_frontier, changed.since_frontier)
            return changed

        binding = next(self._attempts(name)).binding
        if binding is None or binding.id is None or binding.state == "creating":
            raise UnknownCollection(str(self.store.root), name)
        return change_handles(self.store.collection(binding.id), apply)

    def rename(self, name: str, other: str) -> Entry:
        """Give a collection another name, and return its new entry; see `catalog.rename`."""
        self._divide_existing()
        return rename(self.store, name, other)

    def drop(self, name: str) -> Entry:
        """Drop a collection, and return its last entry; see `catalog.drop`."""
        self._divide_existing()
        return drop(self.store, name)

    def _divide_existing(self) -> None:
        if self.exists():
            self.divide()
        else:
            self._check_not_lost()

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

        entry = self._upgraded(self.update(name, replace))
        reach("catalog.after_epoch")
        carry_epoch(self._collection(entry))  # after an interruption, `open_or_create` does this
        return entry

    def _upgraded(self, entry: Entry) -> Entry:
        """Upgrade the tables of a collection, unless that was already done, and return its entry."""
        if entry.tables_format == FORMAT_VERSION:
            return entry
        upgrade_tables(self._collection(entry))
        return self.update(entry.name, lambda newest: newest.model_copy(update={"tables_format": FORMAT_VERSION}))


def _first_entry(spec: CollectionSpec) -> Entry:
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
