"""The files of a generated topic are the same for the same seed, have the shape of a topic, and overwrite nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.generator.topics import assert_reads_as_the_truth_says, make, read, records
from tidelake.errors import GeneratorRefused
from tidelake.generator.generate import generate
from tidelake.generator.options import GenerateOptions
from tidelake.generator.orders import ARROW_SCHEMA, RECORD_SCHEMA
from tidelake.generator.truth import contents_at, read_truth
from tidelake.schema.avro import cdcv2_schema
from tidelake.schema.columns import Column, column_types
from tidelake.topic.shape import TOPIC_SCHEMA

MANGLED: dict[str, Any] = {
    "writers": 2,
    "copies": 0.3,
    "copies_inside": 0.1,
    "shuffle": "full",
    "split": 0.5,
    "late": 3,
    "undecodable": 8,
    "malformed": 6,
    "nulls": 2,
    "far_future": 2,
    "over_count_at": (30,),
    "partitions": 3,
    "messages_per_file": 30,
}


def bytes_below(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def offsets(topic: Path) -> dict[int, list[int]]:
    by_partition: dict[int, list[int]] = {}
    for path in sorted(topic.iterdir()):
        table = pq.read_table(path, columns=["partition", "offset"])
        for partition, offset in zip(*(table[name].to_pylist() for name in table.column_names), strict=True):
            by_partition.setdefault(partition, []).append(offset)
    return by_partition


def test_the_same_seed_gives_the_same_bytes_and_another_seed_gives_other_bytes(tmp_path: Path) -> None:
    for folder, seed in (("a", 5), ("b", 5), ("c", 6)):
        make(tmp_path / folder, seed=seed, **MANGLED)
    first, same, other = (bytes_below(tmp_path / folder) for folder in "abc")
    assert first == same
    assert first.keys() == other.keys()
    assert [name for name in first if first[name] == other[name]] == ["orders.avsc"]


def test_the_history_is_the_same_with_and_without_mangling(tmp_path: Path) -> None:
    plain, mangled = make(tmp_path / "a", seed=5), make(tmp_path / "b", seed=5, **{**MANGLED, "over_count_at": ()})
    assert plain.updates_path.read_bytes() == mangled.updates_path.read_bytes()


def test_records_have_the_shape_of_sparks_kafka_source(tmp_path: Path) -> None:
    made = make(tmp_path, **MANGLED)
    for path in made.topic.local.iterdir():
        assert pq.read_schema(path).equals(TOPIC_SCHEMA)
        assert pq.ParquetFile(path).metadata.row_group(0).column(1).compression == "ZSTD"
    assert set(records(made)["topic"].to_pylist()) == {"orders"}
    assert [str(kind) for kind in TOPIC_SCHEMA.types] == [
        "binary",
        "binary",
        "string",
        "int32",
        "int64",
        "timestamp[us, tz=UTC]",
        "list<item: struct<key: string, value: binary>>",
    ]


def test_offsets_are_contiguous_in_each_partition_and_files_hold_no_more_records_than_requested(tmp_path: Path) -> None:
    made = make(tmp_path, **MANGLED)
    by_partition = offsets(made.topic.local)
    assert sorted(by_partition) == [0, 1, 2]
    assert all(numbers == list(range(len(numbers))) for numbers in by_partition.values())
    sizes = [pq.read_metadata(path).num_rows for path in sorted(made.topic.local.iterdir())]
    assert set(sizes[:-1]) == {30} and sizes[-1] <= 30
    assert max(map(len, by_partition.values())) - min(map(len, by_partition.values())) <= 1


def test_a_topic_that_is_not_empty_is_named_in_the_refusal_and_left_unchanged(tmp_path: Path) -> None:
    make(tmp_path, seed=1)
    before = bytes_below(tmp_path)
    with pytest.raises(GeneratorRefused, match=r"topics/orders is not empty(?s:.*)--append"):
        make(tmp_path, seed=2)
    assert bytes_below(tmp_path) == before


def test_an_empty_folder_is_treated_like_a_missing_one(tmp_path: Path) -> None:
    (tmp_path / "topics" / "orders").mkdir(parents=True)
    assert_reads_as_the_truth_says(make(tmp_path, append=True))


def test_the_truth_must_be_outside_the_topic(tmp_path: Path) -> None:
    with pytest.raises(GeneratorRefused, match="inside the topic"):
        generate(GenerateOptions(name="orders", updates=9), tmp_path, tmp_path / "orders")


@pytest.mark.parametrize("family", ["plain", "append_only", "upsert", "debezium"])
def test_a_topic_can_be_continued_at_its_end_again_and_again(tmp_path: Path, family: str) -> None:
    for part, unsealed in enumerate((5, 40, 0, 7)):
        made = make(
            tmp_path,
            family=family,
            append=True,
            unsealed_times=unsealed,
            undecodable=3,
            nulls=1,
            far_future=1,
            shuffle="full",
            copies=0.2,
            messages_per_file=11 + part,
            partitions=1 + part % 3,
        )
        assert made.truth.end == 40 * (part + 1)
        assert made.truth.upper == 40 * (part + 1) - unsealed
        assert made.truth.updates == 600 * (part + 1) == pq.read_metadata(made.updates_path).num_rows
        assert made.truth.far_future == tuple(2**50 + number for number in range(part + 1))
        assert all(numbers == list(range(len(numbers))) for numbers in offsets(made.topic.local).values())
        assert_reads_as_the_truth_says(made)
    assert len(made.truth.parts) == 4
    assert read_truth(made.truth_path) == made.truth
    assert json.loads(json.dumps(made.as_json()))["truth"] == json.loads(made.truth_path.read_text(encoding="utf-8"))


def test_a_time_stays_held_back_when_the_topic_is_continued(tmp_path: Path) -> None:
    make(tmp_path, conflicting_diff_at=(12,))
    made = make(tmp_path, append=True, over_count_at=(50,), close=True)
    assert (made.truth.upper, made.truth.closed, made.truth.close_stated) == (12, False, True)
    assert_reads_as_the_truth_says(made)


@pytest.mark.parametrize(
    ("first", "second", "why"),
    [
        ({"close": True}, {}, "is closed"),
        ({}, {"family": "append_only"}, "has family"),
        ({}, {"encoding": "confluent"}, "has family"),
        ({"far_future": 1}, {"close": True}, "cannot be closed"),
    ],
)
def test_a_topic_that_cannot_be_continued_is_refused(
    tmp_path: Path, first: dict[str, Any], second: dict[str, Any], why: str
) -> None:
    make(tmp_path, **first)
    before = bytes_below(tmp_path)
    with pytest.raises(GeneratorRefused, match=why):
        make(tmp_path, append=True, **second)
    assert bytes_below(tmp_path) == before


def test_a_topic_without_its_own_truth_is_not_continued(tmp_path: Path) -> None:
    made = make(tmp_path)
    extra = made.topic.local / "part-00001.parquet"
    extra.write_bytes((made.topic.local / "part-00000.parquet").read_bytes())
    with pytest.raises(GeneratorRefused, match="differs from its ground truth in the number of messages"):
        make(tmp_path, append=True)
    extra.unlink()
    (made.topic.local / "0.jsonl").write_text("")
    with pytest.raises(GeneratorRefused, match=r"0\.jsonl was not written by this generator"):
        make(tmp_path, append=True)
    (made.topic.local / "0.jsonl").unlink()
    made.truth_path.unlink()
    with pytest.raises(GeneratorRefused, match=r"there is no .*orders\.truth\.json"):
        make(tmp_path, append=True)


def test_the_schema_file_is_the_schema_of_the_records_and_fits_a_collection(tmp_path: Path) -> None:
    made = make(tmp_path)
    assert json.loads(made.schema_path.read_text(encoding="utf-8")) == RECORD_SCHEMA
    assert len(cdcv2_schema(RECORD_SCHEMA)) == 2


def test_arrow_types_follow_the_record_schema() -> None:
    def nested(column: Column) -> Any:
        parts = getattr(column.type, "columns", None)
        if parts is not None:
            return {part.name: nested(part) for part in parts}
        item = getattr(column.type, "item", None)
        return [nested(item)] if item is not None else column.type.logical or column.type.name  # type: ignore[union-attr]

    def of_arrow(kind: pa.DataType) -> Any:
        names = {"int64": "long", "int32": "int", "decimal128(12, 2)": "decimal"}
        if pa.types.is_struct(kind):
            return {field.name: of_arrow(field.type) for field in kind}
        if pa.types.is_list(kind):
            return [of_arrow(kind.value_type)]
        return "timestamp-millis" if pa.types.is_timestamp(kind) else names.get(str(kind), str(kind))

    assert {column.name: nested(column) for column in column_types(RECORD_SCHEMA)} == {
        field.name: of_arrow(field.type) for field in ARROW_SCHEMA
    }


def test_contents_are_the_sums_of_the_diffs_at_or_before_a_time(tmp_path: Path) -> None:
    made = make(tmp_path, negative=0.3)
    updates = pq.read_table(made.updates_path).to_pylist()
    for as_of in (-1, 0, 7, 39, 10**6):
        sums: dict[str, int] = {}
        for row in updates:
            if row["_time"] <= as_of:
                key = repr([value for name, value in row.items() if not name.startswith("_")])
                sums[key] = sums.get(key, 0) + row["_diff"]
        contents = contents_at(made.updates_path, as_of)
        assert contents.schema.equals(pa.schema([*ARROW_SCHEMA, pa.field("_diff", pa.int64())]))
        rows = [list(row.values()) for row in contents.to_pylist()]
        assert {repr(row[:-1]): row[-1] for row in rows} == {key: diff for key, diff in sums.items() if diff}
        assert len(rows) == len({repr(row[:-1]) for row in rows})


def test_progress_is_reported_up_to_the_end(tmp_path: Path) -> None:
    steps: list[tuple[str, int, int]] = []
    made = make(tmp_path, progress=lambda *step: steps.append(step), messages_per_file=10)
    last = {step: (done, total) for step, done, total in steps}
    assert last == {"history": (600, 600), "topic": (made.truth.messages, made.truth.messages)}
    assert len(read(made).messages) == made.truth.messages
