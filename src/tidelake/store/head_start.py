"""A head start for new processes: the logs of a collection as a process has verified them, in one blob.

At the end of each step on a collection in an object store, the logs that the process follows are put into the blob,
with the bytes of small files, and with the time at which the tables were swept. A new process reads the blob instead of
up to 34 objects for each log. It trusts nothing in the blob: entries and checkpoints count only if the markers in the
store name their SHA-256, and the bytes of files only if the log names theirs; a wrong sweep time delays the next sweep
by at most an hour. If the blob is missing, damaged or too old, this costs requests, and nothing else. See
docs/decisions/requests.md.
"""

from __future__ import annotations

import io
import struct
import time
import zipfile
import zlib
from collections import defaultdict
from collections.abc import Iterable
from threading import Lock
from typing import Any

import pyarrow as pa

from tidelake.errors import StoreUnreadable, TidelakeError
from tidelake.storage import blobs
from tidelake.storage.location import Location
from tidelake.storage.notices import warn
from tidelake.store.acknowledged import digest_of
from tidelake.store.entry import Collection
from tidelake.store.files import DIGEST
from tidelake.store.followed import Followed, is_followed, last_seen, suggest
from tidelake.store.layout import Store
from tidelake.store.put_files import bytes_of, note_bytes
from tidelake.store.table_log import LOG, Tip, checkpoint_path, entry_path, version_of

