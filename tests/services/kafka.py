"""A Kafka broker with one node: a plain listener, and a listener with TLS and SASL."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.services.process import Server, free_ports, java, write_properties
from tidelake.spark.jars import java_command

WAIT_S = 180.0
"""The time limit of each request to a running broker."""
USER, PASSWORD = "tidelake", 'no "secret" \\ at all'
"""The SASL user, whose password needs quoting in some places."""
_SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
MECHANISMS = ("PLAIN", *_SCRAM)
_STORE_PASSWORD = "changeit"


def _quoted(text: str) -> str:
    """Quote a string for a login module in a properties file, where every backslash is written twice."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\\", "\\\\")


_ONE_NODE = {
    "process.roles": "broker,controller",
    "node.id": 1,
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "sasl.enabled.mechanisms": ",".join(MECHANISMS),
    **{
        f"listener.name.sasl_ssl.{mechanism.lower()}.sasl.jaas.config": (
            "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        )
        for mechanism in _SCRAM
    },
    "listener.name.sasl_ssl.plain.sasl.jaas.config": (
        f'org.apache.kafka.common.security.plain.PlainLoginModule required user_{USER}="{_quoted(PASSWORD)}";'
    ),
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 1,
    "offsets.topic.replication.factor": 1,
    "transaction.state.log.num.partitions": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "share.coordinator.state.topic.num.partitions": 1,
    "share.coordinator.state.topic.replication.factor": 1,
    "share.coordinator.state.topic.min.isr": 1,
    "num.network.threads": 2,
    "num.io.threads": 2,
    "log.cleaner.dedupe.buffer.size": 4_194_304,
    # Tests delete records explicitly; nothing expires.
    "log.retention.ms": -1,
}


@dataclass(frozen=True)
class Record:
    """A record to produce: `None` for key or value is Kafka's null, not an empty byte string."""

    value: bytes | None
    key: bytes | None = None
    partition: int = 0
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int | None = None


@dataclass
class Broker:
    """A broker that can be stopped and restarted on the same ports and data."""

    bootstrap_servers: str
    secure_bootstrap_servers: str
    """The listener for TLS and SASL: `USER` can log in with any of `MECHANISMS`, and the certificate is self-signed."""
    certificate: Path
    """The certificate that a client has to trust, in PEM."""
    folder: Path
    server: Server
    _names: Iterator[int] = field(default_factory=lambda: iter(range(10**6)))

    def start(self) -> None:
        """Start the broker, and return when it answers."""
        self.server.start(self._answers)

    def restart(self, *, kill: bool = False) -> None:
        """Stop the broker gracefully or kill it, and start it again with the same data."""
        self.server.kill() if kill else self.server.stop()
        self.start()

    @cached_property
    def admin(self) -> AdminClient:
        """Kafka's admin client, which reconnects to a restarted broker."""
        return _admin(self.bootstrap_servers)

    def create_topic(
        self, name: str | None = None, partitions: int = 1, settings: Mapping[str, str] | None = None
    ) -> str:
        """Create a topic, by default with a unique name, and return its name."""
        name = f"topic-{next(self._names)}" if name is None else name
        new = NewTopic(name, num_partitions=partitions, replication_factor=1, config=dict(settings or {}))
        self.admin.create_topics([new])[name].result(WAIT_S)
        self.wait_for_topic(name, partitions)
        return name

    def delete_topic(self, name: str) -> None:
        """Delete a topic, and wait until it is gone."""
        self.admin.delete_topics([name])[name].result(WAIT_S)
        end = time.monotonic() + WAIT_S
        while name in self.admin.list_topics(timeout=WAIT_S).topics:
            assert time.monotonic() < end, f"the topic {name} is still there"
            time.sleep(0.05)

    def produce(self, topic: str, records: Iterable[Record], **settings: object) -> None:
        """Write records, in order within each partition, and wait until the broker has them."""
        producer = self.producer(**settings)
        for record in records:
            extra = {} if record.timestamp_ms is None else {"timestamp": record.timestamp_ms}
            while True:
                try:
                    producer.produce(
                        topic, record.value, record.key, record.partition, headers=list(record.headers), **extra
                    )
                    break
                except BufferError:
                    producer.poll(0.1)
        left = producer.flush(WAIT_S)
        assert left == 0, f"{left} records for {topic} were not delivered"

    def producer(self, **settings: object) -> Producer:
        """A producer that keeps records in order."""
        plain = {"bootstrap.servers": self.bootstrap_servers, "enable.idempotence": True, "linger.ms": 2}
        return Producer({**plain, **{name.replace("_", "."): value for name, value in settings.items()}})

    def ends(self, topic: str) -> dict[int, tuple[int, int]]:
        """The first offset and the next offset of each partition."""
        with self._consumer() as consumer:
            partitions = consumer.list_topics(topic, timeout=WAIT_S).topics[topic].partitions
            return {
                partition: consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=WAIT_S)
                for partition in partitions
            }

    def consume(self, topic: str, starts: Mapping[int, int] | None = None) -> dict[int, list[tuple[int, Record]]]:
        """All records of a topic, by partition, with their offsets.

        Args:
            topic: the name of the topic.
            starts: where to begin, by partition; other partitions are not read. None reads every partition from its
                beginning.
        """
        starts = dict.fromkeys(self.ends(topic), 0) if starts is None else starts
        records: dict[int, list[tuple[int, Record]]] = {partition: [] for partition in starts}
        with self._consumer() as consumer:
            consumer.assign([TopicPartition(topic, partition, start) for partition, start in starts.items()])
            open_partitions = set(records)
            end = time.monotonic() + WAIT_S
            while open_partitions:
                assert time.monotonic() < end, f"the end of {topic} was not reached"
                message = consumer.poll(1.0)
                if message is None:
                    continue
                if message.error():
                    open_partitions.discard(message.partition())  # the end of a partition is reported as an error
                    continue
                kind, timestamp = message.timestamp()
                record = Record(
                    message.value(),
                    message.key(),
                    message.partition(),
                    tuple(message.headers() or ()),
                    timestamp if kind else None,
                )
                records[message.partition()].append((message.offset(), record))
        return records

    def drop_before(self, topic: str, offsets: Mapping[int, int]) -> None:
        """Delete the records before the given offset of each partition, as retention does."""
        positions = [TopicPartition(topic, partition, offset) for partition, offset in offsets.items()]
        for deletion in self.admin.delete_records(positions).values():
            deletion.result(WAIT_S)

    @contextmanager
    def _consumer(self) -> Iterator[Consumer]:
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap_servers,
                "group.id": "tests",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
            }
        )
        try:
            yield consumer
        finally:
            consumer.close()

    def wait_for_topic(self, name: str, partitions: int) -> None:
        """Wait until a topic has this many partitions, each of which has a leader."""
        end = time.monotonic() + WAIT_S
        while True:
            topic = self.admin.list_topics(timeout=WAIT_S).topics.get(name)
            existing = [] if topic is None else topic.partitions.values()
            if sum(partition.leader >= 0 for partition in existing) == partitions:
                return
            assert time.monotonic() < end, f"the topic {name} was not created"
            time.sleep(0.02)

    def _answers(self) -> bool:
        try:
            return bool(_admin(self.bootstrap_servers).list_topics(timeout=0.5).brokers)
        except KafkaException:
            return False


