"""Drafts the settings of a collection from samples of its topic."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tidelake.cli.init.json_columns import Inferred
from tidelake.cli.init.samples import Sample
from tidelake.errors import CodecError, MalformedMessage, OptionRefused, SchemaRefused
from tidelake.read.words import counted
from tidelake.schema.avro import record_schema_of
from tidelake.schema.change_events import row_record_of
from tidelake.schema.connect import declared_row, row_schema_of_connect

MAGIC_BYTE, HEADER_BYTES = 0, 5
_MYSQL = ("mysql", "mariadb")
_GUIDE = "write the settings by hand: docs/guides/debezium.md explains them"


@dataclass
class Draft:
    """The block of a collection, without its topic and source."""

    block: dict[str, Any]
    remarks: list[str] = field(default_factory=list)
    """Findings and things to check, each as a sentence without the final period."""


@dataclass(frozen=True)
class Choices:
    """The user's choices; None leaves a choice to the samples."""

    envelope: str | None = None
    key: tuple[str, ...] = ()
    schema: Any = None
    """The Avro schema of the values: a record, a change event, or a whole CDCv2 schema."""


class Registry:
    """Looks up schemas in a registry; see `tidelake.topic.schema_registry`."""

    def __init__(self, schemas_of: Callable[[str], Mapping[int, Any]]) -> None:
        """Take the function that returns all schemas of a subject, by id."""
        self._schemas_of = schemas_of

    def newest(self, subject: str) -> Any:
        """Return the newest Avro schema of a subject; None if there is none."""
        return next(
            (schema for schema in reversed(list(self._schemas_of(subject).values())) if schema is not None), None
        )


def draft_of(topic: str, samples: Sequence[Sample], choices: Choices, registry: Registry | None) -> Draft:
    """Draft the settings.

    Args:
        topic: the topic's name, for the registry's subjects and the names of records.
        samples: the first messages; may be empty if there is a schema.
        choices: what the user has chosen.
        registry: the registry, if there is one.

    Raises:
        OptionRefused: something is missing that only the user knows.
    """
    values = [sample.value for sample in samples if sample.value is not None]
    objects = [(sample, value) for sample in samples if isinstance(value := _json(sample.value), dict)]
    if choices.schema is None and values and len(objects) * 2 > len(values):
        return _json_draft(topic, samples, objects, choices)
    schema, framed = choices.schema, False
    if schema is None and registry is not None:
        schema, framed = registry.newest(f"{topic}-value"), True
        if schema is None:
            raise OptionRefused(
                f"the registry has no Avro schema under '{topic}-value'",
                "register the schema of the values there, or write the settings by hand: docs/registry.md explains them"
                if _are_framed(values)
                else "give --schema FILE.avsc, the schema of the values",
            )
    if schema is None:
        raise _no_schema(topic, samples, values)
    if not framed:
        _check_schema(topic, values, schema, has_registry=registry is not None)
    return _avro_draft(topic, samples, values, choices, schema, registry if framed else None)


def _no_schema(topic: str, samples: Sequence[Sample], values: Sequence[bytes]) -> OptionRefused:
    if not samples:
        return OptionRefused(
            f"the topic '{topic}' has no messages yet",
            "wait until it has some, or give --schema FILE.avsc, the schema of the values",
        )
    if not values:
        return OptionRefused(
            f"none of the first messages of '{topic}' has a value: they are deletes",
            "wait for other messages, or write the settings by hand: docs/reference/configuration.md describes them",
        )
    if _are_framed(values):
        return OptionRefused(
            f"the messages of '{topic}' begin with the id of a schema in a registry",
            "give --registry URL or, if they are bare Avro, --schema FILE.avsc",
        )
    return OptionRefused(
        f"the messages of '{topic}' are not JSON objects, and Avro cannot be read without its schema",
        "if they are Avro, give --schema FILE.avsc, which `tidelake generate` writes for its topics; other formats "
        "cannot be read",
    )


def _check_schema(topic: str, values: Sequence[bytes], schema: Any, has_registry: bool) -> None:
    """Refuse a schema from the user that the messages were not written with."""
    framed = bool(values) and all(map(_is_framed, values))
    if not values or (isinstance(schema, list) and not framed) or _fits(values, schema):
        return
    advice = "leave out --schema" if has_registry else "give --registry URL"
    if framed:
        raise OptionRefused(f"the messages of '{topic}' begin with the id of a schema in a registry", advice)
    raise OptionRefused(
        f"the messages of '{topic}' are not Avro with this schema",
        f"give the schema that they were written with, or {advice} if they begin with the id of a schema",
    )


