"""Small lakes whose topics are on a real broker."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from tests.lakes.lake import NAME, RECORD, Lake
from tests.lakes.raw_lake import VISIT
from tests.services.kafka import Broker, Record

PLAIN = {"family": "plain", "schema": RECORD}
RAW = {"framing": "reclock", "envelope": "append_only", "format": "json", "schema": VISIT}

MESSAGE_BYTES_MAX = 2**21
"""The size limit of a message for the producer; whether the broker accepts it depends on the topic's settings."""


class KafkaLake(Lake):
    """One collection on one topic of a broker: in CDCv2 framing, or reclocked with `RAW`.

    The topic is created, unless `topic` names one.
    """

    def __init__(
        self,
        root: Path,
        spark: SparkSession,
        broker: Broker,
        block: dict[str, Any] = PLAIN,
        partitions: int = 1,
        kafka: dict[str, Any] | None = None,
        topic_settings: dict[str, str] | None = None,
        topic: str | None = None,
    ) -> None:
        self.root, self.spark, self.broker, self.has_own_store = root, spark, broker, True
        self.name = topic or broker.create_topic(partitions=partitions, settings=topic_settings)
        self.document = {
            "data_docs": "docs",
            "kafka": {"bootstrap_servers": broker.bootstrap_servers, **(kafka or {})},
            "collections": {NAME: {"topic": self.name, "source": "kafka", **block}},
        }
        root.mkdir(exist_ok=True)
        self.file = root / "collections.yaml"
        self.settings = self.written()

    def send(self, *values: bytes | None, partition: int = 0, at: int | None = None) -> None:
        """Append messages to the topic."""
        assert at is None, "a broker chooses its offsets"
        records = [Record(value, None, partition) for value in values]
        self.broker.produce(self.name, records, message_max_bytes=MESSAGE_BYTES_MAX)


def visit(id: int, page: str | None = None) -> bytes:
    """One record of a reclocked topic."""
    return json.dumps({"id": id, "page": page}).encode()
