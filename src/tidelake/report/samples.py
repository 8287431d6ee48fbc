"""Samples of quarantined messages by reason. The messages themselves are shown only if the settings allow it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_, or_
from typing import Any

import pyarrow.compute as pc

from tidelake.read.words import counted
from tidelake.store.commit import OpenTable
from tidelake.store.entry import Collection
from tidelake.store.files import read_rows
from tidelake.store.layout import QUARANTINE_SCHEMA
from tidelake.store.quarantine import explanation_of, quarantine_rows

_REASONS_MAX, _SAMPLES_MAX, _BYTES_MAX = 10, 3, 240
_PLACE = ("topic", "partition", "offset")


@dataclass(frozen=True)
class Sample:
    """A quarantined message."""

    place: str
    """`TOPIC:PARTITION:OFFSET`, as `tidelake resolve quarantine --offsets` accepts it."""
    timestamp_ms: int | None
    detail: str | None
    key: str | None
    value: str | None
    explained: str | None


@dataclass(frozen=True)
class Reason:
    """The messages quarantined for one reason."""

    reason: str
    messages: int
    unexplained: int
    samples: list[Sample]
    """Unexplained messages come first."""


def read_reasons(collection: Collection, shows_values: bool) -> list[Reason]:
    """Return the quarantined messages by reason, the most frequent reason first.

    Args:
        collection: the collection.
        shows_values: whether samples show keys and values; if not, only their sizes are shown.

    Cost: reads the quarantine without its messages, and the row groups of the samples.
    """
    rows = quarantine_rows(collection, [*_PLACE, "timestamp_ms", "reason", "detail", "times"])
    by_reason: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        row["explained"] = explanation_of(row, collection.entry.decisions)
        by_reason.setdefault(row["reason"], []).append(row)
    largest = sorted(by_reason, key=lambda reason: (-len(by_reason[reason]), reason))
    chosen = {
        reason: sorted(by_reason[reason], key=lambda row: row["explained"] is not None)[:_SAMPLES_MAX]
        for reason in largest[:_REASONS_MAX]
    }
    messages = _messages(collection, [_place(row) for samples in chosen.values() for row in samples])
    return [
        Reason(
            reason,
            len(by_reason[reason]),
            sum(row["explained"] is None for row in by_reason[reason]),
            [_sample(row, messages.get(_place(row), (None, None)), shows_values) for row in chosen.get(reason, [])],
        )
        for reason in largest
    ]


def _place(row: dict[str, Any]) -> tuple[str, int, int]:
    return row["topic"], row["partition"], row["offset"]


def _messages(
    collection: Collection, places: Sequence[tuple[str, int, int]]
) -> dict[tuple[str, int, int], tuple[bytes | None, bytes | None]]:
    """Read the keys and values of these messages."""
    if not places:
        return {}
    wanted = reduce(
        or_,
        (
            reduce(and_, (pc.field(name) == value for name, value in zip(_PLACE, place, strict=True)))
            for place in places
        ),
    )
    table = collection.paths.quarantine
    rows = read_rows(table, OpenTable(table).files(), QUARANTINE_SCHEMA, [*_PLACE, "key", "value"], wanted)
    return {_place(row): (row["key"], row["value"]) for row in rows.to_pylist()}


def _sample(row: dict[str, Any], message: tuple[bytes | None, bytes | None], shows_values: bool) -> Sample:
    key, value = (_bytes_text(part, shows_values) for part in message)
    place = ":".join(str(part) for part in _place(row))
    return Sample(place, row["timestamp_ms"], row["detail"], key, value, row["explained"])


def _bytes_text(data: bytes | None, shows_values: bool) -> str | None:
    r"""Describe bytes: as text if they are UTF-8, else in hexadecimal digits; only their size if they are hidden.

    >>> _bytes_text(b'{"id": 7}', True), _bytes_text(b"\xff\x00", True), _bytes_text(b"secret", False)
    ('{"id": 7}', 'ff 00', '6 bytes, hidden')
    """
    if data is None:
        return None
    size = counted(len(data), "byte")
    if not shows_values:
        return f"{size}, hidden"
    part = data[:_BYTES_MAX]
    try:
        text = part.decode("utf-8", errors="strict" if len(data) <= _BYTES_MAX else "ignore")
        # In text, only a character that was cut off at the end can be invalid: at most 3 bytes.
        if len(data) > _BYTES_MAX and len(text.encode()) < len(part) - 3:
            text = part.hex(" ")
    except UnicodeDecodeError:
        text = part.hex(" ")
    return text if len(data) <= _BYTES_MAX else f"{text}… ({size})"
