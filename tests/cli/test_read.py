"""`tidelake read` prints contents AS OF a time without loss, and names the predicate or the file that stops it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.cli.commands import call
from tests.lakes.every_type import ALL, everything
from tests.lakes.lake import NAME, Lake
from tidelake.codec.avro import AvroCodec
from tidelake.codec.typed import encode_data
from tidelake.errors import DamagedTable, PredicateRefused, TidelakeError, UpperError
from tidelake.protocol.json_values import parse
from tidelake.protocol.message import Progress, Updates


@pytest.mark.spark
def test_read_shows_contents_at_a_time(contradicted: Lake) -> None:
    config = ("--config", str(contradicted.file))
    document = json.loads(call("read", "prices", "--json", *config))
    assert (document["as_of"], document["since"], document["upper"]) == (2, 0, 3)
    assert document["rows"] == [{"id": 1, "price": 5, "_diff": 1}, {"id": 1, "price": 6, "_diff": 2}]
    narrow = json.loads(
        call("read", "prices", "--as-of", "2", "--columns", "id", "--where", "price > 4", "--json", *config)
    )
    assert narrow["rows"] == [{"id": 1, "_diff": 3}]
    assert json.loads(call("read", "prices", "--limit", "1", "--json", *config))["rows"] == document["rows"][:1]
    assert "AS OF 1" in call("read", "prices", "--as-of", "1", *config)
    with pytest.raises(UpperError):
        call("read", "prices", "--as-of", "3", *config)
    with pytest.raises(TidelakeError, match="has no column 'nope'"):
        call("read", "prices", "--columns", "nope", *config)
    with pytest.raises(TidelakeError, match="the predicate"):
        call("read", "prices", "--where", "price >", *config)


@pytest.mark.spark
def test_read_prints_every_type_without_loss_and_in_a_form_that_a_discard_accepts(
    tmp_path: Path, spark: SparkSession
) -> None:
    at = {"type": "record", "name": "at", "fields": [{"name": "raw", "type": ["null", "bytes"]}]}
    nested = {"type": "array", "items": [at, "string"]}
    schema = {**ALL, "fields": [*ALL["fields"], {"name": "nested", "type": nested}]}
    data = everything(
        d=float("nan"),
        f=float("-inf"),
        us=2**63 - 1,
        day=2**31 - 1,
        dec=b"\x00",
        nested=[{"at": {"raw": b"\xff"}}, {"string": "ż"}, {"at": {"raw": None}}],
    )
    lake = Lake(tmp_path, spark, schema=schema)
    codec = AvroCodec(schema)
    lake.send(codec.encode(Updates([(data, 1, 1)])), codec.encode(Progress([0], [2], [(1, 1)])))
    assert lake.run().upper == 2
    config = ("--config", str(lake.file))
    text = call("read", NAME, "--json", *config)
    (row,) = json.loads(text, parse_float=str)["rows"]
    assert (row["d"], row["f"], row["dec"], row["again"]) == ("NaN", "-Infinity", "0.000", None)
    assert (row["us"], row["day"]) == ("+294247-01-10T04:00:54.775807Z", "+5881580-07-11")
    assert (row["by"], row["fix"]) == ({"b64": "AP8="}, {"b64": "YWJjZA=="})
    assert [item["at"] for item in row["nested"]] == [{"raw": {"b64": "/w=="}}, None, {"raw": None}]
    assert row["several"] == {"int": None, "long": 5, "string": None, "place": None}
    (typed,) = parse(text)["rows"]
    del typed["_diff"]
    assert encode_data(schema, typed) == codec.encode_data(data)
    table = call("read", NAME, "--columns", "by,dec,nested,by", *config)
    assert "00 ff" in table
    assert "0.000" in table
    assert "ż" in table


@pytest.mark.spark
@pytest.mark.parametrize(
    ("engine", "where", "message"),
    [
        ("spark", "1 / (id - 1) > 0", "Division by zero"),
        ("spark", "cast(concat('a', id) as int) > 0", "CAST_INVALID_INPUT"),
        ("spark", "element_at(array(id), 2) > 0", "INVALID_ARRAY_INDEX"),
        ("duckdb", "cast(concat('a', id) as int) > 0", "Could not convert string 'a1'"),
    ],
)
def test_a_predicate_that_fails_on_the_data_is_reported_with_the_reason(
    contradicted: Lake, engine: str, where: str, message: str
) -> None:
    with pytest.raises(PredicateRefused, match=message) as caught:
        call("read", NAME, "--where", where, "--engine", engine, "--config", str(contradicted.file))
    assert "the predicate" in str(caught.value)
    assert str(caught.value).count("\n") == 1


@pytest.mark.spark
def test_damage_to_a_file_is_reported_and_not_blamed_on_the_predicate(contradicted: Lake) -> None:
    for file in contradicted.collection.paths.updates.local.rglob("*.parquet"):
        file.write_bytes(b"not parquet")
    for more in ((), ("--where", "id > 0")):
        with pytest.raises(DamagedTable, match=r"has 11 bytes, but [0-9]+ were committed"):
            call("read", NAME, *more, "--config", str(contradicted.file))


@pytest.mark.spark
def test_the_greatest_limit_shows_all_rows(contradicted: Lake) -> None:
    document = json.loads(call("read", NAME, "--json", "--limit", str(2**31 - 1), "--config", str(contradicted.file)))
    assert len(document["rows"]) == 2
