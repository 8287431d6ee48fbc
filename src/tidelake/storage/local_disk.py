"""The backend of `blobs` for a local disk: fsync, hard links and atomic moves make files as safe as objects."""
# ruff: noqa: D102

from __future__ import annotations

import errno
import fcntl
import math
import os
import secrets
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import BinaryIO, Literal

import pyarrow as pa

from tidelake.storage.location import HIDDEN, UNFINISHED, Blob, Listing, Location

_CREATE_ATTEMPTS_MAX = 16
_LOOK_AGAIN_S = 0.005
"""How often a caller checks whether it is its turn."""
_NEEDED_S_MAX = 30.0
"""The longest time that a caller can ask for."""


class LocalDisk:
    """The local disk; `blobs` documents each method.

    It uses plain system calls. obstore's local store takes 41 µs to read a small file instead of 9, never syncs, and
    rejects names that could be those of its own temporary files.
    """

    def read(self, location: Location, bytes_max: int | None = None) -> bytes:
        # Opening a pipe would wait for a writer.
        with open(os.open(str(location), os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            status = os.fstat(file.fileno())
            if stat.S_ISFIFO(status.st_mode):
                raise OSError(errno.EINVAL, "not a regular file", str(location))
            if bytes_max is not None and status.st_size > bytes_max:
                raise ValueError(f"{location} has {status.st_size} bytes, more than {bytes_max}")
            return file.read()

    def open_file(self, location: Location, size: int | None) -> pa.NativeFile:
        return pa.OSFile(str(location))

    def open_stream(self, location: Location) -> BinaryIO:
        return open(str(location), "rb")

    def create(self, location: Location, data: bytes) -> None:
        """Write to another name, sync, and link. If there are several callers, the link succeeds for exactly one."""
        path = location.local
        path.parent.mkdir(parents=True, exist_ok=True)
        for attempts_left in reversed(range(_CREATE_ATTEMPTS_MAX)):
            unfinished = path.with_name(f"{UNFINISHED}{secrets.token_hex(16)}")
            try:
                with open(unfinished, "xb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                os.link(unfinished, path)
                return
            except FileNotFoundError:  # a sweep whose clock is ahead deleted the file
                if not attempts_left:
                    raise
            finally:
                unfinished.unlink(missing_ok=True)

    def ensure(self, location: Location, data: bytes) -> bool:
        if self.exists(location):
            return False
        with suppress(FileExistsError):
            self.create(location, data)
        return True

    @contextmanager
    def creating(self, location: Location) -> Iterator[pa.NativeFile]:
        path = location.local
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_name(f"{UNFINISHED}{secrets.token_hex(16)}")
        try:
            with pa.OSFile(str(unfinished), "wb") as file:
                yield file
            _sync(str(unfinished))
            os.link(unfinished, path)
        finally:
            unfinished.unlink(missing_ok=True)

    def replace(self, location: Location, data: bytes, media_type: str | None) -> None:
        """Each call has an unfinished file of its own, so that calls need no lock."""
        path = location.local
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_name(f".{path.name}.{secrets.token_hex(8)}.unfinished")
        try:
            unfinished.write_bytes(data)
            unfinished.replace(path)
        finally:
            unfinished.unlink(missing_ok=True)

    def update(
        self, location: Location, change: Callable[[bytes | None], bytes], media_type: str | None
    ) -> tuple[int, int]:
        """Processes wait for each other by locking a file in the folder."""
        location.local.parent.mkdir(parents=True, exist_ok=True)
        with (location.local.parent / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            try:
                present = self.read(location)
            except FileNotFoundError:
                present = None
            self.replace(location, change(present), media_type)
            changed = self.stamp(location)
            assert changed is not None
            return changed

    def stamp(self, location: Location) -> tuple[int, int] | None:
        try:
            status = location.local.stat()
        except FileNotFoundError:
            return None
        return status.st_size, status.st_mtime_ns

    @contextmanager
    def writing(self, location: Location) -> Iterator[pa.NativeFile]:
        path = location.local
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_name(f"_{path.name}")  # hidden from readers
        try:
            with pa.OSFile(str(unfinished), "wb") as file:
                yield file
            os.replace(unfinished, path)
        except BaseException:
            unfinished.unlink(missing_ok=True)
            raise

    def upload(self, source: Location, location: Location) -> None:
        with self.writing(location) as sink, open(str(source), "rb") as file:
            shutil.copyfileobj(file, sink)

    @contextmanager
    def scratch_folder(self) -> Iterator[Location]:
        with tempfile.TemporaryDirectory(prefix="tidelake-") as folder:
            yield Location(folder)

    def delete(self, location: Location) -> None:
        with suppress(FileNotFoundError):
            os.unlink(str(location))

    def delete_folder(self, folder: Location) -> None:
        if os.path.lexists(str(folder)):
            shutil.rmtree(str(folder))

    def set_aside(self, location: Location, aside: Location) -> None:
        os.replace(str(location), str(aside))

    def exists(self, location: Location) -> bool:
        return os.path.isfile(str(location))

    def absent(self, folder: Location, locations: Sequence[Location]) -> list[Location]:
        return [location for location in locations if not self.exists(location)]

    def is_folder(self, folder: Location) -> bool:
        return os.path.isdir(str(folder))

    def is_empty(self, folder: Location) -> bool:
        return not self.list_names(folder)

    def make_folder(self, folder: Location) -> None:
        os.makedirs(str(folder), exist_ok=True)

    def list_names(self, folder: Location) -> list[str]:
        try:
            return os.listdir(str(folder))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def list_folder(self, folder: Location, hidden: bool) -> Listing:
        blobs, folders, others = [], [], []
        try:
            entries = sorted(os.scandir(str(folder)), key=lambda entry: entry.name)
        except FileNotFoundError:
            entries = []
        for entry in entries:
            if not hidden and entry.name.startswith(HIDDEN):
                continue
            if entry.is_dir():
                folders.append(folder / entry.name)
                continue
            try:
                status = entry.stat()
            except FileNotFoundError:
                if entry.is_symlink():
                    raise  # a broken link; a file that was just deleted is skipped
                continue
            if stat.S_ISREG(status.st_mode):
                blobs.append(_blob_of(folder / entry.name, status))
            else:
                others.append(folder / entry.name)
        return Listing(blobs, folders, others)

    def list_names_after(self, folder: Location, after: str) -> list[str]:
        return [name for name in self.list_names(folder) if name > after]

    def list_names_in_turn(self, folder: Location, first: str, second: str) -> tuple[list[str], list[str]]:
        return self.list_names(folder / first), self.list_names(folder / second)

    def list_blobs(self, folder: Location, after: str) -> list[Blob]:
        found = self._all_blobs(folder)
        return [blob for blob in found if blob.location.below(folder) > after] if after else found

    def _all_blobs(self, folder: Location) -> list[Blob]:
        blobs, listing = [], self.list_folder(folder, hidden=True)
        for below in listing.folders:
            blobs += self._all_blobs(below)
        return blobs + listing.blobs

    def make_durable(self, location: Location) -> None:
        _sync(str(location))

    def make_names_durable(self, folder: Location) -> None:
        _sync(str(folder))
        if not folder.path:  # the store's own folder, and the one above it, may be new
            for above in folder.local.absolute().parents[:2]:
                _sync(str(above))

    @contextmanager
    def turn(self, folder: Location, wait_s: float, needs_s: float) -> Iterator[Callable[[], bool]]:
        """Lock a file in the folder; if a process is killed, its lock is released."""
        path = str(folder.local / ".turn")
        lock = _locked(path, wait_s, needs_s)
        if lock is None:
            yield lambda: False
            return
        try:
            yield lambda: _has_path(lock, path)
        finally:
            os.close(lock)

    def is_turn_taken(self, folder: Location) -> bool:
        try:
            with open(folder.local / ".turn") as lock:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:  # nobody has ever taken a turn, or this file system has no locks
            return False
        return False

    def now_s(self, folder: Location) -> float:
        """Write a file and read its modification time: a shared disk may have a clock of its own."""
        probe = folder.local / f"{UNFINISHED}{secrets.token_hex(16)}"
        try:
            probe.parent.mkdir(parents=True, exist_ok=True)
            with open(probe, "xb") as file:
                return os.fstat(file.fileno()).st_mtime
        finally:
            probe.unlink(missing_ok=True)

    def last_change_s(self, folder: Location) -> float:
        path = folder.local
        try:
            return max([path.stat().st_mtime, *(below.stat().st_mtime for below in path.rglob("*"))])
        except FileNotFoundError:  # a writer is changing it
            return math.inf

    def renew(self, folder: Location) -> None:
        os.utime(str(folder))


def _blob_of(location: Location, status: os.stat_result) -> Blob:
    return Blob(location, status.st_size, status.st_mtime, (status.st_size, status.st_mtime_ns))


def _locked(path: str, wait_s: float, needs_s: float) -> int | None:
    """Lock the file of turns, and return its descriptor; None if that took too long or is impossible."""
    while True:
        try:
            lock = _open_lock(path)
        except OSError:
            return None
        outcome = _lock(lock, wait_s)
        if outcome == "locked" and _has_path(lock, path):
            until_s = time.time() + min(needs_s, _NEEDED_S_MAX)
            with suppress(OSError):
                os.utime(lock, (until_s, until_s))  # waiting callers see that a turn has begun, and how long it needs
            return lock
        if outcome == "late" and _has_path(lock, path):
            with suppress(OSError):
                os.unlink(path)  # so that nobody else waits for a turn that takes too long
        os.close(lock)
        if outcome != "locked":
            return None


def _open_lock(path: str) -> int:
    try:  # some file systems lock only files that are open for writing
        return os.open(path, os.O_CREAT | os.O_RDWR, 0o666)
    except PermissionError:  # another user's file
        return os.open(path, os.O_RDONLY)


def _lock(descriptor: int, wait_s: float) -> Literal["locked", "late", "impossible"]:
    """Try to lock a file, and return the outcome; a locked file stays locked until it is closed."""
    seen, limit = None, time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if seen != (seen := os.fstat(descriptor).st_mtime):  # another caller's turn has begun
                limit = time.monotonic() + wait_s + min(max(seen - time.time(), 0.0), _NEEDED_S_MAX)
            if time.monotonic() >= limit:
                return "late"
        except OSError:  # this file system has no locks
            return "impossible"
        else:
            return "locked"
        time.sleep(_LOOK_AGAIN_S)


def _has_path(descriptor: int, path: str) -> bool:
    """Return whether an open file still has its path."""
    try:
        return os.stat(path).st_ino == os.fstat(descriptor).st_ino
    except OSError:
        return False


def _sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def is_failed_write(error: Exception) -> bool:
    """Return whether an error means that a write was refused, not a read."""
    if not isinstance(error, OSError):
        return False
    if error.errno in (errno.EROFS, errno.ENOSPC, errno.EDQUOT):
        return True
    if error.errno not in (errno.EACCES, errno.EPERM) or not isinstance(error.filename, str):
        return False
    try:
        os.stat(error.filename)
    except FileNotFoundError:
        return True  # the file was about to be created
    except OSError:
        return False
    return os.access(error.filename, os.R_OK)
