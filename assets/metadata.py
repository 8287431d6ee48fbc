"""What a materialization says of its collection: numbers, so that the UI draws them, and the table's shape."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dagster import MetadataValue, TableColumn, TableSchema

if TYPE_CHECKING:
    from pathlib import Path

    from jobs.lake import Lake
    from tidelake.delta.catalog import Collection
    from tidelake.delta.status import CollectionStatus

Metadata = dict[str, Any]
_INT64_MAX = 2**63 - 1


def status_of(lake: Lake, collection: Collection) -> CollectionStatus:
    """The collection as it stands now, read without Spark."""
    from tidelake.delta.status import read_status
    from tidelake.delta.topic import FileTopic

    settings = lake.settings.collection(collection.name)
    return read_status(collection, settings.family, FileTopic(settings.topic_folder))


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


def table_metadata(lake: Lake, collection: Collection, path: Path, rows: int, system: Mapping[str, str]) -> Metadata:
    """Dagster's own keys for a table: its rows, name, place and columns.

    Args:
        lake: whose settings name the topic.
        collection: whose schema the data's columns have.
        path: the table's folder.
        rows: how many it has.
        system: the columns that are not the data's, with what they mean.
    """
    from tidelake.delta.types import data_fields

    data = [TableColumn(one.name, str(one.type)) for one in data_fields(collection.entry.record_schema)]
    own = [TableColumn(name, "int64", description=meaning) for name, meaning in system.items()]
    return {
        "dagster/row_count": rows,
        "dagster/table_name": f"{collection.name}.{path.name}",
        "dagster/uri": path.resolve().as_uri(),
        "dagster/column_schema": MetadataValue.table_schema(TableSchema(columns=[*data, *own])),
    }


def number(value: int) -> int | str:
    """An integer as the event log can hold it; beyond int64 as its text."""
    return value if abs(value) <= _INT64_MAX else str(value)


def listed(lines: list[str], most: int = 20) -> MetadataValue[Any]:
    """Some lines for a person, as Markdown; the rest is counted."""
    shown = [f"- {line}" for line in lines[:most]]
    if len(lines) > most:
        shown.append(f"- and {len(lines) - most} more")
    return MetadataValue.md("\n".join(shown))
