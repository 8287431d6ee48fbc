"""The backend of `blobs` for object stores, based on obstore."""
# ruff: noqa: D102

from __future__ import annotations

import errno
import io
import math
import os
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

import obstore
import pyarrow as pa
from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError

from tidelake.errors import ConditionalWritesMissing, StoreBusy, StoreUnreachable
from tidelake.storage.location import HIDDEN, UNFINISHED, Blob, Listing, Location
from tidelake.storage.notices import warn_of_waiting
from tidelake.storage.store_errors import is_bucket_missing, store_error

if TYPE_CHECKING:
    from obstore import ObjectMeta
    from obstore.store import ObjectStore

T = TypeVar("T")

PROBE = "_conditional_writes"
"""In each store's folder, the object that shows whether an object can be created twice."""
_STREAM_BYTES = 1 << 20
_SMALL_BYTES_MAX = 1 << 18
"""Objects up to this size are read whole: Arrow would make several requests for parts of them."""
_PAGE = 1000
"""The number of names that an object store lists in one request."""
_UPDATE_ATTEMPTS_MAX = 32
_UPDATE_PAUSE_S = 0.2
_NONCE = "tidelakenonce"
_CREATE_WAITS_S = (0.0, 0.1, 0.4, 1.6, 6.4)
"""How long to wait before each attempt to create an object."""
_CUT = "response body error"
"""The text in obstore's errors if the connection ended in the middle of a response."""
_CUT_WAITS_S = (0.1, 0.4, 1.6)
"""How long to wait before each repetition of a request whose response was cut."""
_CUT_MAX_S = 5.0
"""A request that took longer than this is not repeated: its response hangs, rather than being cut."""


