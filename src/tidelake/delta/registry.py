"""Asks a schema registry which schemas a topic's messages may have been written with.

A producer registers a schema before it sends the first message with its id. So whoever knows the end offsets first and
asks the registry then, knows every id before those offsets, and an id that is not there is unknown indeed.
"""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
import ssl
import urllib.error
import urllib.request
from collections.abc import Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tidelake.column_types import column_difference, column_types
from tidelake.configuration import CollectionSettings
from tidelake.connect_types import key_row_of
from tidelake.delta.kafka_client import read_secret
from tidelake.errors import RegistryUnreachable, SchemaRefused
from tidelake.evolution import Record, Values, sort_writers
from tidelake.registry_configuration import RegistrySettings, subject_of
from tidelake.schema import record_schema_of
from tidelake.settled import row_of, values_of, with_values

_NOT_THERE = 404


class SchemaRegistry:
    """One registry, with what was fetched of it once on disk."""

    def __init__(self, settings: RegistrySettings) -> None:
        """Name the registry; nothing is asked yet."""
        self.settings = settings

    def schemas_of(self, subject: str) -> dict[int, Any]:
        """By schema id, every schema that was registered under a subject; none where there is no such subject.

        Raises:
            RegistryUnreachable: it did not answer, or said something else.

        Cost: two requests, and one more for each version that was not seen before.
        """
        # Messages outlive the versions that are marked as deleted.
        versions = self._get(f"/subjects/{quote(subject, safe='')}/versions?deleted=true") or []
        if versions and self._fetched(subject, versions[-1]) != self._kept(subject, versions[-1]):
            # Removed for good, and begun again with version 1.
            shutil.rmtree(self._cache_of(subject), ignore_errors=True)
        found = [self._kept(subject, one) or self._keep(self._fetched(subject, one), one) for one in versions]
        return {one["id"]: one["schema"] for one in found}

    def _kept(self, subject: str, version: int) -> dict[str, Any] | None:
        file = self._cache_of(subject) / f"{version}.json"
        return dict(json.loads(file.read_text(encoding="utf-8"))) if file.exists() else None

    def _fetched(self, subject: str, version: int) -> dict[str, Any]:
        answer = self._get(f"/subjects/{quote(subject, safe='')}/versions/{version}?deleted=true") or {}
        try:
            kind, references = answer.get("schemaType", "AVRO"), answer.get("references") or []
            schema = json.loads(answer["schema"]) if kind == "AVRO" and not references else None
            return {"subject": subject, "id": int(answer["id"]), "schema": schema}
        except (KeyError, TypeError, ValueError) as error:
            raise RegistryUnreachable(self.settings.url, f"version {version} of '{subject}' is no schema") from error

    def _keep(self, found: dict[str, Any], version: int) -> dict[str, Any]:
        file = self._cache_of(found["subject"]) / f"{version}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        unfinished = file.with_suffix(".unfinished")
        unfinished.write_text(json.dumps(found), encoding="utf-8")
        unfinished.replace(file)
        return found

    def _cache_of(self, subject: str) -> Path:
        """A folder for each subject of each registry, under a name that any file system takes."""
        name = hashlib.sha256(f"{self.settings.url}\n{subject}".encode()).hexdigest()
        return self.settings.cache / name[:32]

    def _get(self, path: str) -> Any:
        """What the registry answers; None where it says that there is no such thing."""
        headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
        if self.settings.username is not None and self.settings.password is not None:
            who = f"{self.settings.username}:{read_secret(self.settings.password, 'registry.password')}"
            headers["Authorization"] = f"Basic {base64.b64encode(who.encode()).decode('ascii')}"
        request = urllib.request.Request(self.settings.url.rstrip("/") + path, headers=headers)
        trusted = None
        if self.settings.url.startswith("https"):
            ca_file = self.settings.ca_file
            trusted = ssl.create_default_context(cafile=None if ca_file is None else str(ca_file))
        try:
            with urllib.request.urlopen(request, timeout=self.settings.request_timeout_s, context=trusted) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                if error.code == _NOT_THERE:
                    return None
                raise RegistryUnreachable(self.settings.url, f"{error.code} {error.reason}") from error
        except (OSError, ValueError) as error:
            raise RegistryUnreachable(self.settings.url, str(getattr(error, "reason", error))) from error


