"""Reads single messages of a source on the driver: those about transactions, and the first waiting events.

Values are JSON, or Avro with the ids of a registry. Needs no JVM.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

from tidelake.protocol.transactions import NotATransaction, payload_of
from tidelake.settings.collection import CollectionSettings
from tidelake.settings.registry import subject_of
from tidelake.topic.schema_registry import SchemaRegistry

ReadMessage = Callable[[bytes | None], Any]
"""Returns the value of a message as JSON values; raises `NotATransaction` if it cannot be read."""
_FRAME = 5
"""The bytes before the body: 0, and the id of the schema."""


def message_reader(settings: CollectionSettings, topic: str) -> ReadMessage:
    """Return the function that reads the values of a topic.

    Args:
        settings: the collection's settings.
        topic: the topic's name.

    Raises:
        RegistryUnreachable: the registry does not answer.

    Cost: for Avro, two requests to the registry.
    """
    if settings.registry is None:
        return payload_of
    schemas = SchemaRegistry(settings.registry).schemas_of(subject_of("topic", topic, {}, "value"))
    parsed: dict[int, Any] = {}

    def read(value: bytes | None) -> Any:
        if value is None or value[:1] != b"\0":
            return payload_of(value)
        schema_id = int.from_bytes(value[1:_FRAME], "big")
        if schemas.get(schema_id) is None:
            raise NotATransaction(f"the registry has no schema with id {schema_id} for '{topic}'")
        import fastavro  # imported late: `status` reads messages, and must start fast

        body = io.BytesIO(value[_FRAME:])
        try:
            if schema_id not in parsed:
                parsed[schema_id] = fastavro.parse_schema(schemas[schema_id])
            message = fastavro.schemaless_reader(body, parsed[schema_id], None)
        except Exception as error:  # the kind of error depends on which byte is wrong
            raise NotATransaction(f"it is not Avro with schema id {schema_id}") from error
        if body.read(1):
            raise NotATransaction(f"it has trailing bytes after the record with schema id {schema_id}")
        return message

    return read
