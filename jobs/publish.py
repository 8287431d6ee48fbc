"""Publish: write to a topic, as CDCv2, the sealed updates that it lacks; then move the topic's hold."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from pyspark.sql import SparkSession

from jobs.job import Report, log, run_main, run_step
from tidelake.catalog.catalog import Catalog
from tidelake.errors import ArgumentRefused, ConfigurationError
from tidelake.publish.publishing import PublishReport, Terms, publish
from tidelake.publish.target import SCHEMA_FILE, FileTarget, KafkaTarget, Target
from tidelake.schema.avro import cdcv2_schema
from tidelake.settings.lake import Settings
from tidelake.settings.publish import PublishSettings
from tidelake.settings.registry import subject_of
from tidelake.storage import blobs
from tidelake.storage.location import Location
from tidelake.store import published_topics
from tidelake.store.layout import Store
from tidelake.topic.schema_registry import SchemaRegistry


@dataclass(frozen=True)
class Asked:
    """A request by a person or by the settings."""

    to: str
    """The name of a topic; for files, also the path or the URI of a folder."""
    kafka: bool = False
    confluent: bool = False
    published_from: int | None = None
    shards: int | None = None
    shard: int | None = None
    skip_errors: bool = False
    accepts_cut: bool = False

    @classmethod
    def by_settings(cls, settings: PublishSettings) -> Asked:
        """Return the request of a `publish` block."""
        return cls(
            settings.to,
            settings.source == "kafka",
            settings.encoding == "confluent",
            shards=settings.shards,
            skip_errors=settings.skip_errors,
        )


def run(spark: SparkSession, settings: Settings) -> Report:
    """Publish every collection that has a `publish` block.

    Raises:
        ConfigurationError: a setting is wrong; nothing was written.
    """
    names = tuple(each.name for each in settings.collections if each.publish is not None)
    if not names:
        return Report("publish")

    def step(collection: Any, own: Any, report: Report) -> PublishReport:
        return publish_collection(spark, settings, collection.name, Asked.by_settings(own.publish))

    return run_step(spark, settings.only(names), "publish", step)


def publish_collection(spark: SparkSession, settings: Settings, name: str, asked: Asked) -> PublishReport:
    """Publish one collection.

    Raises:
        ConfigurationError: there is no `kafka` or `registry` block, but it is needed.
        ArgumentRefused: the collection reads the topic itself.
        TidelakeError: see `publishing.publish`.
    """
    catalog, target = Catalog(Store(settings.store), settings.writer), target_of(settings, asked)
    check_target(settings, name, asked)
    terms = Terms(
        published_from=asked.published_from,
        is_confluent=asked.confluent,
        register=partial(_register, settings, asked.to),
        skip_errors=asked.skip_errors,
        shards=asked.shards,
        shard=asked.shard,
        accepts_cut=asked.accepts_cut,
    )
    report = publish(spark, catalog, name, target, terms)
    if isinstance(target, FileTarget):
        _write_schema(target.folder / SCHEMA_FILE, schema_text(catalog, name, target).encode())
    for partition, first in report.cut.items():
        reason = "new readers can no longer start from this topic"
        log.warning(
            "the topic was cut", collection=name, topic=target.name, partition=partition, first=first, fact=reason
        )
    log.info(
        "published",
        collection=name,
        topic=target.name,
        published_from=report.published_from,
        frontier=None if report.closed else report.frontier,
        messages=report.messages,
        updates=report.updates,
        statements=report.statements,
        **({"columns_from": report.columns_from} if report.columns_from else {}),
    )
    return report


def check_target(settings: Settings, name: str, asked: Asked) -> None:
    """Refuse a topic that the collection reads, even if it is given as a path.

    Raises:
        ArgumentRefused: the collection reads it, or see `target_of`.
        ConfigurationError: see `target_of`.
    """
    own, target = settings.collection(name), target_of(settings, asked)
    if asked.kafka != (own.source == "kafka"):
        return
    reads_it = asked.to in own.topics
    if isinstance(target, FileTarget):
        topics = blobs.root_of(settings.topics)
        read = {os.path.realpath(str(topics / topic)) for topic in own.topics}
        reads_it = os.path.realpath(str(target.folder)) in read
    if reads_it:
        rule = f"but '{name}' reads this topic, and would read what it publishes"
        raise ArgumentRefused("to", asked.to, rule, "publish to another topic")


def stop_publishing(settings: Settings, name: str, asked: Asked) -> None:
    """Give up publishing to a topic: its hold ends; the topic keeps what was published.

    Raises:
        PublishedTopicUnknown: the collection is not published to it.
    """
    catalog, target = Catalog(Store(settings.store), settings.writer), target_of(settings, asked)
    published = published_topics.find_topic(catalog.find(name).entry, target.source, target.name)
    catalog.update(name, lambda entry: published_topics.end(entry, published))
    log.info("publishing ended", collection=name, topic=target.name)


def target_of(settings: Settings, asked: Asked) -> Target:
    """Return the topic to publish to; nothing is read yet.

    Raises:
        ArgumentRefused: it is an invalid URI, or of an object store that is not supported.
        ConfigurationError: it is a Kafka topic, but there is no `kafka` block.
    """

    def fail(problem: str, fix: str) -> NoReturn:
        raise ArgumentRefused("to", asked.to, f"which {problem}", fix)

    if asked.kafka:
        if settings.kafka is None:
            raise ConfigurationError(str(settings.file), "kafka", "is missing", "add a `kafka:` block")
        from tidelake.topic.cluster import KafkaCluster

        return KafkaTarget(KafkaCluster(settings.kafka), asked.to)
    if "/" not in asked.to:
        return FileTarget(blobs.root_of(settings.topics) / asked.to, asked.to)
    folder = blobs.root_of(settings.object_stores.place(asked.to, Path.cwd(), fail))
    return FileTarget(folder, str(folder))


def schema_text(catalog: Catalog, name: str, target: Target) -> str:
    """Return the CDCv2 schema of a topic as JSON: readers need it if messages are bare Avro.

    If columns were added, it is the schema of the last version, with which a collection can read all versions.
    """
    found = published_topics.find_topic(catalog.find(name).entry, target.source, target.name)
    return json.dumps(cdcv2_schema(found.versions[-1].record_schema), indent=2) + "\n"


def _write_schema(file: Location, text: bytes) -> None:
    try:
        present = blobs.read(file)
    except FileNotFoundError:
        present = None
    if present != text:
        blobs.replace(file, text)


def _register(settings: Settings, to: str, schema: Any) -> int:
    """Register a CDCv2 schema as that of a topic's values, and return its id."""
    if settings.registry is None:
        raise ConfigurationError(str(settings.file), "registry", "is missing", "add a `registry:` block")
    topic = to.rstrip("/").rpartition("/")[2]
    return SchemaRegistry(settings.registry).register(subject_of("topic", topic, {}, "value"), schema)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the job from spark-submit or the shell."""
    return run_main(run, __doc__ or "", argv)


if __name__ == "__main__":
    sys.exit(main())
