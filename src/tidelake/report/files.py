"""The files of a report, on a disk or in an object store, which other processes may be using."""

from __future__ import annotations

from pathlib import PurePosixPath

from tidelake.settings.object_store import ObjectStorePlace
from tidelake.storage import blobs
from tidelake.storage.location import Location, Place

ReportPlace = Place | ObjectStorePlace
"""The folder of the reports, as given in the settings or by a caller."""
_MEDIA_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".ico": "image/x-icon",
    ".json": "application/json",
    ".notes": "application/json",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".woff2": "font/woff2",
}


def media_type(name: str) -> str:
    """Return the media type that a bucket stores with a report's file, so that a browser shows it.

    >>> media_type("index.html"), media_type("a.b/LICENSE")
    ('text/html; charset=utf-8', 'application/octet-stream')
    """
    return _MEDIA_TYPES.get(PurePosixPath(name).suffix, "application/octet-stream")


def text_bytes(text: str) -> bytes:
    """Return the bytes of a text; a lone surrogate, which UTF-8 cannot express, becomes an escape."""
    return text.encode("utf-8", errors="backslashreplace")


def replace_text(place: Place, text: str) -> None:
    """Replace a file atomically. Concurrent calls need no lock.

    Raises:
        OSError, StoreUnreadable: the file cannot be written; it is unchanged.
    """
    file = blobs.root_of(place)
    blobs.replace(file, text_bytes(text), media_type(file.name))


def read_text(file: Location) -> str:
    """Read a file of a report.

    Raises:
        FileNotFoundError: it is absent.
        OSError, StoreUnreadable: it cannot be read.
    """
    return blobs.read(file).decode("utf-8")


def address_of(folder: ReportPlace, path: str) -> str:
    """Return the URI of a file of a report."""
    return (blobs.root_of(folder) / path).uri
