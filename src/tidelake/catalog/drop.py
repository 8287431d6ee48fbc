"""Drops a collection: first in its handles; its tables are deleted once nobody can still be reading them.

The commit to the handles ends the collection: `since` is empty, its name is free, and its writers are fenced. Readers
who hold a capability keep its files; everybody else has the retention period to finish. This period begins, by the
store's clock, when a process finds that nobody holds the collection. The handles stay forever. See
docs/decisions/catalog.md.
"""

from __future__ import annotations

import time

from tidelake.catalog.absence import absence
from tidelake.catalog.collection_tables import raise_epoch
from tidelake.catalog.handles import change_handles, read_handles
from tidelake.catalog.name_log import NameLog
from tidelake.errors import DamagedTable
from tidelake.storage import blobs
from tidelake.storage.notices import warn
from tidelake.store.bring_over import bring_over
from tidelake.store.entry import Collection, Dropped, Entry
from tidelake.store.failpoints import reach
from tidelake.store.format import FORMAT_VERSION
from tidelake.store.head_start import drop_head_start
from tidelake.store.holds import beats_of, clock_slack_ms, observe
from tidelake.store.layout import CollectionPaths, Store


def drop(store: Store, name: str) -> Entry:
    """Drop a collection, and return its last entry. If it was already dropped, only finish what is left to do.

    Raises:
        UnknownCollection: the store has no collection with this name; CollectionRenamed: it has another name now.
        DamagedTable: its handles are damaged. Damage to its other tables does not stop the call.
    """
    entry = NameLog.of(store, name).bound_entry()
    if entry is None or entry.name != name:
        raise absence(store, name, entry)
    paths = store.collection(entry.id)

    def end(newest: Entry) -> Entry:
        if newest.name != name:  # it was renamed in the meantime
            raise absence(store, name, newest)
        if newest.dropped is not None:
            return newest
        # The holds of published topics have no lease: nothing else would end them.
        published = {topic.id for topic in newest.published_topics}
        readers = tuple(each for each in newest.capabilities if each.kind == "read" and each.id not in published)
        update = {"since": (), "capabilities": readers, "epoch": newest.epoch + 1, "renaming": None}
        update["published_topics"] = ()
        return newest.model_copy(update=update | {"dropped": Dropped(at_ms=int(time.time() * 1000))})

    entry = change_handles(paths, end)
    reach("drop.after_handles")
    _fence(Collection(entry, paths))
    reach("drop.after_epoch")
    entry = observe_dropped(paths)
    reach("drop.after_note")
    drop_head_start(store, name)
    return entry


def _fence(collection: Collection) -> None:
    """Keep every running process from committing to the tables."""
    entry = collection.entry
    if not entry.tables_made or (entry.dropped is not None and entry.dropped.storage != "kept"):
        return
    for table in collection.tables:
        try:
            if entry.tables_format != FORMAT_VERSION:
                bring_over(table)
            raise_epoch(table, entry.epoch)
        except DamagedTable as error:  # nobody can commit to a damaged table either
            warn("a damaged table of a dropped collection was not fenced", table=error.table, reason=error.fact)


def observe_dropped(paths: CollectionPaths) -> Entry:
    """End a dropped collection's leases that were not renewed. If nobody holds the collection, note this, and the time.

    Returns:
        The entry, with what was noted; unchanged if the collection was not dropped.

    Cost: the store's clock is read; one commit to the handles if there is something to note.
    """
    seen = read_handles(paths)
    if seen.dropped is None or seen.dropped.storage == "gone":
        return seen
    beats = beats_of(seen)
    # Read the clock after the beats, so that no beat is later than the time read.
    store_ms = int(blobs.now_s(paths.root) * 1000)
    slack_ms = clock_slack_ms(paths.root)

    def note(newest: Entry) -> Entry:
        newest = observe(newest, beats, store_ms, slack_ms)
        dropped = newest.dropped
        if dropped is None or seen.is_held:  # `seen` suffices: `since` is empty, so nobody can acquire a capability
            return newest
        noted_ms = dropped.unheld_at_ms
        if noted_ms is not None and noted_ms <= store_ms:
            return newest
        return newest.model_copy(update={"dropped": dropped.model_copy(update={"unheld_at_ms": store_ms})})

    return change_handles(paths, note)


def goes_at_ms(entry: Entry, retention_s: float) -> int | None:
    """Return the time at which a dropped collection's tables may be deleted, by the store's clock; None if not known.

    The time is not known until a process has noted that nobody holds the collection.
    """
    if entry.dropped is None or entry.dropped.unheld_at_ms is None or entry.is_held:
        return None
    return entry.dropped.unheld_at_ms + int(retention_s * 1000)


def delete_tables(paths: CollectionPaths, retention_s: float) -> bool:
    """Delete the tables of a dropped collection, except its handles, if nobody can still be reading them.

    If a call is interrupted, the next one finishes its work.

    Returns:
        Whether this call deleted the last of the tables.
    """
    entry = observe_dropped(paths)
    at_ms = goes_at_ms(entry, retention_s)
    if entry.dropped is None or entry.dropped.storage == "gone" or at_ms is None:
        return False
    slack_ms = clock_slack_ms(paths.root)
    if entry.dropped.storage == "kept" and int(blobs.now_s(paths.root) * 1000) < at_ms + slack_ms:
        return False
    _state_storage(paths, "going")
    reach("gc.before_folders")
    listing = blobs.list_folder(paths.root)
    for folder in listing.folders:
        if folder != paths.handles:
            blobs.delete_folder(folder)
            reach("gc.after_folder")
    blobs.delete_all(blob.location for blob in listing.blobs)
    _state_storage(paths, "gone")
    reach("gc.after_folders")
    return True


def _state_storage(paths: CollectionPaths, storage: str) -> None:
    def state(entry: Entry) -> Entry:
        assert entry.dropped is not None
        return entry.model_copy(update={"dropped": entry.dropped.model_copy(update={"storage": storage})})

    change_handles(paths, state)
