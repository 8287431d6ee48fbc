"""Collects the garbage of a store: deletes what is no longer needed, and says why everything else stays.

Only what is known to be dead is deleted: runs that a sweep confirmed, at least one retention period ago, to be in no
log; the tables of dropped collections that nobody holds; and what those collections had published. Ages are measured
by the store's clock; a dry run, which writes nothing, uses this machine's clock instead. Needs no JVM.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from collections.abc import Collection as Names
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, Literal

from tidelake.catalog.catalog import Catalog
from tidelake.catalog.drop import delete_tables, goes_at_ms, observe_dropped
from tidelake.catalog.handles import read_handles
from tidelake.catalog.name_log import NameLog
from tidelake.catalog.undivided import is_divided
from tidelake.errors import Conflict, TidelakeError
from tidelake.protocol.iso_times import iso_to_the_second
from tidelake.storage import blobs
from tidelake.storage.location import HIDDEN, Location
from tidelake.store.commit import OpenTable, is_table
from tidelake.store.entry import Collection, Entry
from tidelake.store.failpoints import reach
from tidelake.store.head_start import sweep_head_starts
from tidelake.store.holds import held_text, label_of, oldest_pin
from tidelake.store.layout import COLLECTION_ID, Store
from tidelake.store.publication import Publication
from tidelake.store.published import RETENTION_S as PUBLISHED_RETENTION_S
from tidelake.store.published import empty_published, maintain_published, published_bytes
from tidelake.store.sweep import RETENTION_S, DeadRun, dead_runs, nothing_pinned, sweep, sweep_names
from tidelake.store.table_log import newest_version

Kind = Literal["dead_runs", "dropped", "published", "history", "orphaned", "lost", "unreadable", "earlier_format"]
KINDS: dict[Kind, str] = {
    "dead_runs": "runs that are not in the newest version of a table",
    "dropped": "the tables of a dropped collection",
    "published": "a published table that no collection updates",
    "history": "times that a hold keeps readable",
    "orphaned": "a collection that the settings do not name",
    "lost": "a collection that no name is bound to",
    "unreadable": "something that cannot be read",
    "earlier_format": "a store in the format of an earlier release",
}
"""The kinds of items, each in words."""


@dataclass(frozen=True)
class Item:
    """Something that may no longer be needed: whether it is deleted, and why."""

    kind: Kind
    name: str
    """The collection, or the name that it had; empty for what belongs to the whole store."""
    place: str
    """Its path in the store."""
    goes: bool
    """Whether it was deleted; after a dry run, whether it would be."""
    why: str
    bytes: int | None = None


@dataclass
class Garbage:
    """The garbage that was found in a store."""

    items: list[Item] = field(default_factory=list)
    tombstones: int = 0
    """Number of dropped collections whose tables are gone; their handles stay, so that no id is used again."""

    @property
    def bytes_gone(self) -> int:
        """The size of everything that is deleted."""
        return sum(item.bytes or 0 for item in self.items if item.goes)

    def as_json(self) -> dict[str, Any]:
        """Return the items as JSON values."""
        return {
            "items": [asdict(item) for item in self.items],
            "tombstones": self.tombstones,
            "bytes_gone": self.bytes_gone,
        }


def collect_garbage(
    store: Store, named: Names[str], dry_run: bool = False, retention_s: float = RETENTION_S
) -> Garbage:
    """Delete what is no longer needed, and return what was found.

    Args:
        store: the store.
        named: the names of the collections in the settings.
        dry_run: whether to only look. Nothing is written; because reading the store's clock takes a write, ages are
            measured by this machine's clock. If the two clocks differ, the next call may delete more or less than this
            one lists.
        retention_s: how long readers may use files that are no longer in the newest version.

    Returns:
        What is deleted and what stays, each with the reason. Something that cannot be read is an item, too, and does
        not stop the rest.

    Cost: the logs of all names and of all tables are opened, and their folders are listed.
    """
    if dry_run:
        store = Store(store.root, read_only=True)
    catalog, garbage = Catalog(store), Garbage()
    if not catalog.exists():
        catalog.entries()  # raises an error if the catalog was lost
        return garbage
    if not dry_run:
        catalog.divide()
    elif not is_divided(OpenTable(store.catalog)):
        why = "an earlier release of Tidelake may be writing to it; `tidelake upgrade` upgrades it"
        garbage.items.append(Item("earlier_format", "", "catalog", False, why))
        return garbage
    collector = _Collector(store, frozenset(named), dry_run, retention_s, garbage)
    collector.collect()
    return garbage


class _Collector:
    """One pass over a store."""

    def __init__(self, store: Store, named: frozenset[str], dry_run: bool, retention_s: float, found: Garbage) -> None:
        self.store, self.named, self.dry_run, self.retention_s, self.found = store, named, dry_run, retention_s, found
        self.now_s: Callable[[Location], float] = _machine_s if dry_run else blobs.now_s
        self.bound: set[tuple[str, str | None]] = set()
        """Each name, with the id of the collection that it is bound to."""
        self.names: set[str] = set()
        """The names of the collections that were not dropped."""

    def collect(self) -> None:
        """Look at every collection, then at every name."""
        # Names are bound before their collections have folders, so a folder that is listed here already has a name.
        folders = [name for name in sorted(blobs.list_names(self.store.collections)) if COLLECTION_ID.fullmatch(name)]
        logs = list(self._name_logs())
        self.bound = {(log.binding.name, log.binding.id) for log in logs if log.binding is not None}
        for folder in folders:
            self._guarded(f"c/{folder}", partial(self._collection, folder))
        for log in logs:
            self._guarded(f"names/{log.folder}", partial(self._publication, log))
        self._dead_runs("", self.store.catalog)
        if not self.dry_run:
            sweep_names(self.store, [log.binding.name for log in logs if log.binding is not None], self.retention_s)
            self._guarded("head_starts", partial(sweep_head_starts, self.store, self.names))

    def _name_logs(self) -> Iterator[NameLog]:
        for folder in sorted(blobs.list_names(self.store.names)):
            if folder.startswith(HIDDEN):
                continue
            try:
                yield NameLog(self.store, folder)
            except TidelakeError as error:
                self._add("unreadable", "", f"names/{folder}", error.fact)

    def _collection(self, folder: str) -> None:
        paths = self.store.collection(folder)
        entry = read_handles(paths)
        if entry.dropped is not None:
            self._dropped(entry)
            return
        collection = Collection(entry, paths)
        self.names.add(entry.name)
        if not self._is_bound(entry):
            why = "restore the folders `names` and `catalog` of the store from a copy, or run `tidelake repair NAME`"
            self._add("lost", entry.name, f"c/{folder}", why)
        elif entry.name not in self.named:
            why = f"name it in the settings, or drop it: `tidelake drop {entry.name} --apply`"
            self._add("orphaned", entry.name, f"c/{folder}", why)
        if (held := held_text(entry)) is not None:
            self._add("history", entry.name, f"c/{folder}/updates", held)

        def read_pin() -> int | None:
            return oldest_pin(read_handles(paths))

        for table in (*collection.tables, paths.handles):
            self._dead_runs(entry.name, table, read_pin if table == paths.updates else nothing_pinned)

    def _is_bound(self, entry: Entry) -> bool:
        if (entry.name, entry.id) in self.bound:
            return True
        binding = NameLog.of(self.store, entry.name).binding  # it may just have been renamed
        return binding is not None and binding.id == entry.id

    # --- runs

    def _dead_runs(self, name: str, table: Location, read_pin: Callable[[], int | None] = nothing_pinned) -> None:
        place = table.below(self.store.root)

        def look() -> None:
            if not is_table(table):
                return
            runs = dead_runs(table, self.retention_s, read_pin, self.now_s)
            going = [run for run in runs if run.goes]
            if going:
                before = _moment(self._horizon_s(table))
                why = f"{_counted(going)} no longer in use; sweeps confirmed this before {before}"
                self._add("dead_runs", name, place, why, sum(run.bytes for run in going), goes=True)
            pinned = [run for run in runs if run.is_pinned]
            if pinned:
                why = f"{_counted(pinned)} no longer in use, except by a subscription to a version that may contain it"
                why = why if len(pinned) == 1 else why.removesuffix("it") + "them"
                self._add("dead_runs", name, place, why, sum(run.bytes for run in pinned))
            noted = [run for run in runs if not run.goes and not run.is_pinned and run.noted_s is not None]
            if noted:
                until_s = max(run.noted_s or 0.0 for run in noted) + self.retention_s
                why = f"{_counted(noted)} no longer in use; readers of an earlier version have until {_moment(until_s)}"
                self._add("dead_runs", name, place, why, sum(run.bytes for run in noted))
            new = [run for run in runs if run.noted_s is None]
            if new:
                when = "recorded now, to be deleted by a later `tidelake gc` or compaction"
                if self.dry_run:
                    when = "to be recorded by the next `tidelake gc` or compaction, and deleted by a later one"
                why = f"{_counted(new)} no longer in use: {when}"
                self._add("dead_runs", name, place, why, sum(run.bytes for run in new))
            if not self.dry_run:
                sweep(table, self.retention_s, read_pin)

        self._guarded(place, look, name)

    def _horizon_s(self, table: Location) -> float:
        return self.now_s(table) - self.retention_s

    # --- dropped collections

    def _dropped(self, entry: Entry) -> None:
        paths = self.store.collection(entry.id)
        assert entry.dropped is not None
        if entry.dropped.storage == "gone":
            self.found.tombstones += 1
            if not self.dry_run:
                sweep(paths.handles, self.retention_s)
            return
        place = f"c/{entry.id}"
        size = sum(blob.size for blob in blobs.list_blobs(paths.root))
        if not self.dry_run:
            entry = observe_dropped(paths)
        is_over, why = self._why_dropped(entry)
        if is_over and not self.dry_run:
            is_over = delete_tables(paths, self.retention_s)
        self._add("dropped", entry.name, place, why, size, goes=is_over)

    def _why_dropped(self, entry: Entry) -> tuple[bool, str]:
        """Return whether the tables of a dropped collection are deleted now, and why."""
        assert entry.dropped is not None
        when = f"dropped at {iso_to_the_second(entry.dropped.at_ms)}"
        if entry.dropped.storage == "going":
            return True, f"{when}; an earlier `tidelake gc` began to delete them"
        holders = [label_of(capability) for capability in entry.capabilities if capability.kind == "read"]
        if holders:
            return False, f"{when}; held by {', '.join(holders)}"
        at_ms = goes_at_ms(entry, self.retention_s)
        if at_ms is None:
            why = "nobody holds it; the waiting period for readers begins when the next `tidelake gc` records this"
            return False, f"{when}; {why}"
        if self.now_s(self.store.root) * 1000 < at_ms + (0 if self.store.root.is_local else 1000):
            return False, f"{when}; nobody holds it, and readers have until {iso_to_the_second(at_ms)}"
        return True, f"{when}; nobody has held it since {iso_to_the_second(entry.dropped.unheld_at_ms or 0)}"

    # --- published tables

    def _publication(self, log: NameLog) -> None:
        """Look at the table that was published under a name: its collection may have been dropped, or renamed."""
        publication = None if log.binding is None else log.binding.publication
        if log.binding is None or publication is None:
            return
        owner = read_handles(self.store.collection(publication.collection_id))
        table = self.store.publication(publication.folder)
        if owner.dropped is not None:
            if owner.dropped.storage == "gone" or (self.dry_run and self._why_dropped(owner)[0]):
                self._over(log, publication)
        elif owner.name != log.binding.name and (size := published_bytes(table)):
            why = (
                f"its collection is now called '{owner.name}', and publishes under that name; "
                "delete this table if nobody reads it"
            )
            self._add("published", log.binding.name, table.below(self.store.root), why, size)

    def _over(self, log: NameLog, publication: Publication) -> None:
        """Remove the rows that a dropped collection had published, and later the files.

        Another collection may have taken the name since the log was read. It binds the name before it publishes. So the
        version to empty is determined first, and the log is read again afterwards: if the name then still belongs to
        the dropped collection, that version has no rows of another collection.
        """
        name, table = publication.name, self.store.publication(publication.folder)
        size, place = published_bytes(table), table.below(self.store.root)
        if not size:
            return
        version = newest_version(table)
        binding = NameLog(self.store, log.folder).binding
        if binding is None or binding.publication != publication:
            return
        days = PUBLISHED_RETENTION_S // 86_400
        if self.dry_run:
            why = f"its collection was dropped: all rows will be removed, and the files deleted {days} days later"
            self._add("published", name, place, why, size)
            return
        try:
            is_new = empty_published(table, version)
        except Conflict:
            why = (
                "its collection was dropped, but something has just been committed to this table; "
                "the next `tidelake gc` checks it again"
            )
            self._add("published", name, place, why, size)
            return
        reach("gc.after_publication")
        maintain_published(table)
        left = published_bytes(table)
        if left < size:
            self._add("published", name, place, "its collection was dropped", size - left, goes=True)
        if left:
            rows = "this call removed all rows of the table" if is_new else "the rows had already been removed"
            why = f"its collection was dropped, and {rows}; readers of earlier versions have {days} days"
            self._add("published", name, place, why, left)

    # --- items

    def _add(self, kind: Kind, name: str, place: str, why: str, size: int | None = None, goes: bool = False) -> None:
        self.found.items.append(Item(kind, name, place, goes, why, size))

    def _guarded(self, place: str, look: Callable[[], None], name: str = "") -> None:
        """Look at something; an error about it becomes an item."""
        try:
            look()
        except (TidelakeError, OSError) as error:
            fact = error.fact if isinstance(error, TidelakeError) else str(error)
            self._add("unreadable", name, place, fact)


def _machine_s(_: Location) -> float:
    """Return the time by this machine's clock. Reading the store's clock would write a file."""
    return time.time()


def _counted(runs: list[DeadRun]) -> str:
    return f"{len(runs):,} run{'' if len(runs) == 1 else 's'} {'is' if len(runs) == 1 else 'are'}"


def _moment(at_s: float) -> str:
    return iso_to_the_second(int(at_s * 1000))