class Objects:
    """An object store; `blobs` documents each method. Acknowledged writes are durable.

    Errors of a remote store are raised as `StoreUnreadable`: the store does not answer, has no such bucket, or refuses
    access. obstore repeats most requests that get no answer, but not those whose outcome is unknown. Nor does it repeat
    a request whose response was cut, if that response is a listing, the result of a deletion, or an error. `answered`
    repeats reads of whole objects, listings and deletions.
    """

    def __init__(self, store: ObjectStore, is_remote: bool = False) -> None:
        """Wrap a store.

        Args:
            store: the store.
            is_remote: whether answers may be lost and conditional writes may be missing.
        """
        self._store, self._is_remote = store, is_remote
        self._has_conditional_writes = not is_remote

    def check_conditional_writes(self, location: Location) -> None:
        """Try to create one object twice, unless a refusal has already proven conditional writes.

        A store in use already has the object, so the first attempt is refused.
        """
        if self._has_conditional_writes:
            return
        probe = Location(location.root) / PROBE
        if not any(self._is_refused(probe, secrets.token_hex(16).encode()) for _ in range(2)):
            self.delete(probe)
            raise ConditionalWritesMissing("a second put replaced an object", location.root)

    def _is_refused(self, location: Location, data: bytes) -> bool:
        """Put an object if its name is free; return whether the store refused because the name was taken.

        Such a refusal proves conditional writes, no matter who created the object that has the name: it may have been
        an earlier attempt of this call.
        """
        created = self._put_repeatedly(
            location, secrets.token_hex(16), data, lambda is_taken: False if is_taken else None
        )
        if not created:
            self._has_conditional_writes = True
        return not created

    def read(self, location: Location, bytes_max: int | None = None) -> bytes:
        def ask() -> bytes:
            found = obstore.get(self._store, location.path)
            if bytes_max is not None and found.meta["size"] > bytes_max:
                raise ValueError(f"{location} has {found.meta['size']} bytes, more than {bytes_max}")
            return bytes(found.bytes())

        return answered(location, "read", ask)

    def open_file(self, location: Location, size: int | None) -> pa.NativeFile:
        if size is not None and size <= _SMALL_BYTES_MAX:
            return pa.BufferReader(self.read(location))
        return pa.PythonFile(_Ranges(self._store, location, size), mode="r")

    def open_stream(self, location: Location) -> BinaryIO:
        return io.BufferedReader(_Ranges(self._store, location), _STREAM_BYTES)

    def create(self, location: Location, data: bytes) -> None:
        self.check_conditional_writes(location)
        if not self._created(location, secrets.token_hex(16), data):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(location))

    def ensure(self, location: Location, data: bytes) -> bool:
        """Put the object without checking first.

        A store without conditional writes replaces the object with the same bytes; the check that follows refuses such
        a store.
        """
        was_there = self._is_refused(location, data)
        self.check_conditional_writes(location)
        return not was_there

    @contextmanager
    def creating(self, location: Location) -> Iterator[pa.NativeFile]:
        sink = pa.BufferOutputStream()
        yield sink
        self.create(location, sink.getvalue().to_pybytes())

    def _created(self, location: Location, nonce: str, data: bytes) -> bool:
        """Create an object, and return whether it is this caller's.

        A put without an answer may have happened, and may still happen. The nonce in the object's metadata shows what
        happened: if the object has this nonce, the put succeeded; if it has another one, somebody else came first; if
        there is no object, another put with the same nonce is safe.

        Raises:
            StoreUnreachable: the outcome is still unknown after all attempts.
        """

        def settle(is_taken: bool) -> bool | None:
            if is_taken and not self._is_remote:
                return False
            with suppress(StoreUnreachable):
                owner = self._owner_of(location)
                if owner is not None:
                    return owner == nonce
            return None

        return self._put_repeatedly(location, nonce, data, settle)

    def _put_repeatedly(
        self, location: Location, nonce: str, data: bytes, settle: Callable[[bool], bool | None]
    ) -> bool:
        """Try to put an object, if its name is free, until the outcome is known; return whether this caller created it.

        A warning says that another attempt begins, and for how long the outcome has been unknown.

        Args:
            location: the object.
            nonce: marks the attempts of this call.
            data: the contents.
            settle: is called after an attempt: it receives whether the name was taken, or False if there was no answer.
                It returns the outcome, or None for another attempt.

        Raises:
            StoreUnreachable: the outcome is still unknown after all attempts.
        """
        lost: StoreUnreachable | None = None
        begun_s = time.monotonic()
        for attempt, wait_s in enumerate(_CREATE_WAITS_S, start=1):
            if attempt > 1:
                warn_of_waiting(
                    location.root,
                    "an object store has not confirmed a write, which is tried again",
                    location=str(location),
                    attempt=attempt,
                    seconds=round(time.monotonic() - begun_s, 1),
                    reason="the object appears and disappears" if lost is None else lost.fact,
                )
            time.sleep(wait_s)
            is_taken = False
            try:
                self._put_if_absent(location, nonce, data)
                return True
            except AlreadyExistsError:
                is_taken = True
            except StoreUnreachable as error:
                lost = error
            outcome = settle(is_taken)
            if outcome is not None:
                return outcome
        raise lost or StoreBusy("an object keeps appearing and disappearing", str(location))

    def _put_if_absent(self, location: Location, nonce: str, data: bytes) -> None:
        attributes = {_NONCE: nonce} if self._is_remote else None
        try:
            obstore.put(self._store, location.path, data, mode="create", use_multipart=False, attributes=attributes)
        except AlreadyExistsError:
            raise
        except (BaseError, OSError) as error:
            if "NotImplemented" in str(error):
                raise ConditionalWritesMissing("it does not implement them", location.root) from error
            raise store_error(str(location), "write", error) from error

    def _owner_of(self, location: Location) -> str | None:
        """Return the nonce of the put that created an object, empty if it has none; None if there is no object."""
        try:
            with _errors_named(location, "read"):
                found = obstore.get(self._store, location.path, options={"head": True})
        except FileNotFoundError:
            return None
        return str(found.attributes.get(_NONCE, ""))

    @contextmanager
    def writing(self, location: Location) -> Iterator[pa.NativeFile]:
        self.check_conditional_writes(location)
        sink = pa.BufferOutputStream()
        yield sink
        with _errors_named(location, "write"):
            obstore.put(self._store, location.path, sink.getvalue().to_pybytes())

    def replace(self, location: Location, data: bytes, media_type: str | None) -> None:
        with _errors_named(location, "write"):
            obstore.put(self._store, location.path, data, attributes=_attributes(media_type))

    def update(self, location: Location, change: Callable[[bytes | None], bytes], media_type: str | None) -> object:
        """Put each change only if the object is still the one that was read.

        A put whose answer was lost may have succeeded; if it did, the same change is applied again.
        """
        self.check_conditional_writes(location)
        for attempt in range(_UPDATE_ATTEMPTS_MAX):
            time.sleep(min(_UPDATE_PAUSE_S * attempt, 1.0) * secrets.randbelow(1000) / 1000)
            tag, present = self._tag_and_data(location)
            mode: Any = "create" if tag is None else {"e_tag": tag}
            with suppress(AlreadyExistsError, PreconditionError), _errors_named(location, "write"):
                put = obstore.put(
                    self._store,
                    location.path,
                    change(present),
                    mode=mode,
                    use_multipart=False,
                    attributes=_attributes(media_type),
                )
                return put["e_tag"]
        raise StoreBusy("other writers always came first", str(location))

    def _tag_and_data(self, location: Location) -> tuple[str | None, bytes | None]:
        def ask() -> tuple[str | None, bytes]:
            found = obstore.get(self._store, location.path)
            return found.meta["e_tag"], bytes(found.bytes())

        try:
            return answered(location, "read", ask)
        except FileNotFoundError:
            return None, None

    def stamp(self, location: Location) -> object:
        try:
            with _errors_named(location, "read"):
                meta = obstore.head(self._store, location.path)
        except FileNotFoundError:
            return None
        return meta["e_tag"]

    def upload(self, source: Location, location: Location) -> None:
        self.check_conditional_writes(location)
        with _errors_named(location, "write"), open(str(source), "rb") as file:
            obstore.put(self._store, location.path, file)

    def delete(self, location: Location) -> None:
        with suppress(FileNotFoundError):
            answered(location, "delete", lambda: obstore.delete(self._store, location.path))

    def delete_all(self, locations: list[Location]) -> None:
        paths = [location.path for location in locations]
        answered(locations[0].parent, "delete", lambda: obstore.delete(self._store, paths))

    def delete_folder(self, folder: Location) -> None:
        paths = [blob.location.path for blob in self.list_blobs(folder, "")]
        if paths:
            answered(folder, "delete", lambda: obstore.delete(self._store, paths))

    def set_aside(self, location: Location, aside: Location) -> None:
        self.create(aside, self.read(location))
        self.delete(location)

    def exists(self, location: Location) -> bool:
        try:
            with _errors_named(location, "read"):
                obstore.head(self._store, location.path)
        except FileNotFoundError:
            return False
        return True

    def absent(self, folder: Location, locations: Sequence[Location]) -> list[Location]:
        """List in pages, each from the first blob not yet looked for: names between distant blobs are skipped."""
        left, unseen = sorted({location.path for location in locations}, reverse=True), set[str]()

        def ask() -> list[str]:
            chunks = obstore.list(self._store, folder.path or None, offset=left[-1][:-1])
            paths = (meta["path"] for chunk in chunks for meta in chunk)
            return list(takewhile(left[0].__ge__, islice(paths, _PAGE)))

        while left:
            page = answered(folder, "list", ask)
            end, shown = max(page[-1], left[-1]) if len(page) == _PAGE else left[0], set(page)
            while left and left[-1] <= end:
                path = left.pop()
                if path not in shown:
                    unseen.add(path)
        # If the store does not sort its names, a page has not shown everything.
        return [location for location in locations if location.path in unseen and not self.exists(location)]

    def is_folder(self, folder: Location) -> bool:
        return True

    def is_empty(self, folder: Location) -> bool:
        return answered(folder, "list", lambda: not next(iter(obstore.list(self._store, folder.path or None)), ()))

    def make_folder(self, folder: Location) -> None:
        pass

    def list_names(self, folder: Location) -> list[str]:
        listing = self.list_folder(folder, hidden=True)
        return [*(blob.location.name for blob in listing.blobs), *(below.name for below in listing.folders)]

    def list_folder(self, folder: Location, hidden: bool) -> Listing:
        listed = answered(folder, "list", lambda: obstore.list_with_delimiter(self._store, folder.path or None))
        blobs = [_blob_of(folder, meta) for meta in listed["objects"] if meta["path"] != folder.path]
        folders = [Location(folder.root, path, folder.is_read_only) for path in listed["common_prefixes"]]
        return Listing(
            sorted((blob for blob in blobs if hidden or not _is_hidden(blob.location)), key=lambda blob: blob.location),
            sorted(below for below in folders if hidden or not _is_hidden(below)),
        )

    def list_names_after(self, folder: Location, after: str) -> list[str]:
        return [blob.location.below(folder) for blob in self.list_blobs(folder, after)]

    def list_names_in_turn(self, folder: Location, first: str, second: str) -> tuple[list[str], list[str]]:
        """Read one listing up to the end of the second folder; a remote store sorts it, so no later page has more."""
        begin, last = (folder / first).path, (folder / second).path

        def ask() -> tuple[list[str], list[str]]:
            found: dict[str, list[str]] = {begin: [], last: []}
            chunks = obstore.list(self._store, folder.path or None, offset=begin)
            for path in (meta["path"] for chunk in chunks for meta in chunk):
                above, _, name = path.rpartition("/")
                if above in found:
                    found[above].append(name)
                elif self._is_remote and path > f"{last}/" and not path.startswith(f"{last}/"):
                    break
            return found[begin], found[last]

        return answered(folder, "list", ask)

    def list_blobs(self, folder: Location, after: str) -> list[Blob]:
        offset = (f"{folder.path}/{after}" if folder.path else after) if after else None

        def ask() -> list[ObjectMeta]:
            return [meta for chunk in obstore.list(self._store, folder.path or None, offset=offset) for meta in chunk]

        listed = answered(folder, "list", ask)
        return [_blob_of(folder, meta) for meta in listed if meta["path"] != folder.path]

    def make_durable(self, location: Location) -> None:
        pass

    def make_names_durable(self, folder: Location) -> None:
        pass

    @contextmanager
    def turn(self, folder: Location, wait_s: float, needs_s: float) -> Iterator[Callable[[], bool]]:
        yield lambda: False

    def is_turn_taken(self, folder: Location) -> bool:
        return False

    def now_s(self, folder: Location) -> float:
        """Write a blob and read its modification time: the store's clock may differ from this machine's."""
        probe = folder / f"{UNFINISHED}{secrets.token_hex(16)}"
        with _errors_named(probe, "write"):
            obstore.put(self._store, probe.path, b"")
        try:
            with _errors_named(probe, "read"):
                return obstore.head(self._store, probe.path)["last_modified"].timestamp()
        finally:
            self.delete(probe)

    def last_change_s(self, folder: Location) -> float:
        return max((blob.changed_s for blob in self.list_blobs(folder, "")), default=math.inf)

    def renew(self, folder: Location) -> None:
        with _errors_named(folder, "write"):
            obstore.put(self._store, (folder / "_renewed").path, b"")


