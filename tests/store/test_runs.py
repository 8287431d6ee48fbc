"""The files of a run that Spark has written have all its rows, whatever a listing shows."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tidelake.errors import WrittenRowsMissing
from tidelake.storage import blobs
from tidelake.storage.location import Blob, Location, locate
from tidelake.store import runs
from tidelake.store.files import describe_run, describe_whole_run, write_run
from tidelake.store.layout import DIFF, RUN, TIME
from tidelake.store.runs import write_frame, write_updates

SCHEMA = pa.schema([(TIME, pa.int64()), (DIFF, pa.int64()), (RUN, pa.string())])
LIST_BLOBS = blobs.list_blobs
LISTINGS = 3
"""How many listings of a run on a disk there are at most: one for Hadoop's checksums, and two for the run's files."""


def show(monkeypatch: pytest.MonkeyPatch, *counts: int) -> None:
    """Make the first listings of data files incomplete; `counts` says how many files each of these listings shows."""
    left = list(counts)

    def listed(folder: Location, after: str = "") -> list[Blob]:
        files = [blob for blob in LIST_BLOBS(folder, after) if blob.location.suffix == ".parquet"]
        return files[: left.pop(0)] if left else files

    monkeypatch.setattr(blobs, "list_blobs", listed)


def test_a_run_is_described_with_all_its_rows_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = locate(tmp_path)
    files = write_run(table, "a", pa.table({TIME: [1, 2], DIFF: [1, 1]}))
    assert describe_whole_run(table, "a", 2) == files
    assert describe_whole_run(table, "empty", 0) == []
    for rows in (1, 3):
        with pytest.raises(WrittenRowsMissing, match=rf"_run=a .*Spark wrote {rows} rows?, but the .* have 2"):
            describe_whole_run(table, "a", rows)
    show(monkeypatch, 0)
    assert describe_whole_run(table, "a", 2) == files, "the second listing is complete"
    show(monkeypatch, 0, 0)
    with pytest.raises(WrittenRowsMissing, match="Spark wrote 2 rows, but the listed files have 0"):
        describe_whole_run(table, "a", 2)


@pytest.mark.spark
def test_rows_of_executors_that_no_listing_shows_are_reported_as_missing(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "runs_here", lambda _: False)
    table = locate(tmp_path)
    rows = spark.range(4, numPartitions=2).selectExpr("id AS _time", "1L AS _diff")
    assert write_updates(rows.where("_time < 0"), table, "seal-0", SCHEMA).files == []
    assert write_updates(rows, table, "ingest-0", SCHEMA).files[0].rows_hash is not None
    assert [file.rows for file in describe_run(table, "ingest-0")] == [2, 2]
    show(monkeypatch, *[0] * LISTINGS)
    with pytest.raises(WrittenRowsMissing, match="Spark wrote 4 rows, but the listed files have 0"):
        write_updates(rows, table, "ingest-1", SCHEMA)
    show(monkeypatch, *[1] * LISTINGS)
    with pytest.raises(WrittenRowsMissing, match="Spark wrote 4 rows, but the listed files have 2"):
        write_frame(rows, table, "late-0", SCHEMA)
