"""Reads schemas from `collections.yaml` or the files that it names, and the columns of keys."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tidelake.errors import SchemaRefused
from tidelake.schema.avro import record_schema_of, resolved_schema
from tidelake.schema.columns import column_difference, column_types, written_difference
from tidelake.schema.connect import declared_row, key_row_of, landing_record, wire_types
from tidelake.schema.evolution import Values, check_written
from tidelake.settings.block import Block
from tidelake.settings.terms import EnvelopeTerms


def load_schema(place: Block) -> Block:
    """Read a schema unchanged, from the block itself or from an .avsc file."""
    if not isinstance(place.value, str):
        return place
    path = place.folder / place.value
    try:
        return place.elsewhere(path, json.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        place.fail(
            f"the schema {path} cannot be read: {error.strerror}",
            "correct the path, which is relative to the folder of the settings file, or give this user permission to "
            "read the file",
        )
    except (ValueError, RecursionError) as error:
        place.elsewhere(path, None).fail(f"is not JSON: {error}", "correct the schema file")


def read_schema(place: Block) -> dict[str, Any]:
    """Read a record schema."""
    schema = load_schema(place)
    with schema.refusing("correct the schema"):
        return dict(record_schema_of(schema.value))


def read_schema_ids(
    place: Block,
    record: Mapping[str, Any],
    evolves: bool = False,
    may_lack: bool = False,
    reader: str = "the collection",
) -> dict[int, dict[str, Any]]:
    """Read the writers' schemas by id. Each must have exactly the columns of `record`; see `evolves` and `may_lack`.

    Args:
        place: the place of the schemas.
        record: the columns of values or keys.
        evolves: whether the schema evolves; if so, nothing is checked here.
        may_lack: whether nullable columns may be missing.
        reader: the name that errors give to whatever has these columns.
    """
    read, difference_of = {}, written_difference if may_lack else column_difference
    for schema_id in _ids(place):
        writer = place.child(schema_id)
        read[schema_id] = read_schema(writer)
        difference = (
            None if evolves else difference_of(column_types(dict(record)), column_types(read[schema_id]), reader)
        )
        if difference is not None:
            exception = "; only nullable columns may be missing" if may_lack else ""
            writer.fail(difference, f"give every id exactly the columns of {reader}, in any order{exception}")
    return read


def read_events(block: Block) -> tuple[dict[str, Any], dict[int, dict[str, Any]]]:
    """Read the schema of reclocked change events, or of their rows, and the writers' schemas by id.

    Types keep Debezium's names.
    """
    schema = load_schema(block.child("schema"))
    with schema.refusing("correct the schema"):
        columns = dict(wire_types(declared_row(schema.value)))
        landing_record(declared_row(schema.value))
    is_bare = block.get("format", "avro") == "avro" and block.get("encoding") != "confluent"
    if is_bare and declared_row(schema.value) is schema.value:
        schema.fail(
            "describes a row, but Avro bytes can only be read with the schema of the whole event",
            "give the event's record, which has before, after, source and op, or set `format: json`",
        )
    ids = block.child("schema_ids")
    writers = {}
    for schema_id in _ids(ids):
        writer = load_schema(ids.child(schema_id))
        writers[schema_id] = writer.value
        with writer.refusing("correct the schema"):
            written = dict(wire_types(declared_row(writer.value)))
        for name, wire in columns.items() if block.get("evolution") != "additive" else ():
            if name not in written or written[name].landing != wire.landing:
                writer.fail(
                    f"the column '{name}' is missing, or its type is not the one in `schema`",
                    "correct the schema, or remove the id",
                )
    return schema.value, writers


def read_event_keys(
    block: Block, event: Mapping[str, Any], key: Sequence[str], looks_up_ids: bool
) -> tuple[dict[str, Any], dict[int, dict[str, Any]]]:
    """Read the writers' schemas of Avro keys of reclocked change events: `key_schema`, and `key_schema_ids` by id."""
    key_row = key_row_of(declared_row(event), key)

    def read(place: Block) -> dict[str, Any]:
        schema = load_schema(place)
        try:
            check_written(Values(key_row, of_changes=True), declared_row(schema.value))
        except SchemaRefused as error:
            schema.fail(str(error).splitlines()[0], "give the record of the key, with the columns of `key`")
        return dict(schema.value)

    framed = block.get("encoding") == "confluent"
    unused = "key_schema" if framed and not looks_up_ids else "key_schema_ids" if not framed else ""
    if unused in block:
        block.child(unused).fail(
            f"is not allowed for {'Confluent framing' if framed else 'bare Avro'}",
            "bare keys have one schema, `key_schema`; framed keys have one schema for each id, `key_schema_ids`",
        )
    ids = block.child("key_schema_ids")
    schema = read(block.child("key_schema")) if "key_schema" in block else {}
    return schema, {schema_id: read(ids.child(schema_id)) for schema_id in _ids(ids)}


def read_key_record(
    block: Block, value: dict[str, Any], looks_up_ids: bool
) -> tuple[tuple[str, ...], dict[str, Any], dict[int, dict[str, Any]]]:
    """Read the key columns of reclocked upserts, the record of the keys, and the writers' schemas by id."""
    written = read_schema(block.child("key_schema")) if "key_schema" in block else None
    place = block.child("key")
    key = read_key(place, value) if written is None else read_key(place, written, reader="`key_schema`")
    record = _key_columns(key, value) if written is None else _checked_key(block.child("key_schema"), written, value)
    check_json(block, block.child("key_schema"), record)
    reader = "the key" if written is None else "`key_schema`"
    ids = read_schema_ids(block.child("key_schema_ids"), record, reader=reader)
    if block.get("encoding") == "confluent" and not ids and not looks_up_ids:
        block.child("key_schema_ids").fail(
            "is required for Confluent framing",
            "give the schema for every id that keys contain, such as `1: orders-key.avsc`",
        )
    return key, record, ids


