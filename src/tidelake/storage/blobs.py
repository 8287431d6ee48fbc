"""The layer under the store: all access to the bytes of a store or a topic, except by Spark and delta-rs.

A blob is whole or absent, and most blobs are written only once, under a name of their own. Folders group blobs by name.
Nothing here needs more than an object store offers: no rename, no link, no append. `local_disk` makes files as safe as
objects; `objects` serves every other store. Only this module calls these two.

If a blob is absent, `FileNotFoundError` is raised, and if a name is in use, `FileExistsError`, whatever the store.
Errors that concern an object store as a whole are raised as `StoreUnreadable`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, BinaryIO, TypeVar

import pyarrow as pa

from tidelake.errors import LakeReadOnly, StoreUnreadable
from tidelake.settings.object_store import ObjectStorePlace, canonical_uri
from tidelake.storage import local_disk
from tidelake.storage.local_disk import LocalDisk
from tidelake.storage.location import Blob, Listing, Location, Place, locate

if TYPE_CHECKING:
    from obstore.store import ObjectStore
    from pyspark.sql import SparkSession

    from tidelake.storage.objects import Objects

T = TypeVar("T")

# --- bytes


def read(location: Location, bytes_max: int | None = None) -> bytes:
    """Return all bytes of a blob.

    Args:
        location: the blob.
        bytes_max: the maximum size; None means any size.

    Raises:
        FileNotFoundError: it is absent.
        ValueError: it is larger than `bytes_max`; none of it was kept in memory.
    """
    return _backend(location).read(location, bytes_max)


def open_file(location: Location, size: int | None = None) -> pa.NativeFile:
    """Open a blob for Arrow, which reads only the ranges that it needs.

    Args:
        location: the blob.
        size: its size, if a listing has shown it. This saves a request to an object store: a blob of at most 256 KiB
            then takes only one.

    Raises:
        FileNotFoundError: it is absent. With a size, an object store may raise it at the first read.
    """
    return _backend(location).open_file(location, size)


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
    _writable(location).create(location, data)


def ensure(location: Location, data: bytes) -> bool:
    """Write a blob unless its name is in use; return whether the name seemed free.

    All callers must write the same bytes.

    Cost: in an object store, one request. If the store refuses it because the name is in use, this also shows that the
    store has conditional writes.
    """
    return _writable(location).ensure(location, data)


def write(location: Location, data: bytes) -> None:
    """Write or replace a blob. It is not durable yet."""
    with writing(location) as sink:
        sink.write(data)


def replace(location: Location, data: bytes, media_type: str | None = None) -> None:
    """Write or replace a blob that others may be reading or writing. It is not durable yet.

    Args:
        location: the blob.
        data: its bytes.
        media_type: the media type with which an object store serves it to a browser.

    Raises:
        OSError, StoreUnreadable: it cannot be written; an existing blob of this name is unchanged.
    """
    _writable(location).replace(location, data, media_type)


def update(location: Location, change: Callable[[bytes | None], bytes], media_type: str | None = None) -> object:
    """Change a blob that other processes may be changing: no change is lost.

    Args:
        location: the blob.
        change: receives the current bytes, or None if there are none, and returns the new ones. It may be called
            several times, and its effect must be the same if it is applied twice.
        media_type: as for `replace`.

    Returns:
        The stamp of the new blob; see `stamp`.

    Raises:
        OSError, StoreUnreadable: it cannot be read or written.
    """
    return _writable(location).update(location, change, media_type)


def stamp(location: Location) -> object:
    """Return a value that changes whenever another blob takes the name; None if there is no blob."""
    return _backend(location).stamp(location)


def creating(location: Location) -> AbstractContextManager[pa.NativeFile]:
    """Write a blob piece by piece if its name is free. It appears when the block ends, or never if the block raises.

    It is as durable as after `create`. If the name is in use, the end of the block raises `FileExistsError`.
    """
    return _writable(location).creating(location)


def upload(source: Location, location: Location) -> None:
    """Copy a file on this machine to a blob, which appears once it is whole. An object store verifies the bytes.

    Cost in an object store: one request for a file of up to 5 MiB; otherwise one for each 5 MiB, and two more.
    """
    _writable(location).upload(source, location)


def writing(location: Location) -> AbstractContextManager[pa.NativeFile]:
    """Write or replace a blob piece by piece. It appears when the block ends, or never if the block raises."""
    return _writable(location).writing(location)


def delete(location: Location) -> None:
    """Delete a blob, if it exists."""
    _writable(location).delete(location)


def delete_all(locations: Iterable[Location]) -> None:
    """Delete these blobs of one store, if they exist; on a local disk, in this order.

    An object store deletes up to a thousand in one request, in any order.
    """
    chosen = list(locations)
    backend = _writable(chosen[0]) if chosen else _LOCAL_DISK
    if not isinstance(backend, LocalDisk):
        backend.delete_all(chosen)
        return
    for location in chosen:
        delete(location)


def delete_folder(folder: Location) -> None:
    """Delete everything below a folder, if it exists."""
    _writable(folder).delete_folder(folder)


def may_be_torn(location: Location) -> bool:
    """Return whether a blob may be incomplete after a loss of power. An object is whole or absent."""
    return location.is_local


def set_aside(location: Location, aside: Location) -> None:
    """Move a damaged blob to another name.

    Blobs can only be torn on a local disk, where the move is atomic. An object store copies and deletes.

    Raises:
        FileNotFoundError: it is absent; another process may have moved it.
    """
    _writable(location).set_aside(location, aside)


# --- names


def exists(location: Location) -> bool:
    """Return whether a blob has this name. Folders do not count."""
    return _backend(location).exists(location)


def absent(folder: Location, locations: Sequence[Location]) -> list[Location]:
    """Return which of these blobs below a folder do not exist.

    Cost: on a disk, one lookup for each blob. In an object store, one request for each page of up to a thousand names;
    a page begins at the first blob that no earlier page has covered. Each absent blob takes one more request.
    """
    return _backend(folder).absent(folder, locations)


def is_folder(folder: Location) -> bool:
    """Return whether a folder exists. In an object store, every folder exists, but may be empty."""
    return _backend(folder).is_folder(folder)


def is_empty(folder: Location) -> bool:
    """Return whether nothing is below a folder, not even the empty object that consoles create for a folder.

    On a local disk, an absent folder is empty as well.

    Cost: in an object store, one request.
    """
    return _backend(folder).is_empty(folder)


def make_folder(folder: Location) -> None:
    """Create a folder and those above it. An object store needs none."""
    _writable(folder).make_folder(folder)


def list_names(folder: Location) -> list[str]:
    """Return the names of the blobs and folders directly in a folder, unordered; none if it is absent.

    On a local disk this is faster than `list_folder`.
    """
    return _backend(folder).list_names(folder)


def list_names_after(folder: Location, after: str) -> list[str]:
    """Return the names of the blobs directly in a folder that sort after a text. The folder must not contain folders.

    An object store lists only these names.
    """
    return _backend(folder).list_names_after(folder, after)


def list_names_in_turn(folder: Location, first: str, second: str) -> tuple[list[str], list[str]]:
    """Return the names of the blobs directly in two subfolders of a folder, like `list_names` for each in turn.

    If a name in the first folder is listed, so is every name in the second folder that had appeared before that name.

    Args:
        folder: the folder above both.
        first: the name of the folder that is listed first; it sorts before `second`.
        second: the name of the other folder.

    Cost: an object store lists both in one request for each thousand names. The last request may also return
    names that sort after the second folder.
    """
    return _backend(folder).list_names_in_turn(folder, first, second)


def list_folder(folder: Location, *, hidden: bool = True) -> Listing:
    """Return the blobs and folders directly in a folder.

    Args:
        folder: the folder; if it is absent, the listing is empty.
        hidden: whether names that begin with `.` or `_` are listed.

    Raises:
        OSError: a name, such as a broken link, cannot be resolved; the error's `filename` says which.
    """
    return _backend(folder).list_folder(folder, hidden)


def list_blobs(folder: Location, after: str = "") -> list[Blob]:
    """Return all blobs below a folder, at any depth, sorted by path; none if it is absent.

    Args:
        folder: the folder.
        after: only blobs whose path below the folder sorts after this text are returned; an object store lists no
            others.
    """
    return sorted(_backend(folder).list_blobs(folder, after), key=lambda blob: blob.location.path)


@contextmanager
def scratch_folder() -> Iterator[Location]:
    """Yield an empty folder on this machine, which is deleted when the block ends."""
    with _LOCAL_DISK.scratch_folder() as folder:
        yield folder


# --- durability and ages


def make_durable(locations: Iterable[Location]) -> None:
    """Make the bytes of blobs survive a loss of power, as they already do in an object store."""
    for location in locations:
        _writable(location).make_durable(location)


def make_names_durable(folders: Iterable[Location]) -> None:
    """Make the names directly in folders survive a loss of power, as they already do in an object store."""
    for folder in folders:
        _writable(folder).make_names_durable(folder)


@contextmanager
def turn(folder: Location, wait_s: float, needs_s: float = 0.0) -> Iterator[Callable[[], bool]]:
    """Make callers that compete for names in a folder take turns: each waits until the previous caller's block ends.

    This only orders the callers and excludes nobody: a caller that has waited in vain goes on, and in an object store
    nobody waits. If several machines share a disk, the order may be poor.

    Args:
        folder: the folder.
        wait_s: the maximum wait for each earlier caller, in addition to the time that the earlier caller needs.
        needs_s: how long this caller needs, capped at 30 s. Whoever takes longer loses the turn.

    Yields:
        A function that says whether it is this caller's turn.
    """
    with _writable(folder).turn(folder, wait_s, needs_s) as is_mine:
        yield is_mine


def is_turn_taken(folder: Location) -> bool:
    """Return whether it is somebody's turn; see `turn`."""
    return _backend(folder).is_turn_taken(folder)


