"""The catalog as it was before format 4, with a row for each collection and publication; and how it is divided.

To divide a catalog, one commit first states format 4, which every earlier release refuses: from then on, nobody changes
a row. Then each row is copied to the logs of its collection and its name, unless these exist; and a final commit
removes all rows. A name that has a log is never looked up in the catalog, so a division can be interrupted at any
point, and finished by another process. See docs/decisions/catalog.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from tidelake.catalog.handles import ENTRIES_SCHEMA, create_handles
from tidelake.catalog.name_log import Binding, NameLog
from tidelake.errors import Conflict
from tidelake.storage.notices import warn
from tidelake.store.bring_over import bring_over
from tidelake.store.commit import OpenTable
from tidelake.store.entry import Entry
from tidelake.store.failpoints import reach
from tidelake.store.files import RunFile, read_rows
from tidelake.store.format import CATALOG_VERSION, DIVIDED, FORMAT, FORMAT_VERSION
from tidelake.store.layout import Store
from tidelake.store.publication import Publication, holds_publication
from tidelake.store.retry import ATTEMPTS_MAX, retry_commit

_THREADS = 8
_COPIED_AT_ONCE = 32
"""Catalogs with more names than this are copied by several threads, as each copy waits for the disk."""


def is_divided(catalog: OpenTable) -> bool:
    """Return whether the catalog's rows were all copied and removed."""
    return bool(catalog.value(DIVIDED))


def catalog_entries(catalog: OpenTable) -> dict[str, Entry]:
    """Return the entries in a catalog's rows, by the names of their collections."""
    files = [file for file in catalog.files() if not holds_publication(file.run)]
    entries = [Entry.model_validate_json(text) for text in _documents(catalog, files)]
    return {entry.name: entry for entry in entries}


def catalog_publications(catalog: OpenTable, name: str | None = None) -> dict[str, Publication]:
    """Return the publications in a catalog's rows, by name: that of this name, or all of them if `name` is None."""
    files = [file for file in catalog.files() if holds_publication(file.run, name)]
    publications = [Publication.model_validate_json(text) for text in _documents(catalog, files)]
    return {publication.name: publication for publication in publications}


def _documents(catalog: OpenTable, files: Sequence[RunFile]) -> list[str]:
    documents: list[str] = read_rows(catalog.path, files, ENTRIES_SCHEMA)["document"].to_pylist()
    return documents


def divide(store: Store) -> int:
    """Divide the store's catalog, unless that was already done; return how many collections its rows had.

    Raises:
        DamagedTable: the catalog is damaged.

    Cost: two commits to the catalog, three for each collection, and one for each name.
    """
    catalog = _close(store)
    if is_divided(catalog):
        return 0
    entries, publications = catalog_entries(catalog), catalog_publications(catalog)

    def copy(name: str) -> None:
        entry, publication = entries.get(name), publications.get(name)
        _copy(store, Binding(name=name, id=entry and entry.id, publication=publication), entry)

    _do_all(copy, sorted({*entries, *publications}))
    reach("divide.after_copies")
    retry_commit(store.catalog, _empty, f"{ATTEMPTS_MAX} attempts to divide the catalog failed")
    reach("divide.after_commit")
    warn("the catalog was divided: each collection has a log of its own now", store=str(store.root), names=len(entries))
    return len(entries)


def _close(store: Store) -> OpenTable:
    """State the format that every earlier release refuses, and return the resulting catalog."""

    def commit(table: OpenTable) -> None:
        if table.format < FORMAT_VERSION:
            if bring_over(table.path):
                fact = "tables were upgraded to a new format: earlier releases refuse them from now on"
                warn(fact, store=str(store.root), collection=None, tables=[table.path.name])
            reach("format.after_catalog")
            table = OpenTable(table.path)
        if table.format < CATALOG_VERSION:
            table.commit({FORMAT: CATALOG_VERSION})
            reach("divide.after_format")

    retry_commit(store.catalog, commit, f"{ATTEMPTS_MAX} attempts to upgrade the catalog failed")
    return OpenTable(store.catalog)


def _copy(store: Store, binding: Binding, entry: Entry | None = None) -> None:
    """Bind a name as the catalog's rows state it, unless it already has a log; create the handles first."""
    log = NameLog.of(store, binding.name)
    if log.binding is None:
        if entry is not None:
            create_handles(store.collection(entry.id), entry)
            reach("divide.after_handles")
        with suppress(Conflict):  # another process is copying the same rows
            log.commit(binding)
        reach("divide.after_name")
    log.finish()


def _empty(catalog: OpenTable) -> None:
    if not is_divided(catalog):
        catalog.commit({DIVIDED: 1}, removes=sorted({file.run for file in catalog.files()}))


def _do_all(act: Callable[[str], None], names: Sequence[str]) -> None:
    if len(names) <= _COPIED_AT_ONCE:
        for name in names:
            act(name)
        return
    with ThreadPoolExecutor(_THREADS) as threads:
        for _ in threads.map(act, names):
            pass
