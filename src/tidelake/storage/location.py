"""Locations of blobs and folders, and what a listing shows of them. These are plain values; nothing is opened."""

from __future__ import annotations

from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from urllib.parse import quote

from tidelake.settings.object_store import canonical_uri
from tidelake.settings.place import folder_of

UNFINISHED = "_unfinished-"
"""Prefix of blobs and folders that are still being written. Leftovers are swept."""
HIDDEN = (".", "_")
"""Prefixes of names that readers of topics and tables skip."""
_NO_SEGMENTS = frozenset(("", ".", ".."))
"""Segments that a path must not have."""


@dataclass(frozen=True, order=True, slots=True)
class Location:
    """A place in a store. `str` returns what Spark and delta-rs open: a path if the store is local, else a URI.

    Args:
        root: the store: a local path, or a URI with `://`.
        path: the segments below the root, joined by `/`; empty for the root itself.
        is_read_only: whether `blobs` refuses to write there. Everything below inherits it; comparisons ignore it.

    >>> table = Location("/lake/store") / "c" / "7f/updates"
    >>> str(table), table.name, str(table.parent)
    ('/lake/store/c/7f/updates', 'updates', '/lake/store/c/7f')
    """

    root: str
    path: str = ""
    is_read_only: bool = field(default=False, compare=False, repr=False)

    def __truediv__(self, below: str) -> Location:
        """Go down one segment or more.

        Raises:
            ValueError: a segment is empty, `.` or `..`, or holds a NUL.
        """
        segments = below.split("/") if "/" in below else (below,)
        if not _NO_SEGMENTS.isdisjoint(segments) or "\0" in below:
            raise ValueError(f"not a path below {self}: {below!r}")
        return Location(self.root, f"{self.path}/{below}" if self.path else below, self.is_read_only)

    def __str__(self) -> str:
        """The path or URI that engines open."""
        return f"{self.root.rstrip('/')}/{self.path}" if self.path else self.root

    @property
    def name(self) -> str:
        """The last segment; for the root, the last segment of its folder or URI."""
        return (self.path or self.root.rstrip("/")).rpartition("/")[2]

    @property
    def suffix(self) -> str:
        """The ending of the name, starting with its last dot.

        >>> (Location("topics") / "t/0.jsonl.gz").suffix, (Location("topics") / ".hidden").suffix
        ('.gz', '')
        """
        stem, dot, ending = self.name.rpartition(".")
        return dot + ending if stem and ending else ""

    @property
    def parent(self) -> Location:
        """The folder that contains it.

        Raises:
            ValueError: it is the root.
        """
        if not self.path:
            raise ValueError(f"{self} is the root of its store")
        return Location(self.root, self.path.rpartition("/")[0], self.is_read_only)

    @property
    def parents(self) -> list[Location]:
        """The folders that contain it, the innermost first and the root last."""
        return [self.parent, *self.parent.parents] if self.path else []

    def below(self, folder: Location) -> str:
        """Return the path from a folder to this location.

        >>> (Location("store") / "catalog/_delta_log").below(Location("store") / "catalog")
        '_delta_log'
        """
        prefix = f"{folder.path}/" if folder.path else ""
        if self.root != folder.root or not self.path.startswith(prefix):
            raise ValueError(f"{self} is not below {folder}")
        return self.path[len(prefix) :]

    @property
    def read_only(self) -> Location:
        """The same place, to which `blobs` refuses to write.

        >>> (Location("/lake").read_only / "catalog").is_read_only
        True
        """
        return Location(self.root, self.path, True)

    @property
    def is_local(self) -> bool:
        """Whether the store is a folder on this machine."""
        return "://" not in self.root  # no normalised path contains it

    @property
    def local(self) -> Path:
        """The path on this machine.

        Raises:
            ValueError: the store is not local.
        """
        if not self.is_local:
            raise ValueError(f"{self} is not a file on this machine")
        return Path(self.root, self.path)

    @property
    def uri(self) -> str:
        """The absolute URI.

        >>> (Location("/lake") / "a b").uri, (Location("s3://bucket/lake") / "a b").uri
        ('file:///lake/a%20b', 's3://bucket/lake/a%20b')
        """
        if self.is_local:
            return self.local.resolve().as_uri()
        return f"{self.root}/{quote(self.path)}" if self.path else self.root


@dataclass(frozen=True, slots=True)
class Blob:
    """A blob as a listing shows it."""

    location: Location
    size: int
    changed_s: float
    """When it was written, in seconds since 1970 by the store's own clock."""
    stamp: object
    """Changes whenever another blob takes the name."""


@dataclass(frozen=True, slots=True)
class Listing:
    """The blobs and folders directly in a folder, sorted by name."""

    blobs: list[Blob]
    folders: list[Location]
    others: list[Location] = field(default_factory=list)
    """Pipes, sockets and devices, which only a local disk has. Nothing may open them: a pipe might never end."""


Place = Location | PathLike[str] | str
"""How a caller names a store or a topic: a path, a `file:` URI, or the URI of an object store."""


def locate(place: Place) -> Location:
    """Return the root that a path or a URI names.

    Raises:
        ValueError: a `file:` URI names another machine, or is not absolute, or the URI of an object store is invalid.

    >>> [locate(place).root for place in ("data/store/", "file:///data/my%20store", "s3://bucket//lake/")]
    ['data/store', '/data/my store', 's3://bucket/lake']
    """
    if isinstance(place, Location):
        return place
    if isinstance(place, str) and "://" in place and not place.startswith("file:"):
        return Location(canonical_uri(place) if place[:3].lower() == "s3:" else place.rstrip("/"))
    return Location(str(folder_of(place, Path()) if isinstance(place, str) else Path(place)))
