"""The table of a publication: its state, its files, and what a sweep deletes; see `staged_rows`."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple
from urllib.parse import quote

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pydantic import BaseModel, ConfigDict

from tidelake.errors import Conflict, DamagedPublication, DamagedTable
from tidelake.spark.engine_errors import engine_fact, is_panic
from tidelake.storage import blobs
from tidelake.storage.location import Location
from tidelake.storage.notices import warn
from tidelake.store.dead_notes import begin_sweep, long_dead
from tidelake.store.entry import Collection
from tidelake.store.failpoints import reach
from tidelake.store.publication import Publication
from tidelake.store.table_log import Entry, checkpoints, entry_path, load_table, newest_version, read_entry

RETENTION_S = 7 * 24 * 3600
"""How long files stay after they are replaced: as long as Delta keeps them by default."""
WRITER = "Tidelake"
"""The `engineInfo` of Tidelake's own commits."""
_CHECKPOINT_EVERY_COMMITS = 10
_FOLDER = re.compile(r"publish-([0-9]+)-[0-9a-f]{24}")
NOTE = "userMetadata"
"""The field of `commitInfo` that holds a `Published` as JSON."""
_NOTE_VERSIONS_MAX = 100


class Published(BaseModel):
    """The state that a publication's table shows, as the commit that last published to it states."""

    model_config = ConfigDict(frozen=True)

    collection: str
    collection_id: str
    as_of: int
    """The time of the contents: the last sealed time when they were published, or an earlier one."""
    since: int
    upper: int
    """Since and upper of the collection when the contents were published."""
    bound_at_ms: int
    """When the name was bound to the collection."""
    published_at_ms: int
    proofs_at_ms: int
    """The moment of the newest note that `proofs/` had when the contents were published, in milliseconds since 1970."""
    rows: int
    """Number of rows of the table: the distinct rows of the contents, or all rows if the table is a bag."""
    contents_rows: int
    """Number of rows of the contents: the sum of `_diff` or, if the table has no such column, the same as `rows`."""
    columns: tuple[str, ...]
    how: Literal["rebuilt", "followed"] = "rebuilt"
    """Whether the commit replaced all rows, or only those that changed. Earlier releases replaced all."""
    reason: str | None = None
    """Why the table was rebuilt; None in the notes of earlier releases."""
    followed_from: int | None = None
    """The time of the contents that the changes were applied to; None if the table was rebuilt."""
    together: tuple[str, ...] = ()
    """The collections, including this one, for which `as_of` was chosen; empty if this one was published alone.

    A publication of another one may have failed: its own note says what its table shows.
    """
    skip_errors: bool = False
    """Whether keys in error are left out. Earlier releases published nothing while there were any."""


class TableState(NamedTuple):
    """The state that a publication's table shows, and who has changed the table since."""

    shown: Published | None
    """None if nothing was published, or if the rows have been changed or removed since."""
    changed_by: str | None
    """The engine that has changed the rows, the columns or the properties since the last publication, or None.
    It is `WRITER` if Tidelake has removed the rows."""


@dataclass(frozen=True)
class PublishedFile:
    """A live file of a publication's table."""

    path: str
    """The path below the table's folder."""
    size: int
    rows: int | None
    """None if the file has no statistics."""
    lowest: Mapping[str, int] = field(default_factory=dict, compare=False)
    highest: Mapping[str, int] = field(default_factory=dict, compare=False)
    """The least and the greatest value of each column of whole numbers, dates (days since 1970) or timestamps
    (microseconds since 1970, with millisecond precision), as far as the log states them. Nulls are ignored."""


def published_table(collection: Collection, publication: Publication) -> Location:
    """Return the location of a publication's table."""
    return collection.paths.store.publication(publication.folder)


