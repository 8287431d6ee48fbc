"""The table of a publication: what it shows, and the one commit that replaces it.

Spark writes the rows and their statistics into a folder of the table, as a small Delta table of its own. Its only entry
becomes the next entry of the publication's log: the rows, the name, the comments and the time change together or not at
all. An entry is created only if its name is free, so of two writers exactly one succeeds.
"""

from __future__ import annotations

import json
import re
import secrets
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pydantic import BaseModel, ConfigDict

from tidelake.errors import Conflict, DamagedPublication, DamagedTable
from tidelake.spark.engine_errors import engine_fact, is_panic
from tidelake.storage import blobs
from tidelake.storage.location import Location
from tidelake.store.dead_notes import long_dead
from tidelake.store.entry import Collection
from tidelake.store.failpoints import reach
from tidelake.store.notices import warn
from tidelake.store.publication import Publication
from tidelake.store.table_log import LOG, Entry, checkpoints, entry_path, load_table, newest_version, read_entry

RETENTION_S = 7 * 24 * 3600
"""How long files stay after they were replaced: as long as Delta keeps them by default."""
_CHECKPOINT_EVERY_COMMITS = 10
_FOLDER = re.compile(r"publish-([0-9]+)-[0-9a-f]{24}")
_NOTE = "userMetadata"
_NOTE_VERSIONS_MAX = 100


class Published(BaseModel):
    """What a publication's table shows, as its newest commit states in its commit info."""

    model_config = ConfigDict(frozen=True)

    collection: str
    collection_id: str
    as_of: int
    """The time of the contents: the last sealed time when they were published."""
    since: int
    upper: int
    """Since and upper of the collection at that moment."""
    bound_at_ms: int
    """When the name was bound to the collection."""
    published_at_ms: int
    proofs_at_ms: int
    """The time of the newest note in `proofs/` at that moment."""
    rows: int
    """Number of rows of the table: distinct rows of the contents."""
    contents_rows: int
    """Number of rows of the contents: the sum of `_diff` or, if the table has no such column, the same as `rows`."""
    columns: tuple[str, ...]


def published_table(collection: Collection, publication: Publication) -> Location:
    """Return the location of a publication's table."""
    return collection.paths.store.publication(publication.folder)


def read_published(table: Location) -> Published | None:
    """Return what a publication's table shows; None if nothing was published, or another engine has changed the rows.

    Raises:
        DamagedPublication: the log cannot be read.

    Cost: the log is listed, and its newest entry read; earlier entries only after a commit that changes no rows, such
    as a VACUUM.
    """
    try:
        return _newest_note(table)
    except DamagedTable as error:
        raise DamagedPublication(error.table, error.detail) from error


