"""Reads `collections.yaml` into frozen, validated settings; refuses what is wrong before anything is written.

A wrong file is told apart by what a person has to mend: the text of every error names the file, the field or the line,
and the fix.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from tidelake.column_types import column_difference, column_types
from tidelake.configuration_block import refuse_unknown
from tidelake.connect_types import declared_row, landing_record, travels, without_references
from tidelake.debezium import row_record_of
from tidelake.errors import ConfigurationError, SchemaRefused
from tidelake.evolution import Values, check_written
from tidelake.kafka_configuration import KafkaSettings, read_kafka
from tidelake.raw_configuration import (
    ENVELOPE_OF_FAMILY,
    UNAVAILABLE_VALUE,
    add_key,
    add_metadata,
    check_format,
    check_framing,
    check_ids,
    check_schema_elsewhere,
    key_record_of,
    read_family,
    read_metadata,
    read_position,
    topic_names,
)
from tidelake.registry_configuration import RegistrySettings, Subject, read_registry, uses_registry
from tidelake.schema import record_schema_of

Family = Literal["plain", "append_only", "upsert", "debezium"]
Framing = Literal["cdcv2", "reclock"]
Format = Literal["avro", "json"]
Source = Literal["files", "kafka"]
Encoding = Literal["avro", "confluent"]
Before = Literal["whole", "key"]
Evolution = Literal["none", "additive"]

_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, arbitrary_types_allowed=True)


class CollectionSettings(_Frozen):
    """One collection as a user asks for it."""

    name: str
    family: Family
    topics: tuple[str, ...]
    """Which topics it reads; several only in raw framing."""
    topics_folder: Path
    source: Source = "files"
    """Where the topics are: folders below `topics`, or in Kafka."""
    kafka: KafkaSettings | None = None
    """The cluster, where the topics are in Kafka."""
    registry: RegistrySettings | None = None
    """Where schema ids are looked up, where they are not listed."""
    subject: Subject = "topic"
    """Under which subjects of the registry the topics' schemas are."""
    refused_ids: dict[int, str] = Field(default_factory=dict)
    """Schema ids that the registry knows, and why their records cannot be read."""
    refused_schemas: dict[int, str] = Field(default_factory=dict)
    """By the hash of a schema that JSON messages have with them, why they cannot be read."""
    record_schema: dict[str, Any]
    """The table's columns: those of the data, and in raw framing of what is added to them."""
    value_schema: dict[str, Any] = Field(default_factory=dict)
    """Raw framing: what the values of the records are."""
    bare_schema: dict[str, Any] = Field(default_factory=dict)
    """Raw framing, bare Avro: what the bytes are, where the values have got more columns since; else empty."""
    evolution: Evolution = "none"
    """Raw framing: whether new columns that may be null appear by themselves."""
    framing: Framing = "cdcv2"
    format: Format = "avro"
    """Raw framing: what the bytes of keys and values are."""
    key_schema: dict[str, Any] = Field(default_factory=dict)
    """Raw upserts: what the keys of the records are."""
    key_schema_ids: dict[int, dict[str, Any]] = Field(default_factory=dict)
    """Raw upserts in Confluent framing: the record schema that each id in the keys was written with."""
    metadata: dict[str, str] = Field(default_factory=dict)
    """Raw framing: what else is known of each record, and the column that it becomes."""
    position: tuple[str, ...] = ()
    """Raw change events: what orders the events of one key, where the connector is not PostgreSQL's."""
    unavailable_value: str = UNAVAILABLE_VALUE
    """Raw change events: what the connector writes for a value that the database did not send."""
    key: tuple[str, ...] = ()
    """The columns that name a row: what an upsert is about, or the primary key of the table whose changes come."""
    before: Before = "whole"
    """Change events with a key: whether `before` is the whole row, or may be just the key's columns, or null."""
    encoding: Encoding = "avro"
    schema_ids: dict[int, dict[str, Any]] = Field(default_factory=dict)
    """Confluent framing: the record schema that each id in a topic was written with."""
    keep: Literal["all"] | int = "all"
    """The retention rule: every time stays readable, or those at most this far before upper."""
    messages_per_tick_max: int = Field(default=200_000, ge=1)
    merge_rows_max: int = Field(default=5_000_000, ge=1)
    """The work budget of the merges in one scheduled run; the nightly compaction has none."""
    stalled_after_s: int = Field(default=86_400, ge=1)

    @property
    def topic(self) -> str:
        """The topics, for a person."""
        return ", ".join(self.topics)

    @property
    def envelope(self) -> str:
        """What one statement means: `none`, `append_only`, `upsert` or `debezium`."""
        return ENVELOPE_OF_FAMILY[self.family]

    @field_validator("keep")
    @classmethod
    def _keep_is_a_distance(cls, keep: str | int) -> str | int:
        if isinstance(keep, int) and (isinstance(keep, bool) or keep < 0):
            raise ValueError("keep is 'all' or a distance in times, 0 or more")
        return keep


