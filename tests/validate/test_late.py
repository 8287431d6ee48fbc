"""Late statements: copies are counted, contradictions are shown with their place, and published data never changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from expectations.evidence import evidence_of
from jobs import validate
from tests.jobs import test_debezium as debezium
from tests.lakes import change_events
from tests.lakes.lake import NAME, Lake, encode, progress, updates
from tests.lakes.places import Stores, copy_lake
from tidelake.codec.typed import read_statement
from tidelake.compact.small_tables import merge_small_files
from tidelake.protocol.json_values import to_text
from tidelake.read.status import read_status
from tidelake.storage import blobs
from tidelake.storage.location import Location
from tidelake.store.commit import OpenTable
from tidelake.store.failpoints import on_reach
from tidelake.store.files import read_rows, write_run
from tidelake.store.late_notes import CONTRADICTED_RUN, LateContradiction, LateNotes, kind_of, late_verdicts
from tidelake.store.layout import PROGRESS_SCHEMA, new_run
from tidelake.store.put_files import forget_files
from tidelake.store.runs import read_files
from tidelake.store.table_schema import late_schema
from tidelake.validate import late as late_module
from tidelake.validate.late import LateReport, compare_late

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("any_store")]

MESSAGES_SENT = 2
"""How many messages `sealed` sends."""


def sealed(root: Path, spark: SparkSession, family: str = "plain", **more: Any) -> Lake:
    """A lake in which times 1, 2 and 7 are sealed."""
    lake = Lake(root, spark, family, **more)
    lake.send(
        updates(((1, 10), 1, 1), ((2, None), 2, 1), ((3, 30), 2, 1), ((4, 40), 7, 1)),
        progress([0], [9], {1: 1, 2: 2, 7: 1}),
    )
    assert lake.run().upper == 9
    return lake


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession, stores: Stores) -> Path:
    """The folder of a sealed lake, made once."""
    root = stores.hold(tmp_path_factory.mktemp("sealed"))
    sealed(root, spark)
    return root


@pytest.fixture
def lake(template: Path, any_store: Path, spark: SparkSession) -> Lake:
    """A lake that continues from a copy of the template."""
    copy_lake(template, any_store)
    lake = Lake(any_store, spark)
    lake.offset = MESSAGES_SENT
    return lake


def compare_sent(lake: Lake, *values: bytes) -> LateReport:
    """Send and ingest messages, and compare the late statements."""
    lake.send(*values)
    lake.ingest()
    return compare_late(lake.spark, lake.collection)


def contradictions(lake: Lake) -> list[LateContradiction]:
    """All contradictions that have been noted."""
    return LateNotes(lake.collection).first(100)


def contradiction_rows(lake: Lake) -> list[tuple[Any, ...]]:
    """Every contradiction: time, data, stated, published, offset."""
    return [
        (note.time, note.data and note.data["id"], note.stated, note.published, note.offset)
        for note in contradictions(lake)
    ]


@pytest.mark.parametrize(
    ("family", "more"), [("plain", {}), pytest.param("upsert", {"key": "id"}, marks=pytest.mark.sweep)]
)
def test_a_late_copy_and_a_late_contradiction_are_told_apart(
    tmp_path: Path, spark: SparkSession, family: str, more: dict[str, Any]
) -> None:
    lake = sealed(tmp_path, spark, family, **more)
    before = lake.contents(8)
    other = -1 if family == "upsert" else 3
    report = compare_sent(
        lake,
        updates(((1, 10), 1, 1), ((2, None), 2, 1), ((2, None), 2, 1)),
        updates(((3, 30), 2, other), ((9, 90), 2, 1), ((4, 40), 1, 1)),
    )
    assert report == LateReport(copies=2, contradictions=3)
    assert contradiction_rows(lake) == [(1, 4, 1, 0, 3), (2, 3, other, 1, 3), (2, 9, 1, 0, 3)]
    assert lake.contents(8) == before
    assert compare_sent(lake, updates(((1, 10), 1, 1))) == LateReport(copies=1)
    assert late_verdicts(lake.collection) == {"copy": 3, "contradiction": 3, "settled": 0, "untold": 0, "late": 0}


@pytest.mark.sweep
def test_only_files_with_times_of_late_statements_are_opened(
    lake: Lake, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    for time in (10, 20, 30):
        lake.send(updates((time, time, 1)), progress([time - 10 or 9], [time + 1], {time: 1}))
        lake.run()
    opened: list[int] = []

    def noting(spark: Any, table: Location, files: Any, schema: Any) -> Any:
        if table.name == "updates":
            opened.append(len(list(files)))
        return read_files(spark, table, files, schema)

    monkeypatch.setattr(late_module, "read_files", noting)
    assert compare_sent(lake, updates((20, 20, 1), (20, 15, 1))) == LateReport(copies=1, contradictions=1)
    assert opened == [1]


def test_whether_a_statement_is_a_copy_can_no_longer_be_verified_after_compaction(
    tmp_path: Path, spark: SparkSession
) -> None:
    lake = sealed(tmp_path, spark, keep=4)
    lake.compact()
    assert lake.collection.entry.since == (5,)
    report = compare_sent(lake, updates(((1, 10), 1, 1), ((8, 80), 2, 1), ((4, 40), 7, 1), ((4, 41), 7, 1)))
    assert report == LateReport(copies=1, contradictions=1, untold=2)
    assert contradiction_rows(lake) == [(7, 4, 1, 0, 2)]


@pytest.mark.sweep
def test_copies_of_a_keys_newest_statement_can_still_be_recognised_after_compaction(
    tmp_path: Path, spark: SparkSession
) -> None:
    lake = Lake(tmp_path, spark, "upsert", key="id", keep=1)
    lake.send(updates(((1, 10), 1, 1), ((2, 20), 1, 1), ((1, 11), 3, 1)), progress([0], [9], {1: 2, 3: 1}))
    lake.run()
    lake.compact()
    report = compare_sent(lake, updates(((1, 10), 1, 1), ((2, 20), 1, 1), ((2, 20), 1, -1), ((1, 11), 3, 1)))
    assert report == LateReport(copies=2, contradictions=1, untold=1)
    assert contradiction_rows(lake) == [(1, 2, -1, 1, 2)]


@pytest.mark.sweep
@pytest.mark.parametrize("key", ["id", None], ids=["with a key", "without a key"])
def test_late_change_events_are_compared_as_they_were_stated(
    tmp_path: Path, spark: SparkSession, key: str | None
) -> None:
    lake = debezium.lake_of(tmp_path, spark, key, keep=4)
    lake.send(change_events.events((None, (1, 10), 1), ((1, 10), (1, 20), 2), (None, (2, 5), 7)))
    lake.send(change_events.progress([0], [9], {1: 1, 2: 1, 7: 1}))
    lake.run()
    lake.compact()
    same = change_events.events((None, (2, 5), 7), (None, (1, 10), 1))
    report = compare_sent(lake, same, change_events.events((None, (2, 5), 7), op="r"))
    assert report == LateReport(copies=1, contradictions=1, untold=1)
    (contradiction,) = contradictions(lake)
    assert contradiction.data == {"before": None, "after": {"id": 2, "price": 5}, "op": "r"}


@pytest.mark.sweep
def test_a_discarded_statement_that_arrives_late_is_settled(tmp_path: Path, spark: SparkSession) -> None:
    lake = Lake(tmp_path, spark)
    lake.send(updates(((1, 10), 1, 1), ((1, 10), 1, 2)), progress([0], [9], {1: 1}))
    lake.run()
    lake.decide(time=1, discard={"data": {"id": 1, "price": 10}, "diff": 2})
    assert lake.seal().upper == 9
    assert compare_sent(lake, updates(((1, 10), 1, 2), ((1, 10), 1, 1))) == LateReport(copies=1, settled=1)


@pytest.mark.sweep
def test_a_contradiction_is_settled_by_discarding_it(lake: Lake) -> None:
    compare_sent(lake, updates(((1, 10), 1, 5)))
    status = read_status(lake.collection)
    assert (status.late_contradicted, status.late_undecided) == (1, 1)
    assert status.late_evidence == [
        'at time 1, {"id":1,"price":10} is stated with diff 5, but was published with 1 '
        f"(topic '{NAME}', partition 0, offset 2)"
    ]
    lake.decide("the shop took it back", time=1, discard={"data": {"id": 1, "price": 10}, "diff": 5})
    status = read_status(lake.collection)
    assert (status.late_contradicted, status.late_undecided, status.late_evidence) == (1, 0, [])
    assert contradictions(lake)[0].decision == "the shop took it back"
    lake.send(updates(((1, 10), 1, 5)))
    lake.ingest()
    validated = lake.validate(full=True)
    assert (validated.late, validated.damaged) == (LateReport(settled=1), False)
    assert lake.contents(8)[1, 10] == 1


@pytest.mark.sweep
def test_a_stop_between_evidence_and_verdict_does_not_count_a_statement_twice(lake: Lake, spark: SparkSession) -> None:
    lake.send(updates(((1, 10), 1, 5), ((1, 10), 1, 1)))
    lake.ingest()

    def stop(name: str) -> None:
        if name == "validate.after_evidence":
            raise KeyboardInterrupt

    on_reach(stop)
    try:
        with pytest.raises(KeyboardInterrupt):
            compare_late(spark, lake.collection)
    finally:
        on_reach(None)
    assert lake.validate().late == LateReport(copies=1, contradictions=1)
    assert contradiction_rows(lake) == [(1, 1, 5, 1, 2)]


def test_a_late_file_that_cannot_be_read_is_reported_but_not_as_damage(lake: Lake, spark: SparkSession) -> None:
    lake.send(updates(((1, 10), 1, 5)))
    lake.ingest()
    path = lake.collection.paths.late
    (file,) = OpenTable(path).files()
    whole = blobs.read(path / file.path)
    blobs.write(path / file.path, b"PAR1 no more")
    report = validate.run(spark, lake.settings)
    assert "late statements could not be compared" in str(report.errors[NAME])
    validated = report.results[NAME]
    assert (validated.damaged, len(validated.times), validated.late) == (False, 3, LateReport())
    assert file.path.partition("/")[2] in validated.late_problem
    assert "hint" not in validated.late_problem
    status = read_status(lake.collection)
    (line,) = evidence_of(validated, status)["late_statements_are_copies"]
    assert line == f"late statements could not be compared: {validated.late_problem}"
    assert lake.current().ok  # nothing that was proven is held back
    blobs.write(path / file.path, whole)
    assert lake.validate().late == LateReport(contradictions=1)
    notes = lake.collection.paths.proofs
    (note,) = [note for note in OpenTable(notes).files() if kind_of(note.run) == CONTRADICTED_RUN]
    blobs.write(notes / note.path, b"PAR1 no more")
    forget_files()  # in an object store, this process may still have the original bytes in its memory
    status = read_status(lake.collection)
    assert (status.upper, status.late_verdicts["contradiction"], status.damaged) == (9, 1, None)
    assert "late facts cannot be read" in str(status.late_problem) and "hint" not in str(status.late_problem)


@pytest.mark.sweep
def test_a_tick_that_is_repeated_after_a_stop_counts_its_late_rows_once(lake: Lake, spark: SparkSession) -> None:
    lake.send(updates(((1, 10), 1, 5), ((1, 10), 1, 1)))

    def stop(name: str) -> None:
        if name == "ingest.after_late":
            raise KeyboardInterrupt

    on_reach(stop)
    try:
        with pytest.raises(KeyboardInterrupt):
            lake.ingest()
    finally:
        on_reach(None)
    assert compare_late(spark, lake.collection) == LateReport()  # no commit states yet that the tick is done
    lake.ingest()
    assert lake.validate().late == LateReport(copies=1, contradictions=1)
    assert sum(late_verdicts(lake.collection).values()) == 2


@pytest.mark.sweep
def test_verdicts_survive_the_merging_of_small_files(lake: Lake) -> None:
    assert compare_sent(lake, updates(((1, 10), 1, 1), ((1, 10), 1, 5))) == LateReport(copies=1, contradictions=1)
    path, schema = lake.collection.paths.late, late_schema(lake.collection.entry.record_schema)
    for file in OpenTable(path).files():
        for _ in range(7):
            rows = read_rows(path, [file], schema)
            OpenTable(path).commit({}, write_run(path, new_run(kind_of(file.run), OpenTable(path).seq), rows))
    assert merge_small_files(path, schema, 0) == 2
    assert len(OpenTable(path).files()) == 2
    assert late_verdicts(lake.collection) == {"copy": 8, "contradiction": 8, "settled": 0, "untold": 0, "late": 0}


@pytest.mark.sweep
def test_values_of_every_kind_are_compared_as_the_table_holds_them(tmp_path: Path, spark: SparkSession) -> None:
    record = {
        "type": "record",
        "name": "data",
        "fields": [
            {"name": "weight", "type": "double"},
            {"name": "tags", "type": {"type": "array", "items": ["null", "bytes"]}},
            {
                "name": "inner",
                "type": ["null", {"type": "record", "name": "inner", "fields": [{"name": "x", "type": "float"}]}],
            },
            {"name": "amount", "type": {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 2}},
            {"name": "either", "type": ["null", "long", "string"]},
        ],
    }

    def row(weight: float, x: float | None, either: Any) -> dict[str, Any]:
        inner = None if x is None else {"x": x}
        return {"weight": weight, "tags": [b"\x01", None], "inner": inner, "amount": b"\x01\x00", "either": either}

    def sent(*rows: dict[str, Any]) -> bytes:
        return encode([{"data": data, "time": 1, "diff": 1} for data in rows], record)

    lake = Lake(tmp_path, spark, schema=record)
    lake.send(sent(row(float("nan"), None, 1), row(0.0, float("nan"), "1"), row(1.0, 2.0, None)))
    lake.send(encode({"lower": [0], "upper": [5], "counts": [{"time": 1, "count": 3}]}, record))
    lake.run()
    report = compare_sent(
        lake, sent(row(float("nan"), None, 1), row(-0.0, float("nan"), "1"), row(1.0, 2.0, None), row(1.0, None, None))
    )
    assert report == LateReport(copies=3, contradictions=1)
    (contradiction,) = contradictions(lake)
    assert contradiction.data is not None
    assert contradiction.data["tags"] == [{"b64": "AQ=="}, None]
    statement = to_text({"data": contradiction.data, "diff": contradiction.stated})
    lake.decide(time=1, discard=read_statement(lake.collection.entry.record_schema, statement))
    assert [note.decision for note in contradictions(lake)] == ["tested"]


def test_a_late_count_that_differs_from_the_proven_count_is_noted_once(lake: Lake) -> None:
    # The same counts again, split differently and reaching beyond upper: nothing to note.
    lake.send(progress([0], [2], {1: 1}), progress([2], [20], {2: 2, 7: 1}))
    lake.run()
    assert contradictions(lake) == []
    # A different count, no updates where there were two, and some where there were none.
    lake.send(progress([0], [6], {1: 2, 5: 4}))
    for _ in range(2):
        lake.run()
    assert contradiction_rows(lake) == [(1, None, 2, 1, 4), (2, None, 0, 2, 4), (5, None, 4, 0, 4)]
    assert contradictions(lake)[0].fact == (
        f"time 1 is stated to have 2 updates, but was sealed with 1 (topic '{NAME}', partition 0, offset 4)"
    )
    path = lake.collection.paths.progress
    assert OpenTable(path).files() == []  # nothing is left to be compared again
    lake.decide("counted again: 2", time=2, count=2)
    assert [note.decision for note in contradictions(lake)] == [None, "counted again: 2", None]
    assert lake.contents(8) == {(1, 10): 1, (2, None): 1, (3, 30): 1, (4, 40): 1}


@pytest.mark.sweep
def test_late_counts_and_updates_of_a_closed_stream_are_compared(lake: Lake) -> None:
    lake.send(progress([9], []))
    assert lake.run().closed
    report = compare_sent(lake, updates(((9, 9), 50, 1), ((4, 40), 7, 1)), progress([0], [], {1: 1, 2: 2, 7: 1, 50: 1}))
    assert report == LateReport(copies=1, contradictions=1)
    lake.seal()
    assert contradiction_rows(lake) == [(50, 9, 1, 0, 3), (50, None, 1, 0, 4)]
    assert OpenTable(lake.collection.paths.progress).files() == []


def test_a_time_sealed_by_decision_has_the_count_that_was_decided(tmp_path: Path, spark: SparkSession) -> None:
    lake = Lake(tmp_path, spark)
    lake.send(updates((1, 1, 1)), progress([0], [5], {1: 2}))
    lake.run()
    lake.decide("one was lost", time=1, count=1)
    assert lake.seal().upper == 5
    lake.send(progress([0], [5], {1: 2}))
    lake.run()
    assert contradictions(lake) == []


def test_a_statement_that_reaches_beyond_upper_is_cut_as_upper_moves(tmp_path: Path, spark: SparkSession) -> None:
    lake = Lake(tmp_path, spark)
    lake.send(updates((1, 1, 1)), progress([0], [9], {1: 1, 5: 1}))
    assert lake.run().upper == 5
    path = lake.collection.paths.progress
    (row,) = read_rows(path, OpenTable(path).files(), PROGRESS_SCHEMA).to_pylist()
    assert (row["lower"], row["upper"], row["count_times"]) == ([5], [9], [5])
    assert sum(late_verdicts(lake.collection).values()) == 0
