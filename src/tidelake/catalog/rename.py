"""Renames a collection: states the intent in its handles, binds the new name, and then changes the name in the handles.

The collection keeps its earlier name until the last commit, which succeeds only while the handles state the same
intent. A process that meanwhile wants the new name for another collection finishes the renaming first, so a name that
is bound to a collection with that intent is not free. Every step can be repeated by any process. See
docs/decisions/catalog.md.
"""

from __future__ import annotations

import secrets
import time
from contextlib import suppress
from typing import Any

from tidelake.catalog.absence import absence
from tidelake.catalog.handles import change_handles, read_handles
from tidelake.catalog.name_log import Binding, NameLog
from tidelake.errors import ArgumentRefused, Conflict, NameTaken
from tidelake.store.entry import EarlierName, Entry, Renaming
from tidelake.store.failpoints import reach
from tidelake.store.head_start import drop_head_start
from tidelake.store.layout import CollectionPaths, Store
from tidelake.store.retry import ATTEMPTS_MAX

EARLIER_NAMES_MAX = 64
"""Maximum number of earlier names that an entry remembers, for `tidelake history`."""


def rename(store: Store, name: str, other: str) -> Entry:
    """Rename a collection, and return its new entry; nothing is written if an earlier call has renamed it.

    Args:
        store: a store whose catalog is divided.
        name: the collection's current name.
        other: its new name.

    Raises:
        UnknownCollection: the store has no collection with this name; CollectionDropped: it was dropped.
        CollectionRenamed: it has neither of these two names.
        NameTaken: another collection has the new name, or is being created with it.
        ArgumentRefused: both names are the collection's current name.
    """
    for attempt in range(ATTEMPTS_MAX):
        entry = NameLog.of(store, name).bound_entry()
        if entry is None or entry.dropped is not None:
            raise absence(store, name, entry)
        if entry.name != name:
            if entry.name == other:
                return entry
            raise absence(store, name, entry)
        if other == name:
            rule = "which the collection already has"
            raise ArgumentRefused("other", other, rule, "give another name; nothing was renamed")
        if entry.renaming is None:
            _check_free(store, entry, other)
            entry = _intend(store.collection(entry.id), name, Renaming(to=other, id=secrets.token_hex(8)))
            reach("rename.after_intent")
        with suppress(NameTaken):  # if the error concerns this renaming, the next attempt raises it again
            finish_renaming(store, entry)
        time.sleep(min(0.002 * attempt, 0.1))
    raise Conflict(str(store.names), None, f"{ATTEMPTS_MAX} attempts to rename '{name}' failed")


def finish_renaming(store: Store, entry: Entry) -> None:
    """Finish the renaming that an entry states, or give it up if another collection has the new name.

    Raises:
        NameTaken: another collection has the new name; the renaming was given up.
    """
    intent, paths = entry.renaming, store.collection(entry.id)
    if intent is None:
        return
    for attempt in range(ATTEMPTS_MAX):
        # Read the log first: if another process binds the name after that, the commit below conflicts.
        log = NameLog.of(store, intent.to)
        if read_handles(paths).renaming != intent:
            return
        try:
            _check_free_in(log, entry)
        except NameTaken:
            change_handles(paths, lambda newest: _without(newest, intent))
            raise
        publication = None if log.binding is None else log.binding.publication
        try:
            log.commit(Binding(name=intent.to, id=entry.id, publication=publication))
        except Conflict:
            time.sleep(min(0.002 * attempt, 0.1))
            continue
        reach("rename.after_name")
        change_handles(paths, lambda newest: _renamed(newest, intent))
        reach("rename.after_handles")
        drop_head_start(store, entry.name)
        return
    raise Conflict(str(store.names), None, f"{ATTEMPTS_MAX} attempts to bind '{intent.to}' failed")


def _check_free(store: Store, entry: Entry, name: str) -> None:
    _check_free_in(NameLog.of(store, name), entry)


def _check_free_in(log: NameLog, entry: Entry) -> None:
    """Check that no other collection has the name of a log, is being created with it, or is about to get it.

    Raises:
        NameTaken: another collection has it, or is about to.
    """
    binding = log.binding
    if binding is None or binding.id in (None, entry.id):
        return
    owner = log.bound_entry()
    if owner is None or owner.has_name(binding.name) or is_about_to_have(owner, binding.name):
        raise NameTaken(str(log.store.root), binding.name)


def is_about_to_have(entry: Entry, name: str) -> bool:
    """Return whether a collection is being renamed to this name."""
    return entry.dropped is None and entry.renaming is not None and entry.renaming.to == name


def _intend(paths: CollectionPaths, name: str, intent: Renaming) -> Entry:
    """State an intent in the handles if the collection still has the name and no other intent; return the entry."""

    def state(entry: Entry) -> Entry:
        if not entry.has_name(name) or entry.renaming is not None:  # another process came first
            return entry
        return entry.model_copy(update={"renaming": intent})

    return change_handles(paths, state)


def _renamed(entry: Entry, intent: Renaming) -> Entry:
    """Give the collection its new name, and remember its earlier name."""
    earlier = EarlierName(name=entry.name, until_ms=int(time.time() * 1000))
    names = (*entry.earlier_names, earlier)[-EARLIER_NAMES_MAX:]
    return _without(entry, intent, name=intent.to, earlier_names=names)


def _without(entry: Entry, intent: Renaming, **changed: Any) -> Entry:
    """Return an entry without this intent and with the changed fields; an entry with another intent stays as it is."""
    return entry.model_copy(update={"renaming": None, **changed}) if entry.renaming == intent else entry