def with_schema_ids(settings: CollectionSettings, added: Collection[str] = ()) -> CollectionSettings:
    """The same settings, with all that the registry knows now of the topics' schema ids; as they are without one.

    Where the collection may grow, they have the columns that the schemas add, too.

    Args:
        settings: the collection's.
        added: the columns that have appeared since it was made.

    Raises:
        RegistryUnreachable: the registry cannot be asked; nothing can be said of any id then.
    """
    grows = settings.evolution == "additive"
    if settings.registry is None:
        return _with_listed_ids(settings, added) if grows and settings.schema_ids else settings
    registry = SchemaRegistry(settings.registry)
    written = _written(registry, settings, settings.value_schema, "value")
    if settings.framing == "cdcv2":
        return _with_ids_of_streams(settings, written)
    values = sort_writers(values_of(settings, added), written, grows, partial(row_of, settings))
    more: dict[str, Any] = {"schema_ids": _records(settings, values.usable), "refused_ids": _named(values.refused)}
    if settings.key:
        written = _written(registry, settings, settings.key_schema, "key")
        keys = sort_writers(_values_of_keys(settings), written, False, partial(row_of, settings))
        more["key_schema_ids"] = _records(settings, keys.usable)
        more["refused_ids"] = {**_named(keys.refused), **more["refused_ids"]}
    found = settings.model_copy(update=more)
    return found if values.values.record == values_of(settings).record else with_values(found, values.values)


def _values_of_keys(settings: CollectionSettings) -> Values:
    if settings.envelope != "debezium":
        return Values(settings.key_schema)
    return Values(key_row_of(values_of(settings).record, settings.key), of_changes=True)


def _with_ids_of_streams(settings: CollectionSettings, written: Mapping[int, Any]) -> CollectionSettings:
    """The same for CDCv2 messages: every schema has exactly the collection's columns, in any order."""
    usable, refused = {}, {}
    for schema_id, schema in written.items():
        try:
            record = dict(record_schema_of(schema))
            difference = column_difference(column_types(settings.record_schema), column_types(record))
            if difference is not None:
                raise SchemaRefused("", difference)
            usable[schema_id] = record
        except SchemaRefused as error:
            refused[schema_id] = error.fact()
    return settings.model_copy(update={"schema_ids": usable, "refused_ids": _named(refused)})


def newest_row(settings: CollectionSettings) -> Record | None:
    """The row that the newest schema of change events is about; None where no topic has one yet.

    Raises:
        RegistryUnreachable: the registry cannot be asked.
        SchemaRefused: it is no change event.
    """
    assert settings.registry is not None
    registry = SchemaRegistry(settings.registry)
    for topic in settings.topics:
        schemas = list(registry.schemas_of(subject_of("topic", topic, {}, "value")).values())
        if schemas:
            return row_of(settings, schemas[-1])
    return None


def _with_listed_ids(settings: CollectionSettings, added: Collection[str]) -> CollectionSettings:
    """The same for ids that the settings list."""
    values = sort_writers(values_of(settings, added), settings.schema_ids, True, partial(row_of, settings))
    found = settings.model_copy(update={"schema_ids": values.usable, "refused_ids": _named(values.refused)})
    return found if values.values.record == values_of(settings).record else with_values(found, values.values)


def _written(
    registry: SchemaRegistry, settings: CollectionSettings, record: Mapping[str, Any], part: str
) -> dict[int, Any]:
    """By id, every schema of the topics' keys or values, in the order in which they were registered."""
    subjects = dict.fromkeys(subject_of(settings.subject, one, record, part) for one in settings.topics)
    return {schema_id: schema for one in subjects for schema_id, schema in registry.schemas_of(one).items()}


def _records(settings: CollectionSettings, usable: Mapping[int, Any]) -> dict[int, Any]:
    """What messages were written with: records, or whole change events."""
    if settings.envelope == "debezium":
        return dict(usable)
    return {schema_id: dict(record_schema_of(schema)) for schema_id, schema in usable.items()}


def _named(refused: Mapping[int, str]) -> dict[int, str]:
    return {schema_id: f"schema id {schema_id}: {why}" for schema_id, why in refused.items()}