_BYTES_MAX = 4 << 20
"""Maximum total size of what a blob holds. If there is more, small files are left out first, then the largest logs."""
_FILE_BYTES_MAX = 64 << 10
"""Maximum size of a small file."""
_PACKED_BYTES_MAX = 2 * _BYTES_MAX
"""Maximum size of a blob that is read: twice the most that a written blob holds before it is compressed."""
_COMPRESSION = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""The compression methods that are read; `zipfile` unpacks others without a size limit."""
_NOT_A_HEAD_START = (
    *(ValueError, KeyError, EOFError, OSError, NotImplementedError, RuntimeError),
    *(zipfile.BadZipFile, zlib.error, struct.error),
)
"""The errors raised by bytes that are not a head start."""
_CHECKPOINT = ".checkpoint.parquet"

_SWEPT = "swept"
"""The ZIP member that says when the tables were swept is named after the blob, with this name appended."""

_saved: dict[Location, frozenset[tuple[Location, str | None]]] = {}
"""The contents of the blobs that this process has read or written: the SHA-256 of each log's newest entry, and when the
tables were swept."""
_swept_s: dict[Location, float] = {}
"""For each blob, when the tables of its collection were swept, as far as this process knows."""
_lock = Lock()


def use_head_start(store: Store, name: str, *, follows: bool = False) -> None:
    """Read the head start of a collection, unless this process has already opened the collection.

    Args:
        store: the store; nothing is read if it is on a disk.
        name: the name of the collection.
        follows: whether each log is followed from its newest entry in the blob, with one request, which is enough for
            callers that only show the state. If not, the log is opened from scratch, which shows whether an entry is
            missing; the blob then only saves requests.
    """
    if store.root.is_local or is_followed(store.log_of_name(name)):
        return
    blob = store.head_start(name)
    try:
        data = blobs.read(blob, _PACKED_BYTES_MAX)
    except (FileNotFoundError, TidelakeError, ValueError):  # opening the collection reports it
        return
    try:
        members = _unpack(store.root, data)
        swept = members.pop(blob / _SWEPT, None)
        swept_s = None if swept is None else float(swept)
        tips, files = _sorted(members)
    except _NOT_A_HEAD_START:
        return
    with _lock:
        if swept_s is not None:
            _swept_s.setdefault(blob, swept_s)
    for table, tip in tips.items():
        suggest(table, tip, follows=follows)
    for file, content in files.items():
        note_bytes(file, digest_of(content), content)
    _note_saved(blob, tips)


def leave_head_start(collection: Collection) -> None:
    """Write what this process knows of a collection, unless the blob already has it or the store is on a disk.

    Cost: one put if a log has changed, or the tables were swept, since the blob was last read or written.
    """
    store = collection.paths.store
    if store.root.is_local:
        return
    tables = (
        store.log_of_name(collection.name),
        store.catalog,
        collection.paths.handles,
        *collection.tables,
    )
    known = {table: followed for table in tables if (followed := last_seen(table)) is not None}
    blob = store.head_start(collection.name)
    tips = {table: followed.tip for table, followed in known.items()}
    with _lock:
        if not known or _saved.get(blob) == _contents(blob, tips):
            return
        swept_s = _swept_s.get(blob)
    try:
        blobs.replace(blob, _pack(store.root, known, {} if swept_s is None else {blob / _SWEPT: f"{swept_s}".encode()}))
    except StoreUnreadable as error:
        warn("the head start for new processes was not written", collection=collection.name, reason=error.fact)
        return
    _note_saved(blob, tips)


def note_swept(store: Store, name: str) -> None:
    """Record that the tables of a collection have just been swept, for this process and in the next head start."""
    with _lock:
        _swept_s[store.head_start(name)] = time.time()


def was_swept(store: Store, name: str, within_s: float) -> bool:
    """Return whether a process is known to have swept the tables of a collection within the last `within_s`.

    This is judged by the machines' clocks. A wrong clock makes sweeps rarer or more frequent, and does no other harm: a
    sweep itself measures ages by the store's clock. A time in the future is ignored.
    """
    with _lock:
        swept_s = _swept_s.get(store.head_start(name))
    return swept_s is not None and 0 <= time.time() - swept_s < within_s


def forget_swept() -> None:
    """Forget when tables were swept, as if this process were new."""
    with _lock:
        _swept_s.clear()


def drop_head_start(store: Store, name: str) -> None:
    """Delete the head start of a name whose collection was dropped or renamed: the blob holds rows.

    A store on a disk has none.
    """
    if store.root.is_local:
        return
    blob = store.head_start(name)
    with _lock:
        _saved.pop(blob, None)
        _swept_s.pop(blob, None)
    try:
        blobs.delete(blob)
    except StoreUnreadable as error:
        warn("a head start was not deleted; `tidelake gc` deletes it", name=name, reason=error.fact)


def sweep_head_starts(store: Store, names: Iterable[str]) -> None:
    """Delete all head starts except those of the collections with these names. A store on a disk has none.

    Cost: one listing, and one request if there is anything to delete.
    """
    if store.root.is_local:
        return
    kept = {store.head_start(name) for name in names}
    blobs.delete_all(blob.location for blob in blobs.list_folder(store.head_starts).blobs if blob.location not in kept)


def _note_saved(blob: Location, tips: dict[Location, Tip]) -> None:
    with _lock:
        _saved[blob] = _contents(blob, tips)


def _contents(blob: Location, tips: dict[Location, Tip]) -> frozenset[tuple[Location, str | None]]:
    swept = (blob / _SWEPT, f"{_swept_s.get(blob)}")
    return frozenset((swept, *((table, tip.digest) for table, tip in tips.items())))


def _pack(root: Location, known: dict[Location, Followed], more: dict[Location, bytes]) -> bytes:
    """Return a ZIP file with logs and small files, named as in the store, and with `more`."""
    packed, left = io.BytesIO(), _BYTES_MAX
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for location, data in more.items():
            archive.writestr(location.below(root), data)
        for table, followed in sorted(known.items(), key=lambda item: item[1].tip.size):
            left -= followed.tip.size
            if left < 0:
                break
            for location, data in _log_of(table, followed.tip):
                archive.writestr(location.below(root), data)
        for location, data in _small_files(known):
            left -= len(data)
            if left < 0:
                break
            archive.writestr(location.below(root), data)
    return packed.getvalue()


def _log_of(table: Location, tip: Tip) -> Iterable[tuple[Location, bytes]]:
    if tip.checkpoint is not None:
        yield checkpoint_path(table, tip.checkpoint_version), tip.checkpoint
    for version, text in tip.numbered().items():
        yield entry_path(table, version), text


def _small_files(known: dict[Location, Followed]) -> Iterable[tuple[Location, bytes]]:
    """Yield the live files that this process remembers, those of small tables first."""
    live = {table: _live_files(followed) for table, followed in known.items()}
    for table, files in sorted(live.items(), key=lambda item: len(item[1])):
        for path, action in files.items():
            if action["size"] <= _FILE_BYTES_MAX:
                data = bytes_of(table / path, (action["statistics"] or {}).get(DIGEST))
                if data is not None:
                    yield table / path, data


def _live_files(followed: Followed) -> dict[str, dict[str, Any]]:
    try:
        return followed.state.files
    except (ValueError, KeyError, TypeError, OSError, pa.ArrowException):  # the step has reported it
        return {}


def _unpack(root: Location, data: bytes) -> dict[Location, bytes]:
    """Return the members of a ZIP file, each at most as long as it states.

    Raises:
        ValueError: it was not written here, or is too large.
    """
    found: dict[Location, bytes] = {}
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = archive.infolist()
        if sum(member.file_size for member in members) > 2 * _BYTES_MAX:
            raise ValueError("it is larger than any that is written")
        for member in members:
            location = root / member.filename
            if location in found or member.compress_type not in _COMPRESSION:
                raise ValueError(f"{member.filename} was not written here")
            with archive.open(member) as stream:
                # Read one byte more, so that the checksum is verified. Without a limit, everything would be unpacked.
                found[location] = stream.read(member.file_size + 1)
    return found


def _sorted(members: dict[Location, bytes]) -> tuple[dict[Location, Tip], dict[Location, bytes]]:
    """Separate logs from files. A log with a gap between its entries is left out."""
    checkpoints: dict[Location, tuple[int, bytes]] = {}
    entries: dict[Location, dict[int, bytes]] = defaultdict(dict)
    files: dict[Location, bytes] = {}
    for location, data in members.items():
        table = location.parent.parent
        if location.parent.name != LOG:
            files[location] = data
        elif location.name.endswith(_CHECKPOINT):
            checkpoints[table] = version_of(location), data
        else:
            entries[table][version_of(location)] = data
    tips = {}
    for table, texts in entries.items():
        version, (start, checkpoint) = max(texts), checkpoints.get(table, (-1, None))
        if sorted(texts) == list(range(version - len(texts) + 1, version + 1)):
            ordered = tuple(texts[number] for number in sorted(texts))
            tips[table] = Tip(version, digest_of(ordered[-1]), checkpoint, ordered, start)
    return tips, files
