"""Resolves the schemas of a CDCv2 stream's writers, and looks up the schemas in a registry. Needs no Spark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidelake.decode.writers import Part, SourceSchemas, Writers
from tidelake.errors import SchemaRefused
from tidelake.schema.avro import record_schema_of
from tidelake.schema.columns import column_difference, column_types, written_difference
from tidelake.schema.evolution import Record
from tidelake.settings.collection import CollectionSettings
from tidelake.settings.registry import subject_of
from tidelake.topic.schema_registry import SchemaRegistry


def resolve_stream(settings: CollectionSettings, record: dict[str, Any]) -> SourceSchemas:
    """Resolve the schemas of a CDCv2 stream.

    A registered schema is refused unless it has the collection's columns, in any order. Only nullable columns may be
    missing: the older schemas of a published topic lack the columns that were added later. For change events, no column
    may be missing.

    Raises:
        RegistryUnreachable: the registry does not answer, so schema ids cannot be resolved.
    """
    writers = Writers(record, settings.schema_ids if settings.encoding == "confluent" else None)
    difference_of = column_difference if settings.terms.of_changes else written_difference
    if settings.registry is not None:
        usable, refused = {}, {}
        for schema_id, schema in registered(settings, settings.value_schema, "value").items():
            try:
                written = dict(record_schema_of(schema))
                difference = difference_of(column_types(record), column_types(written))
                if difference is not None:
                    raise SchemaRefused("", difference)
                usable[schema_id] = written
            except SchemaRefused as error:
                refused[schema_id] = error.fact
        writers = Writers(record, usable, named(refused))
    return SourceSchemas(record, Part("avro", record, writers))


def registered(settings: CollectionSettings, record: Record, part: str) -> dict[int, Any]:
    """Return, by id, all schemas registered for the keys or the values of statements.

    They are in the order of registration, subject by subject.

    Raises:
        RegistryUnreachable: the registry does not answer.
    """
    assert settings.registry is not None
    registry = SchemaRegistry(settings.registry)
    subjects = dict.fromkeys(subject_of(settings.subject, topic, record, part) for topic in settings.statement_topics)
    return {schema_id: schema for subject in subjects for schema_id, schema in registry.schemas_of(subject).items()}


def named(refused: Mapping[int, str]) -> dict[int, str]:
    """Return the reasons why schemas are refused, each with the id of the schema."""
    return {schema_id: f"schema id {schema_id}: {why}" for schema_id, why in refused.items()}
