"""Prints the output of commands: JSON for programs, tables and sentences for people."""

from __future__ import annotations

import base64
import json
import re
import sys
from typing import TYPE_CHECKING, Any

import typer

from tidelake.read.words import counted

if TYPE_CHECKING:
    from rich.console import Console

CELL_CHARACTERS_MAX = 1_000
"""Maximum length of a value in a table."""
# Lone surrogates, the marks that change the direction of text, and all control characters but line feed and tab.
_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)


def printable(text: str) -> str:
    r"""Return a text that is safe to print: control characters and marks that reverse the direction are escaped.

    Line breaks stay, because errors have a second line for the hint.

    >>> printable("a\x1b[31mb\r\u202ec\nhint: d")
    'a\\x1b[31mb\\r\\u202ec\nhint: d'
    """
    return _UNPRINTABLE.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)


def shortened(text: str, characters_max: int = CELL_CHARACTERS_MAX) -> str:
    r"""Return a text on one line, cut if it is too long.

    >>> shortened("one\ntwo"), shortened("a" * 1_000_000, 10)
    ('one\\ntwo', 'aaaaaaaaaa … (1,000,000 characters)')
    """
    cut = printable(text[:characters_max]).replace("\n", "\\n").replace("\t", "\\t")
    return cut if len(text) <= characters_max else f"{cut} … ({len(text):,} characters)"


def say(text: str) -> None:
    """Print a message for a person on standard error, separate from the output."""
    typer.echo(text, err=True)


def print_json(value: Any) -> None:
    """Print a value as JSON; bytes become `{"b64": …}`."""
    typer.echo(json.dumps(value, indent=2, default=_json_default))


def with_base64(value: Any) -> Any:
    r"""Return a JSON value in which bytes are `{"b64": …}`.

    >>> with_base64({"raw": [b"\x01"]})
    {'raw': [{'b64': 'AQ=='}]}
    """
    if isinstance(value, dict):
        return {name: with_base64(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [with_base64(inner) for inner in value]
    return {"b64": base64.b64encode(value).decode("ascii")} if isinstance(value, bytes) else value


def _json_default(value: Any) -> Any:
    if isinstance(value, bytes | bytearray):
        return {"b64": base64.b64encode(value).decode("ascii")}
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def print_rows(title: str, columns: list[str], rows: list[dict[str, Any]]) -> None:
    """Print these columns of rows as a table."""
    from rich import box
    from rich.markup import escape
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD)
    for column in columns:
        table.add_column(column, justify="right" if column in {"_diff", "offset", "partition"} else "left")
    for row in rows:
        table.add_row(*(escape(shortened(_cell(row[column]))) for column in columns))
    terminal = console()
    terminal.print(Text(shortened(title), style="italic"), soft_wrap=True)
    terminal.print(table)


def console() -> Console:
    """Return a console, wide enough for tables even if the output goes to a file or a pipe."""
    from rich.console import Console

    return Console() if sys.stdout.isatty() else Console(width=160)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bytes | bytearray):
        shown = bytes(value[:16]).hex(" ")
        return shown if len(value) <= 16 else f"{shown} … ({len(value)} bytes)"
    return _nested_cell(value) if isinstance(value, dict | list) else getattr(value, "text", str(value))


def _nested_cell(value: Any) -> str:
    """Write JSON for a person, with numbers unchanged and without escaped letters."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_nested_cell(name)}: {_nested_cell(inner)}" for name, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_nested_cell, value)) + "]"
    return getattr(value, "text", None) or json.dumps(value, default=_json_default, ensure_ascii=False)


def late_note(verdicts: dict[str, int]) -> str:
    """Return the number of late statements with each verdict, in words."""
    words = {
        "contradiction": "contradicting what was published",
        "settled": "settled by decision",
        "untold": "about times that compaction has merged",
        "late": "not compared yet",
    }
    parts = [
        counted(count, "copy") if verdict == "copy" else f"{count:,} {words[verdict]}"
        for verdict, count in verdicts.items()
        if count
    ]
    return f"late statements: {', '.join(parts) or 'none'}"
