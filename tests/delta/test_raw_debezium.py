"""Change events as Debezium writes them: each sentence that is promised of them, with its test."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.delta.lake import NAME
from tests.delta.raw_lake import RawLake
from tidelake.delta.snapshot import snapshot, unknown_texts
from tidelake.errors import ConfigurationError, KeysInError

pytestmark = pytest.mark.spark

ROW = {
    "type": "record",
    "name": "row",
    "fields": [{"name": "id", "type": "int"}, *({"name": name, "type": ["null", "string"]} for name in ("a", "b"))],
}
UNAVAILABLE = "__debezium_unavailable_value"


class Changes(RawLake):
    """A collection of change events; the log's places rise by themselves."""

    def __init__(self, root: Path, spark: SparkSession, **more: Any) -> None:
        super().__init__(root, spark, **{"envelope": "debezium", "key": "id", "schema": ROW, **more})
        self.lsn = 1000

    def event(
        self, op: str, row: tuple[Any, ...] | None = None, before: tuple[Any, ...] | None = None, **more: Any
    ) -> dict[str, Any]:
        """A record with an event in a transaction of its own; `key` and `lsn` may be given, and `source` fields."""
        self.lsn += 10
        lsn = more.pop("lsn", self.lsn)
        rows = {
            name: None if values is None else dict(zip(("id", "a", "b"), values, strict=False))
            for name, values in (("before", before), ("after", row))
        }
        key = more.pop("key", {"id": (row or before or (None,))[0]})
        committed = more.pop("committed", lsn - 5)
        processed = more.pop("ts_ms", self.lsn)
        source = {
            "connector": "postgresql",
            "lsn": lsn,
            "sequence": json.dumps([committed and str(committed), str(lsn)]),
        }
        source |= {"snapshot": "false", **more}
        return {"key": key, "value": {**rows, "source": source, "op": op, "ts_ms": processed}}

    def table_of(self, as_of: int | None = None) -> dict[Any, tuple[Any, ...]]:
        """The contents by key."""
        return {row["id"]: (row["a"], row["b"]) for row in self.rows(as_of)}

    def unknown(self) -> tuple[int, list[str]]:
        """The rows that lack a value which nobody has stated."""
        return unknown_texts(snapshot(self.spark, self.collection))


@pytest.fixture
def changes(tmp_path: Path, spark: SparkSession) -> Changes:
    return Changes(tmp_path, spark)


def test_creates_reads_updates_and_deletes_make_the_table_and_tombstones_are_counted(changes: Changes) -> None:
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
    # No row before is needed: the key of a record names what is deleted.
    changes.put(changes.event("d", key={"id": 4}), changes.event("d", key={"id": 77}))
    changes.ingest()
    assert set(changes.table_of()) == {1, 2}
    assert set(changes.table_of(changes.times[0].time)) == {1, 2, 4}
    assert not changes.validate(full=True).damaged


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


def test_a_key_changes_in_any_order_across_partitions(changes: Changes) -> None:
    changes.put(changes.event("c", (1, "x", "y")))
    changes.ingest()
    changes.lsn += 10
    place = {"lsn": changes.lsn, "committed": changes.lsn - 5}
    moved = changes.event("c", (2, "x", "y"), **place), changes.event("d", before=(1,), **place)
    back = changes.event("d", before=(2,)), changes.event("c", (1, "back", "y"))
    changes.put(moved[0], back[0], partition=1)
    changes.ingest()
    assert set(changes.table_of()) == {1}
    changes.put(moved[1], back[1], partition=0)
    changes.ingest()
    assert changes.table_of() == {1: ("back", "y")}
    # A connector that keys records by other columns sends one event, with the whole row before.
    changes.put(changes.event("u", (9, "back", "y"), before=(1, "back", "y"), key=None), partition=1)
    changes.ingest()
    assert changes.table_of() == {9: ("back", "y")}


def test_an_unavailable_value_keeps_the_old_one_and_is_reported_when_none_is_known(changes: Changes) -> None:
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


def test_a_repeated_snapshot_becomes_the_difference_once_all_partitions_are_read(changes: Changes) -> None:
    changes.configure(messages_per_tick_max=4)
    changes.put(changes.event("r", (1, "x", "y"), snapshot="first", lsn=2000, committed=None))
    changes.put(changes.event("r", (2, "x", "y"), snapshot="last", lsn=2000, committed=None))
    changes.put(*(changes.event("c", (one, "x", "y"), lsn=2000 + one) for one in (3, 4)), partition=1)
    changes.ingest()
    assert set(changes.table_of()) == {1, 2, 3, 4}
    # While the connector was away, 2 and 3 went. A transaction that was open when the snapshot was taken has written
    # before it, and came after it: of 1, and of 5 in a partition that has no row of the snapshot.
    changes.lsn = 3000
    changes.put(changes.event("r", (1, "old", "y"), snapshot="first", lsn=3000, committed=None))
    changes.put(changes.event("r", (4, "x", "new"), snapshot="last", lsn=3000, committed=None))
    changes.put(changes.event("u", (1, "open", "y"), lsn=2900, committed=None))
    changes.put(changes.event("c", (5, "open", "y"), lsn=2901, committed=None), partition=1)
    changes.put(*(changes.event("u", (4, "x", str(one))) for one in range(8)), partition=1)
    changes.ingest()
    assert changes.table_of() == {1: ("open", "y"), 4: ("x", "7"), 5: ("open", "y")}
    seen = [set(changes.table_of(one.time)) for one in changes.times]
    assert {1, 2, 3, 4} in seen and seen[-1] == {1, 4, 5}
    changes.compact()
    assert not changes.validate(full=True).damaged


def test_a_row_that_cannot_be_read_puts_its_key_in_error_until_a_good_value_or_a_delete(changes: Changes) -> None:
    record = {"type": "record", "name": "row", "fields": [{"name": "id", "type": "int"}, {"name": "a", "type": "int"}]}
    changes.configure(schema=record)
    changes.put(changes.event("c", (1, 1)), changes.event("c", (2, 2)), changes.event("c", (3, 3)))
    changes.ingest()
    bad = changes.event("u", (1, "one"))
    broken = {"key": {"id": 2}, "value_b64": "eyJvcA=="}
    left_over = {"key": {"id": 3}, "value_b64": "e30geA=="}
    no_key = {"key": None, "value_b64": "eyJvcA=="}
    odd = changes.event("x", (3, 3))
    changes.put(bad, broken, left_over, no_key, odd)
    report = changes.ingest()
    assert report.reasons == {"no_key": 1, "unknown_operation": 1}
    with pytest.raises(KeysInError) as refused:
        changes.rows()
    assert refused.value.keys == ('{"id":1}', '{"id":2}', '{"id":3}')
    assert changes.rows(skip_errors=True) == []
    assert len(changes.rows(changes.times[0].time)) == 3
    changes.put(changes.event("u", (1, 10)), changes.event("d", before=(2,)), changes.event("u", (3, 30)))
    changes.ingest()
    assert [(row["id"], row["a"]) for row in changes.rows()] == [(1, 10), (3, 30)]


def test_another_connector_is_refused_by_name_unless_its_position_is_declared(
    tmp_path: Path, spark: SparkSession
) -> None:
    lake = Changes(tmp_path / "refused", spark)
    place = {"connector": "mysql", "file": "binlog.000009", "pos": 4, "place": 0}
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


def test_metadata_and_a_placeholder_of_ones_own_may_be_asked_for(tmp_path: Path, spark: SparkSession) -> None:
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