_READ_APART = {
    "schema",
    "schema_ids",
    "topic",
    "envelope",
    "metadata",
    "key",
    "key_schema",
    "key_schema_ids",
    "position",
}
_KEYS = (set(CollectionSettings.model_fields) | {"schema", "topic", "envelope"}) - {
    "name",
    "record_schema",
    "value_schema",
    "bare_schema",
    "topics",
    "topics_folder",
    "kafka",
    "registry",
    "refused_ids",
    "refused_schemas",
}


class Settings(_Frozen):
    """All that a job must know: where things lie and which collections there are."""

    file: Path
    store: Path
    topics: Path
    collections: tuple[CollectionSettings, ...]
    data_docs: Path
    kafka: KafkaSettings | None = None
    registry: RegistrySettings | None = None

    def collection(self, name: str) -> CollectionSettings:
        """The settings of one collection.

        Raises:
            ConfigurationError: no collection has this name.
        """
        for one in self.collections:
            if one.name == name:
                return one
        known = ", ".join(one.name for one in self.collections) or "none"
        raise ConfigurationError(
            str(self.file), f"collections.{name}", "there is no collection of this name", f"use one of: {known}"
        )

    def only(self, names: tuple[str, ...]) -> Settings:
        """The same settings with just these collections; an empty tuple means all.

        Raises:
            ConfigurationError: one of the names is not there.
        """
        if not names:
            return self
        return self.model_copy(update={"collections": tuple(self.collection(name) for name in names)})


class _UniqueKeyLoader(yaml.SafeLoader):
    """YAML in which a key given twice is an error; plain YAML silently keeps the last one."""


def _mapping_of_unique_keys(loader: _UniqueKeyLoader, node: yaml.MappingNode) -> dict[Any, Any]:
    seen: set[str] = set()
    for key_node, _ in node.value:
        key = str(key_node.value)
        if key in seen:
            raise yaml.constructor.ConstructorError(None, None, f"the key '{key}' is given twice", key_node.start_mark)
        seen.add(key)
    return yaml.SafeLoader.construct_mapping(loader, node, deep=True)


def _construct_or_say_where(loader: _UniqueKeyLoader, node: yaml.Node) -> Any:
    """Read a scalar that looks like a date or a number and may be none, such as `2020-13-45`."""
    construct = yaml.SafeLoader.yaml_constructors[node.tag]
    try:
        return construct(loader, node)
    except (ValueError, OverflowError, LookupError, AttributeError) as error:  # all of them from within PyYAML
        problem = f"{node.value!r} is no {node.tag.rpartition(':')[2]}: {error}"
        raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark) from error


for _kind in ("timestamp", "int", "float", "bool"):
    _UniqueKeyLoader.add_constructor(f"tag:yaml.org,2002:{_kind}", _construct_or_say_where)
_UniqueKeyLoader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping_of_unique_keys)


