"""The metadata of materializations: numbers, which the UI plots over time, and the columns of the tables."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from dagster import MetadataValue, TableColumn, TableSchema

if TYPE_CHECKING:
    from jobs.lake import Lake
    from tidelake.read.status import CollectionStatus
    from tidelake.storage.location import Location
    from tidelake.store.entry import Collection

Metadata = dict[str, Any]
MEANINGS = {
    "_time": "the logical time of an update",
    "_diff": "how many times the data is added; a negative diff removes it",
    "_run": "the run of files that holds the row; readers ignore it",
}
"""The description of each column that is not part of the data."""


def status_of(lake: Lake, collection: Collection) -> CollectionStatus:
    """Return the current status of a collection, read without Spark."""
    from tidelake.read.status import read_status
    from tidelake.topic.open import open_topics

    settings = lake.settings.collection(collection.name)
    return read_status(collection, open_topics(settings, collection.entry.decisions), settings.stalled_after_s)


def frontier_metadata(status: CollectionStatus, upper: int) -> Metadata:
    """Return `since`, `upper`, and how far the collection is behind its topics.

    Args:
        status: the current status.
        upper: the upper of the table, which is a number even if the collection is closed.
    """
    metadata: Metadata = {"upper": upper, "closed": status.closed, "rows_pending": status.pending}
    if status.since is not None:
        metadata["since"] = status.since
    if status.lag_messages is not None:
        metadata["lag_messages"] = status.lag_messages
    if status.lag_s is not None:
        metadata["lag_s"] = float(status.lag_s)
    return metadata


def table_metadata(collection: Collection, path: Location, rows: int, columns: Iterable[Any]) -> Metadata:
    """Return the metadata keys that Dagster defines for a table: its number of rows, name, location and columns.

    Args:
        collection: the owner of the table.
        path: the folder of the table.
        rows: the number of rows.
        columns: the Arrow fields of its columns, in the order of the table.
    """
    described = [
        TableColumn(column.name, str(column.type), description=MEANINGS.get(column.name)) for column in columns
    ]
    return {
        "dagster/row_count": rows,
        "dagster/table_name": f"{collection.name}.{path.name}",
        "dagster/uri": path.uri,
        "dagster/column_schema": MetadataValue.table_schema(TableSchema(columns=described)),
    }


def updates_metadata(collection: Collection, rows: int) -> Metadata:
    """Return the metadata keys for the table of updates.

    Args:
        collection: the owner of the table.
        rows: the number of rows to show; the table may hold more rows, which are not sealed.
    """
    from tidelake.store.table_schema import updates_schema

    schema = updates_schema(collection.entry.record_schema, collection.entry.positioned)
    return table_metadata(collection, collection.paths.updates, rows, schema)


def current_metadata(collection: Collection, rows: int) -> Metadata:
    """Return the metadata keys for the published contents.

    Args:
        collection: the collection.
        rows: the number of rows of the table, which are distinct rows of the contents.
    """
    from tidelake.plugins.envelope import form_of
    from tidelake.read.publication import publication_of
    from tidelake.store.layout import DIFF
    from tidelake.store.table_schema import updates_schema

    published = publication_of(collection)
    if published is None:  # nothing is sealed yet
        return {}
    columns = list(form_of(collection.entry).fields)
    if not collection.entry.key:
        columns.append(updates_schema(collection.entry.record_schema).field(DIFF))
    described = table_metadata(collection, published.table, rows, columns)
    return described | {"dagster/table_name": f"tables.{published.table.name}"}


def listed(lines: list[str], shown_max: int = 20) -> MetadataValue[Any]:
    """Return the first lines of a list as text, which the UI shows without a click, and how many lines remain."""
    shown = lines[:shown_max]
    if len(lines) > shown_max:
        shown = [*shown, f"and {len(lines) - shown_max} more"]
    return MetadataValue.text("; ".join(shown))
