"""The history of validations: a plain Delta table with a row for each full validation of each collection."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import structlog
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

from tidelake.report.facts import Facts
from tidelake.report.files import ReportPlace
from tidelake.storage import blobs
from tidelake.storage.location import Location
from tidelake.store.retry import pause_after_conflicts

log = structlog.get_logger("tidelake")

COLLECTION = "collection"
_SUM = pa.decimal128(38, 0)
"""For counts that come from a source: their sums may exceed int64."""
SCHEMA = pa.schema(
    [
        pa.field(COLLECTION, pa.string()),
        pa.field("at_ms", pa.int64()),
        pa.field("level", pa.string()),
        pa.field("verdict", pa.string()),
        pa.field("state", pa.string()),
        pa.field("since", pa.int64()),
        pa.field("upper", pa.int64()),
        pa.field("closed", pa.bool_()),
        pa.field("times", pa.int64()),
        pa.field("announced", _SUM),
        pa.field("counted", _SUM),
        pa.field("recounted", _SUM),
        pa.field("copies", pa.int64()),
        pa.field("pending", pa.int64()),
        pa.field("outstanding", _SUM),
        pa.field("open_times", pa.int64()),
        pa.field("late", pa.int64()),
        pa.field("late_undecided", pa.int64()),
        pa.field("quarantine", pa.int64()),
        pa.field("quarantine_unexplained", pa.int64()),
        pa.field("contradictions", pa.int64()),
        pa.field("keys_in_error", pa.int64()),
        pa.field("lag_messages", pa.int64()),
        pa.field("lag_s", pa.float64()),
        pa.field("problems", pa.int64()),
        pa.field("failed_checks", pa.string()),
        pa.field("contents_hash", pa.string()),
        pa.field("version", pa.int64()),
    ]
)
"""Partitioned by `collection`. `at_ms` is in milliseconds since 1970, `lag_s` in seconds; `failed_checks` is a JSON
list of names."""

_REQUEST = "Error performing"
"""The text by which the error of a request to an object store is recognised."""
ROWS_SHOWN_MAX = 120
FILES_MAX = 64
"""If a collection has more files than this, they are merged into one."""
_APPEND_ATTEMPTS_MAX = 16
"""Maximum number of attempts to append a row while other writers create the table or merge files."""


def history_path(data_docs: ReportPlace) -> Location:
    """Return the folder of the table."""
    return blobs.root_of(data_docs) / "history"


def row_of(facts: Facts) -> dict[str, Any]:
    """Return the row of a validation."""
    tide, status = facts.tide, facts.status
    same = ("pending", "late", "late_undecided", "quarantine", "keys_in_error", "lag_messages", "lag_s")
    return {
        COLLECTION: facts.name,
        "at_ms": facts.at_ms,
        "level": facts.level,
        "verdict": facts.verdict,
        "state": facts.state,
        "since": facts.since,
        "upper": facts.upper,
        "closed": facts.closed,
        "times": tide.times,
        "announced": Decimal(tide.announced),
        "counted": Decimal(tide.counted),
        "recounted": None if facts.recounted is None else Decimal(facts.recounted),
        "copies": tide.copies,
        "outstanding": Decimal(tide.outstanding),
        "open_times": tide.open_times,
        "quarantine_unexplained": sum(status.get("quarantine_unexplained", {}).values()),
        "contradictions": len(status.get("contradictions", ())),
        "problems": len(facts.problems),
        "failed_checks": json.dumps([check.check for check in facts.checks if not check.passed]),
        "contents_hash": facts.contents_hash,
        "version": facts.version,
    } | {name: status.get(name) for name in same}


def append_history(data_docs: ReportPlace, row: Mapping[str, Any], files_max: int = FILES_MAX) -> None:
    """Append a row, and merge a collection's files if there are many. Only delta-rs commits to the table.

    Writers do not disturb each other: an append that loses a race is repeated, and a merge that loses one is left to
    the next writer.

    Raises:
        DeltaError, ArrowException, OSError: the table is damaged.
        StoreUnreadable: an object store refuses a request, or does not answer.
    """
    folder = history_path(data_docs)
    rows = pa.Table.from_pylist([dict(row)], schema=SCHEMA)
    options = blobs.delta_options(folder)
    with _engine_errors(folder, "write"):
        _append(folder, rows, options)
        table = DeltaTable(str(folder), storage_options=options)
        if len(_files_of(table, row[COLLECTION])) > files_max:
            _merge_files(folder, table, row[COLLECTION])


def read_history(data_docs: ReportPlace, name: str, limit: int = ROWS_SHOWN_MAX) -> list[dict[str, Any]]:
    """Return the newest rows of a collection, oldest first; empty if there is no table.

    Raises:
        DeltaError, ArrowException, OSError: the table is damaged.
        StoreUnreadable: an object store refuses a request, or does not answer.
    """
    folder = history_path(data_docs)
    try:
        with _engine_errors(folder, "read"):
            table = DeltaTable(str(folder), storage_options=blobs.delta_options(folder))
    except TableNotFoundError:
        return []
    rows = _read_rows(folder, table, name)
    newest = rows.take(pc.sort_indices(rows, [("at_ms", "ascending")])[-limit:])
    return [{COLLECTION: name, **row} for row in newest.to_pylist()]


def _files_of(table: DeltaTable, name: str) -> list[str]:
    """Return the URIs of a collection's files."""
    return table.file_uris(file_pruning_predicate=[(COLLECTION, "=", name)])


