"""Whether settings fit the collection of their name that a store has, and which columns they add to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelake.configuration import CollectionSettings
from tidelake.errors import ConfigurationError, SchemaRefused
from tidelake.evolution import added_fields, standalone_fields
from tidelake.settled import values_of

if TYPE_CHECKING:
    from tidelake.delta.catalog import Entry


def check_same(entry: Entry, settings: CollectionSettings) -> None:
    """Refuse settings of another framing, envelope, format or key; see `with_columns` for the schema.

    Raises:
        ConfigurationError: naming what is fixed.
    """
    field = f"collections.{settings.name}"
    if entry.envelope != settings.envelope:
        raise ConfigurationError(
            "collections.yaml",
            f"{field}.family",
            f"the collection was created with the envelope '{entry.envelope}'",
            "a collection's family is fixed: give the new one another name",
        )
    if entry.framing != settings.framing:
        raise ConfigurationError(
            "collections.yaml",
            f"{field}.framing",
            f"the collection was created with the framing '{entry.framing}'",
            "a collection's framing is fixed: give the new one another name",
        )
    if entry.format != settings.format:
        raise ConfigurationError(
            "collections.yaml",
            f"{field}.format",
            f"the collection was created with the format '{entry.format}'",
            "a collection's format is fixed: give the new one another name",
        )
    if entry.key != settings.key:
        raise ConfigurationError(
            "collections.yaml",
            f"{field}.key",
            f"the collection was created with the key {', '.join(entry.key)}",
            "a collection's key is fixed: give the new one another name",
        )
    if entry.before != settings.before:
        raise ConfigurationError(
            "collections.yaml",
            f"{field}.before",
            f"the collection was created with `before: {entry.before}`",
            "what `before` holds is fixed: give the new one another name",
        )


def with_columns(entry: Entry, settings: CollectionSettings) -> Entry:
    """The entry with the columns that the settings add to it.

    Raises:
        ConfigurationError: they differ otherwise, or may not add any.
    """
    field, is_additive = f"collections.{settings.name}.schema", settings.evolution == "additive"
    if not settings.record_schema or entry.record_schema == settings.record_schema:
        return entry
    problem, fix = "the collection was created with another schema", "give the new one another name"
    if entry.framing != "reclock":
        raise ConfigurationError("collections.yaml", field, problem, f"a collection's schema is fixed: {fix}")
    try:
        fresh = added_fields(entry.record_schema, settings.record_schema, entry.added)
    except SchemaRefused as error:
        there = {one["name"] for one in entry.record_schema["fields"]}
        fresh_types = {one["name"]: one["type"] for one in settings.record_schema["fields"] if one["name"] not in there}
        hint = f"a collection's columns stay as they are: {fix}"
        if is_additive and "null" not in fresh_types.get(error.column, ["null"]):
            hint = 'let the new column be null: `type: ["null", …]`, with `default: null`'
        raise ConfigurationError("collections.yaml", field, f"{problem}: {error.fact()}", hint) from error
    named = {one["name"] for one in settings.record_schema["fields"]}
    beyond = [*(one["name"] for one in fresh), *(one for one in entry.added if one not in named)]
    if beyond and not is_additive:
        raise ConfigurationError(
            "collections.yaml",
            field,
            f"{problem}: the column '{beyond[0]}' is {'new' if fresh else 'there by now'}",
            f"`evolution: additive` lets new columns that may be null appear; else {fix}",
        )
    if not fresh:
        return entry
    values = values_of(settings)
    names = {one["name"] for one in fresh}
    stated = standalone_fields(values.record, values.of_changes)
    known = entry.value_schema or {**values.record, "fields": [one for one in stated if one["name"] not in names]}
    return entry.model_copy(
        update={
            "record_schema": {**entry.record_schema, "fields": [*entry.record_schema["fields"], *fresh]},
            "value_schema": {**known, "fields": [*known["fields"], *(one for one in stated if one["name"] in names)]},
            "added": (*entry.added, *(one["name"] for one in fresh)),
        }
    )
