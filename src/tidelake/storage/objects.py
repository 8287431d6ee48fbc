"""The backend of `blobs` for object stores, based on obstore."""
# ruff: noqa: D102

from __future__ import annotations

import io
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, BinaryIO

import obstore
import pyarrow as pa
from obstore.exceptions import AlreadyExistsError

from tidelake.storage.location import HIDDEN, UNFINISHED, Blob, Listing, Location

if TYPE_CHECKING:
    from obstore import ObjectMeta
    from obstore.store import ObjectStore

_STREAM_BYTES = 1 << 20


class Objects:
    """An object store; `blobs` documents each method. What the store acknowledges is durable."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def read(self, location: Location) -> bytes:
        return bytes(obstore.get(self._store, location.path).bytes())

    def open_file(self, location: Location) -> pa.NativeFile:
        return pa.PythonFile(_Ranges(self._store, location.path), mode="r")

    def open_stream(self, location: Location) -> BinaryIO:
        return io.BufferedReader(_Ranges(self._store, location.path), _STREAM_BYTES)

    def create(self, location: Location, data: bytes) -> None:
        try:
            obstore.put(self._store, location.path, data, mode="create")
        except AlreadyExistsError as error:
            raise FileExistsError(str(location)) from error

    @contextmanager
    def writing(self, location: Location) -> Iterator[pa.NativeFile]:
        sink = pa.BufferOutputStream()
        yield sink
        obstore.put(self._store, location.path, sink.getvalue().to_pybytes())

    def delete(self, location: Location) -> None:
        with suppress(FileNotFoundError):
            obstore.delete(self._store, location.path)

    def delete_folder(self, folder: Location) -> None:
        paths = [blob.location.path for blob in self.list_blobs(folder)]
        if paths:
            obstore.delete(self._store, paths)

    def set_aside(self, location: Location, aside: Location) -> None:
        self.create(aside, self.read(location))
        self.delete(location)

    def exists(self, location: Location) -> bool:
        try:
            obstore.head(self._store, location.path)
        except FileNotFoundError:
            return False
        return True

    def is_folder(self, folder: Location) -> bool:
        return True

    def make_folder(self, folder: Location) -> None:
        pass

    def list_names(self, folder: Location) -> list[str]:
        listing = self.list_folder(folder, hidden=True)
        return [*(blob.location.name for blob in listing.blobs), *(below.name for below in listing.folders)]

    def list_folder(self, folder: Location, hidden: bool) -> Listing:
        listed = obstore.list_with_delimiter(self._store, folder.path or None)
        blobs = [_blob_of(folder.root, meta) for meta in listed["objects"]]
        folders = [Location(folder.root, path) for path in listed["common_prefixes"]]
        return Listing(
            sorted((blob for blob in blobs if hidden or not _is_hidden(blob.location)), key=lambda blob: blob.location),
            sorted(below for below in folders if hidden or not _is_hidden(below)),
        )

    def list_blobs(self, folder: Location) -> list[Blob]:
        chunks = obstore.list(self._store, folder.path or None)
        return [_blob_of(folder.root, meta) for chunk in chunks for meta in chunk]

    def make_durable(self, location: Location) -> None:
        pass

    def make_names_durable(self, folder: Location) -> None:
        pass

    def now_s(self, folder: Location) -> float:
        """Write a blob and read its modification time: the store's clock may differ from this machine's."""
        probe = (folder / f"{UNFINISHED}{secrets.token_hex(16)}").path
        obstore.put(self._store, probe, b"")
        try:
            return obstore.head(self._store, probe)["last_modified"].timestamp()
        finally:
            obstore.delete(self._store, probe)

    def last_change_s(self, folder: Location) -> float:
        return max((blob.changed_s for blob in self.list_blobs(folder)), default=0.0) or self.now_s(folder)

    def renew(self, folder: Location) -> None:
        obstore.put(self._store, (folder / "_renewed").path, b"")


class _Ranges(io.RawIOBase):
    """A blob as a file; each read requests one range."""

    def __init__(self, store: ObjectStore, path: str) -> None:
        self._store, self._path, self._at = store, path, 0
        self._size = obstore.head(store, path)["size"]

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def readinto(self, buffer: Any) -> int:
        length = min(len(buffer), self._size - self._at)
        if length <= 0:
            return 0
        buffer[:length] = obstore.get_range(self._store, self._path, start=self._at, length=length)
        self._at += length
        return length


def _blob_of(root: str, meta: ObjectMeta) -> Blob:
    changed = meta["last_modified"].timestamp()
    return Blob(Location(root, meta["path"]), meta["size"], changed, meta["e_tag"] or (meta["size"], changed))


def _is_hidden(location: Location) -> bool:
    return location.name.startswith(HIDDEN)