def _key_columns(key: Sequence[str], value: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record of the key's columns, all of which are columns of the value."""
    types = {column["name"]: column["type"] for column in resolved_schema(dict(value))["fields"]}
    return {"type": "record", "name": "key", "fields": [{"name": name, "type": types[name]} for name in key]}


def _checked_key(place: Block, record: dict[str, Any], value: Mapping[str, Any]) -> dict[str, Any]:
    ours = {column["name"].lower() for column in record["fields"]}
    clash = next((column["name"] for column in value["fields"] if column["name"].lower() in ours), None)
    if clash is not None:
        place.fail(
            f"the column '{clash}' is in the key and in the value",
            "leave `key_schema` out if both columns are the same, or remove the column from `schema`",
        )
    return record


def with_key(key: Mapping[str, Any], value: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns of a table: those that only the key has, then those of the value."""
    names = {column["name"] for column in value["fields"]}
    added = [column for column in key["fields"] if column["name"] not in names]
    return {**value, "fields": [*added, *value["fields"]]}


def read_key(
    place: Block, record: Mapping[str, Any], may_be_null: bool = True, reader: str = "the schema"
) -> tuple[str, ...]:
    """Read the key's columns, which must be columns of a record.

    Args:
        place: the place of the key.
        record: the record.
        may_be_null: whether a column of the key may be null; a primary key never is.
        reader: the name that errors give to the record.
    """
    columns = read_key_names(place)
    types = {column["name"]: column["type"] for column in record["fields"]}
    for name in columns:
        if name not in types:
            place.fail(f"{reader} has no column '{name}'", f"its columns are: {', '.join(types)}")
        if not may_be_null and isinstance(types[name], list) and "null" in types[name]:
            place.fail(
                f"the column '{name}' may be null", "a primary key cannot be null: correct the schema, or the key"
            )
    return columns


def read_key_names(place: Block) -> tuple[str, ...]:
    """Read the names of the key's columns, from a name or a list of names."""
    columns = [place.value] if isinstance(place.value, str) else place.value
    if not isinstance(columns, list) or not columns or not all(isinstance(name, str) for name in columns):
        place.fail("does not name the key's columns", "write the name of one column, or a list: `key: [shop, id]`")
    if len(set(columns)) < len(columns):
        place.fail("names a column twice", "name each column once")
    return tuple(columns)


def check_key_allowed(block: Block, terms: EnvelopeTerms) -> None:
    """Refuse a key if the envelope must not have one."""
    if terms.key == "refused" and block.get("key") is not None:
        written = f"envelope '{terms.name}'" if "envelope" in block else f"family '{terms.family}'"
        block.child("key").fail(
            f"is not allowed for the {written}", "leave it out: only upsert and debezium have a key"
        )


def check_framed(block: Block, ids: Mapping[int, Any], looks_up_ids: bool) -> None:
    """Refuse Confluent framing without schemas for its ids, unless the ids are looked up in a registry."""
    if block.get("encoding") == "confluent" and not ids and not looks_up_ids:
        if "schema_ids" in block:
            block.child("schema_ids").fail(
                "is empty",
                "give the schema for every id, such as `1: orders.avsc`, or leave it out and use a `registry:` block",
            )
        block.child("schema_ids").fail(
            "is required for Confluent framing",
            "give the schema for every id, such as `1: orders.avsc`, or add a `registry:` block",
        )


def check_json(block: Block, place: Block, record: Mapping[str, Any]) -> None:
    """If the format is JSON, refuse settings about schema ids, and a record that JSON cannot express.

    Args:
        block: the collection's block.
        place: the place of the record.
        record: the record of keys or values.
    """
    if block.get("format") != "json":
        return
    for name in ("encoding", "schema_ids"):
        if name in block:
            block.child(name).fail("is not allowed for JSON, which has no schema ids", "leave it out")
    column = _union_column(resolved_schema(dict(record)), "")
    if column is not None:
        place.fail(
            f"the column '{column}' is a union of several types, but JSON does not show which type a value has",
            "give it one type, or read it as text",
        )


def _union_column(kind: Any, column: str) -> str | None:
    """Return the first column, within a resolved type, that is a union of several types; None if there is none."""
    if isinstance(kind, list):
        branches = [branch for branch in kind if branch != "null"]
        return column if len(branches) > 1 else _union_column(branches[0], column)
    if kind["type"] == "array":
        return _union_column(kind["items"], f"{column}[]")
    fields = kind["fields"] if kind["type"] == "record" else []
    unions = (
        _union_column(field["type"], f"{column}.{field['name']}" if column else field["name"]) for field in fields
    )
    return next((name for name in unions if name is not None), None)


def _ids(place: Block) -> Mapping[int, Any]:
    """Read a mapping from schema ids to schemas; empty if there is none."""
    ids: Any = place.value or {}
    if not isinstance(ids, dict) or not all(type(schema_id) is int and 0 <= schema_id < 2**32 for schema_id in ids):
        place.fail("does not map ids to schemas", "write `1: orders.avsc`")
    return ids