def _newest_note(table: Location) -> Published | None:
    newest = newest_version(table)
    for version in range(newest, max(-1, newest - _NOTE_VERSIONS_MAX), -1):
        entry = read_entry(table, version)
        if entry is None:
            return None
        try:
            if not all(isinstance(action, dict) for action in entry):
                raise TypeError("a line that is not an object")
            note = _note_of(entry)
            changes_rows = note is None and _changes_rows(entry)
        except (AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
            raise DamagedTable(str(table), f"the log entry of version {version} is not one of Delta") from error
        if note is not None or changes_rows:
            return note
    return None


def _changes_rows(entry: Entry) -> bool:
    files = [action[kind] for action in entry for kind in ("add", "remove") if kind in action]
    return any(file.get("dataChange", True) for file in files)


def _note_of(entry: Entry) -> Published | None:
    text = next((action["commitInfo"].get(_NOTE) for action in entry if "commitInfo" in action), None)
    try:
        return None if text is None else Published.model_validate_json(text)
    except ValueError:  # another engine's commit has metadata of its own
        return None


class StagedRows:
    """Rows that Spark is to write, or has written, into a folder of a publication's table."""

    def __init__(self, table: Location) -> None:
        """Choose the folder; nothing is written."""
        self.table = table
        self.version = newest_version(table)
        """The newest version when the rows were staged; they are committed as the next one or never."""
        self.folder = table / f"publish-{self.version + 1}-{secrets.token_hex(12)}"
        self._metadata: dict[str, Any] = {}
        self._protocol: dict[str, Any] = {}
        self._adds: list[dict[str, Any]] = []

    def take(self) -> int:
        """Take over what Spark has written to the folder as a Delta table; return the number of rows."""
        for action in read_entry(self.folder, 0) or ():
            if "metaData" in action:
                self._metadata = action["metaData"]
            elif "protocol" in action:
                self._protocol = action["protocol"]
            elif "add" in action:
                self._adds.append(action["add"])
        blobs.delete_folder(self.folder / LOG)
        for blob in blobs.list_blobs(self.folder):
            if blob.location.suffix == ".crc":  # Hadoop writes checksums to local disks only
                blobs.delete(blob.location)
        return sum(self._rows_of(add) for add in self._adds)

    def commit(self, name: str, comment: str, note: Published) -> int:
        """Replace the table's rows with the staged ones, and return the new version, which is durable.

        Args:
            name: the table's name.
            comment: its comment.
            note: what it shows now.

        Raises:
            Conflict: another commit came first; the staged rows are in no version.
            DamagedPublication: the log cannot be read.
        """
        before = self._table_before()
        replaced = {} if before is None else _live_files(before)
        _renew(self.table, replaced)
        now_ms = int(time.time() * 1000)
        metadata = self._metadata | {"name": name, "description": comment}
        if before is not None:
            metadata |= {"id": str(before.metadata().id), "createdTime": before.metadata().created_time}
        adds = [
            add | {"path": f"{self.folder.name}/{add['path']}", "modificationTime": now_ms, "dataChange": True}
            for add in self._adds
        ]
        actions: list[Mapping[str, Any]] = [
            {"commitInfo": self._commit_info(note, now_ms, adds)},
            *([{"protocol": self._protocol}] if before is None or self._needs_more_than(before) else []),
            {"metaData": metadata},
            *({"remove": _removed(path, size, now_ms)} for path, size in replaced.items()),
            *({"add": add} for add in adds),
        ]
        self._make_files_durable()
        entry = _put_entry(self.table, self.version + 1, actions)
        reach("current.after_entry")
        blobs.make_durable([entry])
        blobs.make_names_durable([entry.parent, self.table, *self.table.parents])
        return self.version + 1

    def _table_before(self) -> DeltaTable | None:
        """Load the table as it was when the rows were staged; None if there was none.

        Raises:
            Conflict: another process has committed in the meantime.
            DamagedPublication: the log cannot be read.
        """
        if self.version < 0:
            return None
        try:
            table = load_table(self.table)
        except DamagedTable as error:
            raise DamagedPublication(error.table, error.detail) from error
        if table.version() != self.version:
            raise Conflict(str(self.table), self.version + 1, f"version {table.version()} is there already")
        return table

    def _needs_more_than(self, before: DeltaTable) -> bool:
        """Return whether readers or writers of the staged rows need a later protocol than the table has."""
        known, staged = before.protocol(), self._protocol
        return bool(
            staged["minReaderVersion"] > known.min_reader_version
            or staged["minWriterVersion"] > known.min_writer_version
        )

    def discard(self) -> None:
        """Delete the staged rows; a sweep deletes what is left."""
        with suppress(OSError):
            blobs.delete_folder(self.folder)

    def _rows_of(self, add: Mapping[str, Any]) -> int:
        """Return the number of rows of a file, from its footer if the session collects no statistics."""
        if add.get("stats"):
            return int(json.loads(add["stats"])["numRecords"])
        with blobs.open_file(self.folder / unquote(add["path"])) as file:
            return int(pq.ParquetFile(file).metadata.num_rows)

    def _commit_info(self, note: Published, now_ms: int, adds: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
        sizes = [int(add["size"]) for add in adds]
        return {
            "timestamp": now_ms,
            "operation": "WRITE",
            "operationParameters": {"mode": "Overwrite", "partitionBy": "[]"},
            "readVersion": max(self.version, 0),
            "isolationLevel": "Serializable",
            "isBlindAppend": False,
            "operationMetrics": {
                "numFiles": str(len(sizes)),
                "numOutputRows": str(note.rows),
                "numOutputBytes": str(sum(sizes)),
            },
            _NOTE: note.model_dump_json(),
            "engineInfo": "Tidelake",
        }

    def _make_files_durable(self) -> None:
        written = blobs.list_blobs(self.folder)
        blobs.make_durable(blob.location for blob in written)
        blobs.make_names_durable({*(blob.location.parent for blob in written), self.table})
        blobs.make_folder(self.table / LOG)


def empty_published(table: Location) -> bool:
    """Remove all rows from a publication's table, in one commit; return whether it had any.

    Readers of earlier versions have `RETENTION_S` to finish; then `maintain_published` deletes the files. The log
    stays, so that the name can be published again.

    Raises:
        Conflict: another commit came first; the table may have another collection's rows now.
        DamagedPublication: the log cannot be read.
    """
    version = newest_version(table)
    if version < 0:
        return False
    try:
        before = load_table(table)
    except DamagedTable as error:
        raise DamagedPublication(error.table, error.detail) from error
    if before.version() != version:
        raise Conflict(str(table), version + 1, f"version {before.version()} is there already")
    live = _live_files(before)
    if not live:
        return False
    _renew(table, live)
    now_ms = int(time.time() * 1000)
    info = {
        "timestamp": now_ms,
        "operation": "DELETE",
        "operationParameters": {"predicate": "[]"},
        "readVersion": version,
        "isolationLevel": "Serializable",
        "isBlindAppend": False,
        "engineInfo": "Tidelake",
    }
    removes = [{"remove": _removed(path, size, now_ms)} for path, size in live.items()]
    entry = _put_entry(table, version + 1, [{"commitInfo": info}, *removes])
    blobs.make_durable([entry])
    blobs.make_names_durable([entry.parent])
    return True


def published_bytes(table: Location) -> int:
    """Return the size of the files below a publication's table, its log aside."""
    return sum(blob.size for blob in blobs.list_blobs(table) if _FOLDER.match(blob.location.below(table)))


def _renew(table: Location, replaced: Iterable[str]) -> None:
    """Give readers the retention period, from now on, to finish with the folders of files that are removed."""
    for folder in {path.partition("/")[0] for path in replaced if "/" in path}:
        with suppress(FileNotFoundError):
            blobs.renew(table / folder)


def _put_entry(table: Location, version: int, actions: Iterable[Mapping[str, Any]]) -> Location:
    """Create the log entry of a version, and return its location.

    Raises:
        Conflict: another process came first.
    """
    entry = entry_path(table, version)
    try:
        blobs.create(entry, "".join(json.dumps(action) + "\n" for action in actions).encode())
    except FileExistsError as error:
        raise Conflict(str(table), version, "another process has published first") from error
    return entry


def _live_files(table: DeltaTable) -> dict[str, int]:
    """Return the size of each live file, by its path."""
    # from_stream, as pa.table() would import pandas
    actions = pa.RecordBatchReader.from_stream(table.get_add_actions(flatten=True)).read_all()
    return dict(zip(actions["path"].to_pylist(), actions["size_bytes"].to_pylist(), strict=True))


def _removed(path: str, size: int, now_ms: int) -> dict[str, Any]:
    return {
        "path": quote(path),
        "deletionTimestamp": now_ms,
        "dataChange": True,
        "extendedFileMetadata": True,
        "partitionValues": {},
        "size": size,
    }


def maintain_published(table: Location) -> None:
    """Write a checkpoint if one is due, and delete folders that were in no version for `RETENTION_S`.

    A folder that was staged for a later version stays: it may still be committed.

    Cost: the table's folder is listed; every tenth version, a checkpoint is written and the log is cleaned up.
    """
    loaded = load_table(table)
    if loaded.version() > 0 and loaded.version() % _CHECKPOINT_EVERY_COMMITS == 0:
        try:
            loaded.create_checkpoint()
            blobs.make_durable(checkpoints(table)[-1:])
            reach("current.after_checkpoint")
            loaded.cleanup_metadata()
        except BaseException as error:  # what was published is durable already
            is_of_store = isinstance(error, OSError) and not table.is_local
            if not is_of_store and not isinstance(error, DeltaError) and not is_panic(error):
                raise
            warn("the log of a publication was not cleaned up", table=str(table), reason=engine_fact(error))
    live = {path.partition("/")[0] for path in _live_files(loaded)}
    staged = {name: match for name in blobs.list_names(table) if (match := _FOLDER.fullmatch(name))}
    stale = [name for name, match in staged.items() if name not in live and int(match[1]) <= loaded.version()]
    for name in long_dead(table, stale, RETENTION_S):
        blobs.delete_folder(table / name)
