"""The documentation of a collection's columns: the `doc` of each field in its Avro schemas."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tidelake.schema.change_events import AFTER, BEFORE
from tidelake.settings.terms import envelope_terms
from tidelake.store.entry import Entry


def column_docs(entry: Entry) -> dict[str, str]:
    """Return the documentation of the columns of the contents, by name; columns without any are left out.

    The schemas are those in the entry: of the table, of the values and, for change events, of the row.

    >>> from tidelake.store.entry import Capability
    >>> fields = [{"name": "id", "type": "long", "doc": "the item"}, {"name": "price", "type": "int"}]
    >>> column_docs(Entry(id="7f", name="prices", framing="cdcv2", envelope="none", created_at_ms=0,
    ...     record_schema={"type": "record", "name": "data", "fields": fields}, capabilities=()))
    {'id': 'the item'}
    """
    docs: dict[str, str] = {}
    for schema in (entry.value_schema, entry.record_schema):
        for record in _row_records(schema) if _states_events(entry) else [schema]:
            docs |= _field_docs(record)
    return docs


def _states_events(entry: Entry) -> bool:
    return envelope_terms(entry.envelope).of_changes and not entry.mints_times


def _row_records(event: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the records that `before` and `after` of a change event define; references by name are left out."""
    for field in event.get("fields", ()):
        if field["name"] in (BEFORE, AFTER):
            branches = field["type"] if isinstance(field["type"], list) else [field["type"]]
            yield from (branch for branch in branches if isinstance(branch, dict) and branch.get("type") == "record")


def _field_docs(record: Mapping[str, Any]) -> dict[str, str]:
    docs = {field["name"]: field.get("doc") for field in record.get("fields", ())}
    return {name: doc.strip() for name, doc in docs.items() if isinstance(doc, str) and doc.strip()}
