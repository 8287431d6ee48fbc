"""Whether the schemas that change events in JSON have with them say the types that the collection reads.

A topic has a handful of schemas for years. Those that agree are kept in the table's log, by their hash, so that a tick
only looks whether each of its messages has one of them; a tick that meets another looks at it before it commits.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark.sql import DataFrame

from tidelake.configuration import CollectionSettings
from tidelake.connect_agreement import says_key, written_otherwise
from tidelake.connect_types import Travel
from tidelake.delta.commit import OpenTable
from tidelake.delta.message_schemas import schemas_of
from tidelake.errors import SchemaRefused
from tidelake.settled import values_of

_KNOWN_MAX = 20
"""A message is asked for these one by one."""
_AGREED_MAX = 100
"""More of them are told apart by something that is no schema."""


@dataclass(frozen=True)
class JudgedSchemas:
    """By the hash of a schema, what it means for the messages that have it; see `ChangeShape`."""

    agreed: tuple[int, ...] = ()
    """Those whose messages are read as everything is, in the order in which they came."""
    refused: Mapping[int, str] = field(default_factory=dict)
    unreadable_keys: frozenset[int] = frozenset()
    written: Mapping[int, Mapping[str, Travel]] = field(default_factory=dict)
    lengths: Mapping[int, int] = field(default_factory=dict)
    """Of the newest of all these that are in front of the payload, how many bytes they have."""
    complete: bool = False
    """Whether every message of the tick was looked at."""


def judge_schemas(raw: DataFrame, settings: CollectionSettings, known: JudgedSchemas) -> JudgedSchemas:
    """Hold each schema of a tick's messages against the collection's row.

    Args:
        raw: the records; see `schemas_of`.
        settings: of change events in JSON.
        known: those that agree.
    """
    record = values_of(settings).record
    agreed, refused, unreadable, written = list(known.agreed), {}, set(), {}
    lengths = dict(known.lengths)
    for one in schemas_of(raw):
        if one.length:
            lengths[one.hashed] = one.length
        if one.hashed in agreed:
            continue
        try:
            others = written_otherwise(record, one.schema)
            if others:
                written[one.hashed] = others
            else:
                agreed.append(one.hashed)
        except SchemaRefused as error:
            refused[one.hashed] = f"its schema says another type: {error.fact()}"
            if not says_key(record, settings.key, one.schema):
                unreadable.add(one.hashed)
    return JudgedSchemas(tuple(agreed), refused, frozenset(unreadable), written, _newest(lengths), complete=True)


def _newest(lengths: Mapping[int, int]) -> dict[int, int]:
    return dict(list(lengths.items())[-_KNOWN_MAX:])


def schemas_agreed(table: OpenTable, settings: CollectionSettings) -> tuple[JudgedSchemas, bool]:
    """What earlier ticks have kept, and whether there were schemas that do not agree."""
    name = _value_name(settings)
    count = table.value(f"{name}/count") or 0
    kept = table.values(f"{name}/", map(str, range(count)))
    lengths = {kept[one]: length for one, length in table.values(f"{name}/length/", kept).items() if length}
    return JudgedSchemas(tuple(kept.values()), lengths=_newest(lengths)), table.value(f"{name}/others") == 1


def values_of_judged(table: OpenTable, settings: CollectionSettings, judged: JudgedSchemas) -> dict[str, int]:
    """What a commit has to keep of them, so that the next tick knows."""
    if not judged.complete:
        return {}
    name = _value_name(settings)
    values: dict[str, int] = {}
    agreed = judged.agreed[:_AGREED_MAX]
    for place in range(table.value(f"{name}/count") or 0, len(agreed)):
        values |= {f"{name}/{place}": agreed[place], f"{name}/count": place + 1}
        values[f"{name}/length/{place}"] = judged.lengths.get(agreed[place], 0)
    if judged.refused or judged.written:
        values[f"{name}/others"] = 1
    return values


def _value_name(settings: CollectionSettings) -> str:
    """Where they are kept: what agrees with other columns is another thing."""
    stated = json.dumps([values_of(settings).record, settings.key], sort_keys=True)
    return f"schemas/{hashlib.blake2b(stated.encode(), digest_size=6).hexdigest()}"
