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
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tidelake.configuration import CollectionSettings
from tidelake.delta.kafka_client import read_secret
from tidelake.errors import RegistryUnreachable, SchemaRefused
from tidelake.registry_configuration import RegistrySettings, subject_of
from tidelake.resolution import resolve
from tidelake.schema import record_schema_of

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


def with_schema_ids(settings: CollectionSettings) -> CollectionSettings:
    """The same settings, with all that the registry knows now of the topics' schema ids; as they are without one.

    Raises:
        RegistryUnreachable: the registry cannot be asked; nothing can be said of any id then.
    """
    if settings.registry is None:
        return settings
    registry = SchemaRegistry(settings.registry)
    values, refused = _usable(registry, settings, settings.value_schema, "value")
    more: dict[str, Any] = {"schema_ids": values, "refused_ids": refused}
    if settings.key_schema:
        more["key_schema_ids"], refused_keys = _usable(registry, settings, settings.key_schema, "key")
        more["refused_ids"] = {**refused_keys, **refused}
    return settings.model_copy(update=more)


def _usable(
    registry: SchemaRegistry, settings: CollectionSettings, record: Mapping[str, Any], part: str
) -> tuple[dict[int, dict[str, Any]], dict[int, str]]:
    """By id the schemas whose records can be read as the collection's, and why those of others cannot."""
    subjects = dict.fromkeys(subject_of(settings.subject, one, record, part) for one in settings.topics)
    usable, refused = {}, {}
    for subject in subjects:
        for schema_id, schema in registry.schemas_of(subject).items():
            try:
                writer = dict(record_schema_of(schema)) if schema is not None else None
                if writer is None:
                    refused[schema_id] = f"schema id {schema_id} is not Avro, or refers to other schemas"
                    continue
                resolve(dict(record), writer)
                usable[schema_id] = writer
            except SchemaRefused as error:
                refused[schema_id] = f"schema id {schema_id}: {error.fact()}"
    return usable, refused
