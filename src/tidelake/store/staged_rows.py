"""Rows that are staged for a publication's table, and the one commit that puts them there.

Spark writes the rows and their statistics into a folder of the table, as a small Delta table of its own. Its only entry
becomes the next entry of the publication's log: the rows, the name, the comments and the time change together or not at
all. An entry is created only if the log has none of that version, so exactly one of two writers succeeds.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import unquote

import pyarrow.parquet as pq
from deltalake import DeltaTable

from tidelake.errors import Conflict, DamagedPublication, DamagedTable, WrittenRowsMissing
from tidelake.storage import blobs
from tidelake.storage.location import Location
from tidelake.store.failpoints import reach
from tidelake.store.published import (
    NOTE,
    WRITER,
    Published,
    PublishedFile,
    live_files,
    put_entry,
    removed,
    renew_folders,
)
from tidelake.store.table_log import LOG, load_table, newest_version, read_entry


class StagedRows:
    """Rows that Spark will write, or has written, into a folder of a publication's table."""

    def __init__(self, table: Location) -> None:
        """Choose the folder; nothing is written."""
        self.table = table
        self.version = newest_version(table)
        """The newest version when the rows were staged; they are committed as the next one or never."""
        self.replaced = 0
        """Number of files that the commit has replaced."""
        self.restart()

    def restart(self) -> None:
        """Choose a new folder, for the same version; nothing is written."""
        self.folder = self.table / f"publish-{self.version + 1}-{secrets.token_hex(12)}"
        self._metadata: dict[str, Any] = {}
        self._protocol: dict[str, Any] = {}
        self._adds: list[dict[str, Any]] = []
        self.rows = 0
        """Number of rows that `take` has taken over."""

    def take(self) -> int:
        """Take over what Spark has written to the folder as a Delta table; return the number of rows.

        Raises:
            WrittenRowsMissing: the store does not show the entry, which Spark writes even if there are no rows.
        """
        entry = read_entry(self.folder, 0)
        if entry is None:
            raise WrittenRowsMissing("its log has no entry", str(self.folder))
        for action in entry:
            if "metaData" in action:
                self._metadata = action["metaData"]
            elif "protocol" in action:
                self._protocol = action["protocol"]
            elif "add" in action:
                self._adds.append(action["add"])
        blobs.delete_folder(self.folder / LOG)
        for blob in blobs.list_blobs(self.folder):
            if blob.location.suffix == ".crc":  # Hadoop writes checksums to local disks only
                blobs.delete(blob.location)
        self.rows = sum(self._rows_of(add) for add in self._adds)
        return self.rows

    def commit(
        self, name: str, comment: str, note: Published, replaced: Collection[PublishedFile] | None = None
    ) -> int:
        """Replace rows of the table with the staged ones, and return the new version, which is durable.

        Args:
            name: the table's name.
            comment: its comment.
            note: what the table shows from this commit on.
            replaced: the files of version `self.version` that the staged rows replace; by default all of them.

        Raises:
            Conflict: another commit came first; the staged rows are in no version.
            DamagedPublication: the log cannot be read.
        """
        before = self._table_before()
        if replaced is None:
            replaced = [] if before is None else live_files(before)
        self.replaced = len(replaced)
        renew_folders(self.table, [file.path for file in replaced])
        now_ms = int(time.time() * 1000)
        adds = [
            add | {"path": f"{self.folder.name}/{add['path']}", "modificationTime": now_ms, "dataChange": True}
            for add in self._adds
        ]
        metadata = (self._metadata or _metadata_of(before)) | {"name": name, "description": comment}
        if before is not None:
            metadata |= {"id": str(before.metadata().id), "createdTime": before.metadata().created_time}
        actions: list[Mapping[str, Any]] = [
            {"commitInfo": self._commit_info(note, now_ms, adds, len(replaced))},
            *([{"protocol": self._protocol}] if before is None or self._needs_more_than(before) else []),
            {"metaData": metadata},
            *({"remove": removed(file.path, file.size, now_ms)} for file in replaced),
            *({"add": add} for add in adds),
        ]
        self._make_files_durable()
        entry = put_entry(self.table, self.version + 1, actions)
        reach("current.after_entry")
        blobs.make_durable([entry])
        blobs.make_names_durable([entry.parent, self.table, *self.table.parents])
        return self.version + 1

    def _table_before(self) -> DeltaTable | None:
        """Load the table as it was when the rows were staged; None if there was none.

        Raises:
            Conflict: another process has committed in the meantime.
            DamagedPublication: the log cannot be read.
        """
        if self.version < 0:
            return None
        try:
            table = load_table(self.table)
        except DamagedTable as error:
            raise DamagedPublication(error.table, error.detail) from error
        if table.version() != self.version:
            raise Conflict(str(self.table), self.version + 1, f"version {table.version()} already exists")
        return table

    def _needs_more_than(self, before: DeltaTable) -> bool:
        """Return whether readers or writers of the staged rows need a later protocol than the table has."""
        known, staged = before.protocol(), self._protocol
        return bool(staged) and (
            staged["minReaderVersion"] > known.min_reader_version
            or staged["minWriterVersion"] > known.min_writer_version
        )

    def discard(self) -> None:
        """Delete the staged rows; a sweep deletes what is left."""
        with suppress(OSError):
            blobs.delete_folder(self.folder)

    @contextmanager
    def discarded_on_error(self) -> Iterator[None]:
        """Discard the staged rows if the block raises an error."""
        try:
            yield
        except Exception:
            self.discard()
            raise

    def _rows_of(self, add: Mapping[str, Any]) -> int:
        """Return the number of rows of a file, from its footer if the session collects no statistics."""
        if add.get("stats"):
            return int(json.loads(add["stats"])["numRecords"])
        with blobs.open_file(self.folder / unquote(add["path"])) as file:
            return int(pq.ParquetFile(file).metadata.num_rows)

    def _commit_info(
        self, note: Published, now_ms: int, adds: Iterable[Mapping[str, Any]], replaced: int
    ) -> dict[str, Any]:
        sizes = [int(add["size"]) for add in adds]
        return {
            "timestamp": now_ms,
            "operation": "WRITE",
            "operationParameters": {"mode": "Overwrite" if replaced else "Append", "partitionBy": "[]"},
            "readVersion": max(self.version, 0),
            "isolationLevel": "Serializable",
            "isBlindAppend": False,
            "operationMetrics": {
                "numFiles": str(len(sizes)),
                "numRemovedFiles": str(replaced),
                "numOutputRows": str(self.rows),
                "numOutputBytes": str(sum(sizes)),
            },
            NOTE: note.model_dump_json(),
            "engineInfo": WRITER,
        }

    def _make_files_durable(self) -> None:
        written = blobs.list_blobs(self.folder)
        blobs.make_durable(blob.location for blob in written)
        blobs.make_names_durable({*(blob.location.parent for blob in written), self.table})
        blobs.make_folder(self.table / LOG)


def _metadata_of(before: DeltaTable | None) -> dict[str, Any]:
    """Return the columns and properties of a table as a `metaData` action, for a commit without staged rows."""
    if before is None:
        raise AssertionError("the first commit of a table has rows, or at least columns")
    return {
        "format": {"provider": "parquet", "options": {}},
        "schemaString": before.schema().to_json(),
        "partitionColumns": [],
        "configuration": before.metadata().configuration,
    }
