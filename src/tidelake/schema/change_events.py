"""The record of a change event in CDCv2: `before` and `after`, each null or a row."""

from __future__ import annotations

from typing import Any

from tidelake.errors import SchemaRefused
from tidelake.schema.avro import resolved_schema

BEFORE = "before"
AFTER = "after"

Interval = tuple[int, int]
"""The first and the last time of the rows in a file or a run."""


def row_record_of(event_schema: dict[str, Any]) -> dict[str, Any]:
    """Return the resolved schema of a row, given the schema of a change event.

    Raises:
        SchemaRefused: `before` and `after` are not both unions of null and the same record, or a column of that record
            has a name that starts with `_`.

    >>> row = {"type": "record", "name": "Value", "fields": [{"name": "id", "type": "long"}]}
    >>> event = {"type": "record", "name": "Envelope", "fields": [
    ...     {"name": "before", "type": ["null", row]}, {"name": "after", "type": ["null", "Value"]}]}
    >>> [field["name"] for field in row_record_of(event)["fields"]]
    ['id']
    """
    fields = {field["name"]: field["type"] for field in resolved_schema(event_schema)["fields"]}
    records = []
    for name in (BEFORE, AFTER):
        branches = fields.get(name)
        others = [branch for branch in branches if branch != "null"] if isinstance(branches, list) else []
        if branches is None or len(others) != 1 or len(branches) != 2 or others[0]["type"] != "record":
            raise SchemaRefused(name, "a change event has `before` and `after`, each null or the record of a row")
        records.append(others[0])
    if records[0] != records[1]:
        raise SchemaRefused(AFTER, "it is a different record from `before`; a change event has one record for both")
    row: dict[str, Any] = records[0]
    for field in row["fields"]:
        if field["name"].startswith("_"):
            raise SchemaRefused(
                f"{AFTER}.{field['name']}", "names that start with _ are reserved for the system's columns"
            )
    return row
