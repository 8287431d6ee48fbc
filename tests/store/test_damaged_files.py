"""A file whose bytes are not the committed ones is never read as if it were the committed file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.sweeps import swept
from tidelake.errors import DamagedTable
from tidelake.integrity.verification import Verification, verify_table
from tidelake.storage.location import Location, locate
from tidelake.storage.page_headers import chunks_of, digest_of_headers, headers_of
from tidelake.store.commit import OpenTable, create_table, maintain
from tidelake.store.files import (
    HASHED_BYTES_MAX,
    RunFile,
    check_whole,
    describe_run,
    open_verified,
    read_rows,
    write_run,
)
from tidelake.store.layout import RUN, TIME
from tidelake.store.runs import read_files

SCHEMA = pa.schema([pa.field(TIME, pa.int64()), pa.field("word", pa.string()), pa.field(RUN, pa.string())])
FLIPS = 300


def rows_of(numbers: range) -> pa.Table:
    columns = {TIME: list(numbers), "word": [f"word {number}" for number in numbers], RUN: ["a"] * len(numbers)}
    return pa.table(columns, schema=SCHEMA)


@pytest.fixture
def table(tmp_path: Path) -> Location:
    return locate(tmp_path / "table")


def written(table: Location, run: str = "a", numbers: range = range(100)) -> RunFile:
    (file,) = write_run(table, run, rows_of(numbers))
    return file


def flip(path: Path, bit: int) -> None:
    data = bytearray(path.read_bytes())
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)


def test_any_flipped_bit_of_a_small_file_is_reported_as_damage(table: Location) -> None:
    file = written(table)
    path, random = (table / file.path).local, Random(7)
    assert read_rows(table, [file], SCHEMA).to_pylist() == rows_of(range(100)).to_pylist()
    for _ in range(FLIPS):
        bit = random.randrange(8 * file.bytes)
        flip(path, bit)
        for where in (None, pc.field(TIME) >= 50):
            with pytest.raises(DamagedTable, match="is not the one that was committed: its SHA-256 differs"):
                read_rows(table, [file], SCHEMA, where=where)
        flip(path, bit)
    assert read_rows(table, [file], SCHEMA).num_rows == 100


def test_another_file_with_the_same_name_is_reported_as_damage(table: Location) -> None:
    file, other = written(table), written(table, "b", range(100, 200))
    (table / file.path).local.write_bytes((table / other.path).local.read_bytes())
    with pytest.raises(DamagedTable, match=r"bytes, but|is not the one that was committed"):
        read_rows(table, [file], SCHEMA)


@pytest.mark.parametrize("change", [lambda data: data[:-1], lambda data: data + b"\0", lambda data: b""])
def test_a_file_without_a_digest_must_have_the_stated_size(table: Location, change: object) -> None:
    file = without_digest(written(table))
    path = (table / file.path).local
    assert callable(change)
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(DamagedTable, match=f"bytes, but {file.bytes} were committed"):
        read_rows(table, [file], SCHEMA)


def test_a_flipped_bit_in_a_page_is_reported_as_damage_even_without_a_digest(table: Location) -> None:
    file = without_digest(written(table, numbers=range(10_000)))
    path, random = (table / file.path).local, Random(8)
    middle = range(8 * (file.bytes // 4), 8 * (file.bytes // 2))
    for _ in range(FLIPS):
        bit = random.choice(middle)
        flip(path, bit)
        with pytest.raises(DamagedTable, match="cannot be read: "):
            read_rows(table, [file], SCHEMA)
        flip(path, bit)
    assert read_rows(table, [file], SCHEMA).num_rows == 10_000


def test_the_log_and_its_checkpoints_state_digests(tmp_path: Path) -> None:
    table = locate(tmp_path) / "stated"
    create_table(table, SCHEMA)
    committed = []
    for number in range(40):
        files = write_run(table, f"r{number}", rows_of(range(number, number + 2)))
        OpenTable(table).commit({}, files)
        committed += files
        maintain(table)
    opened = OpenTable(table)
    assert sorted(opened.files(), key=str) == sorted(committed, key=str)
    assert all(file.digest for file in opened.files())
    assert list((table.local / "_delta_log").glob("*.checkpoint.parquet"))


def test_a_large_file_is_verified_by_its_footer_and_page_by_page(table: Location) -> None:
    file = written(table, numbers=range(500_000))
    path, random = (table / file.path).local, Random(9)
    assert file.bytes > HASHED_BYTES_MAX
    footer = file.bytes - 8 - int.from_bytes(path.read_bytes()[-8:-4], "little")
    for _ in range(FLIPS // 10):
        for bits, problem in (
            (range(8 * footer, 8 * file.bytes), "is not the one that was committed: the SHA-256 of its footer differs"),
            (range(2 * file.bytes, 4 * file.bytes), r"cannot be read: .*CRC"),
        ):
            bit = random.choice(bits)
            flip(path, bit)
            with pytest.raises(DamagedTable, match=problem):
                read_rows(table, [file], SCHEMA)
            flip(path, bit)
    assert read_rows(table, [file], SCHEMA).num_rows == 500_000


@pytest.mark.parametrize("step", swept([1, 7], [7]))
def test_every_flipped_bit_in_a_page_header_of_a_large_file_is_reported_as_damage(tmp_path: Path, step: int) -> None:
    table = locate(tmp_path) / "large"
    create_table(table, SCHEMA)
    files = write_run(table, "a", rows_of(range(500_000)))
    OpenTable(table).commit({}, files)
    (file,) = OpenTable(table).files()
    assert file.whole_digest is not None, "the log states the SHA-256 of all of it"
    assert file.headers_digest is not None, "the log states the digest of the headers of its pages"
    path, unnoticed = (table / file.path).local, 0
    with pa.OSFile(str(path)) as source:
        headers = [header for chunk in chunks_of(source) for header in headers_of(source, chunk)]
    assert len(headers) > 10
    for position, header in (headers[0], headers[-1]):
        for bit in range(8 * position, 8 * (position + len(header)), step):
            flip(path, bit)
            with pytest.raises(DamagedTable, match="is not the one that was committed: the headers of its pages diffe"):
                open_verified(table, file)
            flip(path, bit)
    first, _ = headers[0]
    for bit in range(8 * (first + 16), 8 * (first + 27)):
        flip(path, bit)
        if is_read(table, replace(file, headers_digest=None)):
            unnoticed += 1
            deep = Verification()
            verify_table(table, True, deep)
            assert [damage.file for damage in deep.damages] == [file.path], bit
            with pytest.raises(DamagedTable, match="is not the one that was committed: its SHA-256 differs"):
                check_whole(table, [file])
        flip(path, bit)
    assert unnoticed > 0, "without the digest, readers miss bits that no checksum covers"
    assert is_read(table, file)
    check_whole(table, [file])


def test_a_page_header_may_be_longer_than_the_first_read(tmp_path: Path) -> None:
    path = tmp_path / "long.parquet"
    words = pa.table({"word": [letter * 4_000 for letter in "abcd"]})
    pq.write_table(words, path, compression="none", write_page_checksum=True, use_dictionary=False)

    def digest() -> str:
        with pa.OSFile(str(path)) as source:
            return digest_of_headers(source)

    with pa.OSFile(str(path)) as source:
        (chunk,) = chunks_of(source)
        ((position, header),) = headers_of(source, chunk)
    assert len(header) > 8_000, "Arrow states bounds in the header of a page"
    before = digest()
    flip(path, 8 * (position + len(header) // 2))
    assert digest() != before


def is_read(table: Location, file: RunFile) -> bool:
    """Whether a reader accepts a file as the committed one."""
    try:
        read_rows(table, [file], SCHEMA)
    except DamagedTable:
        return False
    return True


def without_digest(file: RunFile) -> RunFile:
    """A file as logs described it before they stated digests."""
    return replace(file, digest=None)


@pytest.mark.spark
@pytest.mark.parametrize("rounds", swept([1, 4], [1]))
def test_a_flipped_bit_in_data_that_spark_uses_to_skip_pages_changes_no_rows(
    tmp_path: Path, spark: SparkSession, rounds: int
) -> None:
    """The bits are in page indexes, which no checksum covers, and in dictionaries, which Spark does not verify."""
    table, random = locate(tmp_path) / "large", Random(5)
    create_table(table, SCHEMA)
    folder = table.local / f"{RUN}=a"
    rows = spark.range(600_000).selectExpr(
        f"(id * 7919) % 600000 as {TIME}", "concat('word ', (id * 7919) % 50000) as word"
    )
    rows.coalesce(1).write.parquet(str(folder))
    for checksum in folder.glob(".*.crc"):  # Hadoop writes these files, but tables do not have them
        checksum.unlink()
    OpenTable(table).commit({}, describe_run(table, "a"))
    (file,) = OpenTable(table).files()
    path = (table / file.path).local
    assert file.bytes > HASHED_BYTES_MAX
    footer = file.bytes - 8 - int.from_bytes(path.read_bytes()[-8:-4], "little")
    groups = pq.read_metadata(path)
    columns = [groups.row_group(g).column(c) for g in range(groups.num_row_groups) for c in range(2)]
    starts = [
        min(column.data_page_offset, column.dictionary_page_offset or column.data_page_offset) for column in columns
    ]
    index = max(start + column.total_compressed_size for start, column in zip(starts, columns, strict=True))
    assert index < footer, "the file has page indexes"
    dictionaries = [c for c in columns if c.dictionary_page_offset is not None]
    places = [random.randrange(8 * index, 8 * min(index + 400, footer)) for _ in range(2 * rounds)]
    dictionaries *= min(rounds, 2)
    places += [random.randrange(8 * (c.dictionary_page_offset + 40), 8 * c.data_page_offset) for c in dictionaries]
    session = spark.newSession()  # as if somebody else had started it
    session.conf.set("parquet.filter.columnindex.enabled", "true")

    def read() -> list[int]:
        stored = read_files(session, table, [file], SCHEMA)
        return [stored.where(f"{TIME} <= 300000").count(), stored.where("word = 'word 77'").count()]

    sound, refused = read(), 0
    for bit in places:
        flip(path, bit)
        try:
            assert read() == sound, bit
        except (DamagedTable, Py4JJavaError, PySparkException):
            refused += 1
        flip(path, bit)
    assert sound == [300_001, 12]
    assert refused < len(places)
