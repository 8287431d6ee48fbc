"""Writes the files of a report, which others may be reading or writing."""

from __future__ import annotations

import secrets
from pathlib import Path


def replace_text(path: Path, text: str) -> None:
    """Replace a file atomically. Each call has an unfinished file of its own, so that calls need no lock.

    Raises:
        OSError: the file cannot be written; it is unchanged.
    """
    unfinished = path.with_name(f".{path.name}.{secrets.token_hex(8)}.unfinished")
    try:
        unfinished.write_text(text, encoding="utf-8", errors="backslashreplace")
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
