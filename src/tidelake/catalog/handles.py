"""The handles of a collection: its entry, in a table of one row that is stored with the collection, not in the catalog.

A change replaces the row's run. Of two changes from the same state, only one can create the next entry of the log, so
acquiring a capability and moving `since` cannot both succeed. Changes to different collections never conflict.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pyarrow as pa

from tidelake.errors import Conflict, DamagedLog, DamagedTable
from tidelake.storage.arrow import text_array
from tidelake.store.commit import EPOCH, OpenTable, create_table, maintain
from tidelake.store.entry import Entry
from tidelake.store.failpoints import reach
from tidelake.store.files import discard_run, read_rows, write_run
from tidelake.store.format import FORMAT, HANDLES_VERSION
from tidelake.store.layout import RUN, CollectionPaths, new_run
from tidelake.store.retry import ATTEMPTS_MAX, retry_commit, retry_work
from tidelake.store.state import SINCE
from tidelake.store.table_log import newest_version

T = TypeVar("T")
ENTRIES_SCHEMA = pa.schema([pa.field(name, pa.string()) for name in ("name", "document", RUN)])
"""The schema of handles, and of the catalog of a store before format 4: the name of a collection and its entry."""

_ENTRIES_MAX = 128
"""How many log entries are kept for the whole retention period. Earlier ones are kept only for seconds, because holders
may make several calls a second."""
# Each change removes a file. With the setting of other tables, checkpoints would list all files removed in a day, and
# every commit would read the list.
_CONFIGURATION = {"delta.deletedFileRetentionDuration": "interval 1 seconds"}


def read_handles(paths: CollectionPaths, may_be_stale: bool = False) -> Entry:
    """Return the entry of a collection.

    Args:
        paths: the locations of the collection.
        may_be_stale: see `OpenTable`.

    Raises:
        DamagedTable: the handles are missing, or differ from the committed ones.

    Cost: a log is opened, and one small file is read.
    """
    return _read(paths, _open(paths, may_be_stale))


def create_handles(paths: CollectionPaths, entry: Entry) -> None:
    """Create the handles of a collection with its first entry, unless they exist."""
    create_table(paths.handles, ENTRIES_SCHEMA, configuration=_CONFIGURATION)

    def commit(table: OpenTable) -> None:
        if not table.files():
            _swap(table, entry)

    _retry(paths, commit)


def change_handles(paths: CollectionPaths, change: Callable[[Entry], Entry]) -> Entry:
    """Replace the newest entry with `change(entry)`, and return the new entry; nothing is written if they are equal."""

    def commit(table: OpenTable) -> Entry:
        before = _read(paths, table)
        after = change(before)
        if after != before:
            _swap(table, after)
        return after

    return _retry(paths, commit)


def _open(paths: CollectionPaths, may_be_stale: bool = False) -> OpenTable:
    try:
        return OpenTable(paths.handles, may_be_stale=may_be_stale)
    except DamagedLog:
        raise
    except DamagedTable as error:
        if newest_version(paths.handles) >= 0:
            raise
        raise DamagedTable(str(paths.handles), "it is missing, but a name still refers to its collection") from error


def _read(paths: CollectionPaths, table: OpenTable) -> Entry:
    documents = read_rows(paths.handles, table.files(), ENTRIES_SCHEMA, ["document"])["document"].to_pylist()
    if len(documents) != 1:
        raise DamagedTable(str(paths.handles), f"it has {len(documents)} rows instead of one")
    entry = Entry.model_validate_json(documents[0])
    if entry.id != paths.root.name:
        raise DamagedTable(str(paths.handles), f"it has the entry of the collection {entry.id}")
    return entry


def _swap(table: OpenTable, entry: Entry) -> None:
    """Commit an entry in place of the earlier one."""
    run = new_run("entry", table.seq)
    columns = {"name": text_array([entry.name]), "document": text_array([entry.model_dump_json()])}
    rows = pa.Table.from_arrays(list(columns.values()), names=list(columns))
    added = write_run(table.path, run, rows)
    values = {EPOCH: entry.epoch} | ({SINCE: entry.since[0]} if entry.since else {})
    holds = any(capability.hold is not None for capability in entry.capabilities)
    is_new = holds or entry.ended or entry.published_topics or entry.renaming is not None
    if is_new or entry.dropped is not None:
        # Without this format, earlier releases would ignore leases, and would refuse the new fields with an error that
        # does not name the format.
        values[FORMAT] = HANDLES_VERSION
    try:
        table.commit(values, added, [file.run for file in table.files()])
    except Conflict:
        discard_run(table.path, run)
        reach("catalog.after_conflict")
        raise
    reach("catalog.after_commit")
    if table.is_checkpoint_due:
        maintain(table.path, _ENTRIES_MAX)


def _retry(paths: CollectionPaths, commit: Callable[[OpenTable], T]) -> T:
    failure = f"{ATTEMPTS_MAX} attempts to change the handles failed"
    # A sweep with a wrong clock may delete the run that holds the new entry; if so, the run is written again.
    return retry_work(lambda: retry_commit(_open(paths), commit, failure), paths.handles, failure)