def _admin(bootstrap_servers: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0, "reconnect.backoff.max.ms": 200})


@contextmanager
def kafka_broker(folder: Path, settings: Mapping[str, object] | None = None) -> Iterator[Broker]:
    """Start a broker with its data in `folder`; the broker always stops when the context ends.

    Cost: a few seconds, and 220 MB of memory.
    """
    plain, secure, controller = free_ports(3)
    certificate = _make_certificate(folder)
    places = {
        "listeners": ",".join(
            f"{name}://127.0.0.1:{port}"
            for name, port in (("PLAINTEXT", plain), ("SASL_SSL", secure), ("CONTROLLER", controller))
        ),
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "log.dirs": folder / "logs",
        "ssl.keystore.location": folder / "broker.p12",
        "ssl.keystore.password": _STORE_PASSWORD,
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL,CONTROLLER:PLAINTEXT",
    }
    properties = write_properties(folder / "server.properties", {**_ONE_NODE, **places, **(settings or {})})
    users = [part for mechanism in _SCRAM for part in ("--add-scram", f"{mechanism}=[name={USER},password={PASSWORD}]")]
    _run(java("kafka.tools.StorageTool", "format", "-t", _CLUSTER_ID, "-c", str(properties), *users))
    server = Server("the Kafka broker", java("kafka.Kafka", str(properties)), folder / "broker.log")
    broker = Broker(f"127.0.0.1:{plain}", f"127.0.0.1:{secure}", certificate, folder, server)
    try:
        broker.start()
        yield broker
    finally:
        server.stop()


_CLUSTER_ID = "tidelaketidelaketidela"


def _make_certificate(folder: Path) -> Path:
    """Make a key for 127.0.0.1 in `broker.p12`, and return the path of its certificate, in PEM."""
    keytool = str(Path(java_command()).with_name("keytool")) if "/" in java_command() else "keytool"
    store = ["-keystore", str(folder / "broker.p12"), "-storepass", _STORE_PASSWORD, "-alias", "broker"]
    key = ["-genkeypair", "-keyalg", "EC", "-validity", "2", "-dname", "CN=127.0.0.1", "-ext", "san=ip:127.0.0.1"]
    _run([keytool, *key, "-storetype", "PKCS12", *store])
    certificate = folder / "broker.pem"
    _run([keytool, "-exportcert", "-rfc", "-file", str(certificate), *store])
    return certificate


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert done.returncode == 0, f"{command[-1]} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
