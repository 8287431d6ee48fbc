"""Resolves the schemas of a source's writers, and the table's columns.

This happens once per tick. Nothing is written here: if there are new columns, the tick adds them to the catalog, and
starts over.

The settings have the schema that a user wrote, and the catalog has the columns that were added later. Writers' schemas
are listed in the settings, looked up in a registry, or embedded in messages. A collection whose schema may evolve gets
the columns that these schemas add.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tidelake.decode.json import WRAPPING, is_wrapped
from tidelake.decode.writers import Part, SourceSchemas, Writers
from tidelake.errors import SchemaRefused
from tidelake.ingest.message_schemas import schemas_of
from tidelake.ingest.stream_schemas import named, registered
from tidelake.schema.avro import record_schema_of
from tidelake.schema.connect import declared_row, key_row_of, row_schema_of_connect, wire_types
from tidelake.schema.connect_agreement import differing_wire_types
from tidelake.schema.evolution import Record, Values, grow, landed_fields, new_fields, separate_writers
from tidelake.settings.block import Block
from tidelake.settings.collection import CollectionSettings, CollectionSpec
from tidelake.settings.reclock import ReclockSettings
from tidelake.settings.registry import subject_of
from tidelake.settings.source import check_metadata
from tidelake.store.entry import Entry
from tidelake.topic.open import open_topics
from tidelake.topic.schema_registry import SchemaRegistry


def resolve_records(settings: ReclockSettings, entry: Entry, messages: Callable[[], DataFrame]) -> SourceSchemas:
    """Resolve the schemas of a reclocked collection's records.

    Args:
        settings: the collection's settings.
        entry: its catalog entry.
        messages: returns the records of the tick; called only if embedded schemas may add columns.

    Raises:
        RegistryUnreachable: the registry does not answer, so schema ids cannot be resolved.
    """
    # Old entries lack a value schema; their settings list all columns.
    table = entry.record_schema if entry.value_schema else settings.record_schema
    known = _known_values(settings, entry, table)
    if settings.format == "json":
        resolved = _read_messages(known, messages()) if settings.evolves else _Resolved(known)
    elif settings.registry is not None:
        resolved = _look_up(settings, known)
    elif settings.evolves and settings.schema_ids:
        read = separate_writers(known, settings.schema_ids, True, partial(_row_of, known.of_changes))
        resolved = _Resolved(read.values, read.usable, settings.key_schema_ids, named(read.refused))
    else:
        resolved = _Resolved(known, settings.schema_ids, settings.key_schema_ids)
    stored = {column["name"] for column in table["fields"]}
    fresh = [column["name"] for column in resolved.values.record["fields"] if column["name"] not in stored]
    if fresh:
        table = {**table, "fields": [*table["fields"], *landed_fields(resolved.values, fresh)]}
    is_framed = settings.encoding == "confluent"
    values = Writers(settings.value_schema or known.record, resolved.by_id if is_framed else None, resolved.refused)
    keys = Writers(settings.key_schema, resolved.keys_by_id if is_framed else None, resolved.refused)
    has_keys = bool(keys.by_id if is_framed else keys.bare) if known.of_changes else bool(settings.key)
    return SourceSchemas(
        table,
        Part(settings.format, resolved.values.record, values),
        Part(settings.format, settings.key_schema, keys) if has_keys else None,
    )


def resolve_spec(spark: SparkSession, settings: CollectionSettings, is_known: bool) -> CollectionSpec:
    """Make the specification of a collection. If the settings omit the schema, it is taken from the source.

    Args:
        spark: the session.
        settings: the collection's settings.
        is_known: whether the store has the collection; if so, the source is not consulted.

    Raises:
        ConfigurationError: the source has no schema yet, or one that cannot be used.
    """
    if is_known or settings.value_schema or not isinstance(settings, ReclockSettings):
        return settings.spec()
    place = Block(Path("collections.yaml"), Path(), None, f"collections.{settings.name}")
    try:
        row = _newest_row(settings) if settings.registry is not None else _row_in_messages(spark, settings)
        if row is not None:
            return _described(settings, row, place)
    except SchemaRefused as error:
        place.child("schema").fail(
            f"the schema of '{settings.topic}' cannot be used: {error.fact}", "give the schema of a row"
        )
    if settings.registry is not None:
        problem = f"is missing, and the registry has no schema under '{settings.topics[0]}-value' yet"
    else:
        problem = f"is missing, and no message of {settings.topic} has an embedded schema"
    place.child("schema").fail(
        problem,
        "add `schema:` with the schema of a row, or let the converter write it (`value.converter.schemas.enable=true`)",
    )


def _described(settings: ReclockSettings, row: Record, place: Block) -> CollectionSpec:
    """Return the specification of a collection of change events whose row schema comes from the source.

    Raises:
        SchemaRefused: a table cannot have one of the columns.
        ConfigurationError: the row lacks a column of the key, or a column of the key may be null.
    """
    types = dict(wire_types(row))
    for name in settings.key:
        if name not in types or types[name].nullable:
            problem = f"the column '{name}' may be null" if name in types else f"the events have no column '{name}'"
            place.child("key").fail(problem, f"choose a primary key from these columns: {', '.join(types)}")
    check_metadata(place.child("metadata"), settings.landed(row), settings.metadata)
    return settings.spec(row)


# --- schemas from one origin ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Resolved:
    """The schemas from one origin: settings, registry or messages."""

    values: Values
    by_id: Mapping[int, Any] = field(default_factory=dict)
    keys_by_id: Mapping[int, Any] = field(default_factory=dict)
    refused: Mapping[int, str] = field(default_factory=dict)


def _known_values(settings: ReclockSettings, entry: Entry, table: Record) -> Values:
    """Return the columns of values, including those added since the collection was created."""
    record: Record = settings.row or entry.value_schema
    names = {column["name"] for column in record["fields"]}
    added = [column for column in entry.value_schema.get("fields", ()) if column["name"] not in names]
    record = {**record, "fields": [*record["fields"], *added]}
    names |= {column["name"] for column in added}
    elsewhere = tuple(column["name"] for column in table["fields"] if column["name"] not in names)
    # A topic may lack the columns of another topic.
    may_lack = entry.added if len(settings.statement_topics) > 1 else ()
    return Values(record, settings.terms.of_changes, elsewhere, may_lack)


def _row_of(of_changes: bool, schema: Any) -> Record:
    """Return the record schema of the values in a writer's schema.

    Raises:
        SchemaRefused: the schema has no record.
    """
    if schema is None:
        raise SchemaRefused("", "it is not Avro, or refers to other schemas")
    return declared_row(schema) if of_changes else record_schema_of(schema)


# --- schemas in a registry -----------------------------------------------------------------------------------------


def _look_up(settings: ReclockSettings, known: Values) -> _Resolved:
    """Resolve the schemas in the registry. A schema is registered before the first message with its id is written."""
    of_changes = known.of_changes
    row_of = partial(_row_of, of_changes)
    values = separate_writers(known, registered(settings, settings.value_schema, "value"), settings.evolves, row_of)
    resolved = _Resolved(values.values, _records(of_changes, values.usable), {}, named(values.refused))
    if not settings.key:
        return resolved
    key = Values(key_row_of(known.record, settings.key), of_changes=True) if of_changes else Values(settings.key_schema)
    keys = separate_writers(key, registered(settings, settings.key_schema, "key"), False, row_of)
    refused = {**named(keys.refused), **resolved.refused}
    return _Resolved(resolved.values, resolved.by_id, _records(of_changes, keys.usable), refused)


def _records(of_changes: bool, usable: Mapping[int, Any]) -> dict[int, Any]:
    """Return the writers' schemas: records, or whole change events."""
    return {schema_id: schema if of_changes else dict(record_schema_of(schema)) for schema_id, schema in usable.items()}


