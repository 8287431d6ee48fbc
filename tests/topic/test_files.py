"""File topics: the layout of a folder, the next offsets, and offsets that were given up."""

from __future__ import annotations

import errno
import gzip
import json
import os
import socket
import tracemalloc
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tidelake.errors import MalformedLine, MalformedTopic, RepeatedOffset
from tidelake.storage.location import locate
from tidelake.topic import files
from tidelake.topic.files import FileTopic
from tidelake.topic.lines import LINE_BYTES_MAX, parse_lines


def write_lines(folder: Path, name: str, *lines: str) -> None:
    (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def write_offsets(folder: Path, *offsets: int, partition: int = 0, name: str | None = None) -> None:
    write_lines(folder, name or f"{partition}.jsonl", *(json.dumps({"offset": offset}) for offset in offsets))


def write_parquet(folder: Path, name: str = "a.parquet", **columns: Any) -> None:
    fields = {"partition": pa.int32(), "offset": pa.int64(), "value": pa.binary()}
    values = {"partition": [0], "offset": [0], "value": [b""]} | columns
    pq.write_table(pa.table({key: pa.array(values[key], kind) for key, kind in fields.items()}), folder / name)


def test_a_parquet_file_that_cannot_be_read_is_not_called_incomplete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: object, size: int | None) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    write_parquet(tmp_path)
    monkeypatch.setattr(files, "open_listed", refuse)
    with pytest.raises(MalformedTopic, match=r"a\.parquet cannot be read: .*Permission denied.*\nhint: let this user"):
        planned(tmp_path, 0)


def planned(
    folder: Path, start: int, accepted: tuple[int, int] | None = None
) -> tuple[tuple[int, int] | None, tuple[int, int] | None]:
    """The next interval of partition 0, and the gap that is reported."""
    given_up = [] if accepted is None else [(0, *accepted)]
    offsets, gaps = FileTopic(folder).plan({0: start}, 1_000, given_up)
    gap = (gaps[0].from_offset, gaps[0].to_offset) if gaps else None
    return offsets.intervals.get(0), gap


def test_given_up_offsets_are_skipped_only_where_no_file_has_them(tmp_path: Path) -> None:
    write_offsets(tmp_path, *range(10), *range(20, 30))
    assert planned(tmp_path, 0) == ((0, 10), (10, 20))
    assert planned(tmp_path, 10) == (None, (10, 20))
    assert planned(tmp_path, 0, (10, 20)) == ((0, 10), None)
    assert planned(tmp_path, 10, (10, 20)) == ((20, 30), None)
    assert planned(tmp_path, 10, (10, 15)) == (None, (15, 20))
    write_offsets(tmp_path, 14, 15, 16, name="00.jsonl")
    assert planned(tmp_path, 10, (10, 20)) == ((14, 17), None)
    assert planned(tmp_path, 17, (10, 20)) == ((20, 30), None)
    write_offsets(tmp_path, 10, 11, 12, 13, 17, 18, 19, name="000.jsonl")  # on both sides of those offsets
    assert planned(tmp_path, 10, (10, 20)) == ((10, 30), None)


def test_a_topic_that_ends_before_the_next_offset_lacks_the_offsets_up_to_it(tmp_path: Path) -> None:
    write_offsets(tmp_path, 0, 1, 2)
    assert planned(tmp_path, 7) == (None, (3, 7))
    assert planned(tmp_path, 7, (3, 6)) == (None, (6, 7))
    assert planned(tmp_path, 7, (3, 7)) == (None, None)
    (gap,) = FileTopic(tmp_path).plan({0: 7}, 1_000)[1]
    missing = "partition 0: offsets 3 to 6 are missing: the topic ends before the next offset to read\n"
    assert missing in str(gap) and ":0:3-7 --reason …` (7 is excluded); " in str(gap)
    write_offsets(tmp_path, *range(3, 9), name="00.jsonl")  # offsets 3 to 6 were read before they were lost
    assert planned(tmp_path, 7, (3, 7)) == ((7, 9), None)


