"""Streams of stored rows: every page is verified, and files that lack a column give null. No JVM is started."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tidelake.errors import DamagedTable
from tidelake.query.engine import Engine
from tidelake.query.stored_rows import StoredRows
from tidelake.storage.location import Location
from tidelake.store.files import RunFile, describe_run
from tidelake.store.layout import TIME

SCHEMA = pa.schema([(TIME, pa.int64()), ("id", pa.int64())])
_ROWS = 30_000


def write(root: Path, run: str, first: int) -> RunFile:
    """Write a run in three row groups; its ids cannot be compressed."""
    folder = root / f"_run={run}"
    folder.mkdir()
    numbers = [Random(f"{first} {row}").randrange(2**62) for row in range(_ROWS)]
    rows = pa.table({TIME: list(range(first, first + _ROWS)), "id": numbers}, SCHEMA)
    pq.write_table(rows, folder / "part-0.parquet", row_group_size=_ROWS // 3, write_page_checksum=True)
    (file,) = describe_run(Location(str(root)), run)
    return file


def read(root: Path, files: list[RunFile], schema: pa.Schema = SCHEMA, within: range = range(2**63 - 1)) -> pa.Table:
    with Engine() as engine:
        name = engine.add_rows(StoredRows(Location(str(root)), files, schema, within))
        return engine.table(f"SELECT * FROM {name}")


def test_a_stream_can_be_read_several_times_and_by_several_scans(tmp_path: Path) -> None:
    file = write(tmp_path, "a", 0)
    with Engine() as engine:
        name = engine.add_rows(StoredRows(Location(str(tmp_path)), [file], SCHEMA, range(2**63 - 1)))
        for _ in range(2):
            joined = f"SELECT count(*) FROM {name} a JOIN {name} b USING ({TIME}) WHERE a.id = b.id"
            assert engine.scalar(joined) == _ROWS


def test_row_groups_without_a_matching_time_are_not_read(tmp_path: Path) -> None:
    file = write(tmp_path, "a", 0)
    assert read(tmp_path, [file], within=range(5, 6)).num_rows == _ROWS // 3
    assert read(tmp_path, [file], within=range(_ROWS, 2 * _ROWS)).num_rows == 0


def test_a_column_that_a_file_does_not_have_is_null(tmp_path: Path) -> None:
    wider = SCHEMA.append(pa.field("note", pa.struct([("text", pa.string())])))
    assert read(tmp_path, [write(tmp_path, "a", 0)], wider)["note"].null_count == _ROWS
    assert read(tmp_path, [], wider).num_rows == 0


@pytest.mark.parametrize("says_digest", [True, False])
@pytest.mark.parametrize("place", [0.1, 0.5, 0.8])
def test_a_flipped_bit_is_an_error_and_never_a_different_value(tmp_path: Path, place: float, says_digest: bool) -> None:
    files = [write(tmp_path, "a", 0), write(tmp_path, "b", _ROWS)]
    damaged = files[1] if says_digest else replace(files[1], digest=None, headers_digest=None, whole_digest=None)
    path = tmp_path / damaged.path
    data = bytearray(path.read_bytes())
    data[int(len(data) * place)] ^= 4
    path.write_bytes(data)
    with pytest.raises(DamagedTable, match=damaged.path):
        read(tmp_path, [files[0], damaged])


def test_a_file_without_times_is_reported_as_damaged(tmp_path: Path) -> None:
    file = replace(write(tmp_path, "a", 0), digest=None, headers_digest=None, whole_digest=None)
    pq.write_table(pa.table({"id": [1]}), tmp_path / file.path)
    with pytest.raises(DamagedTable, match=f"has no column {TIME}"):
        read(tmp_path, [replace(file, bytes=(tmp_path / file.path).stat().st_size)])
