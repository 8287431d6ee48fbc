"""Reads the settings of a Kafka cluster.

Only the options of `KafkaSettings` can be set. They never contain secrets: for each secret, they name the environment
variable or the file that holds it, which is read when a connection is opened.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

from pydantic import Field

from tidelake.settings.block import Block, Frozen
from tidelake.settings.clear_text import Consent
from tidelake.settings.secret import Secret, read_secret_place

Protocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
Mechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]

_SERVER = re.compile(r"([A-Za-z0-9_]+://)?(?P<host>\[[0-9A-Fa-f:.%]+\]|[^\s:/\[\]]+):(?P<port>[0-9]{1,5})")
"""A host, or an IPv6 address in brackets, and its port; a protocol may come first, as in the listeners of brokers."""
_PORT_MAX = 65_535

_FILES = ("ssl_ca_file", "ssl_certificate_file", "ssl_key_file")
_SECRETS = ("sasl_password", "ssl_key_password")
_CLEAR_PASSWORD = Consent(
    setting="allow_plaintext_password",
    place="security_protocol",
    sends="PLAIN would send the password to {host} over SASL_PLAINTEXT",
    nothing="no password is sent in the clear",
    fix="use SASL_SSL or SCRAM",
)


class KafkaSettings(Frozen):
    """The settings of every client of the cluster."""

    bootstrap_servers: str = Field(min_length=1)
    security_protocol: Protocol = "PLAINTEXT"
    sasl_mechanism: Mechanism | None = None
    sasl_username: str | None = None
    sasl_password: Secret | None = None
    allow_plaintext_password: bool = False
    """Whether `PLAIN` may send the password over `SASL_PLAINTEXT`, in the clear, to another machine."""
    ssl_ca_file: Path | None = None
    """The trusted certificate authorities, in PEM; by default those of the machine."""
    ssl_certificate_file: Path | None = None
    """The client's certificate and its chain, in PEM, if the brokers require one."""
    ssl_key_file: Path | None = None
    ssl_key_password: Secret | None = None
    request_timeout_s: int = Field(default=30, ge=1)
    """Maximum time to wait for a response from the brokers."""
    monitoring_group: str | None = Field(default=None, min_length=1)
    """If set, offsets are also committed for the consumer group `<monitoring_group>.<collection>`, for monitoring."""

    @property
    def uses_sasl(self) -> bool:
        """Whether clients authenticate with SASL."""
        return self.security_protocol.startswith("SASL")

    @property
    def uses_tls(self) -> bool:
        """Whether the connection is encrypted."""
        return self.security_protocol.endswith("SSL")


def read_kafka(block: Block) -> KafkaSettings:
    """Read the `kafka` block.

    Raises:
        ConfigurationError: names the field, the problem and the fix.
    """
    if not isinstance(block.value, dict):
        block.fail("is not a mapping", "give at least `bootstrap_servers: host:9092`")
    block.check_keys(KafkaSettings.model_fields)
    values = dict(block.value)
    for name in _FILES:
        if isinstance(values.get(name), str):
            values[name] = block.folder / values[name]
    for name in _SECRETS:
        if name in block:
            values[name] = read_secret_place(block.child(name))
    settings = block.validate(KafkaSettings, values, "see docs/kafka.md")
    hosts = _checked_hosts(block.child("bootstrap_servers"), settings.bootstrap_servers)
    _check_together(block, settings)
    # SCRAM never sends the password.
    is_clear = settings.security_protocol == "SASL_PLAINTEXT" and settings.sasl_mechanism == "PLAIN"
    _CLEAR_PASSWORD.check(block, settings.allow_plaintext_password, is_clear, hosts)
    return settings


def _checked_hosts(place: Block, servers: str) -> list[str]:
    """Return the hosts of the servers; refuse addresses that no client could connect to."""
    hosts = []
    for server in servers.split(","):
        match = _SERVER.fullmatch(server.strip())
        if match is None or not 1 <= int(match.group("port")) <= _PORT_MAX:
            place.fail(
                f"contains {server!r}, which is not host:port",
                "write `host:port`; separate several servers with commas, as in `kafka-1:9092,kafka-2:9092`",
            )
        hosts.append(match.group("host"))
    return hosts


def _check_together(block: Block, settings: KafkaSettings) -> None:
    """Refuse settings that the protocol does not use, and a protocol without the settings that it needs."""
    protocol = settings.security_protocol
    for name in ("sasl_mechanism", "sasl_username", "sasl_password"):
        if settings.uses_sasl and getattr(settings, name) is None:
            block.child(name).fail(f"is required for {protocol}", f"set {name}")
        if not settings.uses_sasl and getattr(settings, name) is not None:
            block.child(name).fail(f"has no effect for {protocol}", "remove it, or use SASL_SSL or SASL_PLAINTEXT")
    for name in (*_FILES, "ssl_key_password"):
        if not settings.uses_tls and getattr(settings, name) is not None:
            block.child(name).fail(f"has no effect for {protocol}", "remove it, or use SSL or SASL_SSL")
    if (settings.ssl_certificate_file is None) != (settings.ssl_key_file is None):
        block.child("ssl_key_file").fail(
            "ssl_certificate_file and ssl_key_file must be set together", "set both, or neither"
        )
