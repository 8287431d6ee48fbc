"""A recorded Parquet file: what its metadata states about its offsets, and whether its rows are still those recorded.

Tools that rewrite a file with Arrow keep its metadata, whatever they do to its rows. So the metadata also states how
the recorded rows are stored. The footer of every Parquet file states this about the file's own rows. The metadata and
the footer agree only if the rows are those that were recorded.
"""

from __future__ import annotations

import hashlib
import json

import pyarrow as pa
import pyarrow.parquet as pq

from tidelake.errors import MalformedTopic
from tidelake.protocol.intervals import Interval
from tidelake.storage import blobs
from tidelake.storage.location import Location
from tidelake.topic.lines import OFFSET_MAX, PARTITION_MAX

COVERED_OFFSETS = "tidelake.offsets"
"""Metadata: the offsets that the file covers, `[start, end)` by partition."""
TOPIC_IDENTITY = "tidelake.topic_identity"
"""Metadata: identifies the topic that the file was recorded from."""
RECORDED = "tidelake.recorded"
"""Metadata: the number of rows, and a digest of the covered offsets and of the layout. Older recordings lack it."""
_OPTIONS = {"compression": "zstd", "write_page_checksum": True}
_FIX = (
    "restore the file that was recorded, or record the topic again; a rewritten file without "
    f"'{COVERED_OFFSETS}' in its metadata is judged by its rows alone, and missing offsets are then a gap"
)


def write_recorded_file(path: Location, table: pa.Table, covered: dict[int, Interval], identity: int | None) -> None:
    """Write messages and state which offsets they cover. An existing file is not replaced.

    In: the columns of `TOPIC_SCHEMA`; every message is within `covered`.

    Raises:
        FileExistsError: there is a file of this name.

    Cost: encodes the rows twice, because the metadata describes the pages.
    """
    stated = json.dumps(covered)
    footers: list[pq.FileMetaData] = []
    pq.write_table(table, pa.MockOutputStream(), metadata_collector=footers, **_OPTIONS)
    recorded = {"rows": table.num_rows, "sha256": _digest(stated, footers[0])}
    metadata = {COVERED_OFFSETS: stated, RECORDED: json.dumps(recorded)}
    if identity is not None:
        metadata[TOPIC_IDENTITY] = str(identity)
    with blobs.creating(path) as sink:
        pq.write_table(table.replace_schema_metadata(metadata), sink, **_OPTIONS)


def covered_offsets(path: Location, file: pq.ParquetFile) -> dict[int, list[Interval]] | None:
    """Return the offsets that a recorded file covers, including those without a record; None if it is not a recording.

    Raises:
        MalformedTopic: the metadata cannot be read, or the rows are not those that were recorded.

    Cost: reads only the footer.
    """
    metadata = file.schema_arrow.metadata or {}
    stated = metadata.get(COVERED_OFFSETS.encode())
    if stated is None:
        return None
    recorded = metadata.get(RECORDED.encode())
    try:
        offsets = stated.decode()
        covered = _intervals(json.loads(offsets))
        rows, digest = (None, None) if recorded is None else _recorded(json.loads(recorded))
    except (ValueError, TypeError, AttributeError, KeyError, OverflowError, RecursionError) as error:
        raise MalformedTopic(
            str(path), f"does not say which offsets it covers: {error}", "record the topic again"
        ) from error
    problem = _contradiction(covered, file.metadata)
    if problem is None and recorded is not None:
        if rows != file.metadata.num_rows:
            problem = f"{rows} {'row was' if rows == 1 else 'rows were'} recorded, but it has {file.metadata.num_rows}"
        elif digest != _digest(offsets, file.metadata):
            problem = "its pages are not those that were recorded"
    if problem is not None:
        where = ", ".join(
            f"partition {partition}, offsets {start} to {end}" for partition, (start, end) in covered.items()
        )
        raise MalformedTopic(
            str(path), f"has the metadata of a recording, but differs from what was recorded ({where}): {problem}", _FIX
        )
    return {partition: [interval] for partition, interval in covered.items()}


def _intervals(document: dict[str, list[int]]) -> dict[int, Interval]:
    covered = {int(partition): (int(start), int(end)) for partition, (start, end) in document.items()}
    for partition, (start, end) in covered.items():
        if not (0 <= partition <= PARTITION_MAX and 0 <= start <= end <= OFFSET_MAX + 1):
            raise ValueError(f"offsets {start} to {end} of partition {partition} are out of range")
    return covered


def _recorded(document: dict[str, int | str]) -> tuple[int, str]:
    return int(document["rows"]), str(document["sha256"])


def _contradiction(covered: dict[int, Interval], footer: pq.FileMetaData) -> str | None:
    """Return why the rows, as the footer describes them, cannot be a recording of these offsets; None if they can.

    If offsets have no record, there are fewer rows than offsets; there are never more rows than offsets.
    """
    size = sum(end - start for start, end in covered.values())
    if footer.num_rows > size:
        return f"it has {footer.num_rows} {'row' if footer.num_rows == 1 else 'rows'}"
    for index in range(footer.num_row_groups):
        chunks = {column.path_in_schema: column.statistics for column in _columns(footer.row_group(index))}
        bounds = {name: (found.min, found.max) for name, found in chunks.items() if found is not None}
        partitions, offsets = bounds.get("partition", (None, None)), bounds.get("offset", (None, None))
        if None in partitions:
            continue
        for partition in partitions:
            if partition not in covered:
                return f"it has messages of partition {partition}"
        start, end = covered[partitions[0]]
        for offset in offsets:
            if partitions[0] == partitions[1] and offset is not None and not start <= offset < end:
                return f"it has the offset {offset}"
    return None


def _digest(stated: str, footer: pq.FileMetaData) -> str:
    """Return the SHA-256 of the stated offsets, the numbers of rows, and the places and sizes of each column's pages.

    A row that is missing or repeated changes the size of a dictionary or of a page.
    """
    groups = [footer.row_group(index) for index in range(footer.num_row_groups)]
    layout = [
        [
            column.path_in_schema,
            column.num_values,
            column.dictionary_page_offset,
            column.data_page_offset,
            column.total_compressed_size,
            column.total_uncompressed_size,
        ]
        for group in groups
        for column in _columns(group)
    ]
    rows = [group.num_rows for group in groups]
    return hashlib.sha256(json.dumps([stated, rows, layout]).encode()).hexdigest()


def _columns(group: pq.RowGroupMetaData) -> list[pq.ColumnChunkMetaData]:
    return [group.column(index) for index in range(group.num_columns)]
