"""Remembers data files in object stores: the files that this process has put, and the bytes of small ones.

An object store verifies the SHA-256 of the bytes that it gets, and shows an object to everybody once it has answered.
So the answer to a put proves that the file exists with these bytes, and a commit need not read it back. A file's digest
is in the log, so bytes that were once read or put can be verified without another request.
"""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import NamedTuple

import pyarrow as pa

from tidelake.storage.location import Location

_PUTS_MAX = 4096
_BYTES_MAX = 32 << 20
"""The total size of the files whose bytes are remembered. The least recently used ones are forgotten."""


class Put(NamedTuple):
    """A file as it was put."""

    size: int
    digest: str
    """See `RunFile.digest`."""
    rows: int
    schema: pa.Schema


_lock = Lock()
_puts: OrderedDict[Location, Put] = OrderedDict()
_small: OrderedDict[Location, tuple[str, bytes]] = OrderedDict()
_small_bytes = 0


def note_put(location: Location, put: Put) -> None:
    """Remember a file that the store has acknowledged."""
    with _lock:
        _puts[location] = put
        _puts.move_to_end(location)
        while len(_puts) > _PUTS_MAX:
            _puts.popitem(last=False)


def put_of(location: Location) -> Put | None:
    """Return the file that this process has put at a location; None if there is none, or if it was forgotten."""
    with _lock:
        return _puts.get(location)


def note_bytes(location: Location, digest: str, data: bytes) -> None:
    """Remember the bytes of a small file, which have this SHA-256."""
    global _small_bytes
    with _lock:
        _, before = _small.pop(location, ("", b""))
        _small[location] = digest, data
        _small_bytes += len(data) - len(before)
        while _small_bytes > _BYTES_MAX:
            _, (_, dropped) = _small.popitem(last=False)
            _small_bytes -= len(dropped)


def bytes_of(location: Location, digest: str | None) -> bytes | None:
    """Return the bytes of a small file that have this SHA-256; None if this process does not remember them."""
    with _lock:
        found = _small.get(location)
        if found is None or found[0] != digest:
            return None
        _small.move_to_end(location)
        return found[1]


def forget_files() -> None:
    """Forget all files, like a new process."""
    global _small_bytes
    with _lock:
        _puts.clear()
        _small.clear()
        _small_bytes = 0
