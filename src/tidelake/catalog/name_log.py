"""The log of a name: the collection that the name is bound to, and the place where its contents are published.

An entry is created only if its version is free, so exactly one of several processes that create a collection with the
same name succeeds. The entries have the form of a Delta log without rows, with `seq`, nonce, the hash of the previous
entry and a marker, so that `table_log` can verify them. Each name that was ever bound also has a blob elsewhere:
without it, a name whose log is lost would look free.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterator
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tidelake.catalog.handles import read_handles
from tidelake.errors import Conflict, DamagedLog, DamagedTable
from tidelake.storage import blobs
from tidelake.storage.location import HIDDEN, Location
from tidelake.store.acknowledged import acknowledge_entry, read_markers
from tidelake.store.entry import Entry
from tidelake.store.failpoints import reach
from tidelake.store.followed import forget, known, newest
from tidelake.store.layout import Store
from tidelake.store.publication import Publication, folder_of_name
from tidelake.store.table_log import BEFORE, LAST, LOG, SEQ, entry_path, read_or_none, seq_of, settle

_BINDING = "binding"


class Binding(BaseModel):
    """The binding of a name, as the newest entry of its log states it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    id: str | None = None
    """The id of the collection, valid only while the collection's own entry has this name.

    None if the name has a publication but no collection."""
    state: Literal["creating", "live"] = "live"
    """`creating` until the collection's handles exist. From then on, missing handles are damage."""
    begins_as: Entry | None = Field(default=None, exclude_if=lambda entry: entry is None)
    """While the collection is being created: the entry that it begins with."""
    publication: Publication | None = Field(default=None, exclude_if=lambda publication: publication is None)


