"""Checks embedded Connect schemas against the collection's column types.

A topic has a handful of schemas over the years. The table's log caches the hashes of those that agree, so a tick only
checks that each message has one of them. A tick that finds a new schema parses it before it commits.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pyspark.sql import DataFrame

from tidelake.errors import SchemaRefused
from tidelake.ingest.message_schemas import schemas_of
from tidelake.schema.connect import WireType
from tidelake.schema.connect_agreement import can_read_key, differing_wire_types
from tidelake.schema.evolution import Record
from tidelake.store.commit import OpenTable

_KNOWN_MAX = 20
"""Maximum number of known schemas whose lengths are used: each message is compared with them one by one."""
_AGREED_MAX = 100
"""Maximum number of schemas to cache, far more than a topic should have."""


@dataclass(frozen=True)
class JudgedSchemas:
    """The schemas of messages by their hash, and the consequences for their messages; see `ChangeShape`."""

    agreed: tuple[int, ...] = ()
    """Schemas that agree with the collection's types, in the order of their arrival."""
    refused: Mapping[int, str] = field(default_factory=dict)
    unreadable_keys: frozenset[int] = frozenset()
    written: Mapping[int, Mapping[str, WireType]] = field(default_factory=dict)
    lengths: Mapping[int, int] = field(default_factory=dict)
    """The number of bytes before the payload, for the newest of the schemas that precede their payloads."""
    complete: bool = False
    """Whether the schemas of all messages of the tick were judged."""


def judge_schemas(raw: DataFrame, row: Record, key: Sequence[str], known: JudgedSchemas) -> JudgedSchemas:
    """Compare each schema of a tick's messages with the collection's row.

    Args:
        raw: the records; see `schemas_of`.
        row: the columns, with Connect's type names.
        key: the key's columns.
        known: the schemas that are known to agree.
    """
    agreed, refused, unreadable, written = list(known.agreed), {}, set(), {}
    lengths = dict(known.lengths)
    for message in schemas_of(raw):
        if message.length:
            lengths[message.hashed] = message.length
        if message.hashed in agreed:
            continue
        try:
            differing = differing_wire_types(row, message.schema)
            if differing:
                written[message.hashed] = differing
            else:
                agreed.append(message.hashed)
        except SchemaRefused as error:
            refused[message.hashed] = f"its schema does not fit the collection: {error.fact}"
            if not can_read_key(row, key, message.schema):
                unreadable.add(message.hashed)
    return JudgedSchemas(tuple(agreed), refused, frozenset(unreadable), written, _newest(lengths), complete=True)


def _newest(lengths: Mapping[int, int]) -> dict[int, int]:
    return dict(list(lengths.items())[-_KNOWN_MAX:])


def cached_schemas(table: OpenTable, row: Record, key: Sequence[str]) -> tuple[JudgedSchemas, bool]:
    """Read the schemas that earlier ticks cached, and whether those ticks also found a schema that did not agree."""
    name = _value_name(row, key)
    count = table.value(f"{name}/count") or 0
    agreed = table.values(f"{name}/", map(str, range(count)))
    lengths = {agreed[place]: length for place, length in table.values(f"{name}/length/", agreed).items() if length}
    return JudgedSchemas(tuple(agreed.values()), lengths=_newest(lengths)), table.value(f"{name}/others") == 1


def values_of_judged(table: OpenTable, row: Record, key: Sequence[str], judged: JudgedSchemas) -> dict[str, int]:
    """Return the values that a commit stores for the next tick."""
    if not judged.complete:
        return {}
    name = _value_name(row, key)
    values: dict[str, int] = {}
    agreed = judged.agreed[:_AGREED_MAX]
    for place in range(table.value(f"{name}/count") or 0, len(agreed)):
        values |= {f"{name}/{place}": agreed[place], f"{name}/count": place + 1}
        values[f"{name}/length/{place}"] = judged.lengths.get(agreed[place], 0)
    if judged.refused or judged.written:
        values[f"{name}/others"] = 1
    return values


def _value_name(row: Record, key: Sequence[str]) -> str:
    """Return the prefix of the names under which the table's log caches the schemas for these columns."""
    columns = json.dumps([row, key], sort_keys=True)
    return f"schemas/{hashlib.blake2b(columns.encode(), digest_size=6).hexdigest()}"
