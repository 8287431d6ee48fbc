"""The schemas that JSON messages bring with them, as Kafka Connect's converter writes them around each value.

A topic has a handful of them, each in thousands of messages: they are told apart by a hash of their text, and only one
message of each is looked at.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tidelake.configuration import CollectionSettings
from tidelake.connect_agreement import written_otherwise
from tidelake.connect_types import row_schema_of_connect
from tidelake.delta.catalog import Catalog
from tidelake.delta.conditions import all_of
from tidelake.delta.json_format import PAYLOAD, WRAPPING, is_wrapped, schema_hash
from tidelake.delta.registry import newest_row
from tidelake.delta.topic import open_topics
from tidelake.errors import ConfigurationError, SchemaRefused
from tidelake.evolution import Record, Values, grow, new_fields
from tidelake.settled import described, values_of, with_values

_SCHEMAS_MAX = 1_000
"""Of one tick; more of them are no schemas."""


@dataclass(frozen=True)
class MessageSchema:
    """One schema, and the hash by which its messages are known."""

    hashed: int
    schema: Any
    """Kafka Connect's; None where it cannot be read."""
    length: int = 0
    """How many bytes there are before the name of the payload; 0 where the schema is not in front of it."""


def schemas_of(raw: DataFrame) -> list[MessageSchema]:
    """Every schema that messages have, in the order of the first place that has it.

    In:  topic, partition, offset, value binary.
    Cost: one pass that hashes the text of every schema, and one that fetches a message of each.
    """
    hashed = raw.withColumn("_hash", schema_hash(F.col("value"))).where(F.col("_hash").isNotNull())
    first = hashed.groupBy("_hash", "topic", "partition").agg(F.min("offset").alias("offset"))
    places = {row["_hash"]: row for row in reversed(first.orderBy("offset").limit(_SCHEMAS_MAX).collect())}
    found = []
    for name, row in sorted(places.items(), key=lambda one: one[1]["offset"]):
        there = all_of(F.col(column) == row[column] for column in ("topic", "partition", "offset"))
        taken = raw.where(there).select(F.col("value").cast("string")).first()
        found.append(_message_schema(name, taken[0]) if taken is not None else MessageSchema(name, None))
    return found


def with_message_schemas(settings: CollectionSettings, added: Sequence[str], raw: DataFrame) -> CollectionSettings:
    """The settings of a collection that may grow, with the columns that its messages' schemas add.

    A schema that is not additive is refused: `refused_schemas` has the reason by its hash.

    Args:
        settings: of a raw collection whose format is JSON.
        added: the columns that have appeared since it was made.
        raw: the messages; see `schemas_of`.
    """
    known = values_of(settings, added)
    if not known.of_changes:
        raw = raw.where(is_wrapped(F.col("value").cast("string"), [one["name"] for one in known.record["fields"]]))
    found = [one for one in schemas_of(raw) if one.schema is not None]  # others are refused where they are decoded
    rows = [partial(_row_written, known, one.schema) for one in found]
    values = grow(known, rows, checks_types=False)
    refused = {}
    for one, row in zip(found, rows, strict=True):
        try:
            new_fields(values, row(), checks_types=False)
        except SchemaRefused as error:
            refused[one.hashed] = f"its schema is not additive: {error.fact()}"
    more = settings.model_copy(update={"refused_schemas": refused})
    return more if values.record == values_of(settings).record else with_values(more, values)


def with_schema(spark: SparkSession, catalog: Catalog, settings: CollectionSettings) -> CollectionSettings:
    """Settings that say no schema, with what the registry or the first message that has one says.

    They are left as they are where they say one, and where the collection is there.

    Raises:
        ConfigurationError: there is none to be had yet.
    """
    if settings.record_schema or any(one.name == settings.name for one in catalog.entries()):
        return settings
    field = f"collections.{settings.name}.schema"
    try:
        row = newest_row(settings) if settings.registry is not None else _row_in_messages(spark, settings)
        if row is not None:
            return described(settings, row)
    except SchemaRefused as error:
        raise ConfigurationError(
            "collections.yaml", field, f"the schema of {settings.topic} {error.fact()}", "give the schema of a row"
        ) from error
    if settings.registry is not None:
        problem = f"is missing, and the registry has no schema under '{settings.topics[0]}-value' yet"
    else:
        problem = f"is missing, and no message of {settings.topic} has its schema with it"
    raise ConfigurationError(
        "collections.yaml",
        field,
        problem,
        "add `schema:`, the record of a row; or let the converter write it (`value.converter.schemas.enable=true`)",
    )


def _row_in_messages(spark: SparkSession, settings: CollectionSettings) -> dict[str, Any] | None:
    """The row that the first message with a schema is about, within the first tick of each topic."""
    for topic in open_topics(settings):
        starts = dict.fromkeys(topic.end_offsets(), 0)
        offsets, gaps = topic.plan(starts, settings.messages_per_tick_max)
        for gap in gaps if not offsets.intervals else ():
            starts[gap.partition] = gap.to_offset  # retention took what was before
            offsets, _ = topic.plan(starts, settings.messages_per_tick_max)
        if not offsets.intervals:
            continue
        for one in schemas_of(topic.read(spark, offsets).withColumn("topic", F.lit(topic.name))):
            if one.schema is not None:
                return row_schema_of_connect(one.schema)
    return None


def _row_written(known: Values, schema: Any) -> Record:
    """The row that a message's schema is about.

    Raises:
        SchemaRefused: it is about none, says other types of change events than are known, or has a column by which
            values with a schema around them could not be told from others.
    """
    if known.of_changes:
        written_otherwise(known.record, schema)
        return row_schema_of_connect(schema)
    row = row_schema_of_connect(schema)
    for one in row["fields"]:
        if one["name"] in WRAPPING:
            raise SchemaRefused(
                one["name"], "it is new, and with it a value with a schema around it would be taken for a row"
            )
    return row


def _message_schema(hashed: int, text: str) -> MessageSchema:
    """The schema of a message, which most often is in front of its payload; None where it is no JSON."""
    before, _, _ = text.partition(PAYLOAD)
    for one, length in ((before.rstrip().rstrip(",") + "}", len(before.encode())), (text, 0)):
        try:
            return MessageSchema(hashed, json.loads(one)["schema"], length)
        except (ValueError, KeyError, TypeError, RecursionError):
            continue
    return MessageSchema(hashed, None)
