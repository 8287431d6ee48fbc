"""What `collections.yaml` says of a schema registry, and under which subjects a topic's schemas are there."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tidelake.configuration_block import problem_of, refuse_unknown
from tidelake.errors import ConfigurationError
from tidelake.kafka_configuration import Secret, read_secret_place

Subject = Literal["topic", "record", "topic_record"]


class RegistrySettings(BaseModel):
    """One registry that speaks Confluent's protocol."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    url: str = Field(pattern=r"^https?://[^@\s]+$")
    username: str | None = None
    password: Secret | None = None
    ca_file: Path | None = None
    """In PEM: whose certificates are trusted; by default those that the machine trusts."""
    request_timeout_s: int = Field(default=30, ge=1)
    cache: Path = Path("data/registry")
    """The folder in which schemas stay that were fetched once: a version of a subject never changes."""


def read_registry(file: str, base: Path, block: Any) -> RegistrySettings:
    """Read the block `registry`; paths are relative to `base`.

    Raises:
        ConfigurationError: naming the field, what is wrong and what to do.
    """
    if not isinstance(block, dict):
        raise ConfigurationError(file, "registry", "is not a mapping", "give at least `url: http://host:8081`")
    refuse_unknown(file, "registry.", block, RegistrySettings.model_fields)
    values = {"cache": "data/registry", **block}
    for name in ("ca_file", "cache"):
        if isinstance(values.get(name), str):
            values[name] = base / values[name]
    if "password" in values:
        values["password"] = read_secret_place(file, base, "registry.password", values["password"])
    if (values.get("username") is None) != (values.get("password") is None):
        raise ConfigurationError(
            file, "registry.password", "and username are of use together only", "give both, or none"
        )
    try:
        return RegistrySettings(**values)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        problem = "is missing" if first["type"] == "missing" else problem_of(first["msg"])
        # Not the value: an address may have a password in it.
        raise ConfigurationError(file, f"registry.{where}", problem, "see the README, 'Schema registry'") from error


def uses_registry(file: str, field: str, block: Mapping[str, Any], registry: RegistrySettings | None) -> bool:
    """Whether a collection's schema ids are looked up, rather than listed.

    Raises:
        ConfigurationError: it says a subject, and has nothing to look up.
    """
    looks_up = block.get("encoding") == "confluent" and "schema_ids" not in block and registry is not None
    if "subject" in block and not looks_up:
        raise ConfigurationError(
            file,
            f"{field}.subject",
            "is given where no schema is looked up",
            "it is for Avro with `encoding: confluent`, a block `registry:`, and no `schema_ids`",
        )
    by_topic = block.get("subject", "topic") == "topic"
    if block.get("framing", "cdcv2") == "cdcv2" and not by_topic:
        raise ConfigurationError(
            file, f"{field}.subject", "names a record, and a CDCv2 message is a union", "leave it out"
        )
    is_event = block.get("envelope", block.get("family")) == "debezium"
    if is_event and not by_topic and ("schema" not in block or "key_schema" not in block):
        raise ConfigurationError(
            file,
            f"{field}.subject",
            "names records, and `schema` and `key_schema` do not both say which",
            "give the records of the whole event and of its key; or have a subject for each topic: `subject: topic`",
        )
    return looks_up


def subject_of(strategy: Subject, topic: str, record: Mapping[str, Any], part: str) -> str:
    """The subject of a topic's keys or values.

    >>> record = {"name": "order", "namespace": "shop"}
    >>> [subject_of(one, "orders", record, "value") for one in ("topic", "record", "topic_record")]
    ['orders-value', 'shop.order', 'orders-shop.order']
    """
    if strategy == "topic":
        return f"{topic}-{part}"
    name, space = str(record["name"]), record.get("namespace")
    full = name if "." in name or not space else f"{space}.{name}"
    return full if strategy == "record" else f"{topic}-{full}"
