"""Asks a schema registry for the schemas that a topic's messages may have been written with.

A producer registers a schema before it sends the first message with its id. So if a reader first gets the end offsets
and then asks the registry, the answer has every valid id of the messages before those offsets.
"""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
import ssl
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from tidelake.errors import RegistryUnreachable
from tidelake.settings.loopback import is_loopback
from tidelake.settings.registry import RegistrySettings
from tidelake.settings.secret import read_secret

_NOT_FOUND = 404


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows a redirect to another server, but without the password, which is only for the configured registry."""

    def redirect_request(self, req: Any, *answer: Any) -> urllib.request.Request | None:
        followed = super().redirect_request(req, *answer)
        if followed is not None and (followed.type, followed.host) != (req.type, req.host):
            followed.remove_header("Authorization")
        return followed


class SchemaRegistry:
    """A registry, with a cache of its schemas on disk."""

    def __init__(self, settings: RegistrySettings) -> None:
        """Take the registry's settings; nothing is requested yet."""
        self.settings = settings

    def subjects(self) -> list[str]:
        """Return the names of all subjects.

        Raises:
            RegistryUnreachable: the registry did not answer, or its answer is unusable.
        """
        answer = self._get("/subjects")
        if not isinstance(answer, list):
            raise RegistryUnreachable(self.settings.url, "it has no list of subjects")
        return sorted(map(str, answer))

    def schemas_of(self, subject: str) -> dict[int, Any]:
        """Return every schema ever registered under a subject, by schema id; empty if the subject does not exist.

        A schema that is not Avro, or that refers to other schemas, is returned as None.

        Raises:
            RegistryUnreachable: the registry did not answer, or its answer is unusable.

        Cost: two requests, and one for each version that is not cached. A new version empties the subject's cache.
        """
        # Messages outlive versions that are marked as deleted.
        versions = self._get(f"/subjects/{quote(subject, safe='')}/versions?deleted=true") or []
        if versions and self._fetch(subject, versions[-1]) != self._cached(subject, versions[-1]):
            # Either the newest version is not cached yet, or the subject was removed permanently, and its versions have
            # started again at 1.
            shutil.rmtree(self._folder_of(subject), ignore_errors=True)
        registered = [
            self._cached(subject, version) or self._cache(self._fetch(subject, version), version)
            for version in versions
        ]
        return {entry["id"]: entry["schema"] for entry in registered}

    def register(self, subject: str, schema: Any) -> int:
        """Register an Avro schema under a subject, and return its id; a schema that is already registered keeps its id.

        Raises:
            RegistryUnreachable: the registry did not answer, or refused the schema.
        """
        answer = self._ask(f"/subjects/{quote(subject, safe='')}/versions", {"schema": json.dumps(schema)})
        if not isinstance(answer, dict) or type(answer.get("id")) is not int:
            raise RegistryUnreachable(self.settings.url, f"it returned no id for the schema of '{subject}'")
        return int(answer["id"])

    def _cached(self, subject: str, version: int) -> dict[str, Any] | None:
        file = self._folder_of(subject) / f"{version}.json"
        return dict(json.loads(file.read_text(encoding="utf-8"))) if file.exists() else None

    def _fetch(self, subject: str, version: int) -> dict[str, Any]:
        answer = self._get(f"/subjects/{quote(subject, safe='')}/versions/{version}?deleted=true") or {}
        try:
            kind, references = answer.get("schemaType", "AVRO"), answer.get("references") or []
            schema = json.loads(answer["schema"]) if kind == "AVRO" and not references else None
            return {"subject": subject, "id": int(answer["id"]), "schema": schema}
        except (KeyError, TypeError, ValueError) as error:
            raise RegistryUnreachable(self.settings.url, f"version {version} of '{subject}' is not a schema") from error

    def _cache(self, entry: dict[str, Any], version: int) -> dict[str, Any]:
        file = self._folder_of(entry["subject"]) / f"{version}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        unfinished = file.with_suffix(".unfinished")
        unfinished.write_text(json.dumps(entry), encoding="utf-8")
        unfinished.replace(file)
        return entry

    def _folder_of(self, subject: str) -> Path:
        """Return the cache folder of a subject, under a name that every file system accepts."""
        name = hashlib.sha256(f"{self.settings.url}\n{subject}".encode()).hexdigest()
        return self.settings.cache / name[:32]

    def _get(self, path: str) -> Any:
        """Return the registry's response; None if it is 'not found'."""
        return self._ask(path)

    def _ask(self, path: str, document: dict[str, Any] | None = None) -> Any:
        """Return the registry's response to a query, or to a posted document; None if it is 'not found'."""
        headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
        data = None if document is None else json.dumps(document).encode()
        if data is not None:
            headers["Content-Type"] = "application/vnd.schemaregistry.v1+json"
        if self.settings.username is not None and self.settings.password is not None:
            credentials = f"{self.settings.username}:{read_secret(self.settings.password, 'registry.password')}"
            headers["Authorization"] = f"Basic {base64.b64encode(credentials.encode()).decode('ascii')}"
        request = urllib.request.Request(self.settings.url.rstrip("/") + path, data, headers)
        handlers: list[urllib.request.BaseHandler] = [_Redirects()]
        if self.settings.url.startswith("https"):
            ca_file = self.settings.ca_file
            context = ssl.create_default_context(cafile=None if ca_file is None else str(ca_file))
            handlers.append(urllib.request.HTTPSHandler(context=context))
        if is_loopback(urlsplit(self.settings.url).hostname or ""):
            handlers.append(urllib.request.ProxyHandler({}))  # a proxy may be on another machine
        opener = urllib.request.build_opener(*handlers)
        try:
            with opener.open(request, timeout=self.settings.request_timeout_s) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                if error.code == _NOT_FOUND:
                    return None
                raise RegistryUnreachable(self.settings.url, f"{error.code} {error.reason}") from error
        except (OSError, ValueError) as error:
            raise RegistryUnreachable(self.settings.url, str(getattr(error, "reason", error))) from error