def read_table_state(table: Location) -> TableState:
    """Return the state that a publication's table shows, and which engine has written to it since, if any.

    Raises:
        DamagedPublication: the log cannot be read.

    Cost: the log is listed, and its newest entry is read; earlier entries are read only after a commit that changes no
    rows, such as a VACUUM.
    """
    try:
        return _read_table_state(table)
    except DamagedTable as error:
        raise DamagedPublication(error.table, error.detail) from error


def _read_table_state(table: Location) -> TableState:
    newest = newest_version(table)
    changed_by = None
    for version in range(newest, max(-1, newest - _NOTE_VERSIONS_MAX), -1):
        entry = read_entry(table, version)
        if entry is None:
            break
        try:
            if not all(isinstance(action, dict) for action in entry):
                raise TypeError("a line that is not an object")
            note = _note_of(entry)
            changes_rows = note is None and _changes_rows(entry)
            if note is None and (changes_rows or any("metaData" in each or "protocol" in each for each in entry)):
                changed_by = _engine_of(entry)
        except (AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
            raise DamagedTable(str(table), f"the log entry of version {version} is not a Delta entry") from error
        if note is not None or changes_rows:
            return TableState(note, changed_by)
    return TableState(None, changed_by)


def _engine_of(entry: Entry) -> str:
    """Return the name of the engine that wrote an entry, as far as the entry states it."""
    info = next((action["commitInfo"] for action in entry if "commitInfo" in action), {})
    return str(info.get("engineInfo") or info.get("clientVersion") or "an engine that does not give its name")


def _changes_rows(entry: Entry) -> bool:
    files = [action[kind] for action in entry for kind in ("add", "remove") if kind in action]
    return any(file.get("dataChange", True) for file in files)


def _note_of(entry: Entry) -> Published | None:
    text = next((action["commitInfo"].get(NOTE) for action in entry if "commitInfo" in action), None)
    try:
        return None if text is None else Published.model_validate_json(text)
    except ValueError:  # another engine's commit has metadata of its own
        return None


def empty_published(table: Location, version: int) -> bool:
    """Remove all rows from a publication's table, in one commit; return whether it had any.

    Readers of earlier versions have `RETENTION_S` to finish; then `maintain_published` deletes the files. The log
    stays, so that the name can be published again.

    Args:
        table: the table's folder.
        version: its newest version, read before the log of the name. A collection that takes the name afterwards
            commits a later version. Either the rows of this version are removed, or none are.

    Raises:
        Conflict: another commit came first; the table may have another collection's rows now.
        DamagedPublication: the log cannot be read.
    """
    if version < 0:
        return False
    try:
        before = load_table(table)
    except DamagedTable as error:
        raise DamagedPublication(error.table, error.detail) from error
    if before.version() != version:
        raise Conflict(str(table), version + 1, f"version {before.version()} already exists")
    live = {file.path: file.size for file in live_files(before)}
    if not live:
        return False
    renew_folders(table, live)
    now_ms = int(time.time() * 1000)
    info = {
        "timestamp": now_ms,
        "operation": "DELETE",
        "operationParameters": {"predicate": "[]"},
        "readVersion": version,
        "isolationLevel": "Serializable",
        "isBlindAppend": False,
        "engineInfo": WRITER,
    }
    removes = [{"remove": removed(path, size, now_ms)} for path, size in live.items()]
    entry = put_entry(table, version + 1, [{"commitInfo": info}, *removes])
    blobs.make_durable([entry])
    blobs.make_names_durable([entry.parent])
    return True


def published_bytes(table: Location) -> int:
    """Return the size of the files below a publication's table, without its log."""
    return sum(blob.size for blob in blobs.list_blobs(table) if _FOLDER.match(blob.location.below(table)))


def renew_folders(table: Location, replaced: Iterable[str]) -> None:
    """Give readers the retention period, starting now, to finish with the folders of removed files."""
    for folder in {path.partition("/")[0] for path in replaced if "/" in path}:
        with suppress(FileNotFoundError):
            blobs.renew(table / folder)


def put_entry(table: Location, version: int, actions: Iterable[Mapping[str, Any]]) -> Location:
    """Create the log entry of a version, and return its location.

    Raises:
        Conflict: another process came first.
    """
    entry = entry_path(table, version)
    try:
        blobs.create(entry, "".join(json.dumps(action) + "\n" for action in actions).encode())
    except FileExistsError as error:
        raise Conflict(str(table), version, "another process published first") from error
    return entry


def live_files(table: DeltaTable) -> list[PublishedFile]:
    """Return the live files of a table, as its log states them."""
    # from_stream, as pa.table() would import pandas
    actions = pa.RecordBatchReader.from_stream(table.get_add_actions(flatten=True)).read_all()
    names = [name for name in ("path", "size_bytes", "num_records") if name in actions.schema.names]
    bounds: dict[str, list[dict[str, int]]] = {kind: [{} for _ in range(actions.num_rows)] for kind in ("min", "max")}
    for name in actions.schema.names:
        kind, _, column = name.partition(".")
        numbers = _as_numbers(actions[name]) if kind in bounds else None
        for place, number in enumerate(numbers or ()):
            if number is not None:
                bounds[kind][place][column] = number
    return [
        PublishedFile(action["path"], action["size_bytes"], action.get("num_records"), lowest, highest)
        for action, lowest, highest in zip(actions.select(names).to_pylist(), bounds["min"], bounds["max"], strict=True)
    ]


def _as_numbers(values: pa.ChunkedArray) -> list[int | None] | None:
    """Return statistics of integers, dates or timestamps as integers; None for other types."""
    if pa.types.is_timestamp(values.type):
        values = values.cast(pa.timestamp("us", values.type.tz)).cast(pa.int64())
    elif pa.types.is_date32(values.type):
        values = values.cast(pa.int32())
    elif not pa.types.is_integer(values.type):
        return None
    numbers: list[int | None] = values.to_pylist()
    return numbers


def removed(path: str, size: int, now_ms: int) -> dict[str, Any]:
    """Return the action that removes a file."""
    return {
        "path": quote(path),
        "deletionTimestamp": now_ms,
        "dataChange": True,
        "extendedFileMetadata": True,
        "partitionValues": {},
        "size": size,
    }


def maintain_published(table: Location) -> None:
    """Write a checkpoint if one is due, and delete files that have not been live for `RETENTION_S`.

    A folder that was staged for a later version stays: it may still be committed. A folder is deleted as a whole once
    it has no live file; until then, its other files are deleted one by one.

    Cost: the table's files are listed; every tenth version, a checkpoint is written and the log is cleaned up.
    """
    beginning = begin_sweep(table)
    loaded = load_table(table)
    if loaded.version() > 0 and loaded.version() % _CHECKPOINT_EVERY_COMMITS == 0:
        try:
            loaded.create_checkpoint()
            blobs.make_durable(checkpoints(table)[-1:])
            reach("current.after_checkpoint")
            loaded.cleanup_metadata()
        except BaseException as error:  # the publication is already durable
            is_of_store = isinstance(error, OSError) and not table.is_local
            if not is_of_store and not isinstance(error, DeltaError) and not is_panic(error):
                raise
            warn("the log of a publication was not cleaned up", table=str(table), reason=engine_fact(error))
    live = {file.path for file in live_files(loaded)}
    folders = {path.partition("/")[0] for path in live}
    staged = {name: match for name in blobs.list_names(table) if (match := _FOLDER.fullmatch(name))}
    stale = [name for name, match in staged.items() if name not in folders and int(match[1]) <= loaded.version()]
    # A folder with a live file was committed as a whole, so its other files are in no later version.
    for folder in staged.keys() & folders:
        files = (blob.location for blob in blobs.list_blobs(table / folder) if blob.location.suffix == ".parquet")
        stale += sorted({file.below(table) for file in files} - live)
    for name in long_dead(beginning, stale, stale, RETENTION_S):
        if "/" in name:
            blobs.delete(table / name)
        else:
            blobs.delete_folder(table / name)