def _are_framed(values: Sequence[bytes]) -> bool:
    return sum(map(_is_framed, values)) * 2 > len(values)


def _is_framed(value: bytes) -> bool:
    # Bare Avro may also begin with a zero, for the null of a union. Ids of schemas are small, so their first byte is 0.
    return len(value) > HEADER_BYTES and value[:2] == bytes([MAGIC_BYTE, 0])


# --- JSON ----------------------------------------------------------------------------------------------------------


def _json_draft(
    topic: str, samples: Sequence[Sample], objects: Sequence[tuple[Sample, dict[str, Any]]], choices: Choices
) -> Draft:
    """Draft the settings of a topic of JSON records."""
    payloads = [_payload(value) for _, value in objects]
    events = [value for value in payloads if isinstance(value.get("op"), str) and {"before", "after"} & set(value)]
    has_changes = choices.envelope == "debezium" or (choices.envelope is None and len(events) * 2 > len(payloads))
    if has_changes:
        schemas = [value["schema"] for _, value in objects if _payload(value) is not value]
        return _json_changes(topic, samples, events, choices, schemas)
    keys = [_json(sample.key) for sample in samples if sample.key is not None]
    has_deletes = any(sample.value is None for sample in samples)
    envelope = choices.envelope or ("upsert" if has_deletes and len(keys) == len(samples) else "append_only")
    if envelope == "upsert":
        return _json_upserts(topic, samples, payloads, choices)
    inferred = Inferred()
    record = inferred.record(_record_name(topic), payloads)
    read = counted(len(payloads), "JSON record was read", "JSON records were read")
    remarks = [f"{read}; each is a row of its own", *inferred.remarks]
    if keys:
        remarks.append(
            "the records have keys: if a record replaces earlier ones with the same key, remove this file, and run "
            "`tidelake init` again with --envelope upsert"
        )
    block = {"framing": "reclock", "envelope": envelope, "format": "json", "schema": _checked(record)}
    return Draft(block, remarks)


def _json_upserts(topic: str, samples: Sequence[Sample], payloads: Sequence[dict[str, Any]], choices: Choices) -> Draft:
    """Draft the settings of a topic in which the last record of each key has the key's value."""
    inferred, name = Inferred(), _record_name(topic)
    keys = [_key(sample.key) for sample in samples if sample.key is not None]
    if not keys:
        raise OptionRefused(f"the records of '{topic}' have no keys", "choose --envelope append_only")
    block: dict[str, Any] = {"framing": "reclock", "envelope": "upsert", "format": "json"}
    columns = {column for value in payloads for column in value}
    if all(isinstance(key, dict) for key in keys):
        named = choices.key or tuple(dict.fromkeys(column for key in keys for column in key))
        objects = keys
    else:
        named = choices.key[:1] or (_column_of_keys(samples) or "id",)
        objects = [key if isinstance(key, dict) else {named[0]: key} for key in keys]
    inside = [column for column in named if column in columns]
    if inside and len(inside) < len(named):
        raise OptionRefused(
            f"the key of '{topic}' has the columns {', '.join(named)}, but the values have only {', '.join(inside)}",
            "write the settings by hand: docs/guides/upsert.md explains them",
        )
    block["key"] = list(named)
    if not inside:
        block["key_schema"] = _checked(inferred.record(f"{name}_key", objects, required=named))
    block["schema"] = _checked(inferred.record(name, payloads, required=inside))
    read = counted(len(payloads), "JSON record was read", "JSON records were read")
    found = f"{read}; the last record of each key ({', '.join(named)}) has the key's value"
    return Draft(block, [found, *inferred.remarks])


def _column_of_keys(samples: Sequence[Sample]) -> str | None:
    """Return the column that repeats the bare key in every value; None if there is none."""
    pairs = [
        (_key(sample.key), _payload(value)) for sample in samples if isinstance(value := _json(sample.value), dict)
    ]
    columns = dict.fromkeys(column for _, value in pairs for column in value)
    return next((column for column in columns if all(value.get(column) == key for key, value in pairs)), None)


