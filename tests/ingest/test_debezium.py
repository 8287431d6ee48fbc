"""Change events as Debezium writes them: a test for each promise about them."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from tests.lakes.changes import ROW, Changes
from tests.lakes.lake import NAME
from tidelake.cli.app import main
from tidelake.errors import ConfigurationError, KeysInError
from tidelake.forms.key_errors import keys_in_error
from tidelake.read.snapshot import snapshot

pytestmark = pytest.mark.spark

NUMBERS = {"type": "record", "name": "row", "fields": [{"name": "id", "type": "int"}, {"name": "a", "type": "int"}]}
UNAVAILABLE = "__debezium_unavailable_value"
BROKEN = "eyJvcA=="
"""The base64 of an event that ends too early."""


@pytest.fixture
def changes(tmp_path: Path, spark: SparkSession) -> Changes:
    return Changes(tmp_path, spark)


@pytest.mark.sweep
def test_create_read_update_and_delete_events_make_the_table_but_tombstones_are_only_counted(changes: Changes) -> None:
    changes.put(
        changes.event("r", (1, "x", "y")), changes.event("c", (2, "x", "y")), changes.event("c", (3, "x", None))
    )
    changes.put(changes.event("u", (2, "z", None)), partition=1)
    gone = changes.event("d", before=(3,))
    changes.put(gone, {"key": gone["key"], "value": None})
    wrapped = changes.event("c", (4, "w", "w"))
    wrapped = {name: {"schema": {"type": "struct"}, "payload": part} for name, part in wrapped.items()}
    changes.put(wrapped)
    report = changes.ingest()
    assert (report.null_records, report.quarantined) == (1, 0)
    assert changes.table_of() == {1: ("x", "y"), 2: ("z", None), 4: ("w", "w")}
    # A delete needs no row in `before`: the key of its record says which row it deletes.
    changes.put(changes.event("d", key={"id": 4}), changes.event("d", key={"id": 77}))
    changes.ingest()
    assert set(changes.table_of()) == {1, 2}
    assert set(changes.table_of(changes.times[0].time)) == {1, 2, 4}
    # A tombstone, which lets Kafka forget a key, deletes no row. A key may be wrapped in its schema, like a value.
    gone = changes.event("d", key={"schema": {"type": "struct"}, "payload": {"id": 2}})
    changes.put({"key": {"id": 1}, "value": None}, gone)
    assert changes.ingest().null_records == 1
    assert set(changes.table_of()) == {1}
    assert not changes.validate(full=True).damaged


def test_positions_are_stored_without_a_dictionary(changes: Changes) -> None:
    changes.put(*(changes.event("c", (number, "x", "y")) for number in range(50)))
    changes.ingest()
    encodings = {}
    for file in changes.table.files():
        chunks = pq.read_metadata(changes.table.path.local / file.path).row_group(0)
        for index in range(chunks.num_columns):
            encodings[chunks.column(index).path_in_schema] = set(chunks.column(index).encodings)
    dictionaries = {"PLAIN_DICTIONARY", "RLE_DICTIONARY"}
    assert not encodings["_position.list.element"] & dictionaries
    assert encodings["a"] & dictionaries, "other columns have dictionaries"


def test_a_truncate_empties_the_table(changes: Changes) -> None:
    changes.put(changes.event("c", (1, "x", "y")), changes.event("c", (2, "x", "y")), partition=1)
    changes.put(changes.event("t", key=None), changes.event("c", (3, "x", "y")))
    changes.ingest()
    assert set(changes.table_of()) == {3}


def test_an_older_event_never_overwrites_a_newer_one_and_duplicates_change_nothing(changes: Changes) -> None:
    sent = [
        changes.event("c", (1, "x", "y")),
        changes.event("u", (1, "z", "y")),
        changes.event("c", (2, "x", "y")),
        changes.event("d", before=(2,)),
    ]
    changes.put(*sent)
    changes.ingest()
    assert changes.table_of() == {1: ("z", "y")}
    for part in (sent[:1], sent[2:3], sent, sent):
        changes.put(*part)
        changes.ingest()
        assert changes.table_of() == {1: ("z", "y")}
    changes.compact()
    changes.put(*sent[:3])
    changes.ingest()
    assert changes.table_of() == {1: ("z", "y")}


@pytest.mark.sweep
def test_the_events_of_a_key_change_may_arrive_in_any_order_across_partitions(changes: Changes) -> None:
    changes.put(changes.event("c", (1, "x", "y")))
    changes.ingest()
    changes.lsn += 10
    place: dict[str, Any] = {"lsn": changes.lsn, "committed": changes.lsn - 5}
    moved = changes.event("c", (2, "x", "y"), **place), changes.event("d", before=(1,), **place)
    back = changes.event("d", before=(2,)), changes.event("c", (1, "back", "y"))
    changes.put(moved[0], back[0], partition=1)
    changes.ingest()
    assert set(changes.table_of()) == {1}
    changes.put(moved[1], back[1], partition=0)
    changes.ingest()
    assert changes.table_of() == {1: ("back", "y")}
    # A connector that keys records by other columns sends one event, with the whole row in `before`.
    changes.put(changes.event("u", (9, "back", "y"), before=(1, "back", "y"), key=None), partition=1)
    changes.ingest()
    assert changes.table_of() == {9: ("back", "y")}


@pytest.mark.sweep
def test_an_unavailable_value_keeps_the_old_value_or_is_reported_if_there_is_none(changes: Changes) -> None:
    changes.put(changes.event("c", (1, "big", "y")), changes.event("u", (2, UNAVAILABLE, "y")))
    changes.put(changes.event("u", (1, UNAVAILABLE, "z")))
    changes.ingest()
    assert changes.table_of() == {1: ("big", "z"), 2: (None, "y")}
    assert changes.unknown() == (1, ['{"id":2}: a'])
    changes.compact()
    changes.put(changes.event("u", (2, "found", UNAVAILABLE)), changes.event("u", (1, UNAVAILABLE, None)))
    changes.ingest()
    assert changes.table_of() == {1: ("big", None), 2: ("found", "y")}
    assert changes.unknown() == (0, [])


def test_a_read_warns_on_stderr_about_rows_that_lack_a_value(
    changes: Changes, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    changes.put(changes.event("u", (2, UNAVAILABLE, "y")))
    changes.ingest()
    changes.put(changes.event("u", (3, UNAVAILABLE, UNAVAILABLE)))
    changes.ingest()
    monkeypatch.setattr("tidelake.spark.session.start_session", lambda **_: changes.spark)
    one_row, two_rows = (
        f"{rows} columns whose values the source never stated, shown as null: {named}\n"
        for rows, named in (("1 row has", '{"id":2}: a'), ("2 rows have", '{"id":2}: a; {"id":3}: a, b'))
    )
    capsys.readouterr()
    for at, more, warning in ((changes.times[0], ["--json"], one_row), (changes.times[1], [], two_rows)):
        command = ["tidelake", "read", NAME, "--config", str(changes.file), "--as-of", str(at.time), *more]
        monkeypatch.setattr("sys.argv", command)
        with pytest.raises(SystemExit) as end:
            main()
        shown = capsys.readouterr()
        assert (end.value.code, shown.err.endswith(warning)) == (0, True), shown.err
        if more:
            (document,) = map(json.loads, shown.out.splitlines())
            assert document["rows"] == [{"id": 2, "a": None, "b": "y", "_diff": 1}]


@pytest.mark.sweep
def test_a_repeated_snapshot_becomes_the_difference_as_soon_as_all_partitions_are_read(changes: Changes) -> None:
    changes.configure(messages_per_tick_max=4)
    changes.put(changes.event("r", (1, "x", "y"), snapshot="first", lsn=2000, committed=None))
    changes.put(changes.event("r", (2, "x", "y"), snapshot="last", lsn=2000, committed=None))
    changes.put(*(changes.event("c", (key, "x", "y"), lsn=2000 + key) for key in (3, 4)), partition=1)
    changes.ingest()
    assert set(changes.table_of()) == {1, 2, 3, 4}
    # While the connector was down, rows 2 and 3 were deleted. A transaction that was open when the snapshot was taken
    # had made its changes before the snapshot, but the events come after the snapshot rows: one is about row 1, and one
    # is about row 5, in a partition without snapshot rows.
    changes.lsn = 3000
    changes.put(changes.event("r", (1, "old", "y"), snapshot="first", lsn=3000, committed=None))
    changes.put(changes.event("r", (4, "x", "new"), snapshot="last", lsn=3000, committed=None))
    changes.put(changes.event("u", (1, "open", "y"), lsn=2900, committed=None))
    changes.put(changes.event("c", (5, "open", "y"), lsn=2901, committed=None), partition=1)
    changes.put(*(changes.event("u", (4, "x", str(number))) for number in range(8)), partition=1)
    changes.ingest()
    assert changes.table_of() == {1: ("open", "y"), 4: ("x", "7"), 5: ("open", "y")}
    seen = [set(changes.table_of(binding.time)) for binding in changes.times]
    assert {1, 2, 3, 4} in seen and seen[-1] == {1, 4, 5}
    changes.compact()
    assert not changes.validate(full=True).damaged


def test_a_repeated_snapshot_erases_nothing_before_every_partition_is_read_far_enough(changes: Changes) -> None:
    changes.put(*(changes.event("c", (key, "x", "y")) for key in (1, 2, 3)))
    changes.ingest()
    changes.configure(messages_per_tick_max=1)
    changes.lsn = 3000
    changes.put(changes.event("r", (1, "x", "y"), snapshot="first", lsn=3000, committed=None))
    changes.ingest()
    assert set(changes.table_of()) == {1, 2, 3}
    # The shortest partitions are read first: when the snapshot's last row is read, no tick has seen partition 2 yet.
    changes.put(changes.event("r", (4, "x", "y"), snapshot="last", lsn=3000, committed=None))
    changes.put(changes.event("c", (5, "x", "y")), partition=1)
    changes.put(changes.event("u", (4, "x", "z")), changes.event("u", (4, "x", "zz")), partition=2)
    changes.ingest()
    read = [{1, 2, 3}, {1, 2, 3}, {1, 2, 3, 4}, {1, 2, 3, 4, 5}, {1, 2, 3, 4, 5}, {1, 4, 5}]
    assert [set(changes.table_of(binding.time)) for binding in changes.times] == read
    changes.compact()
    assert [set(changes.table_of(binding.time)) for binding in changes.times[-2:]] == read[-2:]


@pytest.mark.sweep
def test_an_interrupted_snapshot_erases_nothing_but_the_next_complete_snapshot_erases_rows(changes: Changes) -> None:
    changes.put(*(changes.event("c", (key, "x", "y")) for key in (1, 2, 3)))
    changes.ingest()
    first_row = changes.event("r", (4, "x", "y"), snapshot="first", lsn=3000, committed=None)
    changes.put(first_row, changes.event("r", (1, "x", "y"), snapshot="true", lsn=3000, committed=None))
    changes.ingest()
    assert set(changes.table_of()) == {1, 2, 3, 4}
    # The connector starts again on a host whose clock is behind. Row 4, which only the first attempt sent, is gone.
    again: dict[str, Any] = {"lsn": 4000, "committed": None}
    changes.put(changes.event("r", (1, "x", "z"), snapshot="first_in_data_collection", ts_ms=500, **again))
    changes.ingest()
    assert set(changes.table_of()) == {1, 2, 3, 4}
    changes.put(changes.event("r", (5, "x", "y"), snapshot="last_in_data_collection", ts_ms=499, **again))
    changes.put({"key": {"id": 9}, "value_b64": BROKEN}, changes.event("d", key={"id": 9}))
    changes.ingest()
    assert changes.table_of() == {1: ("x", "z"), 5: ("x", "y")}


@pytest.mark.sweep
def test_a_row_that_cannot_be_read_puts_its_key_in_error_until_a_good_value_or_a_delete(changes: Changes) -> None:
    changes.configure(schema=NUMBERS)
    changes.put(changes.event("c", (1, 1)), changes.event("c", (2, 2)), changes.event("c", (3, 3)))
    changes.ingest()
    bad = changes.event("u", (1, "one"))
    broken = {"key": {"id": 2}, "value_b64": BROKEN}
    trailing = {"key": {"id": 3}, "value_b64": "e30geA=="}
    no_key = {"key": None, "value_b64": BROKEN}
    odd = changes.event("x", (3, 3))
    changes.put(bad, broken, trailing, no_key, odd)
    report = changes.ingest()
    assert report.reasons == {"no_key": 1}
    with pytest.raises(KeysInError) as refused:
        changes.rows()
    assert refused.value.keys == ('{"id":1}', '{"id":2}', '{"id":3}')
    assert changes.rows(skip_errors=True) == []
    assert len(changes.rows(changes.times[0].time)) == 3
    changes.put(changes.event("u", (1, 10)), changes.event("d", before=(2,)), changes.event("u", (3, 30)))
    changes.ingest()
    assert [(row["id"], row["a"]) for row in changes.rows()] == [(1, 10), (3, 30)]


@pytest.mark.sweep
def test_a_truncate_and_a_repeated_snapshot_heal_keys_in_error_but_a_merge_does_not(changes: Changes) -> None:
    changes.configure(schema=NUMBERS)
    changes.put(changes.event("c", (1, 1)), changes.event("u", (1, "one")), changes.event("t", key=None))
    changes.ingest()
    assert keys_in_error(changes.collection).count == 0
    assert changes.rows() == []
    changes.put(changes.event("c", (2, 2)), changes.event("c", (3, "three")))
    changes.ingest()
    changes.compact()
    named = ['{"id":3}: a cannot be read as type int']
    assert keys_in_error(changes.collection).first == named
    changes.put(changes.event("r", (2, 20), snapshot="last", lsn=3000, committed=None))
    changes.ingest()
    assert keys_in_error(changes.collection).count == 0
    assert [(row["id"], row["a"]) for row in changes.rows()] == [(2, 20)]


def test_a_snapshot_row_without_a_position_is_in_error_and_does_not_stop_a_tick(changes: Changes) -> None:
    lost = changes.event("r", (1, "x", "y"), snapshot="last", lsn=None)
    nowhere = {"key": {"id": 9}, "value_b64": BROKEN}
    changes.put(lost, changes.event("c", (2, "x", "y"), lsn=None), changes.event("c", (3, "x", "y")))
    changes.put(nowhere, changes.event("d", key={"id": 9}))
    report = changes.ingest()
    assert (report.quarantined, report.values_in_error) == (0, 3)
    unused = "the event cannot be used: no_position"
    assert keys_in_error(changes.collection).first == [f'{{"id":{key}}}: {unused}' for key in (1, 2)]
    assert [row["id"] for row in changes.rows(skip_errors=True)] == [3]


def test_with_declared_positions_no_others_are_used_and_a_snapshot_erases_nothing(
    tmp_path: Path, spark: SparkSession
) -> None:
    lake = Changes(tmp_path, spark, position=["source.file", "source.pos"])
    place: dict[str, Any] = {"file": "binlog.000009", "pos": 4}
    lake.put(*(lake.event("c", (key, "x", "y"), **place) for key in (1, 2)))
    lake.ingest()
    place["pos"] = 5
    lake.put(lake.event("r", (1, "x", "z"), snapshot="first", lsn=3000, **place))
    lake.put(lake.event("r", (3, "x", "y"), snapshot="true", connector="mysql", lsn=None, **place))
    lake.put({"key": {"id": 9}, "value_b64": BROKEN}, lake.event("d", key={"id": 9}, **place))
    lake.put(lake.event("c", (4, "x", "y"), file="binlog.000009"))
    lake.put(lake.event("r", (5, "x", "y"), snapshot="last", lsn=3000, **place))
    assert lake.ingest().quarantined == 0
    assert [error.partition(": ")[0] for error in keys_in_error(lake.collection).first] == ['{"id":4}']
    rows = {row["id"]: (row["a"], row["b"]) for row in lake.rows(skip_errors=True)}
    assert rows == {1: ("x", "z"), 2: ("x", "y"), 3: ("x", "y"), 5: ("x", "y")}


@pytest.mark.sweep
def test_a_number_of_absurd_length_puts_its_key_in_error_and_the_run_continues(
    tmp_path: Path, spark: SparkSession
) -> None:
    scaled = {
        "type": "record",
        "name": "scaled",
        "connect.name": "io.debezium.data.VariableScaleDecimal",
        "fields": [{"name": "scale", "type": "int"}, {"name": "value", "type": "bytes"}],
    }
    amount = {"type": "string", "logicalType": "decimal", "precision": 10, "scale": 2}
    fields = [
        {"name": "id", "type": "int"},
        {"name": "a", "type": ["null", scaled]},
        {"name": "b", "type": ["null", amount]},
    ]
    lake = Changes(tmp_path, spark, schema={"type": "record", "name": "row", "fields": fields})
    lake.put(
        lake.event("c", (1, {"scale": 1_000_000_000, "value": "Bw=="}, "1")),
        lake.event("c", (2, {"scale": -1_000_000_000, "value": "Bw=="}, "1")),
        lake.event("c", (3, None, "1e-999999999")),
        lake.event("c", (4, None, "1E-7")),
        lake.event("c", (5, {"scale": 2, "value": "Bw=="}, "1.5E+3")),
    )
    assert lake.ingest().values_in_error == 4
    (row,) = lake.rows(skip_errors=True)
    assert (row["id"], row["a"], row["b"]) == (5, "0.07", Decimal(1500))


def test_infinity_puts_a_key_in_error_unless_the_column_has_the_type_that_is_sent(
    tmp_path: Path, spark: SparkSession
) -> None:
    kinds = {"Date": "int", "Timestamp": "long", "MicroTimestamp": "long", "ZonedTimestamp": "string"}
    sent = {"Date": -2147472693, "Timestamp": 9223372036825200, "MicroTimestamp": -9223372036832400000}
    sent["ZonedTimestamp"] = "infinity"  # type: ignore[assignment]
    fields = [{"name": "id", "type": "int"}]
    for name, kind in kinds.items():
        time_type = {"type": kind, "connect.name": f"io.debezium.time.{name}"}
        fields += [{"name": name, "type": ["null", time_type]}, {"name": f"{name}_sent", "type": ["null", kind]}]  # type: ignore[dict-item]
    lake = Changes(tmp_path, spark, schema={"type": "record", "name": "row", "fields": fields})
    for key, name in enumerate(kinds):
        infinite, good = lake.event("c", (key,)), lake.event("c", (key + 10,))
        infinite["value"]["after"] = {"id": key, name: sent[name]}
        good["value"]["after"] = {"id": key + 10, f"{name}_sent": sent[name]}
        lake.put(infinite, good)
    assert lake.ingest().values_in_error == 4
    with pytest.raises(KeysInError):
        lake.rows()
    errors = keys_in_error(lake.collection).first
    remedy = "is infinite; to store the value as it is sent, declare the column as plain"
    assert all(any(f"{name} {remedy} {kinds[name]}" in error for error in errors) for name in kinds)
    rows = lake.rows(skip_errors=True)
    assert [rows[at][f"{name}_sent"] for at, name in enumerate(kinds)] == list(sent.values())


@pytest.mark.sweep
def test_an_unusable_event_puts_its_key_in_error_and_is_quarantined_only_if_it_has_no_key(
    changes: Changes,
) -> None:
    changes.put(*(changes.event("c", (key, "x", "y")) for key in range(20)))
    changes.ingest()

    def without(name: str, key: int, op: str = "u") -> dict[str, Any]:
        record = changes.event(op, None if op == "d" else (key, "z", "y"), before=(key,) if op == "d" else None)
        part = record["value"] if name in record["value"] else record["value"]["source"]
        del part[name]
        return record

    def record_of(key: int | None, value: Any) -> dict[str, Any]:
        return {"key": {"id": key}, "value": value}

    no_row = changes.event("u", before=(3,))
    no_row_with_key = changes.event("u", key={"id": 4})
    bad = {
        0: record_of(0, {}),
        1: record_of(1, "null"),
        2: changes.event("x", (2, "z", "y")),
        3: no_row,
        4: no_row_with_key,
        5: without("source", 5),
        6: without("lsn", 6),
        7: without("op", 7),
        8: without("lsn", 8, "d"),
        9: {"key": {"id": 9}, "value": {"schema": {"type": "struct"}, "payload": {}}},
    }
    tombstones = [
        record_of(key, text)
        for key, text in (
            (10, '{"schema":null,"payload":null}'),
            (11, '{"schema": {"type": "struct"}, "payload": null}'),
        )
    ]
    message = {"key": {"prefix": "shop"}, "value": changes.event("m")["value"]}
    no_position = changes.event("t", key=None)
    del no_position["value"]["source"]["lsn"]
    unusable = [record_of(None, {}), message, no_position, record_of(None, "null"), changes.event("u", key=None)]
    changes.put(*bad.values(), *tombstones, *unusable)
    report = changes.ingest()
    assert report.null_records == 2
    assert report.reasons == {"unknown_operation": 3, "no_position": 1, "no_key": 1}
    problem = "the event cannot be used: "
    assert changes.errors() == {
        **dict.fromkeys((0, 1, 7, 9), f"{problem}unknown_operation, op is missing"),
        2: f"{problem}unknown_operation, op is x",
        **dict.fromkeys((3, 4), f"{problem}no_row"),
        **dict.fromkeys((5, 6, 8), f"{problem}no_position"),
    }
    assert set(changes.table_of(skip_errors=True)) == set(range(10, 20))
    changes.put(*(changes.event("d", before=(key,)) for key in range(10)))
    changes.ingest()
    assert set(changes.table_of()) == set(range(10, 20))
    # A key change without a position: the old key is gone, and the new key is in error.
    moved = changes.event("u", (1, "moved", "y"), before=(12, "x", "y"), key=None)
    del moved["value"]["source"]["lsn"]
    changes.put(moved, partition=3)
    changes.ingest()
    assert set(changes.errors()) == {1} and set(changes.table_of(skip_errors=True)) == set(range(10, 20)) - {12}


@pytest.mark.sweep
def test_a_later_event_in_the_same_partition_heals_a_key_in_error_even_if_another_partition_is_ahead(
    changes: Changes,
) -> None:
    def broken(key: int) -> dict[str, Any]:
        return {"key": {"id": key}, "value_b64": "eyJvcA=="}

    changes.put(*(changes.event("u", (1, str(lsn), "y"), lsn=lsn) for lsn in (1000, 2000, 3000)))
    older = [changes.event("c", (key, "x", "y"), lsn=100 + key) for key in (2, 3, 4)]
    changes.put(*older, partition=1)
    changes.ingest()
    # Only this partition has events about the keys 2, 3 and 4, and nothing is known about key 5.
    changes.put(*(broken(key) for key in (2, 3, 4, 5, 2)), partition=1)
    assert changes.ingest().values_in_error == 5
    assert set(changes.errors()) == {2, 3, 4, 5}
    seen = changes.times[-1].time
    changes.put(changes.event("u", (2, "healed", "y"), lsn=200), changes.event("d", before=(3,), lsn=210), partition=1)
    changes.put(broken(4), changes.event("c", (5, "healed", "y"), lsn=220), partition=1)
    changes.ingest()
    assert set(changes.errors()) == {4}
    assert changes.table_of(skip_errors=True) == {1: ("3000", "y"), 2: ("healed", "y"), 5: ("healed", "y")}
    changes.put(changes.event("u", (4, "x", "y"), lsn=99), partition=1)
    changes.ingest()
    assert set(changes.errors()) == {4}, "an event that the connector sent earlier heals nothing"
    changes.compact()
    changes.put(changes.event("u", (4, "healed", "y"), lsn=230), partition=1)
    changes.ingest()
    assert changes.errors() == {} and set(changes.table_of()) == {1, 2, 4, 5}
    assert set(changes.errors(seen)) == {2, 3, 4, 5}


@pytest.mark.sweep
def test_an_error_without_a_position_is_erased_only_by_events_that_certainly_came_later(changes: Changes) -> None:
    broken = [{"key": {"id": key}, "value_b64": "eyJvcA=="} for key in range(9)]
    changes.put(changes.event("r", (1, "x", "y"), snapshot="last", lsn=1000, committed=None))
    changes.put(changes.event("c", (2, "x", "y"), lsn=1100), partition=1)
    changes.ingest()
    # The truncate is in another partition: an error in the same tick, or in a later tick, may have come after it.
    changes.put(changes.event("t", key=None, lsn=5000))
    changes.put(broken[2], partition=1)
    changes.put(broken[3], changes.event("u", (4, "x", "y"), lsn=1200), partition=2)
    changes.ingest()
    assert set(changes.errors()) == {2}
    changes.put(broken[5], partition=1)
    changes.ingest()
    assert set(changes.errors()) == {2, 5}
    changes.put(*(changes.event("c", (key, "x", "y"), lsn=5000 + key) for key in (2, 5)), partition=1)
    changes.ingest()
    assert set(changes.table_of()) == {2, 5}
    # A repeated snapshot: its last row completes it.
    changes.lsn = 6000
    changes.put(changes.event("r", (1, "x", "y"), snapshot="first", lsn=6000, committed=None))
    changes.put(broken[2], broken[5], partition=1)
    changes.ingest()
    assert set(changes.errors()) == {2, 5}
    changes.put(changes.event("r", (2, "x", "z"), snapshot="last", lsn=6000, committed=None), partition=1)
    changes.ingest()
    assert set(changes.errors()) == {5}
    changes.put(changes.event("u", (5, "x", "z")), partition=1)
    changes.ingest()
    assert set(changes.table_of()) == {1, 2, 5}


@pytest.mark.sweep
def test_a_connector_for_another_database_is_refused_and_named_unless_its_position_is_declared(
    tmp_path: Path, spark: SparkSession
) -> None:
    lake = Changes(tmp_path / "refused", spark)
    place: dict[str, Any] = {"connector": "mysql", "file": "binlog.000009", "pos": 4, "place": 0}
    lake.put(lake.event("c", (1, "x", "y"), **place))
    with pytest.raises(ConfigurationError, match="written by the connector 'mysql'"):
        lake.ingest()
    assert lake.table.files() == []
    declared = Changes(tmp_path / "declared", spark, position=["source.file", "source.pos", "source.place"])
    declared.put(
        declared.event("u", (1, "newest", "y"), **(place | {"file": "binlog.000010"})),
        declared.event("u", (1, "new", "y"), **(place | {"pos": 12})),
        declared.event("c", (1, "old", "y"), **place),
    )
    declared.ingest()
    assert declared.table_of() == {1: ("newest", "y")}
    # A snapshot's row without a place in PostgreSQL's log, an unreadable event, and an event without a position.
    read = declared.event("r", (2, "x", "y"), **(place | {"file": "binlog.000011", "snapshot": "true"}))
    del read["value"]["source"]["lsn"]
    declared.put(
        read,
        {"key": {"id": 1}, "value_b64": "eyJvcA=="},
        declared.event("u", (3, "x", "y"), connector="mysql"),
    )
    assert declared.ingest().values_in_error == 2
    assert set(declared.errors()) == {1, 3} and declared.table_of(skip_errors=True) == {2: ("x", "y")}
    declared.put(*(declared.event("u", (key, "z", "y"), **(place | {"file": "binlog.000012"})) for key in (1, 3)))
    declared.ingest()
    assert set(declared.table_of()) == {1, 2, 3}


def test_metadata_and_a_different_placeholder_may_be_configured(tmp_path: Path, spark: SparkSession) -> None:
    lake = Changes(tmp_path, spark, metadata=["offset"], unavailable_value="gone")
    lake.put(lake.event("c", (1, "big", "y")), lake.event("u", (1, "gone", UNAVAILABLE)))
    lake.ingest()
    (row,) = lake.rows()
    assert (row["a"], row["b"], row["kafka_offset"]) == ("big", UNAVAILABLE, 1)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"key": None}, "key: does not name the key's columns"),
        ({"key": "nope"}, "key: the schema has no column 'nope'"),
        ({"position": "source.pos"}, "position: does not name fields of an event"),
        ({"position": ["after.id"]}, "position: does not name fields of an event"),
        ({"schema": {"type": "array", "items": "int"}}, "it is neither the record of a row"),
        ({"schema": {**ROW, "fields": [{"name": "id", "type": ["int", "string"]}]}}, "a union of several types"),
    ],
)
def test_settings_that_make_no_sense_are_refused(
    tmp_path: Path, spark: SparkSession, more: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        Changes(tmp_path, spark, **more)
    assert not (tmp_path / "store").exists(), NAME


@pytest.mark.sweep
@pytest.mark.parametrize("key", [["payload"], ["schema", "payload"]])
def test_the_columns_of_a_key_may_be_called_schema_and_payload(
    tmp_path: Path, spark: SparkSession, key: list[str]
) -> None:
    names = ("schema", "payload", "v")
    fields = [{"name": name, "type": "string" if name in key else ["null", "string"]} for name in names]
    lake = Changes(tmp_path, spark, key=key, schema={"type": "record", "name": "row", "fields": fields})

    def about(op: str, payload: str, **more: str) -> dict[str, Any]:
        row, record = {"schema": "s", "payload": payload, **more}, lake.event(op)
        after = None if op == "d" else row
        return {"key": {name: row[name] for name in key}, "value": record["value"] | {"after": after}}

    def around(part: Any) -> dict[str, Any]:
        return {"schema": {"type": "struct"}, "payload": part}

    lake.put(*(about("c", payload, v="x") for payload in "abcd"))
    lake.put({name: around(part) for name, part in about("c", "e", v="y").items()})
    lake.ingest()
    # Only the record's key says which row is deleted or cannot be read.
    wrapped = about("d", "b")
    lake.put(about("d", "a"), wrapped | {"key": around(wrapped["key"])}, {"key": about("d", "c")["key"], "value": "zz"})
    lake.put({"key": around(about("d", "d")["key"]), "value": "zz"})
    report = lake.ingest()
    assert (report.quarantined, report.values_in_error) == (0, 2)
    rows = [row.asDict() for row in snapshot(spark, lake.collection, None, skip_errors=True).contents.collect()]
    assert [(row["payload"], row["v"]) for row in rows] == [("e", "y")]
