"""A recorded file is trusted only as long as it is unchanged: metadata that a tool has kept proves nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelake.errors import MalformedTopic
from tidelake.storage.location import locate
from tidelake.topic.files import FileTopic
from tidelake.topic.recorded_file import COVERED_OFFSETS, RECORDED, write_recorded_file
from tidelake.topic.shape import TOPIC_SCHEMA

DENSE = range(10)
COMPACTED = [0, 1, 2, 7]
NAME = "part-00000-0000000000000000000.parquet"


def messages(offsets: Sequence[int], *, partition: int = 0, alike: bool = False) -> pa.Table:
    """Messages of a topic; if `alike`, they differ only in their offsets."""
    rows = [
        {
            "key": b"k",
            "value": b"v" if alike else b"v%d" % (offset % 7),
            "topic": "t",
            "partition": partition,
            "offset": offset,
            "timestamp": 0 if alike else offset,
            "headers": None,
        }
        for offset in offsets
    ]
    return pa.Table.from_pylist(rows, schema=TOPIC_SCHEMA)


def record(folder: Path, offsets: Sequence[int], *, alike: bool = False, identity: int | None = 5) -> Path:
    """Record the offsets [0, 10) of partition 0, of which only `offsets` have a message; replace any recording."""
    (folder / NAME).unlink(missing_ok=True)
    write_recorded_file(locate(folder) / NAME, messages(offsets, alike=alike), {0: (0, 10)}, identity)
    return folder / NAME


def record_as_before(folder: Path, rows: pa.Table, covered: dict[int, tuple[int, int]] | None = None) -> None:
    """Write a file as `topic record` did when the metadata stated only the offsets."""
    metadata = {COVERED_OFFSETS: json.dumps(covered or {0: (0, 10)})}
    pq.write_table(rows.replace_schema_metadata(metadata), folder / NAME, compression="zstd", write_page_checksum=True)


def rewrite(file: Path, change: Callable[[pa.Table], pa.Table], **options: object) -> None:
    """Change the rows, as a tool that keeps the metadata does."""
    table = pq.read_table(file, partitioning=None)
    changed = change(table).replace_schema_metadata(table.schema.metadata)
    pq.write_table(changed, file, **{"compression": "zstd", "write_page_checksum": True} | options)


def check_refused(folder: Path, problem: str) -> None:
    """Check that a topic is refused before anything is read, and that the error names the file and its offsets."""
    for ask in (FileTopic(folder).end_offsets, lambda: FileTopic(folder).plan({}, 1)):
        with pytest.raises(MalformedTopic, match=problem) as caught:
            ask()
        where = "(partition 0, offsets 0 to 10)"
        text = f"{folder / NAME} has the metadata of a recording, but differs from what was recorded {where}"
        assert text in str(caught.value)
        assert "hint: restore the file that was recorded, or record the topic again" in str(caught.value)


def joined(table: pa.Table) -> pa.Table:
    """The rows of a join with a table that lacks one value and has another twice: as many rows as before."""
    other = pa.table({"value": pa.array([b"v1", b"v1", b"v2", b"v7"])})
    rows = table.drop_columns(["headers", "value"]).append_column(
        "value", pc.binary_join_element_wise(b"v", _text(table), b"")
    )
    return rows.join(other, "value", join_type="inner").select(rows.column_names)


def _text(table: pa.Table) -> pa.ChunkedArray:
    return table["offset"].cast(pa.string()).cast(pa.binary())


@pytest.mark.parametrize("offsets", [DENSE, COMPACTED], ids=["dense", "compacted"])
@pytest.mark.parametrize(
    ("change", "problem"),
    [
        pytest.param(lambda table: table.slice(0, 3), "rows were recorded, but it has 3", id="sliced"),
        pytest.param(lambda table: table.slice(0, 0), "rows were recorded, but it has 0", id="emptied"),
        pytest.param(lambda table: table.filter(pc.field("offset") != 2), "rows were recorded", id="filtered"),
        pytest.param(lambda table: pa.concat_tables([table, table]), "it has (20 rows|8)", id="repeated"),
        pytest.param(lambda table: table.sort_by([("value", "descending")]), "its pages are not", id="sorted"),
        pytest.param(lambda table: table.drop_columns(["key"]), "its pages are not", id="without keys"),
    ],
)
def test_rows_that_were_lost_repeated_or_moved_are_refused(
    tmp_path: Path, offsets: Sequence[int], change: Callable[[pa.Table], pa.Table], problem: str
) -> None:
    rewrite(record(tmp_path, offsets), change)
    check_refused(tmp_path, problem)


def test_a_join_that_keeps_the_number_of_rows_is_refused(tmp_path: Path) -> None:
    file = record(tmp_path, COMPACTED)
    rewrite(file, joined)
    assert pq.read_table(file, partitioning=None)["offset"].to_pylist() == [1, 1, 2, 7]
    check_refused(tmp_path, "its pages are not those that were recorded")


@settings(deadline=None, max_examples=30)
@given(st.lists(st.integers(0, 4), min_size=5, max_size=5), st.sampled_from([[0, 1, 2, 3, 4], [0, 1, 4, 7, 9]]))
def test_the_same_number_of_rows_is_trusted_only_if_none_is_missing(
    tmp_path_factory: pytest.TempPathFactory, indexes: list[int], offsets: list[int]
) -> None:
    folder = tmp_path_factory.mktemp("taken")
    rewrite(record(folder, offsets, alike=True), lambda table: table.take(indexes))
    if sorted(indexes) == [0, 1, 2, 3, 4]:
        return
    check_refused(folder, "its pages are not those that were recorded")


def test_files_that_were_joined_into_one_are_refused(tmp_path: Path) -> None:
    rewrite(record(tmp_path, DENSE), lambda table: pa.concat_tables([table, messages(range(10, 20))]))
    check_refused(tmp_path, "it has 20 rows")
    rewrite(record(tmp_path, COMPACTED), lambda table: pa.concat_tables([table, messages([0], partition=3)]))
    check_refused(tmp_path, "it has messages of partition 3")
    rewrite(record(tmp_path, COMPACTED), lambda table: pa.concat_tables([table, messages([12])]))
    check_refused(tmp_path, "it has the offset 12")


@pytest.mark.parametrize(
    "options", [{"compression": "snappy"}, {"row_group_size": 4}, {"use_dictionary": False}], ids=str
)
def test_rows_that_are_stored_differently_are_refused(tmp_path: Path, options: dict[str, object]) -> None:
    rewrite(record(tmp_path, DENSE), lambda table: table, **options)
    check_refused(tmp_path, "its pages are not those that were recorded")


def test_a_recording_is_never_replaced(tmp_path: Path) -> None:
    file = record(tmp_path, DENSE)
    before = file.read_bytes()
    with pytest.raises(FileExistsError):
        write_recorded_file(locate(tmp_path) / NAME, messages(COMPACTED), {0: (0, 10)}, 5)
    assert (file.read_bytes(), [path.name for path in tmp_path.iterdir()]) == (before, [NAME])


@pytest.mark.parametrize("offsets", [DENSE, COMPACTED, []], ids=["dense", "compacted", "no message"])
def test_an_unchanged_recording_covers_its_offsets(tmp_path: Path, offsets: Sequence[int]) -> None:
    record(tmp_path, offsets, identity=None)
    planned, gaps = FileTopic(tmp_path).plan({}, 100)
    assert (planned.intervals, gaps) == ({0: (0, 10)}, [])


def test_without_the_metadata_a_rewritten_file_covers_only_its_rows(tmp_path: Path) -> None:
    file = record(tmp_path, COMPACTED)
    pq.write_table(pq.read_table(file, partitioning=None).replace_schema_metadata(None), file)
    planned, gaps = FileTopic(tmp_path).plan({}, 100)
    assert (planned.intervals, [(gap.from_offset, gap.to_offset) for gap in gaps]) == ({0: (0, 3)}, [(3, 7)])


def test_metadata_of_another_file_is_refused(tmp_path: Path) -> None:
    file = record(tmp_path, DENSE)
    wider = {COVERED_OFFSETS.encode(): json.dumps({0: [0, 12]})}
    table = pq.read_table(file, partitioning=None)
    pq.write_table(
        table.replace_schema_metadata(table.schema.metadata | wider), file, compression="zstd", write_page_checksum=True
    )
    with pytest.raises(MalformedTopic, match=r"offsets 0 to 12\): its pages are not those that were recorded"):
        FileTopic(tmp_path).end_offsets()


@pytest.mark.parametrize("offsets", [DENSE, COMPACTED, []], ids=["dense", "compacted", "no message"])
def test_an_older_recording_is_read_as_before(tmp_path: Path, offsets: Sequence[int]) -> None:
    record_as_before(tmp_path, messages(offsets))
    planned, gaps = FileTopic(tmp_path).plan({}, 100)
    assert (planned.intervals, gaps) == ({0: (0, 10)}, [])


def test_an_older_recording_is_refused_if_its_footer_contradicts_its_metadata(tmp_path: Path) -> None:
    for rows, problem in (
        (pa.concat_tables([messages(DENSE)] * 2), "it has 20 rows"),
        (messages([1, 12]), "it has the offset 12"),
        (messages([1], partition=1), "it has messages of partition 1"),
        (pa.concat_tables([messages([1]), messages([1], partition=1)]), "it has messages of partition 1"),
    ):
        record_as_before(tmp_path, rows)
        check_refused(tmp_path, problem)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (COVERED_OFFSETS, "[" * 100_000),
        (COVERED_OFFSETS, '{"0": [5, 2]}'),
        (COVERED_OFFSETS, '{"0": [0, 99999999999999999999]}'),
        (COVERED_OFFSETS, '{"0": [0, 1e999]}'),
        (COVERED_OFFSETS, "\N{LATIN SMALL LETTER E WITH ACUTE}".encode("latin-1")),
        (COVERED_OFFSETS, "[]"),
        (RECORDED, "{}"),
        (RECORDED, "7"),
    ],
    ids=lambda text: repr(text)[:24],
)
def test_metadata_that_cannot_be_read_is_refused(tmp_path: Path, name: str, text: str | bytes) -> None:
    metadata = {COVERED_OFFSETS: '{"0": [0, 10]}'} | {name: text}
    pq.write_table(messages(DENSE).replace_schema_metadata(metadata), tmp_path / NAME)
    with pytest.raises(MalformedTopic, match="does not say which offsets it covers"):
        FileTopic(tmp_path).end_offsets()
