"""Checks that settings fit the stored collection, and adds the settings' new columns to the collection's entry."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelake.errors import ConfigurationError, SchemaRefused
from tidelake.schema.evolution import added_fields, standalone_fields
from tidelake.settings.collection import CollectionSpec
from tidelake.settings.terms import framing_terms

if TYPE_CHECKING:
    from tidelake.store.entry import Entry


def check_same(entry: Entry, spec: CollectionSpec) -> None:
    """Refuse settings with a different envelope, framing, format, key or `before`; see `with_columns` for the schema.

    Raises:
        ConfigurationError: the error names the setting that cannot change.
    """
    field = f"collections.{spec.name}"
    if entry.envelope != spec.envelope:
        raise ConfigurationError(
            "collections.yaml",
            f"{field}.family",
            f"the collection was created with the envelope '{entry.envelope}'",
            "a collection's family is fixed: undo the change, or define another collection under a new name",
        )
    if entry.framing != spec.framing:
        raise ConfigurationError(
            "collections.yaml",
            f"{field}.framing",
            f"the collection was created with the framing '{entry.framing}'",
            "a collection's framing is fixed: undo the change, or define another collection under a new name",
        )
    if entry.format != spec.format:
        raise ConfigurationError(
            "collections.yaml",
            f"{field}.format",
            f"the collection was created with the format '{entry.format}'",
            "a collection's format is fixed: undo the change, or define another collection under a new name",
        )
    if entry.key != spec.key:
        keyed = f"with the key {', '.join(entry.key)}" if entry.key else "without a key"
        raise ConfigurationError(
            "collections.yaml",
            f"{field}.key",
            f"the collection was created {keyed}",
            "a collection's key is fixed: undo the change, or define another collection under a new name",
        )
    if entry.before != spec.before:
        raise ConfigurationError(
            "collections.yaml",
            f"{field}.before",
            f"the collection was created with `before: {entry.before}`",
            "what `before` holds is fixed: undo the change, or define another collection under a new name",
        )


def with_columns(entry: Entry, spec: CollectionSpec) -> Entry:
    """Add the new columns of the settings to an entry.

    Raises:
        ConfigurationError: the schemas differ by more than new columns, or the settings do not allow new columns.
    """
    field, is_additive = f"collections.{spec.name}.schema", spec.evolves
    if not spec.record_schema or entry.record_schema == spec.record_schema:
        return entry
    problem, fix = "the collection has a different schema", "define another collection under a new name"
    if framing_terms(entry.framing).identifies_by_data:
        raise ConfigurationError(
            "collections.yaml", field, problem, f"a collection's schema is fixed: undo the change, or {fix}"
        )
    try:
        fresh = added_fields(entry.record_schema, spec.record_schema, entry.added)
    except SchemaRefused as error:
        stored = {column["name"] for column in entry.record_schema["fields"]}
        fresh_types = {
            column["name"]: column["type"] for column in spec.record_schema["fields"] if column["name"] not in stored
        }
        hint = f"existing columns never change: undo the change, or {fix}"
        if is_additive and "null" not in fresh_types.get(error.column, ["null"]):
            hint = 'make the new column nullable: `type: ["null", …]`, with `default: null`'
        raise ConfigurationError("collections.yaml", field, f"{problem}: {error.fact}", hint) from error
    written = {column["name"] for column in spec.record_schema["fields"]}
    if fresh and not is_additive:
        raise ConfigurationError(
            "collections.yaml",
            field,
            f"{problem}: the column '{fresh[0]['name']}' is new",
            f"`evolution: additive` allows new nullable columns; otherwise {fix}",
        )
    lacking = next((name for name in entry.added if name not in written), None)
    if lacking is not None and not is_additive:
        raise ConfigurationError(
            "collections.yaml",
            field,
            f"the column '{lacking}' is missing, which was added to the collection after it was created",
            "add the column, or set `evolution: additive`, with which added columns may be left out",
        )
    if not fresh:
        return entry
    names = {column["name"] for column in fresh}
    fields = standalone_fields(spec.value_schema, spec.of_changes)
    old_fields = [column for column in fields if column["name"] not in names]
    new_fields = [column for column in fields if column["name"] in names]
    value_schema = entry.value_schema or {**spec.value_schema, "fields": old_fields}
    return entry.model_copy(
        update={
            "record_schema": {**entry.record_schema, "fields": [*entry.record_schema["fields"], *fresh]},
            "value_schema": {**value_schema, "fields": [*value_schema["fields"], *new_fields]},
            "added": (*entry.added, *(column["name"] for column in fresh)),
        }
    )
