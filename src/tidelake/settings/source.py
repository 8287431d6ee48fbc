"""Reads the settings of topics, and of the metadata and positions of their records."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from tidelake.schema.avro import resolved_schema
from tidelake.settings.block import Block

UNAVAILABLE_VALUE = "__debezium_unavailable_value"
"""Debezium's default placeholder for a value that the database did not send (`unavailable.value.placeholder`)."""
_HEADER = {
    "type": "record",
    "name": "header",
    "namespace": "tidelake",
    "fields": [{"name": "key", "type": "string"}, {"name": "value", "type": ["null", "bytes"]}],
}
METADATA: dict[str, Any] = {
    "topic": "string",
    "partition": "int",
    "offset": "long",
    "timestamp": ["null", {"type": "long", "logicalType": "timestamp-millis"}],
    "headers": ["null", {"type": "array", "items": _HEADER}],
}
"""The metadata of a record that can become columns, with the Avro type of each column."""


def read_topics(place: Block) -> tuple[Any, ...]:
    """Read the names of the topics, from a name or a list of names."""
    if place.value is None:
        place.fail("is missing", "give the name of a topic, or a list of names")
    names = place.value if isinstance(place.value, list) else [place.value]
    if not names:
        place.fail("names no topic", "give the name of a topic, or a list of names")
    for name in names:
        if not isinstance(name, str):
            place.fail(f"input should be a valid string, not {name!r}", "see docs/reference/configuration.md")
        if not name.strip() or "/" in name or name in {".", ".."} or not is_path_text(name):
            place.fail(f"is not the name of a topic: {name!r}", "give the name of a topic or folder, not a path")
    if len(set(names)) < len(names):
        place.fail("names a topic twice", "name each topic once")
    return tuple(names)


def is_path_text(value: str) -> bool:
    """Return whether a string can be used as a path: it contains no control characters and no surrogates."""
    return not any(
        ord(character) < 32 or ord(character) == 127 or 0xD800 <= ord(character) <= 0xDFFF for character in value
    )


def read_position(place: Block, of_changes: bool, envelope: str) -> tuple[str, ...]:
    """Read the fields, such as `source.pos`, that order the events of a key."""
    if place.value is None:
        return ()
    if not of_changes:
        place.fail(f"is not allowed for the envelope '{envelope}'", "only change events have a position")
    names = place.value
    if (
        not isinstance(names, list)
        or not names
        or not _are_strings(names)
        or not all(re.fullmatch(r"source\.[A-Za-z_][A-Za-z0-9_]*|ts_ms", name) for name in names)
    ):
        place.fail(
            f"does not name fields of an event: {names!r}",
            "list the fields, the most significant first: `position: [source.file, source.pos, source.row]`",
        )
    return tuple(names)


def read_metadata(place: Block) -> dict[str, str]:
    """Read which metadata becomes columns.

    The setting is a list, for columns named `kafka_offset` and so on, or a mapping from metadata to column names.
    """
    if place.value is None:
        return {}
    is_list = isinstance(place.value, list) and _are_strings(place.value)
    named = {kind: f"kafka_{kind}" for kind in place.value} if is_list else place.value
    if not isinstance(named, dict) or not _are_strings(named.values()):
        place.fail(
            "is neither a list of metadata nor a mapping from metadata to column names",
            "write `[partition, offset]`, or `{offset: kafka_position}`",
        )
    for kind in named:
        if kind not in METADATA:
            place.child(kind).fail("is not known", f"use any of: {', '.join(METADATA)}")
    return {kind: named[kind] for kind in METADATA if kind in named}


def check_metadata(place: Block, record: Mapping[str, Any], metadata: Mapping[str, str]) -> None:
    """Refuse metadata whose columns clash with other columns of the table, or with each other."""
    taken = {column["name"].lower(): column["name"] for column in record["fields"]}
    for kind, name in metadata.items():
        if name.lower() in taken:
            place.child(kind).fail(
                f"the column '{name}' clashes with the column '{taken[name.lower()]}'",
                f"choose another name: `metadata: {{{kind}: another_name}}`",
            )
        taken[name.lower()] = name
    with place.refusing("correct the names"):
        resolved_schema(with_metadata(record, metadata))


def with_metadata(record: Mapping[str, Any], metadata: Mapping[str, str]) -> dict[str, Any]:
    """Return the columns of a table: those of the data, then those of the metadata."""
    added = [{"name": name, "type": METADATA[kind]} for kind, name in metadata.items()]
    return {**record, "fields": [*record["fields"], *added]}


def _are_strings(values: Any) -> bool:
    return all(isinstance(value, str) for value in values)
