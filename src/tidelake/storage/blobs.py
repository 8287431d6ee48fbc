"""The layer under the store: all access to the bytes of a store or a topic, except by Spark and delta-rs.

A blob is whole or absent: it is written once, under a name of its own. Folders group blobs by name. Nothing here needs
more than an object store offers: no rename, no link, no append. `local_disk` makes files as safe as objects; `objects`
serves every other store. Only this module calls these two.

An absent blob raises `FileNotFoundError` and a name in use `FileExistsError`, whatever the store.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, BinaryIO

import pyarrow as pa

from tidelake.storage.local_disk import LocalDisk
from tidelake.storage.location import Blob, Listing, Location
from tidelake.storage.objects import Objects

if TYPE_CHECKING:
    from obstore.store import ObjectStore

# --- bytes


def read(location: Location) -> bytes:
    """Return all bytes of a blob.

    Raises:
        FileNotFoundError: it is absent.
    """
    return _backend(location).read(location)


def open_file(location: Location) -> pa.NativeFile:
    """Open a blob for Arrow, which reads only the ranges that it needs.

    Raises:
        FileNotFoundError: it is absent.
    """
    return _backend(location).open_file(location)


def open_stream(location: Location) -> BinaryIO:
    """Open a blob for reading from its first byte.

    Raises:
        FileNotFoundError: it is absent.
    """
    return _backend(location).open_stream(location)


def create(location: Location, data: bytes) -> None:
    """Write a blob if its name is free. Commits rely on this: exactly one of several callers succeeds.

    The bytes are durable before the name appears. `make_names_durable` makes the name durable.

    Raises:
        FileExistsError: another caller came first; its blob is unchanged.
    """
    _backend(location).create(location, data)


def write(location: Location, data: bytes) -> None:
    """Write or replace a blob. It is not durable yet."""
    with writing(location) as sink:
        sink.write(data)


def writing(location: Location) -> AbstractContextManager[pa.NativeFile]:
    """Write or replace a blob piece by piece. It appears when the block ends, or never if the block raises."""
    return _backend(location).writing(location)


def delete(location: Location) -> None:
    """Delete a blob, if it exists."""
    _backend(location).delete(location)


def delete_folder(folder: Location) -> None:
    """Delete everything below a folder, if it exists."""
    _backend(folder).delete_folder(folder)


def set_aside(location: Location, aside: Location) -> None:
    """Move a damaged blob to another name.

    Blobs can only be torn on a local disk, where the move is atomic. An object store copies and deletes.

    Raises:
        FileNotFoundError: it is absent; another process may have moved it.
    """
    _backend(location).set_aside(location, aside)


# --- names


def exists(location: Location) -> bool:
    """Return whether a blob has this name. Folders do not count."""
    return _backend(location).exists(location)


def is_folder(folder: Location) -> bool:
    """Return whether a folder exists. In an object store, every folder exists, but may be empty."""
    return _backend(folder).is_folder(folder)


def make_folder(folder: Location) -> None:
    """Create a folder and those above it. An object store needs none."""
    _backend(folder).make_folder(folder)


def list_names(folder: Location) -> list[str]:
    """Return the names directly in a folder, of blobs and folders, unordered; none if it is absent.

    On a local disk this is faster than `list_folder`.
    """
    return _backend(folder).list_names(folder)


def list_folder(folder: Location, *, hidden: bool = True) -> Listing:
    """Return the blobs and folders directly in a folder.

    Args:
        folder: the folder; if it is absent, the listing is empty.
        hidden: whether names that begin with `.` or `_` are listed.

    Raises:
        OSError: a name, such as a broken link, cannot be resolved; `filename` of the error says which.
    """
    return _backend(folder).list_folder(folder, hidden)


def list_blobs(folder: Location) -> list[Blob]:
    """Return all blobs below a folder, at any depth, sorted by path; none if it is absent."""
    return sorted(_backend(folder).list_blobs(folder), key=lambda blob: blob.location.path)


# --- durability and ages


def make_durable(locations: Iterable[Location]) -> None:
    """Make the bytes of blobs survive a loss of power, as they already do in an object store."""
    for location in locations:
        _backend(location).make_durable(location)


def make_names_durable(folders: Iterable[Location]) -> None:
    """Make the names directly in folders survive a loss of power, as they already do in an object store."""
    for folder in folders:
        _backend(folder).make_names_durable(folder)


def now_s(folder: Location) -> float:
    """Return the time by the store's clock, in seconds since 1970; compare it with `changed_s` and `last_change_s`."""
    return _backend(folder).now_s(folder)


def last_change_s(folder: Location) -> float:
    """Return when a folder was last renewed or anything below it written; now, if it changes during the call."""
    return _backend(folder).last_change_s(folder)


def renew(folder: Location) -> None:
    """Reset the age of a folder to zero.

    Raises:
        FileNotFoundError: the folder is absent. Only a local disk raises it.
    """
    _backend(folder).renew(folder)


# --- stores


def mount(root: str, store: ObjectStore) -> Location:
    """Serve a root, such as `memory://here`, from this store in this process."""
    _mounted[root] = Objects(store)
    return Location(root)


def _backend(location: Location) -> LocalDisk | Objects:
    if location.is_local:
        return _LOCAL_DISK
    try:
        return _mounted[location.root]
    except KeyError:
        raise ValueError(f"no store is mounted at {location.root}") from None


_LOCAL_DISK = LocalDisk()
_mounted: dict[str, Objects] = {}