def test_given_up_offsets_beyond_all_files_are_neither_read_nor_a_gap(tmp_path: Path) -> None:
    write_offsets(tmp_path, *range(10))
    assert planned(tmp_path, 0, (10, 2**63 - 1)) == ((0, 10), None)
    assert planned(tmp_path, 10, (10, 20)) == (None, None)
    assert planned(tmp_path, 10, (12, 20)) == (None, None)
    # The next offset is inside the range that was given up, so messages in the range have been read.
    assert planned(tmp_path, 15, (10, 20)) == (None, None)
    assert planned(tmp_path, 15) == (None, (10, 15))


def test_a_gap_before_the_first_message_is_reported_and_skipped_once_it_is_given_up(tmp_path: Path) -> None:
    write_offsets(tmp_path, 5, 6)
    assert planned(tmp_path, 0) == (None, (0, 5))
    assert planned(tmp_path, 0, (0, 5)) == ((5, 7), None)
    assert planned(tmp_path, 0, (0, 3)) == (None, (3, 5))


def test_only_existing_messages_are_counted_and_only_their_files_are_opened(tmp_path: Path) -> None:
    write_parquet(tmp_path, "a.parquet", partition=[0, 0], offset=[0, 1], value=[b"", b""])
    write_parquet(tmp_path, "b.parquet", offset=[10])
    offsets, gaps = FileTopic(tmp_path).plan({0: 2}, 100, [(0, 2, 10)])
    assert (offsets.intervals, offsets.messages, gaps) == ({0: (10, 11)}, 1, [])
    assert [path.name for path in offsets.parquet] == ["b.parquet"]


def test_an_offset_of_two_messages_is_refused_before_it_is_read(tmp_path: Path) -> None:
    def check_repeated(where: str, start: int = 0) -> None:
        with pytest.raises(RepeatedOffset, match=rf"of partition 0 of the topic '.*' is in .*{where}\nhint") as caught:
            FileTopic(tmp_path).plan({0: start}, 1)
        assert caught.value.hint

    write_offsets(tmp_path, 0, 1, 2)
    write_offsets(tmp_path, 4, 3, name="00.jsonl")
    write_offsets(tmp_path, 0, 1, 2, partition=1)
    assert planned(tmp_path, 0) == ((0, 5), None)
    write_parquet(tmp_path, "a.parquet", partition=[0, 0], offset=[2, 5], value=[b"", b""])
    check_repeated(r"/0\.jsonl and in .*/a\.parquet")
    check_repeated(r"/0\.jsonl and in .*/a\.parquet", start=2)
    assert planned(tmp_path, 3) == ((3, 6), None)  # the repeated offset is before the start
    write_offsets(tmp_path, 6, 7, 8, 7, name="000.jsonl")
    check_repeated(r"/000\.jsonl twice", start=3)
    assert FileTopic(tmp_path).end_offsets() == {0: 9, 1: 3}


def check_refused(folder: Path, message: str, name: str) -> None:
    with pytest.raises((MalformedTopic, MalformedLine), match=message) as caught:
        FileTopic(folder).end_offsets()
    assert str(folder / name) in str(caught.value)
    assert caught.value.hint


@pytest.mark.parametrize("name", ["part.parquet", "3.jsonl", "3.jsonl.gz"])
def test_a_folder_with_the_name_of_a_file_is_not_skipped_silently(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / "archive").mkdir()
    check_refused(tmp_path, "is a folder with the name of a file", name)
    (tmp_path / name).rename(tmp_path / f"_{name}")
    assert FileTopic(tmp_path).end_offsets() == {}


def test_a_link_to_nothing_is_named_in_the_error(tmp_path: Path) -> None:
    (tmp_path / "0.jsonl").symlink_to(tmp_path / "gone")
    check_refused(tmp_path, "cannot be opened: No such file", "0.jsonl")
    (tmp_path / "0.jsonl").unlink()
    (tmp_path / "0.jsonl").symlink_to(tmp_path / "0.jsonl")
    check_refused(tmp_path, "cannot be opened", "0.jsonl")