class NameLog:
    """The log of a name as it was read, and one attempt to commit to it."""

    def __init__(self, store: Store, folder: str, may_be_stale: bool = False, may_be_lost: bool = False) -> None:
        """Read the log.

        Args:
            store: the store.
            folder: the folder of the name; see `publication.folder_of_name`.
            may_be_stale: see `OpenTable`.
            may_be_lost: whether the log of a name that was bound may be missing; only for recreating it.

        Raises:
            DamagedLog: an acknowledged entry is missing or has changed.

        Cost: two listings, and one read for each of the log's few entries, however many names there are.
        """
        self.store, self.folder, self.path = store, folder, store.names / folder
        self._tip = (known(self.path) if may_be_stale else newest(self.path)).tip
        if self._tip.version < 0 and not may_be_lost and blobs.exists(self._bound):
            self._tip = settle(self.path)  # another process may just have bound the name
            if self._tip.version < 0:
                raise DamagedLog(str(self.path), "it is missing, but the name was bound to a collection")
        self.version = self._tip.version
        self.binding = None if self.version < 0 else self._read()

    @staticmethod
    def of(store: Store, name: str, may_be_stale: bool = False) -> NameLog:
        """Read the log of a name."""
        log = NameLog(store, folder_of_name(name), may_be_stale)
        if log.binding is not None and log.binding.name != name:
            raise DamagedLog(str(log.path), f"it is the log of the name '{log.binding.name}'")
        return log

    def bound_entry(self, may_be_stale: bool = False) -> Entry | None:
        """Return the entry of the collection that the name is bound to, even if it has been renamed or dropped since.

        Args:
            may_be_stale: see `OpenTable`.

        Returns:
            None if the name is bound to no collection, or its collection is still being created.

        Raises:
            DamagedTable: the collection's handles are missing or damaged.

        Cost: a log is opened, and one small file is read.
        """
        binding = self.binding
        if binding is None or binding.id is None or binding.state == "creating":
            return None
        return read_handles(self.store.collection(binding.id), may_be_stale)

    def entry(self, may_be_stale: bool = False) -> Entry | None:
        """Return the entry of the collection with this name; None if there is none.

        Raises what `bound_entry` raises.
        """
        entry = self.bound_entry(may_be_stale)
        return entry if entry is not None and self.binding is not None and entry.has_name(self.binding.name) else None

    def _read(self) -> Binding:
        _, newest = self._tip.newest_entries()
        texts = [action["commitInfo"][_BINDING] for action in newest if _BINDING in action.get("commitInfo", {})]
        if not texts or seq_of(newest) != self.version:
            raise DamagedTable(str(self.path), f"Tidelake did not write version {self.version}")
        try:
            binding = Binding.model_validate(texts[0])
        except ValidationError as error:
            fact = f"the binding of version {self.version} cannot be read: {error.errors()[0]['msg']}"
            raise DamagedTable(str(self.path), fact) from error
        if folder_of_name(binding.name) != self.folder:
            raise DamagedLog(str(self.path), f"it is the log of the name '{binding.name}'")
        return binding

    def commit(self, binding: Binding) -> None:
        """Bind the name; return once the entry is durable.

        Raises:
            Conflict: another process bound the name first; nothing was written.
            DamagedLog: the version had already been acknowledged, but its entry was lost.
        """
        try:
            self._put(binding)
        except BaseException:
            forget(self.path)  # the log may have an entry that was not acknowledged
            raise
        self._note_bound(binding.name)

    def _put(self, binding: Binding) -> None:
        """Put an entry into the log, and acknowledge it; raises what `commit` raises."""
        version, nonce = self.version + 1, secrets.token_hex(16)
        if read_markers(self.path).newest > self.version:
            raise Conflict(str(self.path), version, "another commit was already acknowledged")
        text = self._entry(binding, nonce)
        entry = entry_path(self.path, version)
        blobs.make_folder(self.path / LOG)
        try:
            blobs.create(entry, text)
        except FileExistsError as error:
            if read_or_none(entry) != text:  # if it is ours, an earlier attempt by the same call succeeded
                raise Conflict(str(self.path), version, "another process bound the name first") from error
        blobs.make_names_durable([self.path / LOG, self.path, *self.path.parents])
        reach("names.after_entry")
        digest = acknowledge_entry(self.path, version, text)
        if read_markers(self.path).entries.get(version) != digest:
            raise DamagedLog(str(self.path), f"version {version} was acknowledged before, but its entry was lost")
        reach("names.after_marker")

    def finish(self) -> None:
        """Note elsewhere that the name was bound, if the process that bound it died before doing so."""
        if self.binding is not None:
            self._note_bound(self.binding.name)

    def _note_bound(self, name: str) -> None:
        if self._bound in _noted:
            return
        is_new = blobs.ensure(self._bound, name.encode())
        if is_new:
            blobs.make_names_durable([self._bound.parent, self._bound.parent.parent])
        _remember_noted(self._bound)
        if is_new:
            reach("names.after_bound")

    def _entry(self, binding: Binding, nonce: str) -> bytes:
        now_ms = int(time.time() * 1000)
        info = {
            "timestamp": now_ms,
            "operation": "BIND NAME",
            "nonce": nonce,
            BEFORE: self._tip.digest or "",
            **LAST,
            _BINDING: binding.model_dump(mode="json"),
        }
        sequence = {"appId": SEQ, "version": self.version + 1, "lastUpdated": now_ms}
        return b"".join(json.dumps(line).encode() + b"\n" for line in ({"commitInfo": info}, {"txn": sequence}))

    @property
    def _bound(self) -> Location:
        return self.store.bound_names / self.folder


_noted: set[Location] = set()
"""The notes in object stores that this process has seen or made. Notes are never deleted."""


def forget_noted() -> None:
    """Forget which notes exist, like a new process: each is looked for when it is next needed."""
    _noted.clear()


def _remember_noted(note: Location) -> None:
    if not note.is_local:
        _noted.add(note)


def name_logs(store: Store) -> Iterator[NameLog]:
    """Read the logs of all names, in the order of their folders.

    Raises:
        DamagedLog: a log is missing, or an acknowledged entry is missing or has changed.
    """
    folders = {*blobs.list_names(store.names), *blobs.list_names(store.bound_names)}
    for folder in sorted(name for name in folders if not name.startswith(HIDDEN)):
        yield NameLog(store, folder)
