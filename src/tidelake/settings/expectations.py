"""Reads a collection's own expectations, and checks them against a generated list of Great Expectations' types.

Importing the library takes seconds, so the settings do not import it: `expectation_types.json` has its types and their
arguments, and a test compares the list with the installed library.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal

from tidelake.settings.block import Block, Frozen

TYPES_FILE = Path(__file__).with_name("expectation_types.json")
_OURS = ("type", "name", "blocking", "severity", "description")
_NAME = re.compile(r"[a-z][a-z0-9_]{0,99}")
_COLUMNS = ("column", "column_A", "column_B", "column_list")
"""The arguments whose values must be columns of the table. The values of other arguments are not checked."""
_TEXT_MAX = 200
_TYPES = "see docs/reports.md, and the list of the library's expectations"

Severity = Literal["critical", "warning"]


class OwnExpectation(Frozen):
    """An expectation about the contents just before upper, as a user has written it."""

    name: str
    """The name of its check; unique in its collection."""
    type: str
    """The library's name for the expectation, in snake case."""
    arguments: dict[str, Any]
    blocking: bool = False
    """Whether downstream assets stop if it is not met."""
    severity: Severity = "critical"
    text: str
    """The expectation, as part of a sentence."""
    place: str
    """The file and line, for errors that only the library can find."""
    field: str


@cache
def known_types() -> dict[str, dict[str, list[str]]]:
    """Return the arguments of each type: `all` of them, and those that are `required`."""
    table: dict[str, dict[str, list[str]]] = json.loads(TYPES_FILE.read_text(encoding="utf-8"))["types"]
    return table


def read_expectations(block: Block, columns: Sequence[str], taken: Collection[str]) -> tuple[OwnExpectation, ...]:
    """Read the list of a collection's expectations.

    Args:
        block: the list, which may be missing.
        columns: the columns of the contents; empty if they come from the source and are not known yet.
        taken: the names of checks that every collection of this kind has.

    Raises:
        ConfigurationError: a type, an argument or a column is unknown, an argument is missing, or a name is taken. The
            error names the file, the line and the fix.
    """
    if block.value is None:
        return ()
    if not isinstance(block.value, list):
        block.fail("is not a list", "write `- type: expect_…` on a line of its own for each expectation")
    own: dict[str, OwnExpectation] = {}
    for index in range(len(block.value)):
        place = block.child(index)
        expectation = _read_expectation(place, columns)
        if expectation.name in taken:
            place.fail(f"has the name of another check: {expectation.name}", "give it another `name`")
        if expectation.name in own:
            place.fail(f"has the same name as another expectation: {expectation.name}", "give one of them a `name`")
        own[expectation.name] = expectation
    return tuple(own.values())


def _read_expectation(place: Block, columns: Sequence[str]) -> OwnExpectation:
    if not isinstance(place.value, dict) or not isinstance(place.get("type"), str):
        place.fail("names no type", "write `type: expect_…`; docs/reports.md shows an example")
    kind: str = place.value["type"]
    known = known_types()
    if kind not in known:
        place.child("type").fail(f"is not a type of expectation: '{kind}'", _nearest(kind, known))
    for name in place.value:
        if name not in _OURS and name not in known[kind]["all"]:
            allowed = [*known[kind]["all"], *_OURS[1:]]
            place.child(name).fail(f"is not an argument of {kind}", _nearest(str(name), allowed))
    for name in known[kind]["required"]:
        if name not in place:
            place.child(name).fail(f"is missing: {kind} needs it", "give the argument")
    arguments = {name: value for name, value in place.value.items() if name not in _OURS}
    for name in _COLUMNS:
        if name in arguments and columns:
            _check_columns(place.child(name), columns)
    name = place.get("name", _name_of(kind, arguments))
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        place.child("name").fail(
            f"is not a name: {name!r}", "use at most 100 lower-case letters, digits and _, starting with a letter"
        )
    values = {part: place.get(part) for part in ("blocking", "severity") if part in place}
    text = place.get("description", _text_of(kind, arguments))
    if not isinstance(text, str) or not text.strip():
        place.child("description").fail("is not text", "say in a few words what is expected, or leave it out")
    where = str(place.file) if place.line is None else f"{place.file}, line {place.line}"
    values |= {"name": name, "type": kind, "arguments": arguments, "text": text, "place": where, "field": place.field}
    read = place.validate(OwnExpectation, values, "see docs/reports.md")
    if read.blocking and read.severity == "warning":
        place.child("blocking").fail("is true, but a warning never blocks", "leave out `blocking` or `severity`")
    return read


def _check_columns(place: Block, columns: Sequence[str]) -> None:
    named = place.value if isinstance(place.value, list) else [place.value]
    some = f"the table has {len(columns):,} columns, such as {', '.join(columns[:3])}"
    for name in named:
        if name not in columns:
            place.fail(f"is not a column of the table: {name!r}", _nearest(str(name), columns, some))


def _nearest(name: str, names: Collection[str], reference: str = _TYPES) -> str:
    """Return a hint with the nearest names; if none is near, with all names, or with `reference` if they are many."""
    from difflib import get_close_matches

    near = get_close_matches(name, names, n=3, cutoff=0.5)
    if near:
        return f"did you mean {' or '.join(near)}?"
    if len(names) <= 20:
        return f"use one of: {', '.join(names)}"
    return reference


def _name_of(kind: str, arguments: dict[str, Any]) -> str:
    """Name a check after the columns and the type, so that its name stays the same if its other arguments change.

    >>> _name_of("expect_column_values_to_not_be_null", {"column": "Order ID"})
    'order_id_values_to_not_be_null'
    >>> _name_of("expect_table_row_count_to_be_between", {"min_value": 1})
    'table_row_count_to_be_between'
    """
    rest = kind.removeprefix("expect_")
    named = [arguments[name] for name in _COLUMNS if name in arguments]
    parts = [str(name) for value in named for name in (value if isinstance(value, list) else [value])]
    if parts:
        rest = re.sub(r"^(?:column_pair|multicolumn|select_column|compound_columns|column)_", "", rest)
    text = re.sub(r"[^a-z0-9]+", "_", "_".join([*parts, rest]).lower()).strip("_")[:100]
    return text if text[:1].isalpha() else f"check_{text}"[:100]


def _text_of(kind: str, arguments: dict[str, Any]) -> str:
    """Return the expectation in words.

    >>> _text_of("expect_column_values_to_be_between", {"column": "price", "min_value": 0})
    "column values to be between: column 'price', min_value 0"
    """
    stated = ", ".join(f"{name} {value!r}" for name, value in arguments.items())
    text = f"{kind.removeprefix('expect_').replace('_', ' ')}{f': {stated}' if stated else ''}"
    return text if len(text) <= _TEXT_MAX else f"{text[:_TEXT_MAX]}…"
