"""The settings of a raw collection as it is now: with the columns that it has got since it was described."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from tidelake.configuration import CollectionSettings
from tidelake.connect_types import declared_row, landing_record, travels
from tidelake.errors import ConfigurationError, SchemaRefused
from tidelake.evolution import Record, Values, landed_fields
from tidelake.raw_configuration import add_metadata
from tidelake.schema import record_schema_of


def row_of(settings: CollectionSettings, schema: Any) -> Record:
    """The record of a collection's values out of a writer's schema.

    Raises:
        SchemaRefused: it has none.
    """
    if schema is None:
        raise SchemaRefused("", "it is not Avro, or refers to other schemas")
    return declared_row(schema) if settings.envelope == "debezium" else record_schema_of(schema)


def values_of(settings: CollectionSettings, added: Collection[str] = ()) -> Values:
    """What settings say of the values of records.

    Args:
        settings: of a raw collection.
        added: columns that have appeared since it was made: a topic may know nothing of another's.
    """
    of_changes = settings.envelope == "debezium"
    record = declared_row(settings.value_schema) if of_changes else settings.value_schema
    names = {one["name"] for one in record["fields"]}
    elsewhere = tuple(one["name"] for one in settings.record_schema["fields"] if one["name"] not in names)
    return Values(record, of_changes, elsewhere, tuple(added) if len(settings.topics) > 1 else ())


def with_values(settings: CollectionSettings, values: Values) -> CollectionSettings:
    """The same settings with what is known of the values now, and the table's columns for it."""
    there = {one["name"] for one in settings.record_schema["fields"]}
    fresh = [one["name"] for one in values.record["fields"] if one["name"] not in there]
    record = settings.record_schema
    return settings.model_copy(
        update={
            "value_schema": dict(values.record),
            "bare_schema": settings.bare_schema or settings.value_schema,
            "record_schema": {**record, "fields": [*record["fields"], *landed_fields(values, fresh)]},
        }
    )


def settled(
    settings: CollectionSettings, value_schema: Mapping[str, Any], record_schema: dict[str, Any]
) -> CollectionSettings:
    """The settings with the columns that a collection has beyond them.

    Args:
        settings: of a raw collection.
        value_schema: what the catalog knows of its values; empty where it knows nothing.
        record_schema: the columns of its table.
    """
    if not value_schema:
        return settings
    if not settings.value_schema:  # found at the first ingest, or before
        return settings.model_copy(update={"value_schema": dict(value_schema), "record_schema": record_schema})
    values = values_of(settings)
    known = {one["name"] for one in values.record["fields"]}
    more = [one for one in value_schema["fields"] if one["name"] not in known]
    grown = with_values(settings, values.with_fields(more)) if more else settings
    return grown.model_copy(update={"record_schema": record_schema})


def described(settings: CollectionSettings, row: Record) -> CollectionSettings:
    """Settings of change events that say no schema, with the one that was found.

    Args:
        settings: the settings.
        row: the record of a row, with Connect's names of types.

    Raises:
        SchemaRefused: a table cannot have one of its columns.
        ConfigurationError: it lacks a column of the key, or one that may be null is in the key.
    """
    field = f"collections.{settings.name}"
    known = dict(travels(row))
    for one in settings.key:
        if one not in known or known[one].nullable:
            problem = f"the column '{one}' may be null" if one in known else f"the events have no column '{one}'"
            raise ConfigurationError(
                "collections.yaml", f"{field}.key", problem, f"name a primary key out of: {', '.join(known)}"
            )
    record = add_metadata("collections.yaml", f"{field}.metadata", landing_record(row), settings.metadata)
    return settings.model_copy(update={"value_schema": dict(row), "record_schema": record})