def _json_changes(
    topic: str,
    samples: Sequence[Sample],
    events: Sequence[Mapping[str, Any]],
    choices: Choices,
    schemas: Sequence[Any],
) -> Draft:
    """Draft the settings of a topic of Debezium's change events in JSON."""
    keys = [key for sample in samples if isinstance(key := _key(sample.key), dict)]
    named = choices.key or tuple(dict.fromkeys(column for key in keys for column in key))
    block: dict[str, Any] = {"framing": "reclock", "envelope": "debezium", "format": "json"}
    block |= _key_and_position(topic, named, events)
    read = counted(len(events), "change event was read", "change events were read")
    remarks = [f"{read}, with the primary key {', '.join(named)}"]
    if schemas:
        _readable(schemas[0])
        remarks.append("the columns come from the schema in the messages")
        return Draft(block, remarks)
    inferred = Inferred()
    rows = [row for event in events for part in ("before", "after") if isinstance(row := event.get(part), dict)]
    block["schema"] = _checked(inferred.record(_record_name(topic), rows, required=named))
    remarks.append(
        "the messages have no schema, so dates, timestamps and decimals are read as Debezium sends them: to change "
        "that, give their columns Debezium's types, as docs/guides/debezium.md does"
    )
    return Draft(block, [*remarks, *inferred.remarks])


