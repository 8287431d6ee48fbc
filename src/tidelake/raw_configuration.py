"""What `collections.yaml` says of a collection whose topic is raw: framing, format, envelope, and metadata."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from tidelake.errors import ConfigurationError, SchemaRefused
from tidelake.schema import resolved_schema

ENVELOPE_OF_FAMILY: dict[str, str] = {
    "plain": "none",
    "append_only": "append_only",
    "upsert": "upsert",
    "debezium": "debezium",
}
"""Which envelope a family's statements are in; two names for one question."""

UNAVAILABLE_VALUE = "__debezium_unavailable_value"
"""What Debezium writes for a value that the database did not send, unless `unavailable.value.placeholder` is set."""
_FAMILY_OF_ENVELOPE = {envelope: family for family, envelope in ENVELOPE_OF_FAMILY.items()}
_HEADER = {
    "type": "record",
    "name": "header",
    "namespace": "tidelake",
    "fields": [{"name": "key", "type": "string"}, {"name": "value", "type": ["null", "bytes"]}],
}
METADATA: dict[str, Any] = {
    "topic": "string",
    "partition": "int",
    "offset": "long",
    "timestamp": ["null", {"type": "long", "logicalType": "timestamp-millis"}],
    "headers": ["null", {"type": "array", "items": _HEADER}],
}
"""What is known of a record besides its key and value, and the Avro type of the column that it may become."""

_RECLOCK_ONLY = ("format", "metadata", "key_schema", "key_schema_ids", "position", "unavailable_value")
_UPSERT_ONLY = ("key_schema", "key_schema_ids")
_CDCV2_ONLY = ("before",)


def read_family(file: str, field: str, block: Mapping[str, Any]) -> Any:
    """The family, which may be given as `envelope` too."""
    envelope, family = block.get("envelope"), block.get("family")
    if envelope is None:
        return family
    named = _FAMILY_OF_ENVELOPE.get(envelope) if isinstance(envelope, str) else None
    if named is None:
        raise ConfigurationError(
            file,
            f"{field}.envelope",
            f"is not an envelope: {envelope!r}",
            f"use one of: {', '.join(_FAMILY_OF_ENVELOPE)}",
        )
    if family is not None and family != named:
        raise ConfigurationError(
            file,
            f"{field}.envelope",
            f"is '{envelope}', and family is '{family}': both name the same thing",
            "leave one of them out",
        )
    return named


def check_framing(file: str, field: str, block: Mapping[str, Any], family: Any) -> None:
    """Refuse what does not go together with the framing."""
    framing = block.get("framing", "cdcv2")
    if framing == "cdcv2":
        if "evolution" in block:
            raise ConfigurationError(
                file,
                f"{field}.evolution",
                "is given for CDCv2 messages, in which the data is what tells statements apart: its columns are fixed",
                "leave it out, or add `framing: reclock` for a raw topic",
            )
        for name in _RECLOCK_ONLY:
            if name in block:
                raise ConfigurationError(
                    file,
                    f"{field}.{name}",
                    "is given for CDCv2 messages, which are Avro and say all by themselves",
                    "leave it out, or add `framing: reclock` for a raw topic",
                )
        if isinstance(block.get("topic"), list):
            raise ConfigurationError(
                file, f"{field}.topic", "is a list, and a CDCv2 stream is one topic", "name one topic"
            )
        return
    for name in _CDCV2_ONLY:
        if name in block:
            raise ConfigurationError(
                file, f"{field}.{name}", "is given for a raw topic", "leave it out: each key's newest event counts"
            )
    if framing == "reclock" and family == "plain":
        raise ConfigurationError(
            file,
            f"{field}.framing",
            "is 'reclock', and the records of a raw topic state no diff, which the envelope 'none' needs",
            "use `envelope: append_only`, `upsert` or `debezium`",
        )
    if family != "upsert" and not (family == "debezium" and block.get("format", "avro") == "avro"):
        for name in _UPSERT_ONLY:
            if name in block:
                raise ConfigurationError(
                    file,
                    f"{field}.{name}",
                    f"is given for the envelope '{family}'",
                    "only upserts, and change events in Avro, read keys by it",
                )


def check_ids(file: str, field: str, given: Any) -> None:
    """Refuse what does not map schema ids to schemas."""
    if not isinstance(given, dict) or not all(type(one) is int and 0 <= one < 2**32 for one in given):
        raise ConfigurationError(file, field, "does not map ids to schemas", "write `1: orders.avsc`")


def check_schema_elsewhere(file: str, field: str, block: Mapping[str, Any], in_registry: bool) -> None:
    """Refuse a collection without a schema, unless its topic or a registry has it.

    Args:
        file: the settings file.
        field: the collection's.
        block: its settings.
        in_registry: whether its events are looked up.
    """
    changes = block.get("framing") == "reclock" and read_family(file, field, block) == "debezium"
    if in_registry or (changes and block.get("format") == "json"):
        return
    hint = "give an .avsc file or the schema itself"
    if changes:
        hint += "; or `encoding: confluent`, no `schema_ids` and a block `registry:`, which has it"
    raise ConfigurationError(file, f"{field}.schema", "is missing", hint)


