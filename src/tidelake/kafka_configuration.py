"""What `collections.yaml` says of a Kafka cluster: where it is, how to come in, and where the secrets are kept.

Only what is named here can be set. A secret is never in the file: the file says which variable of the environment, or
which other file, holds it, and it is read when a connection is made.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tidelake.configuration_block import problem_of, refuse_unknown
from tidelake.errors import ConfigurationError

Protocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
Mechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]

_SERVER = re.compile(r"([A-Za-z0-9_]+://)?(\[[0-9A-Fa-f:.%]+\]|[^\s:/\[\]]+):(?P<port>[0-9]{1,5})")
"""A host, or an address of IPv6 in brackets; in front of it may be the protocol, as brokers write their listeners."""
_PORT_MAX = 65_535

_FILES = ("ssl_ca_file", "ssl_certificate_file", "ssl_key_file")
_SECRETS = ("sasl_password", "ssl_key_password")


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Secret(_Frozen):
    """Where a secret is: never the secret itself, so that no report, log or error can show it."""

    env: str | None = Field(default=None, min_length=1)
    file: Path | None = None


class KafkaSettings(_Frozen):
    """One cluster, as every client of it needs to know it."""

    bootstrap_servers: str = Field(min_length=1)
    security_protocol: Protocol = "PLAINTEXT"
    sasl_mechanism: Mechanism | None = None
    sasl_username: str | None = None
    sasl_password: Secret | None = None
    ssl_ca_file: Path | None = None
    """In PEM: whose certificates are trusted; by default those that the machine trusts."""
    ssl_certificate_file: Path | None = None
    """In PEM: our own certificate, where the brokers ask for one, with the chain below it."""
    ssl_key_file: Path | None = None
    ssl_key_password: Secret | None = None
    request_timeout_s: int = Field(default=30, ge=1)
    """How long a question to the brokers may stay without an answer."""
    monitoring_group: str | None = Field(default=None, min_length=1)
    """Where offsets are shown to people: as those of the consumer group `<monitoring_group>.<collection>`."""

    @property
    def uses_sasl(self) -> bool:
        """Whether somebody has to say who they are by name."""
        return self.security_protocol.startswith("SASL")

    @property
    def uses_tls(self) -> bool:
        """Whether the connection is encrypted."""
        return self.security_protocol.endswith("SSL")


def read_kafka(file: str, base: Path, block: Any) -> KafkaSettings:
    """Read the block `kafka`; paths are relative to `base`.

    Raises:
        ConfigurationError: naming the field, what is wrong and what to do.
    """
    if not isinstance(block, dict):
        raise ConfigurationError(file, "kafka", "is not a mapping", "give at least `bootstrap_servers: host:9092`")
    refuse_unknown(file, "kafka.", block, KafkaSettings.model_fields)
    values = dict(block)
    for name in _FILES:
        if isinstance(values.get(name), str):
            values[name] = base / values[name]
    for name in _SECRETS:
        if name in values:
            values[name] = read_secret_place(file, base, f"kafka.{name}", values[name])
    try:
        settings = KafkaSettings(**values)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        missing = first["type"] == "missing"
        problem = "is missing" if missing else f"{problem_of(first['msg'])}, not {first.get('input')!r}"
        raise ConfigurationError(file, f"kafka.{where}", problem, "see the README, 'Kafka'") from error
    _check_servers(file, settings.bootstrap_servers)
    _check_together(file, settings)
    return settings


def _check_servers(file: str, servers: str) -> None:
    """Refuse what no client could connect to."""
    for one in servers.split(","):
        found = _SERVER.fullmatch(one.strip())
        if found is None or not 1 <= int(found.group("port")) <= _PORT_MAX:
            raise ConfigurationError(
                file,
                "kafka.bootstrap_servers",
                f"has a server that is not host:port: {one!r}",
                "write `host:port`, or several with commas, such as `kafka-1:9092,kafka-2:9092`",
            )


def read_secret_place(file: str, base: Path, field: str, given: Any) -> Secret:
    """Where a secret is; one that stands in the file itself is refused, and not repeated."""
    fix = "write `{env: NAME_OF_A_VARIABLE}` or `{file: PATH}`"
    if not isinstance(given, Mapping):
        raise ConfigurationError(file, field, "is a secret in plain text", fix)
    env, path = given.get("env"), given.get("file")
    if set(given) not in ({"env"}, {"file"}) or not isinstance(env or path, str):
        raise ConfigurationError(file, field, "does not say where the secret is", fix)
    return Secret(env=env) if path is None else Secret(file=base / path)


def _check_together(file: str, settings: KafkaSettings) -> None:
    """Refuse what is given without the protocol that it is for, and a protocol without what it needs."""
    protocol = settings.security_protocol
    for name in ("sasl_mechanism", "sasl_username", "sasl_password"):
        if settings.uses_sasl and getattr(settings, name) is None:
            raise ConfigurationError(file, f"kafka.{name}", f"is missing for {protocol}", f"give {name}")
        if not settings.uses_sasl and getattr(settings, name) is not None:
            raise ConfigurationError(
                file, f"kafka.{name}", f"is given for {protocol}", "leave it out, or use SASL_SSL or SASL_PLAINTEXT"
            )
    for name in (*_FILES, "ssl_key_password"):
        if not settings.uses_tls and getattr(settings, name) is not None:
            raise ConfigurationError(
                file, f"kafka.{name}", f"is given for {protocol}", "leave it out, or use SSL or SASL_SSL"
            )
    if (settings.ssl_certificate_file is None) != (settings.ssl_key_file is None):
        raise ConfigurationError(
            file, "kafka.ssl_key_file", "and ssl_certificate_file are of use together only", "give both, or none"
        )
