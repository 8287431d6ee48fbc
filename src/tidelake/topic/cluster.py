"""Queries a Kafka cluster without a JVM, and creates the settings for both clients: librdkafka and the Java client."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
    Uuid,
)
from confluent_kafka.admin import AdminClient, OffsetSpec

from tidelake.errors import ConfigurationError, SourceError, TopicMissing, TopicUnreachable
from tidelake.protocol.order import INT64_MAX
from tidelake.settings.kafka import KafkaSettings
from tidelake.settings.secret import read_secret

_UNKNOWN = (
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError.TOPIC_EXCEPTION,  # not a valid topic name
)
_MOVING = (
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.KAFKA_STORAGE_ERROR,
)
_RETRY_S = 0.1
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


@dataclass(frozen=True)
class TopicFacts:
    """A topic as the cluster describes it now."""

    identity: int | None
    """63 bits of the id that the cluster gave the topic at its creation; None if the cluster gives none."""
    offsets: dict[int, tuple[int, int]]
    """By partition, the first offset and the end of the committed records; open transactions come after that
    end. Some offsets in between may have no record."""


class KafkaCluster:
    """A cluster. Its client is created by the first request."""

    def __init__(self, settings: KafkaSettings) -> None:
        """Keep the settings; no request is made yet."""
        self.settings = settings
        self._errors: list[str] = []

    def topic(self, name: str) -> TopicFacts:
        """Ask for a topic's identity and offsets.

        Raises:
            ConfigurationError: no client can be created from the settings.
            TopicMissing: the topic does not exist.
            TopicUnreachable: the cluster does not respond, or denies access.

        Cost: three requests.
        """
        end = time.monotonic() + self.settings.request_timeout_s
        while True:
            try:
                return self._ask(name)
            except KafkaException as error:
                # A partition that was just created or moved is available a moment later.
                moving = error.args[0].code() in _MOVING
                if not moving or time.monotonic() > end:
                    raise self._error_about(name, error) from error
            time.sleep(_RETRY_S)

    def _ask(self, name: str) -> TopicFacts:
        timeout = self.settings.request_timeout_s
        futures = self._admin.describe_topics(TopicCollection([name]), request_timeout=timeout)
        description = futures[name].result()
        partitions = [partition.id for partition in description.partitions]
        starts = self._list_offsets(name, partitions, OffsetSpec.earliest())
        ends = self._list_offsets(name, partitions, OffsetSpec.latest())
        offsets = {partition: (starts[partition], ends[partition]) for partition in partitions}
        return TopicFacts(_identity_of(description.topic_id), offsets)

    def publish_offsets(self, topic: str, group: str, offsets: Mapping[int, int]) -> None:
        """Commit offsets for a consumer group, for monitoring. They are never read back.

        Raises:
            TopicUnreachable: the offsets could not be stored.
        """
        consumer = Consumer({**librdkafka_settings(self.settings), "group.id": group, "enable.auto.commit": False})
        try:
            wanted = [TopicPartition(topic, partition, offset) for partition, offset in offsets.items()]
            consumer.commit(offsets=wanted, asynchronous=False)
        except KafkaException as error:
            raise self._error_about(topic, error) from error
        finally:
            consumer.close()

    @cached_property
    def _admin(self) -> AdminClient:
        # The client's messages about its connections go into Tidelake's errors instead of standard error.
        settings = {**librdkafka_settings(self.settings), "error_cb": self._note, "log_level": 0}
        try:
            return AdminClient(settings)
        except KafkaException as error:  # a file is missing or invalid; librdkafka names the setting
            raise ConfigurationError(
                "collections.yaml",
                "kafka",
                f"no client can be created from the settings: {error.args[0].str()}",
                "fix the setting that the error names",
            ) from error

    def _note(self, error: KafkaError) -> None:
        self._errors = [*self._errors[-9:], error.str()]

    def _list_offsets(self, topic: str, partitions: list[int], which: OffsetSpec) -> dict[int, int]:
        requests = {TopicPartition(topic, partition): which for partition in partitions}
        futures = self._admin.list_offsets(
            requests,
            isolation_level=IsolationLevel.READ_COMMITTED,
            request_timeout=self.settings.request_timeout_s,
        )
        return {place.partition: future.result().offset for place, future in futures.items()}

    def _error_about(self, topic: str, error: KafkaException) -> SourceError:
        kafka: KafkaError = error.args[0]
        self._admin.poll(0)  # receives the errors of the connections
        if kafka.code() in _UNKNOWN:
            return TopicMissing(self.settings.bootstrap_servers, topic)
        detail = "; ".join(dict.fromkeys([kafka.str(), *self._errors[-2:]]))
        return TopicUnreachable(topic, self.settings.bootstrap_servers, detail)


def librdkafka_settings(settings: KafkaSettings) -> dict[str, Any]:
    """Return the settings for librdkafka, the client that needs no JVM. They contain secrets."""
    timeout_ms = 1000 * settings.request_timeout_s
    options: dict[str, Any] = {
        "bootstrap.servers": settings.bootstrap_servers,
        "security.protocol": settings.security_protocol,
        "client.id": "tidelake",
        "socket.timeout.ms": timeout_ms,
        "reconnect.backoff.max.ms": 1000,
    }
    if settings.uses_sasl and settings.sasl_password is not None:
        options["sasl.mechanism"] = settings.sasl_mechanism
        options["sasl.username"] = settings.sasl_username
        options["sasl.password"] = read_secret(settings.sasl_password, "kafka.sasl_password")
    for name, path in (
        ("ssl.ca.location", settings.ssl_ca_file),
        ("ssl.certificate.location", settings.ssl_certificate_file),
        ("ssl.key.location", settings.ssl_key_file),
    ):
        if path is not None:
            options[name] = str(path)
    if settings.ssl_key_password is not None:
        options["ssl.key.password"] = read_secret(settings.ssl_key_password, "kafka.ssl_key_password")
    return options


def java_settings(settings: KafkaSettings) -> dict[str, str]:
    """Return the settings for the Java client. They contain secrets.

    They hold the contents of files instead of their paths, because the client also runs on executors.
    """
    options = {
        "bootstrap.servers": settings.bootstrap_servers,
        "security.protocol": settings.security_protocol,
        "client.id": "tidelake",
        "request.timeout.ms": str(1000 * settings.request_timeout_s),
        "default.api.timeout.ms": str(1000 * settings.request_timeout_s),
    }
    if settings.uses_sasl and settings.sasl_password is not None:
        module = _PLAIN if settings.sasl_mechanism == "PLAIN" else _SCRAM
        password = read_secret(settings.sasl_password, "kafka.sasl_password")
        options["sasl.mechanism"] = str(settings.sasl_mechanism)
        options["sasl.jaas.config"] = (
            f"{module} required username={_quoted(settings.sasl_username or '')} password={_quoted(password)};"
        )
    if settings.ssl_ca_file is not None:
        options["ssl.truststore.type"] = "PEM"
        options["ssl.truststore.certificates"] = settings.ssl_ca_file.read_text(encoding="ascii")
    if settings.ssl_certificate_file is not None and settings.ssl_key_file is not None:
        options["ssl.keystore.type"] = "PEM"
        options["ssl.keystore.certificate.chain"] = settings.ssl_certificate_file.read_text(encoding="ascii")
        options["ssl.keystore.key"] = settings.ssl_key_file.read_text(encoding="ascii")
    if settings.ssl_key_password is not None:
        options["ssl.key.password"] = read_secret(settings.ssl_key_password, "kafka.ssl_key_password")
    return options


def _quoted(text: str) -> str:
    """Quote text for Java's login configuration."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _identity_of(topic_id: Uuid | None) -> int | None:
    """Return 63 bits of a topic's id, to fit into a Delta application transaction: never 0, and None without an id."""
    if topic_id is None:
        return None
    most, least = topic_id.get_most_significant_bits(), topic_id.get_least_significant_bits()
    return None if most == least == 0 else ((most ^ least) & INT64_MAX) or 1
