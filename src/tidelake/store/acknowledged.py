"""Markers state which entries and checkpoints of a table's log were acknowledged.

`_acked/<version>-<SHA-256 of the entry>.json` holds a copy of the entry. The copy is durable before the commit returns.
So an entry that is missing or differs from its marker is damage, and can be restored from the copy; only an entry
without a marker may be torn. `_acked/<version>-<SHA-256 of the checkpoint>.checkpoint` is empty: what a checkpoint
holds can be recomputed from the entries, which stay until there are two later checkpoints. See
docs/decisions/acknowledged.md.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256

from tidelake.errors import DamagedLog
from tidelake.storage import blobs
from tidelake.storage.location import Location

ACKED = "_acked"
_NAME = re.compile(r"([0-9]{20})-([0-9a-f]{64})\.(json|checkpoint)")
_NAMES = re.compile(rf"(?:\A|\0){_NAME.pattern}(?=\0|\Z)")
"""Finds all names of markers in a text in which null characters separate names."""


@dataclass(frozen=True)
class Markers:
    """The markers of a table, by version."""

    entries: dict[int, str] = field(default_factory=dict)
    """The SHA-256 of each entry."""
    checkpoints: dict[int, set[str]] = field(default_factory=lambda: defaultdict(set))
    """The SHA-256 of each checkpoint; a version has several if processes wrote the same state as different bytes."""

    @property
    def newest(self) -> int:
        """The newest acknowledged version, or -1."""
        return max(self.entries, default=-1)


def read_markers(path: Location, first: int = 0) -> Markers:
    """List the markers of a table, starting at a version.

    Raises:
        DamagedLog: a version was acknowledged twice, with different entries.
    """
    return markers_named(path, _list_names(path, first))


def markers_named(path: Location, names: Iterable[str]) -> Markers:
    """Return the markers of a table, given the names in the folder `ACKED`; raises what `read_markers` raises."""
    found = _find_names(names)
    entries = {int(version): digest for version, digest, kind in found if kind == "json"}
    markers = Markers(entries)
    for version, digest, kind in found if len(entries) < len(found) else ():
        if kind == "checkpoint":
            markers.checkpoints[int(version)].add(digest)
        elif entries[int(version)] != digest:
            raise DamagedLog(str(path), f"version {int(version)} was acknowledged twice, with different entries")
    return markers


def entry_markers(path: Location) -> dict[int, set[str]]:
    """Return, by version, the SHA-256 in the name of each marker of an entry, even if the marker is damaged."""
    digests: dict[int, set[str]] = defaultdict(set)
    for version, digest, kind in _find_names(_list_names(path)):
        if kind == "json":
            digests[int(version)].add(digest)
    return dict(digests)


def entry_marker(path: Location, version: int, digest: str) -> Location:
    """Return the location of the marker of an entry."""
    return path / ACKED / f"{version:020d}-{digest}.json"


def checkpoint_marker(path: Location, version: int, digest: str) -> Location:
    """Return the location of the marker of a checkpoint."""
    return path / ACKED / f"{version:020d}-{digest}.checkpoint"


def acknowledge_entry(path: Location, version: int, text: bytes) -> str:
    """Durably record that an entry, which is already durable, was acknowledged; return its SHA-256."""
    digest = digest_of(text)
    _mark(path, entry_marker(path, version, digest), text)
    return digest


def acknowledge_checkpoint(path: Location, version: int, digest: str) -> None:
    """Durably record that a checkpoint agrees with the entries that it covers."""
    _mark(path, checkpoint_marker(path, version, digest), b"")


def forget_before(path: Location, version: int) -> None:
    """Delete the markers of all earlier versions, oldest first: a gap between markers would count as damage."""
    names = sorted(blobs.list_names(path / ACKED))
    matches = [match for name in names if (match := _NAME.fullmatch(name)) is not None]
    blobs.delete_all(path / ACKED / match[0] for match in matches if int(match[1]) < version)


def digest_of(data: bytes) -> str:
    """Return the SHA-256 of a blob, in hexadecimal digits."""
    return sha256(data).hexdigest()


def _list_names(path: Location, first: int = 0) -> list[str]:
    folder = path / ACKED
    return blobs.list_names_after(folder, f"{first:020d}") if first else blobs.list_names(folder)


def _find_names(listed: Iterable[str]) -> list[tuple[str, str, str]]:
    """Return the version, the SHA-256 and the kind of each marker."""
    # A single search over all names takes a third of the time of one search per name.
    return _NAMES.findall("\0".join(listed))


def _mark(path: Location, marker: Location, text: bytes) -> None:
    is_first = not blobs.is_folder(path / ACKED)
    with suppress(FileExistsError):  # another process has already acknowledged it
        blobs.create(marker, text)
    blobs.make_names_durable([path / ACKED, path] if is_first else [path / ACKED])
