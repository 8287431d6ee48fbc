"""Large files that DuckDB reads itself: it reads the same rows as Arrow, and no damaged page. No JVM is started."""

from __future__ import annotations

import math
from pathlib import Path
from random import Random

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tidelake.errors import DamagedTable
from tidelake.query.engine import Engine
from tidelake.query.stored_rows import StoredRows
from tidelake.query.verified_files import VerifiedFiles, is_readable, path_of
from tidelake.storage.location import Location
from tidelake.store.files import RunFile, describe_run
from tidelake.store.layout import TIME

SCHEMA = pa.schema([(TIME, pa.int64()), ("id", pa.int64()), ("price", pa.float64()), ("note", pa.string())])
_ROWS = 60_000


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table with one file of more than a megabyte in three row groups; prices include NaN, -0 and null."""
    root = tmp_path_factory.mktemp("table")
    (root / "_run=a").mkdir()
    random = Random(7)
    prices = [random.choice([0.0, -0.0, math.nan, None, random.random()]) for _ in range(_ROWS)]
    columns = {
        TIME: list(range(_ROWS)),
        "id": [random.randrange(2**62) for _ in range(_ROWS)],
        "price": prices,
        "note": [random.choice([None, f"note {random.randrange(2**40)}"]) for _ in range(_ROWS)],
    }
    written = pa.table(columns, SCHEMA)
    pq.write_table(written, root / "_run=a" / "part-0.parquet", row_group_size=20_000, write_page_checksum=True)
    return root


def described(root: Path) -> RunFile:
    (file,) = describe_run(Location(str(root)), "a")
    return file


def read(root: Path, file: RunFile, condition: str = "true") -> list[str]:
    """Read a file with DuckDB, and return the rows as text, in order of time."""
    with Engine([path_of(Location(str(root)), file)]) as engine:
        relation = engine.add_files(VerifiedFiles(Location(str(root)), [file], SCHEMA.names))
        return list(map(str, engine.table(f"SELECT * FROM {relation} WHERE {condition} ORDER BY {TIME}").to_pylist()))


@pytest.mark.parametrize("condition", ["true", "price > 5", "price = 0", "price IS NULL", f"{TIME} < 5"])
def test_duckdb_reads_a_large_file_as_arrow_does(table: Path, condition: str) -> None:
    file = described(table)
    assert is_readable(Location(str(table)), file, SCHEMA)
    with Engine() as engine:
        name = engine.add_rows(StoredRows(Location(str(table)), [file], SCHEMA, range(_ROWS)))
        rows = engine.table(f"SELECT * FROM {name} WHERE {condition} ORDER BY {TIME}").to_pylist()
    assert read(table, file, condition) == list(map(str, rows))
    assert rows


@pytest.mark.parametrize("place", [0.05, 0.3, 0.6, 0.9, 0.999])
def test_a_flipped_bit_in_a_large_file_is_an_error(table: Path, tmp_path: Path, place: float) -> None:
    file = described(table)
    damaged = tmp_path / file.path
    damaged.parent.mkdir()
    data = bytearray((table / file.path).read_bytes())
    data[int(len(data) * place)] ^= 4
    damaged.write_bytes(data)
    with pytest.raises(DamagedTable, match=file.path):
        read(tmp_path, file)


def test_damage_after_the_first_query_is_found_by_the_next_query(table: Path, tmp_path: Path) -> None:
    file = described(table)
    copy = tmp_path / file.path
    copy.parent.mkdir()
    data = bytearray((table / file.path).read_bytes())
    copy.write_bytes(data)
    with Engine([path_of(Location(str(tmp_path)), file)]) as engine:
        relation = engine.add_files(VerifiedFiles(Location(str(tmp_path)), [file], SCHEMA.names))
        assert engine.scalar(f"SELECT count(*) FROM {relation}") == _ROWS
        data[len(data) // 2] ^= 1
        copy.write_bytes(data)
        with pytest.raises(DamagedTable, match=file.path):
            engine.scalar(f"SELECT sum(id) FROM {relation}")


def test_a_file_is_left_to_arrow_if_a_column_is_missing_or_has_another_type(table: Path) -> None:
    file, location = described(table), Location(str(table))
    assert not is_readable(location, file, SCHEMA.append(pa.field("new", pa.int64())))
    assert not is_readable(location, file, pa.schema([("id", pa.float64())]))


def test_a_file_is_left_to_arrow_if_its_path_is_a_pattern(table: Path, tmp_path: Path) -> None:
    file = described(table)
    for folder, expected in (("plain", True), ("[ab]", False), ("a*", False)):
        copy = tmp_path / folder / file.path
        copy.parent.mkdir(parents=True)
        copy.write_bytes((table / file.path).read_bytes())
        assert is_readable(Location(str(tmp_path / folder)), file, SCHEMA) is expected


def test_duckdb_opens_no_other_file(table: Path, tmp_path: Path) -> None:
    file = described(table)
    other = tmp_path / "other.parquet"
    pq.write_table(pa.table({"secret": [1]}), other)
    with Engine([path_of(Location(str(table)), file)]) as engine, pytest.raises(duckdb.PermissionException):
        engine.scalar(f"SELECT count(*) FROM read_parquet('{other}')")