def _read_rows(folder: Location, table: DeltaTable, name: str) -> pa.Table:
    """Read the rows of a collection, without the column `collection`."""
    fields = pa.schema([field for field in SCHEMA if field.name != COLLECTION])
    # A file may have several URIs; only the part after the table's own location is the same in all of them.
    paths = [folder / file[file.rindex(f"{COLLECTION}=") :] for file in _files_of(table, name)]
    parts = [pq.read_table(blobs.open_file(path), columns=fields.names, partitioning=None) for path in paths]
    return pa.concat_tables([fields.empty_table(), *parts], promote_options="default")


def _append(folder: Location, rows: pa.Table, options: dict[str, str] | None) -> None:
    """Append rows; try again if another writer has just created the table or merged files."""
    for attempt in range(1, _APPEND_ATTEMPTS_MAX + 1):
        began_s = time.monotonic()
        try:
            write_deltalake(str(folder), rows, mode="append", partition_by=[COLLECTION], storage_options=options)
            return
        except CommitFailedError as error:
            if attempt == _APPEND_ATTEMPTS_MAX or _REQUEST in str(error):
                raise
            pause_after_conflicts(attempt, time.monotonic() - began_s)


def _merge_files(folder: Location, table: DeltaTable, name: str) -> None:
    """Replace the files of a collection with one, unless another writer has changed them since the table was read.

    `DeltaTable.optimize` would not notice that another process has merged the same files: their rows would be repeated.
    """
    rows = _read_rows(folder, table, name)
    rows = rows.add_column(0, SCHEMA.field(COLLECTION), [pa.repeat(name, rows.num_rows)])
    try:
        write_deltalake(table, rows, mode="overwrite", predicate=f"{COLLECTION} = '{name}'")
    except CommitFailedError as error:
        if _REQUEST in str(error):
            raise
        log.info("the next validation merges the history", collection=name, reason=str(error).split("\n")[0])


@contextmanager
def _engine_errors(folder: Location, access: str) -> Iterator[None]:
    """Raise an object store's error without the request, which delta-rs may quote in its text, signature included."""
    try:
        yield
    except (OSError, DeltaError) as error:
        if folder.is_local or not (isinstance(error, OSError) or _REQUEST in str(error)):
            raise
        raise blobs.engine_error(folder, error, access) from error
