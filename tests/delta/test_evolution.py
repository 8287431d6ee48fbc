"""Columns that appear: new ones that may be null come by a commit of their own, and nothing else ever changes."""

from __future__ import annotations

import io
from base64 import b64encode
from pathlib import Path
from typing import Any

import fastavro
import pytest
from pyspark.sql import SparkSession

from jobs import compact, current
from tests.delta.lake import NAME
from tests.delta.raw_lake import RawLake
from tidelake.delta.catalog import Catalog
from tidelake.delta.layout import Store
from tidelake.delta.quarantine import quarantine_rows
from tidelake.errors import ConfigurationError

pytestmark = pytest.mark.spark

TEXT = ["null", "string"]


def record(*fields: tuple[str, Any], **defaults: Any) -> dict[str, Any]:
    stated = [
        {"name": one, "type": kind} | ({"default": defaults[one]} if one in defaults else {}) for one, kind in fields
    ]
    return {"type": "record", "name": "visit", "fields": stated}


LATER = (("id", "long"), ("seconds", ["null", "double"]), ("page", TEXT))
VISIT = record(("id", "long"), ("page", TEXT))
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
    with pytest.raises(ConfigurationError, match=r"(?s)the column 'seconds' is new.*hint: `evolution: additive` lets"):
        lake.ingest()
    assert lake.table.version == before
    lake.configure(evolution="additive")
    lake.put({"id": 2, "page": "b", "seconds": 0.5}, {"id": 3})
    lake.ingest()
    assert shown(lake) == [(1, "a", None), (2, "b", 0.5), (3, None, None)]
    assert shown(lake, first) == [(1, "a", None)]
    history = lake.table.version - before
    assert history == 2  # the column, then the tick

    current.run(spark, lake.settings)
    lake.configure(schema=record(*LATER, ("from", TEXT)))
    lake.put({"id": 4, "from": "d"})
    lake.ingest()
    for job in (compact, current):
        assert job.run(spark, lake.settings).ok
    assert shown(lake)[-1] == (4, None, None, "d")
    assert shown(lake, first) == [(1, "a", None, None)]
    built = spark.read.format("delta").load(str(lake.collection.paths.current))
    assert sorted(built.columns) == ["_diff", "from", "id", "page", "seconds"] and built.count() == 4


def test_what_is_not_a_new_column_that_may_be_null_is_refused_by_its_name(tmp_path: Path, spark: SparkSession) -> None:
    lake = RawLake(tmp_path, spark, evolution="additive", envelope="upsert", key="id")
    lake.put({"key": {"id": 1}, "value": {"id": 1, "page": "a"}})
    lake.ingest()
    for schema, reason in (
        (record(("id", "long"), ("other", TEXT)), "'page' is refused: it is missing"),
        (record(("id", "long"), ("page", "string")), "'page' is refused: it has another type"),
        (record(("id", "int"), ("page", TEXT)), "'id' is refused: it has another type"),
        (record(("id", "long"), ("page", TEXT), ("n", "int")), "'n' is refused: it is new and may not be null"),
    ):
        lake.configure(schema=schema)
        with pytest.raises(ConfigurationError, match=reason):
            lake.ingest()
    lake.configure(schema=WIDER, key=["id", "page"])
    with pytest.raises(ConfigurationError, match="a collection's key is fixed"):
        lake.ingest()


def test_a_writer_s_new_column_appears_and_one_that_does_not_fit_is_refused(
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
    assert [one["name"] for one in lake.collection.entry.record_schema["fields"]] == ["id", "page", "seconds", "n"]
    assert shown(lake) == [
        (1, "a", None, None),
        (2, "b", 0.5, None),
        (3, "c", None, None),
        (4, None, 1.0, None),
        (5, None, None, 8),
    ]
    refused = {row["offset"]: row["detail"] for row in quarantine_rows(lake.collection)}
    assert "'address' is refused: it is new while 'page' is gone" in refused[5]
    assert "'m' is refused: it is new, may not be null and has no default" in refused[6]
    assert "'id' is refused: it was written as another type" in refused[7]
    lake.configure(evolution="none", schema_ids={1: VISIT})
    with pytest.raises(ConfigurationError, match="the column 'seconds' is there by now"):
        lake.ingest()


def test_bare_avro_is_read_as_the_settings_say_and_keeps_a_column_that_they_say_no_more(
    tmp_path: Path, spark: SparkSession
) -> None:
    lake = RawLake(tmp_path, spark, evolution="additive", format="avro", schema=WIDER)
    for schema in (WIDER, record(*LATER, ("n", ["null", "int"])), WIDER):
        lake.configure(schema=schema)
        lake.put(written(schema, {"id": len(schema["fields"]), "seconds": 0.5, "page": "a", "n": 7}))
        assert lake.ingest().quarantined == 0
    assert [tuple(row.values()) for row in lake.rows()] == [(3, 0.5, "a", None, 2), (4, 0.5, "a", 7, 1)]


def test_a_compaction_that_knows_of_no_new_column_does_not_lose_it(tmp_path: Path, spark: SparkSession) -> None:
    from tidelake.delta.compaction import merge_runs

    lake = RawLake(tmp_path, spark, evolution="additive")
    lake.put({"id": 1, "page": "a"})
    lake.ingest()
    stale = Catalog(Store(lake.settings.store)).find(NAME)
    lake.configure(schema=WIDER)
    lake.put({"id": 2, "page": "b", "seconds": 0.5})
    lake.ingest()
    assert merge_runs(spark, stale, stale.entry.since, full=True, rows_max=10**6).merges == 1
    assert shown(lake) == [(1, "a", None), (2, "b", 0.5)]
