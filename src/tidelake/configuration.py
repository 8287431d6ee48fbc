"""Reads `collections.yaml` into frozen, validated settings; refuses what is wrong before anything is written.

A wrong file is told apart by what a person has to mend: the text of every error names the file, the field or the line,
and the fix.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from tidelake.configuration_block import problem_of, refuse_unknown
from tidelake.configuration_file import read_yaml
from tidelake.connect_types import declared_row, landing_record
from tidelake.errors import ConfigurationError
from tidelake.kafka_configuration import KafkaSettings, read_kafka
from tidelake.raw_configuration import (
    ENVELOPE_OF_FAMILY,
    UNAVAILABLE_VALUE,
    add_metadata,
    check_format,
    check_framing,
    check_schema_elsewhere,
    read_family,
    read_metadata,
    read_position,
    topic_names,
)
from tidelake.registry_configuration import RegistrySettings, Subject, read_registry, uses_registry
from tidelake.schema_configuration import (
    read_changes,
    read_event_keys,
    read_key,
    read_key_names,
    read_key_record,
    read_schema,
    read_schema_ids,
)

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

    @field_validator("keep", mode="before")
    @classmethod
    def _keep_is_a_distance(cls, keep: Any) -> Any:
        if keep != "all" and (type(keep) is not int or keep < 0):
            raise ValueError("should be a whole number of times before upper, 0 or more, or 'all'")
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


def load_settings(file: Path) -> Settings:
    """Read `collections.yaml`; paths in it are relative to its folder.

    Raises:
        ConfigurationError: naming the file, the field or line, what is wrong and what to do. Nothing was written.
    """
    document = read_yaml(file)
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
    event, writers = read_changes(file, base, field, block) if raw_changes else ({}, {})
    schema = (
        landing_record(declared_row(event))
        if raw_changes
        else read_schema(file, base, f"{field}.schema", block["schema"])
    )
    check_format(str(file), field, block, schema)
    grows = block.get("evolution") == "additive"
    values["schema_ids"] = (
        writers
        if raw_changes
        else read_schema_ids(file, base, field, block.get("schema_ids") or {}, schema, grows=grows)
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
        table = read_key_record(file, base, field, block, schema, values)
    key_family = "upsert" if raw_changes else family
    values["key"] = read_key(file, f"{field}.key", key_family, block.get("key"), table)
    values["record_schema"] = table
    if block.get("framing") == "reclock":
        values["position"] = read_position(str(file), f"{field}.position", block.get("position"), family)
        values["metadata"] = read_metadata(str(file), f"{field}.metadata", block.get("metadata"))
        values["value_schema"] = event or schema
        values["record_schema"] = add_metadata(str(file), f"{field}.metadata", table, values["metadata"])
    if raw_changes:
        read_event_keys(file, base, field, block, values)
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
    values["key"] = read_key_names(file, f"{field}.key", block.get("key"))
    values["position"] = read_position(str(file), f"{field}.position", block.get("position"), "debezium")
    values["metadata"] = read_metadata(str(file), f"{field}.metadata", block.get("metadata"))
    return _validated(file, field, name, {**values, "record_schema": {}})


def _validated(file: Path, field: str, name: str, values: dict[str, Any]) -> CollectionSettings:
    try:
        return CollectionSettings(name=name, **values)
    except ValidationError as error:
        first = error.errors()[0]
        loc = ("topic",) if first["loc"][0] == "topics" else first["loc"]
        where = ".".join(str(part) for part in loc)
        raise ConfigurationError(
            str(file),
            f"{field}.{where}",
            f"{problem_of(first['msg'])}, not {first.get('input')!r}",
            "see the README, 'Add a collection'",
        ) from error


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
