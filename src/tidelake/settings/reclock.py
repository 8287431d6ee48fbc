"""The settings of reclocked collections, whose records state neither times nor diffs.

Each tick of ingest mints a time and binds it to the offsets that it reads. The envelope says what a record means: an
event, the value or the deletion of a key, or a change event of a database.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Literal, NoReturn

from pydantic import Field

from tidelake.schema.connect import declared_row, landing_record
from tidelake.settings.block import Block
from tidelake.settings.collection import CollectionSettings, CollectionSpec
from tidelake.settings.registry import RECORD_SUBJECTS
from tidelake.settings.schemas import (
    check_framed,
    check_json,
    check_key_allowed,
    read_event_keys,
    read_events,
    read_key,
    read_key_names,
    read_key_record,
    read_schema,
    read_schema_ids,
    with_key,
)
from tidelake.settings.source import (
    UNAVAILABLE_VALUE,
    check_metadata,
    read_metadata,
    read_position,
    with_metadata,
)
from tidelake.settings.terms import EnvelopeTerms

Format = Literal["avro", "json"]
Evolution = Literal["none", "additive"]
_MISSING = "give an .avsc file or the schema itself"


class ReclockSettings(CollectionSettings):
    """Topics of records in Avro or JSON."""

    framing: Literal["reclock"] = "reclock"
    format: Format = "avro"
    """The format of keys and values."""
    evolution: Evolution = "none"
    """Whether new nullable columns are added automatically."""
    metadata: dict[str, str] = Field(default_factory=dict)
    """The metadata of records that becomes columns, with the names of the columns."""
    key_schema: dict[str, Any] = Field(default_factory=dict)
    """The schema of the keys; for upserts, the default is the key's columns in the value."""
    key_schema_ids: dict[int, dict[str, Any]] = Field(default_factory=dict)
    """For Confluent framing: the writer's schema for each id in keys."""
    position: tuple[str, ...] = ()
    """For change events: the fields that order the events of a key, if the connector is not PostgreSQL's."""
    clock_ahead_max_s: int = Field(default=86_400, ge=1)
    """How far the clock may be ahead of both the last minted time and the newest record; beyond that, ingest stops."""
    idle_upper_s: int = Field(default=300, ge=0, le=86_400)
    """How often ingest moves upper while the topic has no new records; 0 means never."""
    unavailable_value: str = UNAVAILABLE_VALUE
    """For change events: the connector's placeholder for a value that the database did not send."""

    KEY_IS_OPTIONAL: ClassVar[bool] = False
    """Whether copies of change events are recognised without a primary key, so that their table may have none."""

    READ_APART: ClassVar = CollectionSettings.READ_APART | {"metadata", "key_schema", "key_schema_ids", "position"}

    IS_SUGGESTED: ClassVar = False

    @property
    def evolves(self) -> bool:
        """Whether new columns may appear."""
        return self.evolution == "additive"

    @property
    def row(self) -> Mapping[str, Any]:
        """The schema of the values, or of the rows of change events; empty if the settings have none."""
        return declared_row(self.value_schema) if self.value_schema and self.terms.of_changes else self.value_schema

    @property
    def record_schema(self) -> dict[str, Any]:
        """The columns of the table; empty if the schema comes from the source."""
        return self.table_of(self.row) if self.row else {}

    def table_of(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Return the columns of a table of rows with this schema.

        Raises:
            SchemaRefused: a table cannot have one of the columns.
        """
        return with_metadata(self.landed(row), self.metadata)

    def landed(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Return the columns of a table of rows with this schema, without those of metadata."""
        return _landed(self.terms, row, self.key_schema)

    def spec(self, row: Mapping[str, Any] | None = None) -> CollectionSpec:
        """Return the specification for the store.

        Args:
            row: the schema of the values or rows, from the source, if the settings have none.
        """
        return replace(
            super().spec(),
            record_schema=self.record_schema if row is None else self.table_of(row),
            value_schema=dict(self.row if row is None else row),
            of_changes=self.terms.of_changes,
            evolves=self.evolves,
            format=self.format,
        )

    @classmethod
    def refuse(cls, place: Block) -> NoReturn:
        """Refuse a settings key that only other framings have."""
        place.fail("is not allowed for a reclocked topic", "leave it out: only other framings have it")

    @classmethod
    def read(cls, block: Block, terms: EnvelopeTerms, looks_up_ids: bool) -> dict[str, Any]:
        """Read the schemas, the key, the metadata and the position; see `CollectionSettings.read`."""
        _check_together(block, terms, has_key_schema="key_schema" in cls.written_keys())
        metadata = read_metadata(block.child("metadata"))
        position = read_position(block.child("position"), terms.of_changes, terms.name)
        changes = partial(_read_changes, has_key=not cls.KEY_IS_OPTIONAL or block.get("key") is not None)
        read = changes if terms.of_changes else _read_upserts if terms.key == "required" else _read_values
        values = read(block, looks_up_ids)
        if values["value_schema"]:
            row = declared_row(values["value_schema"]) if terms.of_changes else values["value_schema"]
            check_metadata(block.child("metadata"), _landed(terms, row, values.get("key_schema", {})), metadata)
        return {**values, "metadata": metadata, "position": position}


def _landed(terms: EnvelopeTerms, row: Mapping[str, Any], key: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns of a table, without those of metadata."""
    if terms.of_changes:
        return landing_record(dict(row))
    return with_key(key, row) if key else dict(row)


def _check_together(block: Block, terms: EnvelopeTerms, has_key_schema: bool) -> None:
    """Refuse settings that do not fit the envelope; `has_key_schema` is whether the framing has this setting."""
    if terms.needs_diff:
        block.child("framing").fail(
            f"is 'reclock', but reclocked records state no diff, which the envelope '{terms.name}' needs",
            "use `envelope: append_only`, `upsert` or `debezium`",
        )
    check_key_allowed(block, terms)
    is_event_in_avro = terms.of_changes and block.get("format", "avro") == "avro"
    for name in ("key_schema", "key_schema_ids"):
        if name in block and terms.key != "required" and not is_event_in_avro:
            refused = "change events in JSON" if terms.of_changes else f"the envelope '{terms.name}'"
            block.child(name).fail(
                f"is not allowed for {refused}",
                "leave it out: only upserts, and change events in Avro, use it to read keys",
            )
    names_records = block.get("subject") in RECORD_SUBJECTS
    if terms.of_changes and names_records and not has_key_schema:
        block.child("subject").fail(
            f"makes subjects from record names, which the framing '{block.get('framing')}' does not support",
            "leave it out, or use `subject: topic`",
        )
    if terms.of_changes and names_records and ("schema" not in block or "key_schema" not in block):
        block.child("subject").fail(
            "makes subjects from record names, but `schema` or `key_schema` is missing",
            "give the Avro schemas of the event and of its key, or use one subject for each topic: `subject: topic`",
        )


def _read_values(block: Block, looks_up_ids: bool) -> dict[str, Any]:
    """Read the schemas of events: each record's value is an event."""
    record, ids = _read_value(block, looks_up_ids)
    return {"value_schema": record, "schema_ids": ids}


def _read_upserts(block: Block, looks_up_ids: bool) -> dict[str, Any]:
    """Read the schemas of upserts: each record sets the value of its key, or deletes the key."""
    record, ids = _read_value(block, looks_up_ids)
    key, key_schema, key_ids = read_key_record(block, record, looks_up_ids)
    return {
        "value_schema": record,
        "schema_ids": ids,
        "key": key,
        "key_schema": key_schema,
        "key_schema_ids": key_ids,
    }


def _read_value(block: Block, looks_up_ids: bool) -> tuple[dict[str, Any], dict[int, dict[str, Any]]]:
    if "schema" not in block:
        block.child("schema").fail("is missing", _MISSING)
    record = read_schema(block.child("schema"))
    check_json(block, block.child("schema"), record)
    ids = read_schema_ids(block.child("schema_ids"), record, evolves=block.get("evolution") == "additive")
    check_framed(block, ids, looks_up_ids)
    return record, ids


def _read_changes(block: Block, looks_up_ids: bool, has_key: bool = True) -> dict[str, Any]:
    """Read the schemas of change events. The first ingest takes a missing schema from the registry or the messages."""
    if "schema" not in block:
        if not looks_up_ids and block.get("format") != "json":
            registry = ", or get it from a registry: `encoding: confluent`, no `schema_ids`, and a `registry:` block"
            block.child("schema").fail("is missing", _MISSING + registry)
        return {"value_schema": {}, "key": read_key_names(block.child("key")) if has_key else ()}
    event, ids = read_events(block)
    check_json(block, block.child("schema"), landing_record(declared_row(event)))
    check_framed(block, ids, looks_up_ids)
    if not has_key:
        return {"value_schema": event, "schema_ids": ids}
    key = read_key(block.child("key"), landing_record(declared_row(event)))
    key_schema, key_ids = read_event_keys(block, event, key, looks_up_ids)
    return {
        "value_schema": event,
        "schema_ids": ids,
        "key": key,
        "key_schema": key_schema,
        "key_schema_ids": key_ids,
    }
