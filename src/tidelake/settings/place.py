"""The place of a store or of topics: a path, or a `file:` URI. Other URIs have no backend yet and are refused."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(?=//)|(file):")


def folder_of(text: str, base: Path) -> Path:
    """Return the folder that a path or a `file:` URI names; a relative path starts at `base`.

    Raises:
        ValueError: the URI has a different scheme, or is not an absolute path on this machine; the message says which.

    >>> folder_of("data/store", Path("/lake")), folder_of("file:///data/my%20store", Path("/lake"))
    (PosixPath('/lake/data/store'), PosixPath('/data/my store'))
    """
    scheme = _SCHEME.match(text)
    if scheme is None:
        return base / text
    if (name := (scheme[1] or scheme[2]).lower()) != "file":
        raise ValueError(f"is a URI with the scheme '{name}', but only 'file' is supported")
    parts = urlsplit(text)
    path = unquote(parts.path)
    if parts.netloc not in ("", "localhost") or not path.startswith("/") or parts.query or parts.fragment:
        raise ValueError("is not the URI of an absolute path on this machine, such as file:///data/store")
    if not path.isprintable():
        raise ValueError("names a path with control characters")
    return Path(path)
