"""A head start for new processes: the logs of a collection as a process has verified them, in one blob.

At the end of each step on a collection in an object store, the logs that the process follows are put into the blob,
with the bytes of small files. A new process reads the blob instead of up to 34 objects for each log. It believes
nothing in the blob: entries and checkpoints count only if the markers in the store name their SHA-256, and bytes of
files only if the log does. A blob that is missing, damaged, or too old costs requests, and nothing else. See
docs/decisions/requests.md.
"""

from __future__ import annotations

import io
import zipfile
import zlib
from collections import defaultdict
from collections.abc import Iterable
from threading import Lock

from tidelake.errors import StoreAccessDenied, StoreUnreachable, TidelakeError
from tidelake.storage import blobs
from tidelake.storage.location import Location
from tidelake.store.acknowledged import digest_of
from tidelake.store.entry import Collection
from tidelake.store.files import DIGEST
from tidelake.store.followed import Followed, is_followed, last_seen, suggest
from tidelake.store.layout import Store
from tidelake.store.notices import warn
from tidelake.store.publication import folder_of_name
from tidelake.store.put_files import bytes_of, note_bytes
from tidelake.store.table_log import LOG, Tip, checkpoint_path, entry_path, version_of

_BYTES_MAX = 4 << 20
"""Maximum total size of what a blob holds. If there is more, the largest logs are left out."""
_FILE_BYTES_MAX = 64 << 10
"""Maximum size of a small file."""
_CHECKPOINT = ".checkpoint.parquet"

_saved: dict[Location, frozenset[tuple[Location, str | None]]] = {}
"""What the blobs hold that this process has read or written: each log with the SHA-256 of its newest entry."""
_lock = Lock()


def use_head_start(store: Store, name: str, *, follows: bool = False) -> None:
    """Read the head start of a collection, unless this process has opened the collection already.

    Args:
        store: the store; nothing is read if it is on a disk.
        name: the name of the collection.
        follows: whether each log is followed from where the blob ends, with one request; callers that only show what is
            there need no more. If not, the log is also listed, as when it is opened from scratch.
    """
    if store.root.is_local or is_followed(store.names / folder_of_name(name)):
        return
    blob = _blob(store, name)
    try:
        data = blobs.read(blob)
    except (FileNotFoundError, TidelakeError):  # whoever opens the collection next says what is wrong
        return
    try:
        members = _unpack(store.root, data)
    except (ValueError, KeyError, EOFError, NotImplementedError, RuntimeError, zipfile.BadZipFile, zlib.error):
        return
    tips, files = _sorted(members)
    for table, tip in tips.items():
        suggest(table, tip, follows=follows)
    for file, content in files.items():
        note_bytes(file, digest_of(content), content)
    _note_saved(blob, tips)


def leave_head_start(collection: Collection) -> None:
    """Write what this process knows of a collection, unless the blob has it already. Nothing is done on a disk.

    Cost: one put if a log has changed since.
    """
    store = collection.paths.store
    if store.root.is_local:
        return
    tables = (
        store.names / folder_of_name(collection.name),
        store.catalog,
        collection.paths.handles,
        *collection.tables,
    )
    known = {table: followed for table in tables if (followed := last_seen(table)) is not None}
    blob = _blob(store, collection.name)
    tips = {table: followed.tip for table, followed in known.items()}
    with _lock:
        if not known or _saved.get(blob) == _ends(tips):
            return
    try:
        blobs.replace(blob, _pack(store.root, known))
    except (StoreUnreachable, StoreAccessDenied) as error:
        warn("the head start for new processes was not written", collection=collection.name, reason=error.fact)
        return
    _note_saved(blob, tips)


def _blob(store: Store, name: str) -> Location:
    return store.head_starts / f"{folder_of_name(name)}.zip"


def _note_saved(blob: Location, tips: dict[Location, Tip]) -> None:
    with _lock:
        _saved[blob] = _ends(tips)


def _ends(tips: dict[Location, Tip]) -> frozenset[tuple[Location, str | None]]:
    return frozenset((table, tip.digest) for table, tip in tips.items())


def _pack(root: Location, known: dict[Location, Followed]) -> bytes:
    """Return a ZIP file with logs and small files, named as in the store."""
    packed, left = io.BytesIO(), _BYTES_MAX
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
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
    for table, followed in sorted(known.items(), key=lambda item: len(item[1].state.files)):
        for path, action in followed.state.files.items():
            if action["size"] <= _FILE_BYTES_MAX:
                data = bytes_of(table / path, (action["statistics"] or {}).get(DIGEST))
                if data is not None:
                    yield table / path, data


def _unpack(root: Location, data: bytes) -> dict[Location, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = archive.infolist()
        if sum(member.file_size for member in members) > 2 * _BYTES_MAX:
            raise ValueError("it is larger than what is written")
        return {root / member.filename: archive.read(member) for member in members}


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
