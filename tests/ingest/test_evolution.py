"""New columns: nullable columns are added in a commit of their own, and no other change is accepted."""

from __future__ import annotations

import io
from base64 import b64encode
from pathlib import Path
from typing import Any

import fastavro
import pytest
from pyspark.sql import SparkSession

from jobs import compact, current, ingest
from tests.lakes.connect_schemas import OPTIONAL, connect_row
from tests.lakes.lake import NAME
from tests.lakes.published import table_of
from tests.lakes.raw_lake import RawLake
from tests.sweeps import swept
from tidelake.catalog.catalog import Catalog
from tidelake.errors import ConfigurationError
from tidelake.forms.key_errors import keys_in_error
from tidelake.store.failpoints import on_reach
from tidelake.store.layout import Store
from tidelake.store.quarantine import quarantine_rows

pytestmark = pytest.mark.spark

TEXT = ["null", "string"]


def record(*fields: tuple[str, Any], **defaults: Any) -> dict[str, Any]:
    columns = [
        {"name": name, "type": kind} | ({"default": defaults[name]} if name in defaults else {})
        for name, kind in fields
    ]
    return {"type": "record", "name": "visit", "fields": columns}


LATER = (("id", "long"), ("seconds", ["null", "double"]), ("page", TEXT))
VISIT_FIELDS = (("id", "long"), ("page", TEXT))
VISIT = record(*VISIT_FIELDS)
WIDER = record(*LATER)


def written(schema: dict[str, Any], row: dict[str, Any], header: bytes = b"") -> dict[str, Any]:
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, fastavro.parse_schema(schema), row)
    return {"value_b64": b64encode(header + buffer.getvalue()).decode("ascii")}


def framed(schema_id: int, schema: dict[str, Any], row: dict[str, Any]) -> dict[str, Any]:
    return written(schema, row, b"\x00" + schema_id.to_bytes(4, "big"))


def shown(lake: RawLake, as_of: int | None = None) -> list[tuple[Any, ...]]:
    return [tuple(value for name, value in row.items() if name != "_diff") for row in lake.rows(as_of)]


def test_a_column_that_is_added_to_the_schema_appears_and_earlier_rows_are_null_in_it(
    tmp_path: Path, spark: SparkSession
) -> None:
    lake = RawLake(tmp_path, spark)
    lake.put({"id": 1, "page": "a"})
    lake.ingest()
    before, first = lake.table.version, lake.times[-1].time
    lake.configure(schema=WIDER)
    with pytest.raises(
        ConfigurationError, match=r"(?s)the column 'seconds' is new.*hint: `evolution: additive` allows"
    ):
        lake.ingest()
    assert lake.table.version == before
    lake.configure(evolution="additive")
    lake.put({"id": 2, "page": "b", "seconds": 0.5}, {"id": 3})
    lake.ingest()
    assert shown(lake) == [(1, "a", None), (2, "b", 0.5), (3, None, None)]
    assert shown(lake, first) == [(1, "a", None)]
    commits = lake.table.version - before
    assert commits == 2  # the column, then the tick

    current.run(spark, lake.settings)
    lake.configure(schema=record(*LATER, ("from", TEXT)))
    lake.put({"id": 4, "from": "d"})
    lake.ingest()
    for job in (compact, current):
        assert job.run(spark, lake.settings).ok
    assert shown(lake)[-1] == (4, None, None, "d")
    assert shown(lake, first) == [(1, "a", None, None)]
    built = spark.read.format("delta").load(str(table_of(lake.collection)))
    assert sorted(built.columns) == ["_diff", "from", "id", "page", "seconds"] and built.count() == 4


