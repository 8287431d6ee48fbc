"""The metadata of materializations: numbers, which the UI plots over time, and the columns of the tables.

A name says what is counted: `statements` are rows as stored, `rows` are rows of the contents. Units come last. Nothing
that stays the same from run to run is a number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dagster import MetadataValue

from assets.columns import DIFF, MEANINGS, POSITIONED, RUN, TIME, docs_of, table_schema
from tidelake.read.words import counted
from tidelake.schema.columns import column_types
from tidelake.settings.collection import CollectionSettings

if TYPE_CHECKING:
    from jobs.ingest import IngestReport
    from tidelake.read.current import CurrentReport
    from tidelake.read.status import CollectionStatus
    from tidelake.seal.report import SealReport
    from tidelake.store.entry import Collection

Metadata = dict[str, Any]
_LISTED_MAX = 20


def ingest_metadata(ingested: IngestReport, seconds: float) -> Metadata:
    """Return the numbers of an ingest; they count messages unless their names say otherwise."""
    metadata: Metadata = {
        "messages": ingested.messages,
        "statements_read": ingested.updates_read,
        "statements_stored": ingested.updates_stored,
        "copies_dropped": ingested.copies_dropped,
        "late_statements": ingested.updates_late,
        "quarantined": ingested.quarantined,
        "progress_statements": ingested.progress_statements,
        "null_records": ingested.null_records,
        "ticks": ingested.ticks,
        "bytes": ingested.bytes_stored,
        "ingest_s": round(seconds, 3),
    }
    if ingested.messages:
        metadata["statements_per_s"] = round(ingested.updates_read / max(seconds, 0.001), 1)
    if ingested.values_in_error:
        metadata["values_in_error"] = ingested.values_in_error
    if ingested.partitions_added:
        metadata["partitions_added"] = "; ".join(ingested.partitions_added)
    if ingested.reasons:
        metadata["quarantine_reasons"] = dict(ingested.reasons)
    return metadata


def seal_metadata(sealed: SealReport, seconds: float) -> Metadata:
    """Return the numbers of a seal, and the times that it is waiting for."""
    metadata: Metadata = {
        "times_sealed": sealed.times_sealed,
        "copies_cancelled": sealed.copies_cancelled,
        "sealed_by_decision": sealed.decided,
        "contradictions": len(sealed.contradictions),
        "files_opened": sealed.files_opened,
        "seal_s": round(seconds, 3),
    }
    if sealed.sealed_by_ingest:
        metadata["sealed_by"] = "ingest: each tick mints a time, and its binding to offsets is the proof"
    if sealed.left is not None:
        metadata["rows_left"] = sealed.left.rows
        metadata["rows_left_by"] = sealed.left.sentence
    if sealed.decided_times:
        metadata["decided"] = listed([f"time {time}, sealed by decision: {why}" for time, why in sealed.decided_times])
    if sealed.contradictions:
        metadata["contradicted_by"] = listed([f"{error.kind}: {error.fact}" for error in sealed.contradictions])
    if sealed.waiting_for:
        metadata["waiting_for"] = listed([_waiting_time(*waiting) for waiting in sealed.waiting_for])
    return metadata


def _waiting_time(time: int, announced: int | None, arrived: int) -> str:
    if announced is None:
        return f"time {time}: no progress statement covers it yet; {counted(arrived, 'update')} arrived"
    return f"time {time}: {counted(announced, 'update')} announced, {arrived:,} arrived"


def status_metadata(
    collection: Collection, settings: CollectionSettings, status: CollectionStatus, upper: int
) -> Metadata:
    """Return the state of a collection after a run.

    Args:
        collection: the collection.
        settings: its settings.
        status: its current status.
        upper: the upper of the table, which is a number even if the stream is closed.
    """
    metadata: Metadata = {
        "upper": upper,
        "upper_age_s": float(upper_age_s(collection, status)),
        "lag_source_time": _lag_source_time(collection, status, upper),
        "pending_statements": status.pending,
        "stored_statements": status.rows - status.pending,
        "quarantine_total": status.quarantine,
    }
    if status.closed:
        metadata["stream"] = "closed"
    if settings.keep != "all" and status.since is not None:
        metadata["since"] = status.since
    return metadata


def upper_age_s(collection: Collection, status: CollectionStatus) -> int:
    """Return the seconds since upper last moved, or since the collection was created if upper never did."""
    from tidelake.read.status import age_of_upper_s

    return age_of_upper_s(collection, closed=False, lag_messages=None, lag_s=status.lag_s)


def _lag_source_time(collection: Collection, status: CollectionStatus, upper: int) -> int:
    """Return how far the newest stored time is beyond the last sealed time, in the unit of the source's times.

    It is 0 if everything that is stored is sealed.
    """
    from tidelake.store.commit import OpenTable

    if not status.pending or status.closed:
        return 0
    times = [file.time_max for file in OpenTable(collection.paths.updates).files() if file.time_max is not None]
    return max(0, max(times, default=upper - 1) + 1 - upper)


def updates_metadata(collection: Collection, settings: CollectionSettings, upper: int) -> Metadata:
    """Return the metadata that Dagster defines for tables, for the table of updates.

    Its rows are statements, and several of them may belong to one row of the contents. So the row count is that of the
    contents, and is left out unless the contents at upper are published.
    """
    from tidelake.read.publication import contents_rows

    entry, path = collection.entry, collection.paths.updates
    system = (TIME, DIFF, *(POSITIONED if entry.positioned else ()))
    columns = [*system, *column_types(entry.record_schema), RUN]
    contents = contents_rows(collection)
    known = {} if contents is None or contents.as_of < upper - 1 else {"dagster/row_count": contents.rows}
    return known | {
        "dagster/table_name": f"{collection.name}.{path.name}",
        "dagster/uri": path.uri,
        "dagster/column_schema": MetadataValue.table_schema(table_schema(columns, docs_of(settings), MEANINGS)),
    }


def declared_metadata(settings: CollectionSettings) -> Metadata:
    """Return the columns of the data, as far as the settings declare them."""
    record = settings.record_schema
    if not record:
        return {}
    columns = table_schema(column_types(record), docs_of(settings), {})
    return {"dagster/column_schema": MetadataValue.table_schema(columns)}


def published_metadata(report: CurrentReport) -> Metadata:
    """Return the numbers of one publication: the plots show what it cost."""
    metadata: Metadata = {
        "how": report.how,
        "contents_rows": report.contents_rows,
        "rows_changed": report.rows_changed,
        "rows_rewritten": report.rows_rewritten,
        "files_rewritten": report.files_rewritten,
    }
    if report.reason is not None:
        metadata["rebuilt_because"] = report.reason
    if len(report.together) > 1:
        metadata["together_with"] = listed(list(report.together))
    return metadata


def current_metadata(collection: Collection, settings: CollectionSettings, rows: int) -> Metadata:
    """Return the metadata that Dagster defines for tables, for the published contents; empty while nothing is sealed.

    Args:
        collection: the collection.
        settings: its settings.
        rows: the number of rows of the table, which are distinct rows of the contents unless the collection is a bag.
    """
    from tidelake.plugins.envelope import envelope_of
    from tidelake.read.publication import publication_of

    published = publication_of(collection)
    if published is None:
        return {}
    entry = collection.entry
    columns = [*envelope_of(entry.envelope).contents_types(entry), *(() if entry.key or settings.bag else (DIFF,))]
    meanings = {"_diff": "How many times the row occurs."}
    return {
        "dagster/row_count": rows,
        "dagster/table_name": f"tables.{published.table.name}",
        "dagster/uri": published.table.uri,
        "dagster/column_schema": MetadataValue.table_schema(table_schema(columns, docs_of(settings), meanings)),
    }


def listed(lines: list[str], shown_max: int = _LISTED_MAX) -> MetadataValue[Any]:
    """Return the first lines of a list, and how many lines remain, as text, which the UI shows without a click."""
    shown = lines[:shown_max]
    if len(lines) > shown_max:
        shown = [*shown, f"and {len(lines) - shown_max} more"]
    return MetadataValue.text("; ".join(shown))
