"""The place of a folder on this machine: a path, or a `file:` URI. Places in object stores are in `object_store`."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(?=//)|(file):")


def scheme_of(text: str) -> str | None:
    """Return the scheme of a URI in lower case; None if the text is a path.

    >>> scheme_of("S3://bucket/lake"), scheme_of("file:lake"), scheme_of("data:/x"), scheme_of("s3:bucket")
    ('s3', 'file', None, None)
    """
    scheme = _SCHEME.match(text)
    return None if scheme is None else (scheme[1] or scheme[2]).lower()


def folder_of(text: str, base: Path) -> Path:
    """Return the folder that a path or a `file:` URI names; a relative path starts at `base`.

    Raises:
        ValueError: the URI has a different scheme, or is not an absolute path on this machine; the message says which.

    >>> folder_of("data/store", Path("/lake")), folder_of("file:///data/my%20store", Path("/lake"))
    (PosixPath('/lake/data/store'), PosixPath('/data/my store'))
    """
    scheme = scheme_of(text)
    if scheme is None:
        return base / text
    if scheme != "file":
        raise ValueError(f"is a URI with the scheme '{scheme}', but only 'file' is supported")
    parts = urlsplit(text)
    path = unquote(parts.path)
    if parts.netloc not in ("", "localhost") or not path.startswith("/") or parts.query or parts.fragment:
        raise ValueError("is not the URI of an absolute path on this machine, such as file:///data/store")
    if not path.isprintable():
        raise ValueError("names a path with control characters")
    return Path(path)