def load_settings(file: Path) -> Settings:
    """Read `collections.yaml`; paths in it are relative to its folder.

    Raises:
        ConfigurationError: naming the file, the field or line, what is wrong and what to do. Nothing was written.
    """
    document = _read_yaml(file)
    refuse_unknown(str(file), "", document, {"store", "topics", "data_docs", "kafka", "registry", "collections"})
    base = file.resolve().parent
    topics = base / _text(file, document, "topics", "data/topics")
    store = base / _text(file, document, "store", "data/store")
    _check_store(file, store, topics)
    kafka = read_kafka(str(file), base, document["kafka"]) if "kafka" in document else None
    registry = read_registry(str(file), base, document["registry"]) if "registry" in document else None
    collections = document.get("collections") or {}
    if not isinstance(collections, dict):
        raise ConfigurationError(
            str(file),
            "collections",
            "is not a mapping of names",
            "write `collections:` and below it one block per name",
        )
    read: list[CollectionSettings] = []
    for name, block in collections.items():
        read.append(_read_collection(file, base, topics, (kafka, registry), str(name), block))
    return Settings(
        file=file,
        store=store,
        topics=topics,
        data_docs=base / _text(file, document, "data_docs", "data/data_docs"),
        collections=tuple(read),
        kafka=kafka,
        registry=registry,
    )


def _check_store(file: Path, store: Path, topics: Path) -> None:
    """Refuse a store that cannot be a folder, or whose tables a reader of topics would meet, and the reverse."""
    there = next(one for one in (store, *store.parents) if one.exists())
    if not there.is_dir():
        raise ConfigurationError(str(file), "store", f"{there} is a file, not a folder", "give a folder's path")
    # Not `resolve`, which raises where links go round.
    real_store, real_topics = Path(os.path.realpath(store)), Path(os.path.realpath(topics))
    if real_store.is_relative_to(real_topics) or real_topics.is_relative_to(real_store):
        raise ConfigurationError(
            str(file),
            "store",
            f"the store {store} and the topics {topics} are one folder, or one lies in the other",
            "give each a folder of its own",
        )


def check_topics(settings: Settings) -> None:
    """Refuse a collection whose topic is a folder that is not there; no broker is asked.

    Raises:
        ConfigurationError: the topic's folder is missing.
    """
    for one in settings.collections:
        for topic in one.topics if one.source == "files" else ():
            folder = one.topics_folder / topic
            if not folder.is_dir():
                raise ConfigurationError(
                    str(settings.file),
                    f"collections.{one.name}.topic",
                    f"the topic '{topic}' has no folder {folder}",
                    "create the folder (it may be empty), or mend the topic's name",
                )