def _key_and_position(topic: str, key: Sequence[str], events: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the settings that identify the row of a change event, and order the events of a row."""
    if not key:
        raise OptionRefused(
            f"the change events of '{topic}' have no keys that name columns",
            "name the primary key: --key id, or --key shop,id",
        )
    sources = [source for event in events if isinstance(source := event.get("source"), dict)]
    connectors = {str(source.get("connector")) for source in sources}
    if connectors <= {"postgresql"}:
        return {"key": list(key)}
    if connectors <= set(_MYSQL):
        return {"key": list(key), "position": ["source.file", "source.pos", "source.row"]}
    raise OptionRefused(
        f"it is not known which fields order the events of the connector {', '.join(sorted(connectors))}",
        f"{_GUIDE}, including `position`",
    )


# --- Avro ----------------------------------------------------------------------------------------------------------


def _avro_draft(
    topic: str,
    samples: Sequence[Sample],
    values: Sequence[bytes],
    choices: Choices,
    schema: Any,
    registry: Registry | None,
) -> Draft:
    """Draft the settings of a topic in Avro, with a schema from the user or from a registry."""
    encoding = {} if registry is None else {"encoding": "confluent"}
    if isinstance(schema, list) or (registry is None and bool(values) and _fits_stream(values, schema)):
        return _stream(topic, schema, choices, encoding)
    if choices.envelope == "debezium" or (choices.envelope is None and _is_change_event(schema)):
        return _avro_changes(topic, choices, schema, registry)
    has_deletes = any(sample.value is None for sample in samples)
    has_keys = bool(samples) and all(sample.key is not None for sample in samples)
    envelope = choices.envelope or ("upsert" if has_deletes and has_keys else "append_only")
    block: dict[str, Any] = {"framing": "reclock", "envelope": envelope, "format": "avro", **encoding}
    if envelope == "upsert":
        if not choices.key:
            raise OptionRefused(
                "upserts in Avro need the columns of their key", "name them: --key id, or --key shop,id"
            )
        block["key"] = list(choices.key)
        written = None if registry is None else registry.newest(f"{topic}-key")
        inside = {column["name"] for column in record_schema_of(schema)["fields"]}
        if written is not None and not set(choices.key) <= inside:
            block["key_schema"] = _checked(written)
    block["schema"] = _checked(schema)
    return Draft(block, ["the messages are Avro records"])


def _stream(topic: str, schema: Any, choices: Choices, encoding: Mapping[str, str]) -> Draft:
    """Draft the settings of a CDCv2 stream."""
    try:
        record = record_schema_of(schema)
    except SchemaRefused as error:
        raise OptionRefused(f"the schema of '{topic}' cannot be used: {error.fact}", "correct the schema") from error
    envelope = choices.envelope
    if envelope is None:
        envelope = "debezium" if _has_rows(record) else "none"
    block: dict[str, Any] = {"framing": "cdcv2", "envelope": envelope, **encoding}
    if choices.key:
        block["key"] = list(choices.key)
    elif envelope == "upsert":
        raise OptionRefused("an upsert collection needs a key", "name its columns: --key id, or --key shop,id")
    block["schema"] = record
    return Draft(block, ["the messages are CDCv2: they state times, diffs and progress"])


def _avro_changes(topic: str, choices: Choices, schema: Any, registry: Registry | None) -> Draft:
    """Draft the settings of a topic of Debezium's change events in Avro."""
    block: dict[str, Any] = {"framing": "reclock", "envelope": "debezium", "format": "avro"}
    remarks = ["the messages are change events in Avro; events from PostgreSQL need no `position`"]
    if registry is None:
        if not choices.key:
            raise OptionRefused(
                "change events in Avro need the primary key", "name its columns: --key id, or --key shop,id"
            )
        return Draft(block | {"key": list(choices.key), "schema": schema}, remarks)
    written = registry.newest(f"{topic}-key")
    columns = [] if written is None else [column["name"] for column in declared_row(written)["fields"]]
    if not choices.key and not columns:
        raise OptionRefused(
            f"the registry has no key schema under '{topic}-key'",
            "name the primary key: --key id, or --key shop,id",
        )
    remarks.append("the columns come from the registry")
    return Draft(block | {"encoding": "confluent", "key": list(choices.key or columns)}, remarks)


def _is_change_event(schema: Any) -> bool:
    fields = schema.get("fields") if isinstance(schema, dict) else None
    names = {column.get("name") for column in fields if isinstance(column, dict)} if isinstance(fields, list) else set()
    return {"before", "after", "op"} <= names


def _has_rows(record: dict[str, Any]) -> bool:
    """Whether the data of a CDCv2 stream are change events."""
    try:
        row_record_of(record)
    except SchemaRefused:
        return False
    return True


def _fits_stream(values: Sequence[bytes], schema: Any) -> bool:
    """Whether most messages are CDCv2 with data of this schema."""
    from tidelake.codec.avro import AvroCodec

    def is_message(codec: AvroCodec, value: bytes) -> bool:
        try:
            codec.decode(value)
        except MalformedMessage:  # it has the form of a message, but breaks a rule
            return True
        except CodecError:
            return False
        return True

    try:
        codec = AvroCodec(schema)
    except SchemaRefused:
        return False
    return sum(is_message(codec, value) for value in values) * 2 > len(values)


def _fits(values: Sequence[bytes], schema: Any) -> bool:
    """Whether most messages are Avro with this schema, to their last byte, or CDCv2 with data of this schema."""
    import fastavro

    def reads(parsed: Any, value: bytes) -> bool:
        buffer = io.BytesIO(value)
        try:
            fastavro.schemaless_reader(buffer, parsed, None)
        except Exception:  # fastavro raises errors of any type for bytes that do not match the schema
            return False
        return buffer.tell() == len(value)

    if _fits_stream(values, schema):
        return True
    try:
        parsed = fastavro.parse_schema(schema)
    except Exception as error:  # fastavro raises errors of any type for schemas that are malformed
        raise OptionRefused(f"the schema is not Avro: {error}", "correct the schema file") from error
    return sum(reads(parsed, value) for value in values) * 2 > len(values)


# --- parts ---------------------------------------------------------------------------------------------------------


def _json(value: bytes | None) -> Any:
    """Return the value of JSON bytes; None if they are not JSON."""
    if value is None:
        return None
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return None


def _key(key: bytes | None) -> Any:
    """Return a record's key: a JSON value without its schema, or plain text; None if the record has no key."""
    value = _json(key)
    if isinstance(value, dict):
        return _payload(value)
    return value if value is not None or key is None else key.decode("utf-8", "replace")


def _payload(value: dict[str, Any]) -> dict[str, Any]:
    """Return a JSON value without Kafka Connect's schema around it."""
    if set(value) == {"schema", "payload"} and isinstance(value["payload"], dict):
        return dict(value["payload"])
    return value


def _record_name(topic: str) -> str:
    """Return a name that Avro allows."""
    letters = "".join(letter if letter.isascii() and letter.isalnum() else "_" for letter in topic.rpartition(".")[2])
    return letters if letters[:1].isalpha() else f"record_{letters}"


def _checked(record: Any) -> Any:
    """Return the given record schema, if a collection can hold its columns.

    Raises:
        OptionRefused: a collection cannot hold one of them.
    """
    try:
        return record_schema_of(record)
    except SchemaRefused as error:
        fix = "write the settings by hand: docs/reference/configuration.md has every key"
        raise OptionRefused(f"a collection cannot hold these records: {error.fact}", fix) from error


def _readable(schema: Any) -> None:
    try:
        row_schema_of_connect(schema)
    except SchemaRefused as error:
        raise OptionRefused(f"the schema in the messages cannot be used: {error.fact}", _GUIDE) from error
