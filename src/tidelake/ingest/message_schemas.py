"""Finds the schemas that Kafka Connect's converter embeds in JSON messages.

A topic has a handful of schemas, each in thousands of messages. A hash of their text identifies them, and one message
of each is parsed.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidelake.decode.json import PAYLOAD, schema_hash
from tidelake.spark.conditions import all_of

_SCHEMAS_MAX = 1_000
"""Maximum number of schemas in a tick; if there are more, they are not really schemas."""


@dataclass(frozen=True)
class MessageSchema:
    """A schema, and the hash that identifies its messages."""

    hashed: int
    schema: Any
    """A schema of Kafka Connect; None if it cannot be read."""
    length: int = 0
    """Number of bytes before the name of the payload; 0 if the schema does not precede it."""


def schemas_of(raw: DataFrame) -> list[MessageSchema]:
    """Find the schemas of messages, in the order of their first offsets.

    In:  topic, partition, offset, value binary.
    Cost: one pass that hashes the text of every schema, and one that fetches a message of each.
    """
    hashed = raw.withColumn("_hash", schema_hash(F.col("value"))).where(F.col("_hash").isNotNull())
    first = hashed.groupBy("_hash", "topic", "partition").agg(F.min("offset").alias("offset"))
    places = {row["_hash"]: row for row in reversed(first.orderBy("offset").limit(_SCHEMAS_MAX).collect())}
    schemas = []
    for text_hash, row in sorted(places.items(), key=lambda place: place[1]["offset"]):
        is_here = all_of(F.col(column) == row[column] for column in ("topic", "partition", "offset"))
        message = raw.where(is_here).select(F.col("value").cast("string")).first()
        schemas.append(
            _message_schema(text_hash, message[0]) if message is not None else MessageSchema(text_hash, None)
        )
    return schemas


def _message_schema(hashed: int, text: str) -> MessageSchema:
    """Parse the schema of a message, which usually precedes its payload."""
    before, _, _ = text.partition(PAYLOAD)
    for document, length in ((before.rstrip().rstrip(",") + "}", len(before.encode())), (text, 0)):
        try:
            return MessageSchema(hashed, json.loads(document)["schema"], length)
        except (ValueError, KeyError, TypeError, RecursionError):
            continue
    return MessageSchema(hashed, None)