class _Ranges(io.RawIOBase):
    """A blob as a file; each read requests one range."""

    def __init__(self, store: ObjectStore, location: Location, size: int | None = None) -> None:
        self._store, self._location, self._at = store, location, 0
        if size is None:
            with _errors_named(location, "read"):
                size = obstore.head(store, location.path)["size"]
        self._size: int = size

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
        with _errors_named(self._location, "read"):
            buffer[:length] = obstore.get_range(self._store, self._location.path, start=self._at, length=length)
        self._at += length
        return length


def answered(location: Location, access: str, ask: Callable[[], T]) -> T:
    """Send a request, which must be safe to repeat, and repeat it a few times if its response is cut.

    Errors are those of `_errors_named`.
    """
    begun_s, waits_s = time.monotonic(), iter(_CUT_WAITS_S)
    while True:
        try:
            with _errors_named(location, access):
                return ask()
        except StoreUnreachable as error:
            wait_s = next(waits_s, None)
            if _CUT not in error.fact or wait_s is None or time.monotonic() - begun_s > _CUT_MAX_S:
                raise
        time.sleep(wait_s)


@contextmanager
def _errors_named(location: Location, access: str) -> Iterator[None]:
    """Raise an obstore error as Tidelake's own, and an absent object as `FileNotFoundError`."""
    try:
        yield
    except FileNotFoundError as error:
        if is_bucket_missing(error):
            raise store_error(str(location), access, error) from error
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(location)) from error
    except (AlreadyExistsError, PreconditionError):  # the store's answer to a conditional put
        raise
    except (BaseError, OSError) as error:
        raise store_error(str(location), access, error) from error


def _attributes(media_type: str | None) -> dict[str, str] | None:
    return None if media_type is None else {"Content-Type": media_type}


def _blob_of(folder: Location, meta: ObjectMeta) -> Blob:
    changed, location = meta["last_modified"].timestamp(), Location(folder.root, meta["path"], folder.is_read_only)
    return Blob(location, meta["size"], changed, meta["e_tag"] or (meta["size"], changed))


def _is_hidden(location: Location) -> bool:
    return location.name.startswith(HIDDEN)