@pytest.mark.parametrize("name", ["0.jsonl", "1.jsonl.gz", "a.parquet", "notes.txt"])
def test_a_pipe_a_socket_or_a_device_is_refused_and_never_opened(tmp_path: Path, name: str) -> None:
    write_offsets(tmp_path, 0, partition=7)
    os.mkfifo(tmp_path / name)  # opening a pipe would wait forever for a writer
    check_refused(tmp_path, "is a pipe, a socket or a device, not a file", name)
    (tmp_path / name).unlink()
    (tmp_path / name).symlink_to("/dev/zero")
    check_refused(tmp_path, "is a pipe, a socket or a device, not a file", name)
    (tmp_path / name).unlink()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / name))
        check_refused(tmp_path, "is a pipe, a socket or a device, not a file", name)
    (tmp_path / name).rename(tmp_path / f"_{name}")
    assert FileTopic(tmp_path).end_offsets() == {7: 1}


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("partition", -1, "has the partition -1"),
        ("partition", 100_000, "has the partition 100000"),
        ("offset", -1, "has the offset -1"),
        ("offset", 2**63 - 1, "has the offset 9223372036854775807"),
    ],
)
def test_a_parquet_file_with_a_number_out_of_bounds_is_refused(
    tmp_path: Path, column: str, value: int, message: str
) -> None:
    columns: dict[str, Any] = {column: [value]}
    write_parquet(tmp_path, **columns)
    check_refused(tmp_path, message, "a.parquet")


@pytest.mark.parametrize("name", ["100000.jsonl", "0" * 100 + "100000.jsonl", "9" * 200 + ".jsonl.gz"])
def test_a_name_with_a_partition_out_of_bounds_is_refused(tmp_path: Path, name: str) -> None:
    with gzip.open(tmp_path / name, "wb") if name.endswith(".gz") else (tmp_path / name).open("wb") as lines:
        lines.write(b"")
    check_refused(tmp_path, "names the partition", name)


def test_the_last_partition_and_the_last_offset_are_in_bounds(tmp_path: Path) -> None:
    write_offsets(tmp_path, 2**63 - 2, partition=99_999)
    write_parquet(tmp_path, partition=[99_998], offset=[2**63 - 2])
    assert FileTopic(tmp_path).end_offsets() == {99_998: 2**63 - 1, 99_999: 2**63 - 1}


def test_non_ascii_digits_do_not_name_a_partition(tmp_path: Path) -> None:
    write_lines(tmp_path, "٣.jsonl", '{"offset": 0}')
    check_refused(tmp_path, "is not a topic file", "٣.jsonl")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"offset": -1}', "offset is -1"),
        ('{"offset": 9223372036854775807}', "offset is 9223372036854775807"),
        ('{"offset": true}', "offset is True"),
        ('{"offset": 1, "timestamp_ms": 9223372036854775808}', "timestamp_ms is 9223372036854775808"),
        ('{"offset": 1, "timestamp_ms": -9223372036854775809}', "timestamp_ms is -9223372036854775809"),
        ('{"offset": 1, "offset": 2}', "the field 'offset' is given twice"),
        ('{"offset": 1, "value": "a", "value": "b"}', "the field 'value' is given twice"),
        ('{"offset": 1, "headers": {"a": {}}}', "the value of the header 'a' is not text"),
        ('{"offset": 1, "headers": [{"name": "a"}]}', "the header {'name': 'a'} lacks a text key"),
        ('{"offset": 1, "headers": "x"}', "headers is 'x', neither an object nor a list"),
        ('{"offset": 1, "value": [1]}', "value is neither text nor a JSON object"),
        ('{"offset": 1, "value": {"a" 1}}', "Expecting ':' delimiter"),
        ('{"offset": 1, "headers": ' + "[" * 100_000 + "]" * 100_000 + "}", "it is nested too deeply"),
    ],
)
def test_a_line_that_is_not_a_message_is_refused_with_its_file_and_line(
    tmp_path: Path, line: str, message: str
) -> None:
    write_lines(tmp_path, "0.jsonl", '{"offset": 0, "headers": []}', line)
    check_refused(tmp_path, rf"0\.jsonl, line 2: {message}", "0.jsonl")


def test_headers_may_be_a_list_or_null(tmp_path: Path) -> None:
    write_lines(tmp_path, "0.jsonl", '{"offset": 0, "headers": null}', '{"offset": 1, "headers": [{"key": "a"}]}')
    assert FileTopic(tmp_path).end_offsets() == {0: 2}