def now_s(folder: Location) -> float:
    """Return the time by the store's clock, in seconds since 1970; compare it with `changed_s` and `last_change_s`."""
    return _writable(folder).now_s(folder)


def last_change_s(folder: Location) -> float:
    """Return the time of a folder's last renewal or of the last write below it. Nothing is written.

    It is infinity if the folder is absent, or changes meanwhile: such a folder counts as younger than anything else.
    """
    return _backend(folder).last_change_s(folder)


def renew(folder: Location) -> None:
    """Reset the age of a folder to zero.

    Raises:
        FileNotFoundError: the folder is absent. Only a local disk raises it.
    """
    _writable(folder).renew(folder)


# --- stores


def root_of(place: Place | ObjectStorePlace) -> Location:
    """Return the location of a folder that the settings or a caller names; nothing is opened yet.

    Raises:
        ValueError: see `locate`.
    """
    return remember(place) if isinstance(place, ObjectStorePlace) else locate(place)


def remember(place: ObjectStorePlace) -> Location:
    """Configure how this process reaches a store, and return its root; nothing is opened yet.

    A process that knows only the root takes everything else from its environment.

    Raises:
        ConfigurationError: this process already reaches the URI at another endpoint.
    """
    known = _places.get(place.uri)
    if known != place:
        if known is not None and place.uri.startswith(_S3):
            from tidelake.storage import s3

            s3.check_endpoint(place, f"{place.uri} is reached", s3.endpoint_of(known))
        _places[place.uri] = place
        _mounted.pop(place.uri, None)
    return Location(place.uri)


