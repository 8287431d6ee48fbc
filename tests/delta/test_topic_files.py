"""File topics: what a folder must look like, which offsets come next, and what was given up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tidelake.delta.topic import FileTopic


def write_lines(folder: Path, name: str, *lines: str) -> None:
    (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def write_offsets(folder: Path, *offsets: int, partition: int = 0, name: str | None = None) -> None:
    write_lines(folder, name or f"{partition}.jsonl", *(json.dumps({"offset": offset}) for offset in offsets))


def write_parquet(folder: Path, name: str = "a.parquet", **columns: Any) -> None:
    fields = {"partition": pa.int32(), "offset": pa.int64(), "value": pa.binary()}
    given = {"partition": [0], "offset": [0], "value": [b""]} | columns
    pq.write_table(pa.table({key: pa.array(given[key], kind) for key, kind in fields.items()}), folder / name)


def planned(
    folder: Path, start: int, accepted: tuple[int, int] | None = None
) -> tuple[tuple[int, int] | None, tuple[int, int] | None]:
    """The next interval of partition 0, and the gap that is named."""
    given_up = [] if accepted is None else [(0, *accepted)]
    offsets, gaps = FileTopic(folder).plan({0: start}, 1_000, given_up)
    gap = (gaps[0].from_offset, gaps[0].to_offset) if gaps else None
    return offsets.intervals.get(0), gap


def test_what_was_given_up_is_stepped_over_only_where_no_file_holds_it(tmp_path: Path) -> None:
    write_offsets(tmp_path, *range(10), *range(20, 30))
    assert planned(tmp_path, 0) == ((0, 10), (10, 20))
    assert planned(tmp_path, 10) == (None, (10, 20))
    assert planned(tmp_path, 0, (10, 20)) == ((0, 10), None)
    assert planned(tmp_path, 10, (10, 20)) == ((20, 30), None)
    assert planned(tmp_path, 10, (10, 15)) == (None, (15, 20))
    write_offsets(tmp_path, 14, 15, 16, name="00.jsonl")
    assert planned(tmp_path, 10, (10, 20)) == ((14, 17), None)
    assert planned(tmp_path, 17, (10, 20)) == ((20, 30), None)
    write_offsets(tmp_path, *range(10, 20), name="000.jsonl")
    assert planned(tmp_path, 10, (10, 20)) == ((10, 30), None)


def test_what_was_given_up_beyond_all_files_is_neither_read_nor_a_gap(tmp_path: Path) -> None:
    write_offsets(tmp_path, *range(10))
    assert planned(tmp_path, 0, (10, 2**63 - 1)) == ((0, 10), None)
    assert planned(tmp_path, 10, (10, 20)) == (None, None)
    assert planned(tmp_path, 10, (12, 20)) == (None, None)
    # An offset inside what was given up: something has been read there.
    assert planned(tmp_path, 15, (10, 20)) == (None, None)
    assert planned(tmp_path, 15) == (None, (10, 15))


def test_a_gap_before_the_first_message_is_named_and_stepped_over(tmp_path: Path) -> None:
    write_offsets(tmp_path, 5, 6)
    assert planned(tmp_path, 0) == (None, (0, 5))
    assert planned(tmp_path, 0, (0, 5)) == ((5, 7), None)
    assert planned(tmp_path, 0, (0, 3)) == (None, (3, 5))


def test_only_messages_that_are_there_are_counted_and_their_files_opened(tmp_path: Path) -> None:
    write_parquet(tmp_path, "a.parquet", partition=[0, 0], offset=[0, 1], value=[b"", b""])
    write_parquet(tmp_path, "b.parquet", offset=[10])
    offsets, gaps = FileTopic(tmp_path).plan({0: 2}, 100, [(0, 2, 10)])
    assert (offsets.intervals, offsets.messages, gaps) == ({0: (10, 11)}, 1, [])
    assert [path.name for path in offsets.parquet] == ["b.parquet"]