def _newest_row(settings: ReclockSettings) -> Record | None:
    """Return the row of the newest schema of change events; None if no topic has a schema yet.

    Raises:
        RegistryUnreachable: the registry does not answer.
        SchemaRefused: the schema is not that of a change event.
    """
    assert settings.registry is not None
    registry = SchemaRegistry(settings.registry)
    for topic in settings.statement_topics:
        schemas = list(registry.schemas_of(subject_of("topic", topic, {}, "value")).values())
        if schemas:
            return _row_of(settings.terms.of_changes, schemas[-1])
    return None


# --- schemas in messages -------------------------------------------------------------------------------------------


def _read_messages(known: Values, raw: DataFrame) -> _Resolved:
    """Resolve the schemas embedded in JSON messages. Schemas that are not additive are refused."""
    if not known.of_changes:
        names = [column["name"] for column in known.record["fields"]]
        raw = raw.where(is_wrapped(F.col("value").cast("string"), names))
    schemas = [message for message in schemas_of(raw) if message.schema is not None]  # decoding refuses the rest
    rows = [partial(_row_of_message, known, message.schema) for message in schemas]
    values = grow(known, rows, checks_types=False)
    refused = {}
    for message, row in zip(schemas, rows, strict=True):
        try:
            new_fields(values, row(), checks_types=False)
        except SchemaRefused as error:
            refused[message.hashed] = f"its schema is not additive: {error.fact}"
    return _Resolved(values, refused=refused)


def _row_of_message(known: Values, schema: Any) -> Record:
    """Return the row in a message's schema.

    Raises:
        SchemaRefused: the schema has no row, has types that differ from those of the known change events, or has a
            column that would make wrapped values look like bare values.
    """
    if known.of_changes:
        differing_wire_types(known.record, schema)
        return row_schema_of_connect(schema)
    row = row_schema_of_connect(schema)
    for column in row["fields"]:
        if column["name"] in WRAPPING:
            raise SchemaRefused(
                column["name"], "it is new, but would make a value with an embedded schema look like a row"
            )
    return row


def _row_in_messages(spark: SparkSession, settings: ReclockSettings) -> Record | None:
    """Return the row of the first schema embedded in the messages of a first tick; None if no message has a schema."""
    for topic in open_topics(settings)[: len(settings.statement_topics)]:
        starts = dict.fromkeys(topic.end_offsets(), 0)
        offsets, gaps = topic.plan(starts, settings.messages_per_tick_max)
        for gap in gaps if not offsets.intervals else ():
            starts[gap.partition] = gap.to_offset  # retention deleted the earlier records
            offsets, _ = topic.plan(starts, settings.messages_per_tick_max)
        if not offsets.intervals:
            continue
        for message in schemas_of(topic.read(spark, offsets).withColumn("topic", F.lit(topic.name))):
            if message.schema is not None:
                return row_schema_of_connect(message.schema)
    return None
