"""Questions to a Kafka cluster that need no JVM, and what both of its clients, librdkafka and Java's, are told."""

from __future__ import annotations

import os
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

from tidelake.errors import ConfigurationError, RuleBroken, TopicUnreachable
from tidelake.kafka_configuration import KafkaSettings, Secret
from tidelake.order import INT64_MAX

_UNKNOWN = (
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError.TOPIC_EXCEPTION,  # no topic can have such a name
)
_MOVING = (
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.KAFKA_STORAGE_ERROR,
)
_AGAIN_S = 0.1
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


@dataclass(frozen=True)
class TopicFacts:
    """A topic as the cluster has it now."""

    identity: int | None
    """63 bits of the id that the cluster gave the topic when it was created; None where the cluster gives none."""
    offsets: dict[int, tuple[int, int]]
    """By partition, the first offset that is there, and the end of what is committed: transactions that are still open
    lie behind it. Not every offset between the two has a record."""


class KafkaCluster:
    """A cluster, asked through one client that is made with the first question."""

    def __init__(self, settings: KafkaSettings) -> None:
        """Name the cluster; nothing is asked yet."""
        self.settings = settings
        self._said: list[str] = []

    def topic(self, name: str) -> TopicFacts:
        """What the cluster says of a topic.

        Raises:
            ConfigurationError: no client can be made of the settings.
            RuleBroken: there is no such topic.
            TopicUnreachable: the cluster did not answer, or does not let us in.

        Cost: three requests.
        """
        end = time.monotonic() + self.settings.request_timeout_s
        while True:
            try:
                return self._ask(name)
            except KafkaException as error:
                # A partition that has just been made, or has moved, is found a moment later.
                moving = error.args[0].code() in _MOVING
                if not moving or time.monotonic() > end:
                    raise self._error_about(name, error) from error
            time.sleep(_AGAIN_S)

    def _ask(self, name: str) -> TopicFacts:
        timeout = self.settings.request_timeout_s
        futures = self._admin.describe_topics(TopicCollection([name]), request_timeout=timeout)
        description = futures[name].result()
        partitions = [one.id for one in description.partitions]
        starts = self._list_offsets(name, partitions, OffsetSpec.earliest())
        ends = self._list_offsets(name, partitions, OffsetSpec.latest())
        return TopicFacts(_identity_of(description.topic_id), {one: (starts[one], ends[one]) for one in partitions})

    def publish_offsets(self, topic: str, group: str, offsets: Mapping[int, int]) -> None:
        """Show offsets as those of a consumer group, for people; nothing of ours ever reads them.

        Raises:
            TopicUnreachable: they could not be stored.
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
        # What the client has to say about its connections is kept for our own errors, not printed.
        told = {**librdkafka_settings(self.settings), "error_cb": self._note, "log_level": 0}
        try:
            return AdminClient(told)
        except KafkaException as error:  # of a file that is not there or holds something else, by librdkafka's names
            raise ConfigurationError(
                "collections.yaml", "kafka", f"does not make a client: {error.args[0].str()}", "mend what it names"
            ) from error

    def _note(self, error: KafkaError) -> None:
        self._said = [*self._said[-9:], error.str()]

    def _list_offsets(self, topic: str, partitions: list[int], which: OffsetSpec) -> dict[int, int]:
        asked = {TopicPartition(topic, one): which for one in partitions}
        futures = self._admin.list_offsets(
            asked,
            isolation_level=IsolationLevel.READ_COMMITTED,
            request_timeout=self.settings.request_timeout_s,
        )
        return {one.partition: future.result().offset for one, future in futures.items()}

    def _error_about(self, topic: str, error: KafkaException) -> Exception:
        kafka: KafkaError = error.args[0]
        self._admin.poll(0)  # what went wrong with the connections is noted now
        if kafka.code() in _UNKNOWN:
            return RuleBroken(
                f"Kafka at {self.settings.bootstrap_servers} has no topic '{topic}'", "create it, or mend its name"
            )
        said = "; ".join(dict.fromkeys([kafka.str(), *self._said[-2:]]))
        return TopicUnreachable(topic, self.settings.bootstrap_servers, said)


def librdkafka_settings(settings: KafkaSettings) -> dict[str, Any]:
    """The settings for the client that needs no JVM; they hold secrets."""
    timeout_ms = 1000 * settings.request_timeout_s
    found: dict[str, Any] = {
        "bootstrap.servers": settings.bootstrap_servers,
        "security.protocol": settings.security_protocol,
        "client.id": "tidelake",
        "socket.timeout.ms": timeout_ms,
        "reconnect.backoff.max.ms": 1000,
    }
    if settings.uses_sasl and settings.sasl_password is not None:
        found["sasl.mechanism"] = settings.sasl_mechanism
        found["sasl.username"] = settings.sasl_username
        found["sasl.password"] = read_secret(settings.sasl_password, "kafka.sasl_password")
    for name, path in (
        ("ssl.ca.location", settings.ssl_ca_file),
        ("ssl.certificate.location", settings.ssl_certificate_file),
        ("ssl.key.location", settings.ssl_key_file),
    ):
        if path is not None:
            found[name] = str(path)
    if settings.ssl_key_password is not None:
        found["ssl.key.password"] = read_secret(settings.ssl_key_password, "kafka.ssl_key_password")
    return found


def java_settings(settings: KafkaSettings) -> dict[str, str]:
    """The settings for Java's client, on executors too: what is in files travels with them. They hold secrets."""
    found = {
        "bootstrap.servers": settings.bootstrap_servers,
        "security.protocol": settings.security_protocol,
        "client.id": "tidelake",
        "request.timeout.ms": str(1000 * settings.request_timeout_s),
        "default.api.timeout.ms": str(1000 * settings.request_timeout_s),
    }
    if settings.uses_sasl and settings.sasl_password is not None:
        module = _PLAIN if settings.sasl_mechanism == "PLAIN" else _SCRAM
        password = read_secret(settings.sasl_password, "kafka.sasl_password")
        found["sasl.mechanism"] = str(settings.sasl_mechanism)
        found["sasl.jaas.config"] = (
            f"{module} required username={_quoted(settings.sasl_username or '')} password={_quoted(password)};"
        )
    if settings.ssl_ca_file is not None:
        found["ssl.truststore.type"] = "PEM"
        found["ssl.truststore.certificates"] = settings.ssl_ca_file.read_text(encoding="ascii")
    if settings.ssl_certificate_file is not None and settings.ssl_key_file is not None:
        found["ssl.keystore.type"] = "PEM"
        found["ssl.keystore.certificate.chain"] = settings.ssl_certificate_file.read_text(encoding="ascii")
        found["ssl.keystore.key"] = settings.ssl_key_file.read_text(encoding="ascii")
    if settings.ssl_key_password is not None:
        found["ssl.key.password"] = read_secret(settings.ssl_key_password, "kafka.ssl_key_password")
    return found


def read_secret(secret: Secret, field: str) -> str:
    """The secret itself, from where the settings say that it is; of a file the last line break is left out.

    Raises:
        ConfigurationError: naming the place, never what is in it.
    """
    if secret.env is not None:
        value = os.environ.get(secret.env)
        if not value:
            raise ConfigurationError(
                "environment", secret.env, f"is not set, and {field} is in it", "set it for this process"
            )
        return value
    assert secret.file is not None
    try:
        return secret.file.read_text(encoding="utf-8").removesuffix("\n")
    except (OSError, UnicodeDecodeError) as error:
        problem = error.strerror if isinstance(error, OSError) else "is not UTF-8 text"
        raise ConfigurationError(str(secret.file), field, f"cannot be read: {problem}", "mend the path") from None


def _quoted(text: str) -> str:
    """Text as Java's login configuration has it."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _identity_of(topic_id: Uuid | None) -> int | None:
    """63 bits of a topic's id, as Delta's values hold them; never 0."""
    if topic_id is None:
        return None
    most, least = topic_id.get_most_significant_bits(), topic_id.get_least_significant_bits()
    return None if most == least == 0 else ((most ^ least) & INT64_MAX) or 1