def test_a_json_object_is_stored_as_the_text_in_the_file(tmp_path: Path) -> None:
    value = r'{ "n":1.10, "n": 12345678901234567890 , "t": "\u00e9"}'
    write_lines(
        tmp_path,
        "0.jsonl",
        '{"offset": 0, "key": {"id": 1}, "value": ' + value + ' , "headers": {"a": "b"}}',
        '{"value":{},"headers":[{"key":"a","value_b64":"AA=="},{"key":"a","value":null}],"offset":1}',
    )
    first, second = parse_lines(locate(tmp_path) / "0.jsonl")
    assert (first["key"], first["value"]) == (b'{"id": 1}', value.encode())
    assert first["headers"] == [{"key": "a", "value": b"b"}]
    assert (second["key"], second["value"]) == (None, b"{}")
    assert second["headers"] == [{"key": "a", "value": b"\x00"}, {"key": "a", "value": None}]


def test_a_gzip_file_with_broken_bytes_is_refused(tmp_path: Path) -> None:
    whole = bytearray(gzip.compress(b'{"offset": 0}\n' * 50))
    whole[10] ^= 0xFF
    (tmp_path / "0.jsonl.gz").write_bytes(whole)
    check_refused(tmp_path, r"0\.jsonl\.gz, line 1: ", "0.jsonl.gz")


def test_the_length_of_a_line_is_bounded_however_small_its_gzip_file_is(tmp_path: Path) -> None:
    piece, pieces = gzip.compress(b"a" * 2**23), 100  # each decompresses to 8 MiB
    head = gzip.compress(b'{"offset": 0}\n{"offset": 1, "value": "')
    (tmp_path / "0.jsonl.gz").write_bytes(head + piece * pieces)
    assert (tmp_path / "0.jsonl.gz").stat().st_size < 2**20
    tracemalloc.start()
    try:
        check_refused(
            tmp_path, rf"line 2: it is longer than {LINE_BYTES_MAX} bytes, the maximum for a line", "0.jsonl.gz"
        )
        assert tracemalloc.get_traced_memory()[1] < 4 * LINE_BYTES_MAX < 2**23 * pieces
    finally:
        tracemalloc.stop()


def test_the_longest_line_is_read_with_and_without_a_newline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line = b'{"offset": 1, "value": "abc"}'
    monkeypatch.setattr("tidelake.topic.lines.LINE_BYTES_MAX", len(line))
    for end in (b"", b"\n", b"\n\n"):
        (tmp_path / "0.jsonl").write_bytes(b'{"offset": 0}\n' + line + end)
        assert FileTopic(tmp_path).end_offsets() == {0: 2}
    (tmp_path / "0.jsonl").write_bytes(b'{"offset": 0}\n' + line + b" \n")
    check_refused(tmp_path, "line 2: it is longer", "0.jsonl")


def test_the_message_at_an_offset_is_found_in_files_of_either_kind(tmp_path: Path) -> None:
    write_lines(tmp_path, "0.jsonl", '{"offset": 4, "timestamp_ms": 7, "key": "k", "value": "v"}', '{"offset": 5}')
    stamps = {"timestamp": pa.array([1_500, None], pa.timestamp("us")), "key": pa.array([b"k", None], pa.binary())}
    places = {"partition": pa.array([1, 1], pa.int32()), "offset": pa.array([8, 9])}
    values = {"value": pa.array([None, b"w"], pa.binary())}
    pq.write_table(pa.table({**places, **values, **stamps}), tmp_path / "a.parquet")
    write_parquet(tmp_path, "b.parquet", partition=[2], offset=[1], value=[b"bare"])
    topic = FileTopic(tmp_path)
    assert topic.record_at(0, 4) == (7, b"k", b"v")
    assert topic.record_at(0, 5) == (None, None, None)
    assert (topic.record_at(1, 8), topic.record_at(1, 9)) == ((1, b"k", None), (None, None, b"w"))
    assert topic.record_at(2, 1) == (None, None, b"bare")
    for partition, offset in ((0, 3), (0, 6), (1, 7), (9, 0)):
        assert topic.record_at(partition, offset) is None


def test_the_message_at_an_offset_that_two_messages_share_is_refused(tmp_path: Path) -> None:
    write_offsets(tmp_path, 1, 2)
    write_parquet(tmp_path, partition=[0], offset=[2], value=[b""])
    topic = FileTopic(tmp_path)
    assert topic.record_at(0, 1) == (None, None, None)
    with pytest.raises(RepeatedOffset):
        topic.record_at(0, 2)