def mount(root: str, store: ObjectStore) -> Location:
    """Serve a root, such as `memory://here`, from this store in this process."""
    from tidelake.storage.objects import Objects  # imported late: most lakes are on a disk

    _mounted[root] = Objects(store)
    return Location(root)


def disconnect() -> None:
    """Forget what this process knows about stores in S3, as if it had just started: each is opened and probed again."""
    for root in [root for root in _mounted if root.startswith(_S3)]:
        del _mounted[root]


def check_conditional_writes(location: Location) -> None:
    """Check that exactly one of two writers of the same object succeeds. `create` and `write` check this themselves.

    Raises:
        ConditionalWritesMissing: no commit to this store would be safe.

    Cost: nothing on a local disk; in an object store, one request per process, or two if the store is new.
    """
    backend = _writable(location)
    if not isinstance(backend, LocalDisk):
        backend.check_conditional_writes(location)


def is_failed_write(error: Exception) -> bool:
    """Return whether an error means that a write was refused, not a read."""
    return local_disk.is_failed_write(error)


def engine_error(location: Location, error: BaseException, access: str = "read") -> StoreUnreadable:
    """Return the error to raise if an engine could not read or write a table in an object store."""
    from tidelake.storage.store_errors import store_error

    return store_error(str(location), access, error)