def test_a_change_other_than_a_new_nullable_column_is_refused_and_named(tmp_path: Path, spark: SparkSession) -> None:
    lake = RawLake(tmp_path, spark, evolution="additive", envelope="upsert", key="id")
    lake.put({"key": {"id": 1}, "value": {"id": 1, "page": "a"}})
    lake.ingest()
    for schema, reason in (
        (record(("id", "long"), ("other", TEXT)), "'page' is refused: it is missing"),
        (record(("id", "long"), ("page", "string")), "'page' is refused: its type or its nullability"),
        (record(("id", "int"), ("page", TEXT)), "'id' is refused: its type or its nullability"),
        (record(("id", "long"), ("page", TEXT), ("n", "int")), "'n' is refused: it is new and cannot be null"),
        (
            record(("id", "long"), ("page", TEXT), ("n", "int"), n=7),
            "(?s)'n' is refused.*hint: make the new column nullable",
        ),
    ):
        lake.configure(schema=schema)
        with pytest.raises(ConfigurationError, match=reason):
            lake.ingest()
    lake.configure(schema=WIDER, key=["id", "page"])
    with pytest.raises(ConfigurationError, match="a collection's key is fixed"):
        lake.ingest()


def test_a_new_column_in_a_writers_schema_appears_and_a_column_that_does_not_fit_is_refused(
    tmp_path: Path, spark: SparkSession
) -> None:
    older = record(("seconds", "int"), ("id", "int"))
    address = {**record(("town", "string")), "name": "address"}
    numbered = record(*LATER, ("n", "int"))
    moved = record(("id", "long"), ("address", ["null", address]), address=None)
    lake = RawLake(tmp_path, spark, evolution="additive", format="avro", encoding="confluent", schema_ids={1: VISIT})
    lake.put(framed(1, VISIT, {"id": 1, "page": "a"}))
    lake.ingest()
    lake.configure(
        schema_ids={
            0: older,
            1: VISIT,
            2: WIDER,
            4: numbered | {"fields": [*numbered["fields"][:-1], {"name": "n", "type": "int", "default": 7}]},
            5: moved,
            6: record(*LATER, ("m", "int")),
            7: record(("id", "string"), ("page", TEXT)),
        }
    )
    lake.put(
        framed(2, WIDER, {"id": 2, "page": "b", "seconds": 0.5}),
        framed(1, VISIT, {"id": 3, "page": "c"}),
        framed(0, older, {"id": 4, "seconds": 1}),
        framed(4, numbered, {"id": 5, "page": None, "seconds": None, "n": 8}),
        framed(5, moved, {"id": 6, "address": {"town": "x"}}),
        *(framed(schema_id, VISIT, {"id": 9, "page": None}) for schema_id in (6, 7)),
    )
    lake.ingest()
    assert [field["name"] for field in lake.collection.entry.record_schema["fields"]] == ["id", "page", "seconds", "n"]
    assert shown(lake) == [
        (1, "a", None, None),
        (2, "b", 0.5, None),
        (3, "c", None, None),
        (4, None, 1.0, None),
        (5, None, None, 8),
    ]
    refused = {row["offset"]: row["detail"] for row in quarantine_rows(lake.collection)}
    assert "'address' is refused: it is new, but 'page' is missing" in refused[5]
    assert "'m' is refused: it is new, cannot be null and has no default" in refused[6]
    assert "'id' is refused: it was written as a different type" in refused[7]
    lake.configure(evolution="none", schema_ids={1: VISIT})
    with pytest.raises(
        ConfigurationError,
        match=r"(?s)the column 'seconds' is missing, which was added.*hint: add the column, or set `evolution",
    ):
        lake.ingest()


def wrapped(row: dict[str, Any], /, **columns: Any) -> dict[str, Any]:
    return {"value": {"schema": connect_row(**columns), "payload": row}}


