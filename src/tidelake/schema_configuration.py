"""Reads the schemas of a collection out of `collections.yaml`, or the files beside it, and the columns of its key."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tidelake.column_types import column_difference, column_types
from tidelake.connect_types import declared_row, key_row_of, landing_record, travels
from tidelake.debezium import row_record_of
from tidelake.errors import ConfigurationError, SchemaRefused
from tidelake.evolution import Values, check_written
from tidelake.raw_configuration import add_key, check_format, check_ids, key_record_of
from tidelake.schema import record_schema_of


def read_schema(file: Path, base: Path, field: str, given: Any) -> dict[str, Any]:
    """The record schema of `data`, from an .avsc file or from the block itself."""
    where, schema = _load_schema(file, base, field, given)
    try:
        return dict(record_schema_of(schema))
    except SchemaRefused as error:
        raise ConfigurationError(where, field, str(error).splitlines()[0], error.hint or "mend the schema") from error


def _load_schema(file: Path, base: Path, field: str, given: Any) -> tuple[str, Any]:
    """Where a schema stands, and what it is."""
    where = str(file)
    if isinstance(given, str):
        path = base / given
        where = str(path)
        try:
            given = json.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise ConfigurationError(
                str(file),
                field,
                f"the schema {path} cannot be read: {error.strerror}",
                "mend the path; it is relative to this file",
            ) from error
        except (ValueError, RecursionError) as error:
            raise ConfigurationError(str(path), field, f"is not JSON: {error}", "mend the schema file") from error
    return where, given


def read_schema_ids(
    file: Path,
    base: Path,
    field: str,
    given: Any,
    record_schema: dict[str, Any],
    name: str = "schema_ids",
    grows: bool = False,
) -> dict[int, dict[str, Any]]:
    """By schema id what messages were written with; each has just the collection's columns, unless that grows."""
    check_ids(str(file), f"{field}.{name}", given)
    read = {}
    for schema_id, schema in given.items():
        place = f"{field}.{name}.{schema_id}"
        read[schema_id] = read_schema(file, base, place, schema)
        if grows:
            continue
        difference = column_difference(column_types(record_schema), column_types(read[schema_id]))
        if difference is not None:
            raise ConfigurationError(
                str(file), place, difference, "every id has exactly the collection's columns, in any order"
            )
    return read


def read_changes(file: Path, base: Path, field: str, block: Any) -> tuple[dict[str, Any], dict[int, dict[str, Any]]]:
    """The record of raw change events, or of their rows, with Debezium's names of types; and those of schema ids."""
    where, schema = _load_schema(file, base, f"{field}.schema", block["schema"])
    try:
        columns = dict(travels(declared_row(schema)))
        landing_record(declared_row(schema))
    except SchemaRefused as error:
        raise ConfigurationError(
            where, f"{field}.schema", str(error).splitlines()[0], error.hint or "mend the schema"
        ) from error
    confluent = block.get("encoding") == "confluent"
    if block.get("format", "avro") == "avro" and not confluent and declared_row(schema) is schema:
        raise ConfigurationError(
            where,
            f"{field}.schema",
            "is that of a row, and bytes of Avro are only read with the schema of the whole event",
            "give the event's record, which has before, after, source and op; or `format: json`",
        )
    given = block.get("schema_ids") or {}
    check_ids(str(file), f"{field}.schema_ids", given)
    writers = {}
    for schema_id, one in given.items():
        place = f"{field}.schema_ids.{schema_id}"
        where, writers[schema_id] = _load_schema(file, base, place, one)
        try:
            found = dict(travels(declared_row(writers[schema_id])))
        except SchemaRefused as error:
            raise ConfigurationError(where, place, str(error).splitlines()[0], error.hint or "mend it") from error
        for name, travel in columns.items() if block.get("evolution") != "additive" else ():
            if name not in found or found[name].landing != travel.landing:
                raise ConfigurationError(
                    where,
                    place,
                    f"has no column '{name}' of the type in `schema`",
                    "mend the schema, or leave the id out",
                )
    return schema, writers