def _read_yaml(file: Path) -> dict[str, Any]:
    try:
        document = yaml.load(file.read_text(encoding="utf-8"), Loader=_UniqueKeyLoader)
    except OSError as error:
        raise ConfigurationError(
            str(file), "", f"cannot be read: {error.strerror}", "give the path of your collections.yaml"
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(str(file), "", "is not UTF-8 text", "save it as UTF-8") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f"line {mark.line + 1}" if mark is not None else ""
        problem = getattr(error, "problem", None) or str(error)
        raise ConfigurationError(str(file), line, str(problem), "mend the YAML at that line") from error
    except RecursionError as error:
        raise ConfigurationError(str(file), "", "is nested too deep", "write it flat") from error
    if not isinstance(document, dict):
        raise ConfigurationError(
            str(file), "", "is not a YAML mapping", "start with `store:`, `topics:` and `collections:`"
        )
    return document


def _text(file: Path, document: dict[str, Any], field: str, default: str) -> str:
    value = document.get(field, default)
    if not isinstance(value, str):
        raise ConfigurationError(str(file), field, f"is not a path: {value!r}", "write it as text")
    if not value or value != value.strip() or not _is_path_text(value):
        raise ConfigurationError(
            str(file), field, f"is not a path: {value!r}", "no empty text, no space around it, no control characters"
        )
    return value


def _is_path_text(value: str) -> bool:
    """Whether a file system can hold the text, and a person can see all of it."""
    return not any(ord(one) < 32 or ord(one) == 127 or 0xD800 <= ord(one) <= 0xDFFF for one in value)


def _read_collection(
    file: Path,
    base: Path,
    topics: Path,
    servers: tuple[KafkaSettings | None, RegistrySettings | None],
    name: str,
    block: Any,
) -> CollectionSettings:
    field = f"collections.{name}"
    if not _NAME.fullmatch(name):
        raise ConfigurationError(
            str(file), field, "is not a name", "use lower-case letters, digits and _, starting with a letter"
        )
    if not isinstance(block, dict):
        raise ConfigurationError(
            str(file), field, "is empty or not a mapping", "give at least family, topic and schema"
        )
    refuse_unknown(str(file), f"{field}.", block, _KEYS)
    values = {key: value for key, value in block.items() if key not in _READ_APART}
    values["family"] = family = read_family(str(file), field, block)
    check_framing(str(file), field, block, family)
    kafka, registry = servers
    looks_up = uses_registry(str(file), field, block, registry)
    values["registry"] = registry if looks_up else None
    raw_changes = family == "debezium" and block.get("framing") == "reclock"
    if "schema" not in block:
        check_schema_elsewhere(str(file), field, block, raw_changes and looks_up)
        return _without_schema(file, field, block, {**values, **_places(file, field, block, topics, kafka)}, name)
    event, writers = _read_changes(file, base, field, block) if raw_changes else ({}, {})
    schema = (
        landing_record(declared_row(event))
        if raw_changes
        else _read_schema(file, base, f"{field}.schema", block["schema"])
    )
    check_format(str(file), field, block, schema)
    grows = block.get("evolution") == "additive"
    values["schema_ids"] = (
        writers
        if raw_changes
        else _read_schema_ids(file, base, field, block.get("schema_ids") or {}, schema, grows=grows)
    )
    if values.get("encoding") == "confluent" and not values["schema_ids"] and not looks_up:
        raise ConfigurationError(
            str(file),
            f"{field}.schema_ids",
            "is missing for Confluent framing",
            "name the schema of every id, e.g. `1: orders.avsc`; or add a block `registry:`",
        )
    values |= _places(file, field, block, topics, kafka)
    if "before" in block and (family != "debezium" or block.get("key") is None):
        raise ConfigurationError(
            str(file), f"{field}.before", "is given without change events that have a key", "leave it out, or add `key`"
        )
    table = schema
    if block.get("framing") == "reclock" and family == "upsert":
        table = _read_key_record(file, base, field, block, schema, values)
    key_family = "upsert" if raw_changes else family
    values["key"] = _read_key(file, f"{field}.key", key_family, block.get("key"), table)
    values["record_schema"] = table
    if block.get("framing") == "reclock":
        values["position"] = read_position(str(file), f"{field}.position", block.get("position"), family)
        values["metadata"] = read_metadata(str(file), f"{field}.metadata", block.get("metadata"))
        values["value_schema"] = event or schema
        values["record_schema"] = add_metadata(str(file), f"{field}.metadata", table, values["metadata"])
    if raw_changes:
        _read_event_keys(file, base, field, block, values)
    return _validated(file, field, name, values)


def _places(file: Path, field: str, block: dict[str, Any], topics: Path, kafka: KafkaSettings | None) -> dict[str, Any]:
    """Which topics a collection reads, and where they are."""
    values: dict[str, Any] = {"topics_folder": topics}
    if "topic" in block:
        values["topics"] = _read_topics(file, f"{field}.topic", block["topic"])
    if block.get("source") == "kafka":
        if kafka is None:
            raise ConfigurationError(
                str(file), f"{field}.source", "is 'kafka', and no cluster is given", "add a block `kafka:`"
            )
        values["kafka"] = kafka
    return values


def _without_schema(
    file: Path, field: str, block: dict[str, Any], values: dict[str, Any], name: str
) -> CollectionSettings:
    """The settings of raw change events whose schema is found at the first ingest; see `settled.described`."""
    values["key"] = _read_key_names(file, f"{field}.key", block.get("key"))
    values["position"] = read_position(str(file), f"{field}.position", block.get("position"), "debezium")
    values["metadata"] = read_metadata(str(file), f"{field}.metadata", block.get("metadata"))
    return _validated(file, field, name, {**values, "record_schema": {}})


def _validated(file: Path, field: str, name: str, values: dict[str, Any]) -> CollectionSettings:
    try:
        return CollectionSettings(name=name, **values)
    except ValidationError as error:
        first = error.errors()[0]
        loc = ("topic",) if first["loc"][0] == "topics" else first["loc"]
        where = ".".join(str(part) for part in loc if part not in {"literal['all']", "int", "constrained-int"})
        problem = first["msg"].removeprefix("Value error, ").lower()
        raise ConfigurationError(
            str(file),
            f"{field}.{where}",
            f"{problem}, not {first.get('input')!r}",
            "see the README, 'Add a collection'",
        ) from error


def _read_key_record(
    file: Path, base: Path, field: str, block: dict[str, Any], schema: dict[str, Any], values: dict[str, Any]
) -> dict[str, Any]:
    """Take in how the keys of upserts are read, and say which columns their table has."""
    given = _read_schema(file, base, f"{field}.key_schema", block["key_schema"]) if "key_schema" in block else None
    key = _read_key(file, f"{field}.key", "upsert", block.get("key"), schema if given is None else given)
    record = key_record_of(str(file), field, key, given, schema)
    check_format(str(file), f"{field}.key_schema", block, record)
    values["key_schema"] = record
    ids = _read_schema_ids(file, base, field, block.get("key_schema_ids") or {}, record, "key_schema_ids")
    if block.get("encoding") == "confluent" and not ids and values["registry"] is None:
        raise ConfigurationError(
            str(file),
            f"{field}.key_schema_ids",
            "is missing for Confluent framing",
            "name the schema of every id that keys were written with, e.g. `1: orders-key.avsc`",
        )
    values["key_schema_ids"] = ids
    return add_key(record, schema)


def _read_event_keys(file: Path, base: Path, field: str, block: dict[str, Any], values: dict[str, Any]) -> None:
    """Take in what the keys of raw change events in Avro were written with, where it is said."""
    row = declared_row(values["value_schema"])
    of_key = {**row, "fields": [one for one in without_references(row) if one["name"] in values["key"]]}

    def read(place: str, given: Any) -> dict[str, Any]:
        where, schema = _load_schema(file, base, place, given)
        try:
            check_written(Values(of_key, of_changes=True), declared_row(schema))
        except SchemaRefused as error:
            raise ConfigurationError(
                where, place, str(error).splitlines()[0], "give the record of the key, with the columns of `key`"
            ) from error
        return dict(schema)

    if "key_schema" in block:
        values["key_schema"] = read(f"{field}.key_schema", block["key_schema"])
    given = block.get("key_schema_ids") or {}
    check_ids(str(file), f"{field}.key_schema_ids", given)
    values["key_schema_ids"] = {one: read(f"{field}.key_schema_ids.{one}", given[one]) for one in given}


def _read_topics(file: Path, field: str, given: Any) -> tuple[Any, ...]:
    """The names of the topics; anything but text is left to be refused by its type."""
    names = topic_names(given)
    if not names:
        raise ConfigurationError(str(file), field, "names no topic", "give a folder's name, or a list of them")
    for one in names:
        if isinstance(one, str) and (not one.strip() or "/" in one or one in {".", ".."} or not _is_path_text(one)):
            raise ConfigurationError(
                str(file), field, f"is not the name of a topic: {one!r}", "give a folder's name, no path"
            )
    if len({str(one) for one in names}) < len(names):
        raise ConfigurationError(str(file), field, "names a topic twice", "name each once")
    return tuple(names)


def _read_schema_ids(
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
        read[schema_id] = _read_schema(file, base, place, schema)
        if grows:
            continue
        difference = column_difference(column_types(record_schema), column_types(read[schema_id]))
        if difference is not None:
            raise ConfigurationError(
                str(file), place, difference, "every id has exactly the collection's columns, in any order"
            )
    return read


def _read_changes(file: Path, base: Path, field: str, block: Any) -> tuple[dict[str, Any], dict[int, dict[str, Any]]]:
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


def _read_schema(file: Path, base: Path, field: str, given: Any) -> dict[str, Any]:
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


def _read_key(file: Path, field: str, family: Any, given: Any, record_schema: dict[str, Any]) -> tuple[str, ...]:
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
    columns = _read_key_names(file, field, given)
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


def _read_key_names(file: Path, field: str, given: Any) -> tuple[str, ...]:
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
