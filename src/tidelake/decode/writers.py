"""The writers' schemas of a topic's keys or values, and the record schema that they are read as."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Writers:
    """The schemas with which records were written.

    Args:
        bare: the record schema of bare bodies; unused if `by_id` is set.
        by_id: for Confluent framing, the record schemas by schema id; None means bare bodies.
        refused: why records cannot be read, by schema id or, for JSON, by the hash of the embedded schema.
    """

    bare: Mapping[str, Any] = field(default_factory=dict)
    by_id: Mapping[int, Any] | None = None
    refused: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Part:
    """How the keys or the values of records are read.

    Args:
        format: `avro` or `json`.
        record: the record schema that the keys or values are read as; for change events, the schema of the row.
        writers: the schemas with which the keys or values were written.
    """

    format: str
    record: Mapping[str, Any]
    writers: Writers


@dataclass(frozen=True)
class SourceSchemas:
    """How the keys and values of a source's records are read, and the table's columns for them.

    Args:
        table: the columns of the table, including new ones.
        values: how values are read.
        keys: how keys are read; None if they are not read.
    """

    table: dict[str, Any]
    values: Part
    keys: Part | None = None