def check_format(file: str, field: str, block: Mapping[str, Any], record: dict[str, Any]) -> None:
    """Refuse what JSON has no form for."""
    if block.get("format") != "json":
        return
    for name in ("encoding", "schema_ids"):
        if name in block:
            raise ConfigurationError(
                file, f"{field}.{name}", "is given for JSON, which has no schema id before it", "leave it out"
            )
    column = _several_types(resolved_schema(record), "")
    if column is not None:
        raise ConfigurationError(
            file,
            f"{field}.schema",
            f"the column '{column}' is a union of several types, and JSON does not say which of them a value is",
            "give it one type, or read it as text",
        )


def _several_types(kind: Any, column: str) -> str | None:
    """The first column of a resolved type that is a union of several types; None where there is none."""
    if isinstance(kind, list):
        real = [one for one in kind if one != "null"]
        return column if len(real) > 1 else _several_types(real[0], column)
    if kind["type"] == "array":
        return _several_types(kind["items"], f"{column}[]")
    fields = kind["fields"] if kind["type"] == "record" else []
    found = (_several_types(one["type"], f"{column}.{one['name']}" if column else one["name"]) for one in fields)
    return next((one for one in found if one is not None), None)


def read_position(file: str, field: str, given: Any, family: Any) -> tuple[str, ...]:
    """The fields of an event that order events of one key, such as `source.pos`."""
    if given is None:
        return ()
    if family != "debezium":
        raise ConfigurationError(file, field, f"is given for the envelope '{family}'", "only change events have one")
    known = isinstance(given, list) and given and _are_texts(given)
    if not known or not all(re.fullmatch(r"source\.[A-Za-z_][A-Za-z0-9_]*|ts_ms", one) for one in given):
        raise ConfigurationError(
            file,
            field,
            f"does not name fields of an event: {given!r}",
            "name them, the most significant first: `position: [source.file, source.pos, source.row]`",
        )
    return tuple(given)


def key_record_of(
    file: str, field: str, key: Sequence[str], given: dict[str, Any] | None, record: dict[str, Any]
) -> dict[str, Any]:
    """The record schema of the records' keys: the one that is given, or the key's columns of the value.

    Args:
        file: the settings file, for errors.
        field: the collection's, for errors.
        key: the key's columns.
        given: what `key_schema` says, checked.
        record: the record schema of the values.
    """
    if given is None:
        by_name = {one["name"]: one["type"] for one in resolved_schema(record)["fields"]}
        return {"type": "record", "name": "key", "fields": [{"name": name, "type": by_name[name]} for name in key]}
    ours = {one["name"].lower() for one in given["fields"]}
    clash = next((one["name"] for one in record["fields"] if one["name"].lower() in ours), None)
    if clash is not None:
        raise ConfigurationError(
            file,
            f"{field}.key_schema",
            f"the column '{clash}' is in the key and in the value",
            "leave `key_schema` out where they say the same, or leave the column out of `schema`",
        )
    return given


def add_key(key_record: dict[str, Any], record: dict[str, Any]) -> dict[str, Any]:
    """The record schema of a table: the key's columns that the value does not have, then those of the value."""
    known = {one["name"] for one in record["fields"]}
    added = [one for one in key_record["fields"] if one["name"] not in known]
    return record | {"fields": [*added, *record["fields"]]}


def read_metadata(file: str, field: str, given: Any) -> dict[str, str]:
    """What of each record becomes a column: a list, for names like `kafka_offset`, or a mapping to names."""
    if given is None:
        return {}
    named = {one: f"kafka_{one}" for one in given} if isinstance(given, list) and _are_texts(given) else given
    if not isinstance(named, dict) or not _are_texts(named.values()):
        raise ConfigurationError(
            file, field, "is neither a list nor a mapping to names", "write `[partition, offset]`, or `{offset: at}`"
        )
    for one in named:
        if one not in METADATA:
            raise ConfigurationError(file, f"{field}.{one}", "is not known", f"use some of: {', '.join(METADATA)}")
    return {one: named[one] for one in METADATA if one in named}


def add_metadata(file: str, field: str, record: dict[str, Any], metadata: Mapping[str, str]) -> dict[str, Any]:
    """The record schema of a table: the data's columns, then those of the metadata."""
    known = {one["name"].lower(): one["name"] for one in record["fields"]}
    for kind, name in metadata.items():
        if name.lower() in known:
            raise ConfigurationError(
                file,
                f"{field}.{kind}",
                f"the column '{name}' clashes with the column '{known[name.lower()]}'",
                f"give it another name: `metadata: {{{kind}: another_name}}`",
            )
        known[name.lower()] = name
    fields = [{"name": name, "type": METADATA[kind]} for kind, name in metadata.items()]
    added = record | {"fields": [*record["fields"], *fields]}
    try:
        resolved_schema(added)
    except SchemaRefused as error:
        raise ConfigurationError(file, field, str(error).splitlines()[0], error.hint or "mend the names") from error
    return added


def _are_texts(values: Any) -> bool:
    return all(isinstance(one, str) for one in values)


def topic_names(given: Any) -> Sequence[Any]:
    """The names of the topics, from one name or a list of them."""
    return given if isinstance(given, list) else [given]