def spark_error(error: BaseException) -> StoreUnreadable | None:
    """Return the error for a Spark failure that an object store caused; else None."""
    from tidelake.storage.store_errors import spark_error as error_of

    return error_of(str(error))


def answered(location: Location, ask: Callable[[], T]) -> T:
    """Let an engine read a table, and read it again a few times if an object store's response is cut."""
    if location.is_local:
        return ask()
    from tidelake.storage.objects import answered as answered_by_objects

    return answered_by_objects(location, "read", ask)


def delta_options(location: Location) -> dict[str, str] | None:
    """Return the storage options with which delta-rs reaches a table; None if it needs none. They contain secrets."""
    if not location.root.startswith(_S3):
        return None
    from tidelake.storage import s3

    return s3.delta_options(s3.access_of(_place_of(location)))


def prepare_spark(spark: SparkSession, location: Location) -> None:
    """Configure a session to read and write a store.

    Raises:
        SparkLacksStore: the session was started without the jars that this needs.
    """
    if location.root.startswith(_S3):
        from tidelake.storage.spark_store import prepare

        prepare(spark, _place_of(location))


def spark_write_options(location: Location) -> dict[str, str]:
    """Return the options with which Spark writes Parquet files that appear only if the whole job succeeds."""
    check_writable(location)
    if not location.root.startswith(_S3):
        return {}
    from tidelake.storage.spark_store import WRITE_OPTIONS

    return WRITE_OPTIONS


def delete_what_spark_wrote(spark: SparkSession, folder: Location) -> None:
    """Delete everything below a folder. In S3, Spark's empty folders are objects, which only Spark can name."""
    check_writable(folder)
    if not folder.root.startswith(_S3):
        delete_folder(folder)
        return
    from tidelake.storage.spark_store import delete

    delete(spark, folder)


_S3 = "s3://"


def _place_of(location: Location) -> ObjectStorePlace:
    return _places.get(location.root) or ObjectStorePlace(uri=location.root)


def check_writable(location: Location) -> None:
    """Check that a place may be written to.

    Raises:
        LakeReadOnly: its lake was opened read-only. Every function here that writes raises it.
    """
    if location.is_read_only:
        raise LakeReadOnly(str(location))


def _writable(location: Location) -> LocalDisk | Objects:
    check_writable(location)
    return _backend(location)


def _backend(location: Location) -> LocalDisk | Objects:
    if location.is_local:
        return _LOCAL_DISK
    mounted = _mounted.get(location.root)
    if mounted is None:
        mounted = _mounted[location.root] = _connect(location.root)
    return mounted


def _connect(root: str) -> Objects:
    """Open an object store by its URI."""
    from tidelake.storage.objects import Objects

    place = _places.get(root)
    if root.startswith(_S3):
        from tidelake.storage import s3

        return Objects(s3.open_store(place or ObjectStorePlace(uri=canonical_uri(root))), is_remote=True)
    if place is None:
        raise ValueError(f"no store is mounted at {root}")
    from obstore.exceptions import BaseError
    from obstore.store import from_url

    try:
        return Objects(from_url(root), is_remote=True)
    except BaseError as error:  # the environment lacks something
        raise engine_error(Location(root), error) from error


_LOCAL_DISK = LocalDisk()
_mounted: dict[str, Objects] = {}
_places: dict[str, ObjectStorePlace] = {}