def read_event_keys(file: Path, base: Path, field: str, block: dict[str, Any], values: dict[str, Any]) -> None:
    """Take in what the keys of raw change events in Avro were written with, where it is said."""
    of_key = key_row_of(declared_row(values["value_schema"]), values["key"])

    def read(place: str, given: Any) -> dict[str, Any]:
        where, schema = _load_schema(file, base, place, given)
        try:
            check_written(Values(of_key, of_changes=True), declared_row(schema))
        except SchemaRefused as error:
            raise ConfigurationError(
                where, place, str(error).splitlines()[0], "give the record of the key, with the columns of `key`"
            ) from error
        return dict(schema)

    framed, looked_up = block.get("encoding") == "confluent", values["registry"] is not None
    unused = "key_schema" if framed and not looked_up else "key_schema_ids" if not framed else ""
    if unused in block:
        raise ConfigurationError(
            str(file),
            f"{field}.{unused}",
            f"is given for {'Confluent framing' if framed else 'bare Avro'}",
            "bare keys have one schema, `key_schema`; behind an id there is one for each, `key_schema_ids`",
        )
    if "key_schema" in block:
        values["key_schema"] = read(f"{field}.key_schema", block["key_schema"])
    given = block.get("key_schema_ids") or {}
    check_ids(str(file), f"{field}.key_schema_ids", given)
    values["key_schema_ids"] = {one: read(f"{field}.key_schema_ids.{one}", given[one]) for one in given}


def read_key_record(
    file: Path, base: Path, field: str, block: dict[str, Any], schema: dict[str, Any], values: dict[str, Any]
) -> dict[str, Any]:
    """Take in how the keys of upserts are read, and say which columns their table has."""
    given = read_schema(file, base, f"{field}.key_schema", block["key_schema"]) if "key_schema" in block else None
    key = read_key(file, f"{field}.key", "upsert", block.get("key"), schema if given is None else given)
    record = key_record_of(str(file), field, key, given, schema)
    check_format(str(file), f"{field}.key_schema", block, record)
    values["key_schema"] = record
    ids = read_schema_ids(file, base, field, block.get("key_schema_ids") or {}, record, "key_schema_ids")
    if block.get("encoding") == "confluent" and not ids and values["registry"] is None:
        raise ConfigurationError(
            str(file),
            f"{field}.key_schema_ids",
            "is missing for Confluent framing",
            "name the schema of every id that keys were written with, e.g. `1: orders-key.avsc`",
        )
    values["key_schema_ids"] = ids
    return add_key(record, schema)


def read_key(file: Path, field: str, family: Any, given: Any, record_schema: dict[str, Any]) -> tuple[str, ...]:
    """The key's columns: an upsert collection has some, one of change events may, no other has any."""
    if family not in ("upsert", "debezium"):
        if given is not None:
            raise ConfigurationError(
                str(file), field, f"is given for the family '{family}'", "only upsert and debezium have a key"
            )
        return ()
    fields = _row_of_event(file, field, record_schema)["fields"] if family == "debezium" else record_schema["fields"]
    if given is None and family == "debezium":
        return ()
    columns = read_key_names(file, field, given)
    known = {one["name"]: one["type"] for one in fields}
    for one in columns:
        if one not in known:
            raise ConfigurationError(
                str(file), field, f"the schema has no column '{one}'", f"its columns are: {', '.join(known)}"
            )
        if family == "debezium" and isinstance(known[one], list) and "null" in known[one]:
            raise ConfigurationError(
                str(file),
                field,
                f"the column '{one}' may be null",
                "a primary key never is: mend the schema, or the key",
            )
    return columns


def read_key_names(file: Path, field: str, given: Any) -> tuple[str, ...]:
    """The key's columns as they are given, a name or a list of them."""
    columns = [given] if isinstance(given, str) else given
    if not isinstance(columns, list) or not columns or not all(isinstance(one, str) for one in columns):
        raise ConfigurationError(
            str(file), field, "does not name the key's columns", "write a column, or a list: `key: [shop, id]`"
        )
    if len(set(columns)) < len(columns):
        raise ConfigurationError(str(file), field, "names a column twice", "name each once")
    return tuple(columns)


def _row_of_event(file: Path, field: str, record_schema: dict[str, Any]) -> dict[str, Any]:
    try:
        return row_record_of(record_schema)
    except SchemaRefused as error:
        raise ConfigurationError(
            str(file), f"{field.rpartition('.')[0]}.schema", str(error).splitlines()[0], error.hint or "mend the schema"
        ) from error
