"""What a materialization says of its collection: numbers, so that the UI draws them, and the table's shape."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from dagster import MetadataValue, TableColumn, TableSchema

if TYPE_CHECKING:
    from pathlib import Path

    from jobs.lake import Lake
    from tidelake.delta.catalog import Collection
    from tidelake.delta.status import CollectionStatus

Metadata = dict[str, Any]
MEANINGS = {
    "_time": "the logical time of an update",
    "_diff": "how often the data is added; where it is negative, taken away",
    "_run": "which run of files the row is in; it means nothing",
}
"""What the columns say that are not the data's."""


def status_of(lake: Lake, collection: Collection) -> CollectionStatus:
    """The collection as it stands now, read without Spark."""
    from tidelake.delta.status import read_status
    from tidelake.delta.topic import open_topics

    settings = lake.settings.collection(collection.name)
    return read_status(collection, settings.family, open_topics(settings, collection.entry.decisions))


def frontier_metadata(status: CollectionStatus, upper: int) -> Metadata:
    """Since, upper, and how far behind the topic the collection is.

    Args:
        status: as it stands.
        upper: the number of the table, which a closed collection has as well.
    """
    found: Metadata = {"upper": upper, "closed": status.closed, "rows_pending": status.pending}
    if status.since is not None:
        found["since"] = status.since
    if status.lag_messages is not None:
        found["lag_messages"] = status.lag_messages
    if status.lag_s is not None:
        found["lag_s"] = float(status.lag_s)
    return found


def table_metadata(collection: Collection, path: Path, rows: int, columns: Iterable[Any]) -> Metadata:
    """Dagster's own keys for a table: its rows, name, place and columns.

    Args:
        collection: whose table it is.
        path: the table's folder.
        rows: how many it has.
        columns: its Arrow fields, in the table's order.
    """
    described = [TableColumn(one.name, str(one.type), description=MEANINGS.get(one.name)) for one in columns]
    return {
        "dagster/row_count": rows,
        "dagster/table_name": f"{collection.name}.{path.name}",
        "dagster/uri": path.resolve().as_uri(),
        "dagster/column_schema": MetadataValue.table_schema(TableSchema(columns=described)),
    }


def updates_metadata(collection: Collection, rows: int) -> Metadata:
    """The same for the table of updates, `rows` of which count."""
    from tidelake.delta.types import updates_schema

    schema = updates_schema(collection.entry.record_schema, collection.entry.positioned)
    return table_metadata(collection, collection.paths.updates, rows, schema)


def current_metadata(collection: Collection, rows: int) -> Metadata:
    """The same for the table of the contents."""
    from tidelake.delta.forms import contents_fields
    from tidelake.delta.layout import DIFF
    from tidelake.delta.types import updates_schema

    columns = [*contents_fields(collection.entry), updates_schema(collection.entry.record_schema).field(DIFF)]
    return table_metadata(collection, collection.paths.current, rows, columns)


def listed(lines: list[str], most: int = 20) -> MetadataValue[Any]:
    """Some lines for a person, as text, which the page shows without a click; the rest is counted."""
    shown = lines[:most]
    if len(lines) > most:
        shown = [*shown, f"and {len(lines) - most} more"]
    return MetadataValue.text("; ".join(shown))