@pytest.mark.sweep
def test_a_schema_around_json_adds_a_column_and_is_refused_if_it_is_not_additive(
    tmp_path: Path, spark: SparkSession
) -> None:
    columns = {"id": {"type": "int64", "optional": False}, "page": OPTIONAL}
    wider = columns | {"seconds": {"type": "double", "optional": True}}
    renamed = {"id": columns["id"], "other": OPTIONAL}
    lake = RawLake(tmp_path / "events", spark, evolution="additive")
    lake.put(
        {"id": 1, "page": "a"},
        wrapped({"id": 2, "page": "b", "seconds": 0.5}, **wider),
        wrapped({"id": 3, "page": "c"}, **columns),
        wrapped({"id": 4, "page": "d", "n": 7}, **wider, n={"type": "int32", "optional": False, "default": 1}),
        {"value": {"schema": None, "payload": {"id": 5, "page": "e"}}},
        wrapped({"id": 9, "other": "x"}, **renamed),
        wrapped({"id": 9, "page": None, "m": 1}, **wider, m={"type": "int32", "optional": False}),
        *({"value": {"schema": schema, "payload": {"id": 9}}} for schema in (7, {"fields": [1]}, {"type": "struct"})),
        {"value": f'{{"schema":{"[" * 2000}{"]" * 2000},"payload":{{"id":9}}}}'},
    )
    lake.ingest()
    assert [field["name"] for field in lake.collection.entry.record_schema["fields"]] == ["id", "page", "seconds", "n"]
    assert shown(lake) == [
        (1, "a", None, None),
        (2, "b", 0.5, None),
        (3, "c", None, None),
        (4, "d", None, 7),
        (5, "e", None, None),
    ]
    rows = quarantine_rows(lake.collection)
    refused = [(at, "schema_not_resolved") for at in range(5, 10)]
    assert [(row["offset"], row["reason"]) for row in rows] == [*refused, (10, "undecodable")]
    assert "'other' is refused: it is new, but 'page' is missing" in rows[0]["detail"]
    assert "'m' is refused: it is new, cannot be null and has no default" in rows[1]["detail"]

    upserts = RawLake(tmp_path / "upserts", spark, evolution="additive", envelope="upsert", key="id")
    upserts.put(
        {"key": {"id": 1}, **wrapped({"id": 1, "page": "a", "seconds": 0.5}, **wider)},
        {"key": wrapped({"id": 2}, id=columns["id"])["value"], **wrapped({"id": 2, "page": "b"}, **columns)},
        {"key": {"id": 3}, **wrapped({"id": 3, "other": "x"}, **renamed)},
    )
    upserts.ingest()
    assert [tuple(row.values()) for row in upserts.rows(skip_errors=True)] == [(1, "a", 0.5, 1), (2, "b", None, 1)]
    (fault,) = keys_in_error(upserts.collection).first
    assert fault.startswith('{"id":3}: the value cannot be used: schema_not_resolved, its schema is not additive:')
    assert fault.endswith("'other' is refused: it is new, but 'page' is missing, so it may be a rename (prices:0:2)")


def test_columns_called_schema_and_payload_are_ordinary_columns(tmp_path: Path, spark: SparkSession) -> None:
    inner = {**record(("fields", TEXT)), "name": "inner"}
    schema = record(("schema", inner), ("payload", TEXT))
    lake = RawLake(tmp_path, spark, evolution="additive", schema=schema)
    lake.put({"value": {"schema": {"fields": "a"}, "payload": "b"}})
    assert lake.ingest().quarantined == 0
    assert shown(lake) == [({"fields": "a"}, "b")]


def test_bare_avro_is_read_as_the_settings_say_and_a_column_that_is_no_longer_in_them_is_kept(
    tmp_path: Path, spark: SparkSession
) -> None:
    lake = RawLake(tmp_path, spark, evolution="additive", format="avro", schema=WIDER)
    for schema in (WIDER, record(*LATER, ("n", ["null", "int"])), WIDER):
        lake.configure(schema=schema)
        lake.put(written(schema, {"id": len(schema["fields"]), "seconds": 0.5, "page": "a", "n": 7}))
        assert lake.ingest().quarantined == 0
    assert [tuple(row.values()) for row in lake.rows()] == [(3, 0.5, "a", None, 2), (4, 0.5, "a", 7, 1)]


