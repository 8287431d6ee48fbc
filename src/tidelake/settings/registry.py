"""Reads the settings of a schema registry, and returns the names of subjects."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from tidelake.settings.block import Block, Frozen
from tidelake.settings.clear_text import Consent, host_of
from tidelake.settings.secret import Secret, read_secret_place

Subject = Literal["topic", "record", "topic_record"]
RECORD_SUBJECTS = ("record", "topic_record")
"""The values of `subject` for which the names of records are part of subjects."""
_CLEAR_PASSWORD = Consent(
    setting="allow_plain_http",
    place="url",
    sends="the password would go to {host} over http",
    nothing="no password is sent over http",
)


class RegistrySettings(Frozen):
    """A registry with Confluent's API."""

    url: str = Field(pattern=r"^https?://[^@\s]+$")
    username: str | None = None
    password: Secret | None = None
    allow_plain_http: bool = False
    """Whether the password may be sent over `http://`, in the clear, to another machine."""
    ca_file: Path | None = None
    """The trusted certificate authorities, in PEM; by default those of the machine."""
    request_timeout_s: int = Field(default=30, ge=1)
    cache: Path = Path("data/registry")
    """The folder that caches schemas: a version of a subject never changes."""


def read_registry(block: Block) -> RegistrySettings:
    """Read the `registry` block.

    Raises:
        ConfigurationError: names the field, the problem and the fix.
    """
    if not isinstance(block.value, dict):
        block.fail("is not a mapping", "give at least `url: http://host:8081`")
    block.check_keys(RegistrySettings.model_fields)
    values = {"cache": "data/registry", **block.value}
    for name in ("ca_file", "cache"):
        if isinstance(values.get(name), str):
            values[name] = block.folder / values[name]
    if "password" in block:
        values["password"] = read_secret_place(block.child("password"))
    if (values.get("username") is None) != (values.get("password") is None):
        block.child("password").fail("username and password must be set together", "set both, or neither")
    # The URL may contain a password, so no error shows it.
    settings = block.validate(RegistrySettings, values, "see docs/registry.md", shows_value=False)
    host = host_of(block.child("url"), settings.url, "a registry", "https://host:8081")
    is_clear = settings.password is not None and settings.url.startswith("http:")
    _CLEAR_PASSWORD.check(block, settings.allow_plain_http, is_clear, [host])
    return settings


def uses_registry(block: Block, registry: RegistrySettings | None) -> bool:
    """Return whether a collection's schema ids are looked up rather than listed.

    Raises:
        ConfigurationError: `subject` is set, but no schema is looked up.
    """
    looks_up_ids = block.get("encoding") == "confluent" and "schema_ids" not in block and registry is not None
    if "subject" in block and not looks_up_ids:
        block.child("subject").fail(
            "has no effect: no schema is looked up",
            "use it only for Avro with `encoding: confluent`, a `registry:` block, and no `schema_ids`",
        )
    return looks_up_ids


def subject_of(strategy: Subject, topic: str, record: Mapping[str, Any], part: str) -> str:
    """Return the subject of a topic's keys or values.

    >>> record = {"name": "order", "namespace": "shop"}
    >>> [subject_of(strategy, "orders", record, "value") for strategy in ("topic", "record", "topic_record")]
    ['orders-value', 'shop.order', 'orders-shop.order']
    """
    if strategy == "topic":
        return f"{topic}-{part}"
    name, space = str(record["name"]), record.get("namespace")
    full = name if "." in name or not space else f"{space}.{name}"
    return full if strategy == "record" else f"{topic}-{full}"
