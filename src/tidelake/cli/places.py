"""Places on the command line: a folder on this machine, or the URI of a folder in an object store."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from tidelake.errors import OptionRefused

if TYPE_CHECKING:
    from tidelake.settings.object_store import FolderPlace, ObjectStores


def place_of(text: str, object_stores: ObjectStores | None = None) -> FolderPlace:
    """Parse a place given on the command line; a path is relative to the working directory.

    Args:
        text: a path, or a `file:` or `s3:` URI.
        object_stores: how object stores are reached; by default, as the environment says.

    Raises:
        OptionRefused: the URI is invalid, or the object store is not supported.
    """
    from tidelake.settings.object_store import ObjectStores

    from_settings = object_stores is not None
    return (object_stores or ObjectStores()).place(text, Path(), partial(_refuse, text), from_settings)


def check_local(option: str, text: str) -> None:
    """Refuse a URI for a folder that must be on this machine: it would be mistaken for the folder's name.

    Raises:
        OptionRefused: the text is a URI.
    """
    from tidelake.settings.place import scheme_of

    if scheme_of(text) is not None:
        raise OptionRefused(f"{option} '{text}' is a URI, but must be a folder on this machine", "give a path")


def _refuse(text: str, problem: str, fix: str) -> NoReturn:
    raise OptionRefused(f"'{text}' {problem}", fix)