@pytest.mark.sweep
def test_a_compaction_that_does_not_know_a_new_column_does_not_lose_it(tmp_path: Path, spark: SparkSession) -> None:
    from tidelake.compact.compaction import merge_runs

    lake = RawLake(tmp_path, spark, evolution="additive")
    lake.put({"id": 1, "page": "a"})
    lake.ingest()
    stale = Catalog(Store(lake.settings.store)).find(NAME)
    lake.configure(schema=WIDER)
    lake.put({"id": 2, "page": "b", "seconds": 0.5})
    lake.ingest()
    assert merge_runs(spark, stale, full=True, rows_max=10**6).merges == 1
    assert shown(lake) == [(1, "a", None), (2, "b", 0.5)]


@pytest.mark.parametrize(
    "place",
    swept(
        [
            "columns.after_catalog",
            "raw.after_write",
            "columns.after_commit",
            "raw.before_write",
            "commit.before_call.updates",
        ],
        ["raw.after_write"],
    ),
)
def test_two_concurrent_ingests_that_each_add_a_column_add_both_and_read_no_record_twice(
    tmp_path: Path, spark: SparkSession, place: str
) -> None:
    lake = RawLake(tmp_path, spark)
    lake.put({"id": 1, "page": "a"})
    lake.ingest()
    lake.configure(evolution="additive", schema=record(*VISIT_FIELDS, ("from", TEXT)))
    others = lake.settings
    lake.configure(schema=record(*VISIT_FIELDS, ("to", TEXT)))
    lake.put({"id": 2, "from": "x", "to": "y"})

    met: list[str] = []

    def meanwhile(reached: str) -> None:
        if reached == place:
            on_reach(None)
            assert ingest.run(spark, others).ok
            met.append(reached)

    on_reach(meanwhile)
    try:
        lake.ingest()
    finally:
        on_reach(None)
    assert met == [place]
    lake.put({"id": 3, "from": "v", "to": "w"})
    lake.ingest()
    assert set(lake.table.schema().names) >= {"from", "to"}
    assert [row["id"] for row in lake.rows()] == [1, 2, 3]
    assert [row for row in lake.rows() if row["id"] == 3] == [
        {"id": 3, "page": None, "from": "v", "to": "w", "_diff": 1}
    ]
    assert [binding.records for binding in lake.times] == [1, 1, 1]


def test_a_column_that_makes_wrapped_values_ambiguous_is_refused(tmp_path: Path, spark: SparkSession) -> None:
    lake = RawLake(tmp_path, spark, evolution="additive", schema=VISIT)
    own = {"value": {"id": 4, "page": "o", "schema": "v1", "payload": "x"}}
    columns = {"id": {"type": "int64", "optional": False}, "page": OPTIONAL}
    lake.put(wrapped({"id": 1, "page": "a"}, **columns))
    lake.put(wrapped({"id": 2, "page": "b", "payload": "p"}, **columns, payload=OPTIONAL), own)
    lake.put(wrapped({"id": 3, "page": "c", "more": "m"}, **columns, more=OPTIONAL))
    lake.put({"value": '{"schema":"v1","payload":{"id":5}}'}, {"value": '{"schema":"v1","payload":"x","id":6}'})
    lake.ingest()
    assert shown(lake) == [(1, "a", None), (3, "c", "m"), (4, "o", None), (6, None, None)]
    first, second = sorted(quarantine_rows(lake.collection), key=lambda row: row["offset"])
    assert first["reason"] == second["reason"] == "schema_not_resolved"
    assert "column 'payload' is refused: it is new, but would make" in first["detail"]
    assert "not additive" in second["detail"]
    # If the settings have a column `schema` or `payload`, nothing is unwrapped: what looks like a schema is a value.
    lake.configure(schema=record(*VISIT_FIELDS, ("schema", TEXT), ("payload", TEXT)))
    lake.put(own, {"value": {"schema": "v2", "payload": "x", "id": 7}})
    lake.ingest()
    assert [row["id"] for row in lake.rows() if row["payload"] == "x"] == [4, 7]
