"""Reclocked upserts: the newest record of a key wins, null deletes, an undecodable value puts its key in error."""

from __future__ import annotations

import base64
import io
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pytest
from pyspark.sql import SparkSession

from tests.lakes.raw_lake import RawLake
from tests.lakes.upserts import ITEM, gone, item, prices
from tidelake.cli.app import main
from tidelake.errors import ConfigurationError, KeysInError
from tidelake.read.status import CollectionStatus, read_status
from tidelake.store.quarantine import quarantine_rows

pytestmark = pytest.mark.spark


@dataclass
class History:
    """A lake after three ticks, and its state after each tick."""

    lake: RawLake
    times: list[int]
    stored: list[int]
    statuses: list[CollectionStatus]
    refusals: list[str]


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> History:
    return tick_three_times(tmp_path_factory.mktemp("upserts"), spark)


def tick_three_times(root: Path, spark: SparkSession) -> History:
    lake = RawLake(root, spark, envelope="upsert", key="id", schema=ITEM)
    result = History(lake, [], [], [], [])
    bad = {"key": {"id": 7}, "value": {"id": 7, "price": "dear"}}
    other = {"key": {"id": 8}, "value": {"id": 5}}
    lake.put(item(1, 10), item(1, 11), item(2, 20), gone(9), item(3, 30), gone(3), item(5, 50))
    lake.put(item(2, 21), item(6, 60), bad, {"key": {"id": 4}, "value": "{"}, other, partition=1)
    _tick(result)
    lake.put(gone(1), item(2, 22), item(3, None), {"key": None, "value": {"id": 4, "price": 1}}, gone(4))
    lake.put({"key": {"id": "x"}, "value": None}, {"value": '{"id":4}', "key": "{"}, item(7, 70), partition=1)
    _tick(result)
    lake.put(item(8, 80))
    _tick(result)
    return result


def _tick(history: History) -> None:
    history.stored.append(history.lake.ingest().updates_stored)
    history.times.append(history.lake.times[-1].time)
    history.statuses.append(read_status(history.lake.collection))
    try:
        history.lake.rows()
    except KeysInError as error:
        history.refusals.append(str(error))


def test_the_value_with_the_highest_offset_in_a_tick_and_a_partition_wins(history: History) -> None:
    assert prices(history.lake.rows(history.times[0], skip_errors=True)) == {1: 11, 2: 21, 5: 50, 6: 60}
    assert history.stored[0] == 9, "one row for each key, including deletes and errors"


def test_a_null_value_deletes_its_key_and_changes_nothing_for_an_unknown_key(history: History) -> None:
    shown = prices(history.lake.rows(history.times[1], skip_errors=True))
    assert shown == {2: 22, 3: None, 5: 50, 6: 60, 7: 70}
    assert 9 not in shown and 1 not in shown


def test_a_read_as_of_an_earlier_time_still_shows_the_same_rows(history: History) -> None:
    assert prices(history.lake.rows()) == {2: 22, 3: None, 5: 50, 6: 60, 7: 70, 8: 80}
    assert prices(history.lake.rows(history.times[0], skip_errors=True)) == {1: 11, 2: 21, 5: 50, 6: 60}


def test_a_null_key_is_quarantined_and_reported(history: History) -> None:
    assert history.lake.quarantined() == [(10, "null_key"), (5, "wrong_type"), (6, "undecodable")]
    assert history.statuses[1].quarantine_reasons == {"null_key": 1, "wrong_type": 1, "undecodable": 1}


def test_status_says_which_keys_are_in_error_with_the_place_of_the_record(history: History) -> None:
    assert [status.keys_in_error for status in history.statuses] == [3, 1, 0]
    assert history.statuses[0].keys_in_error_first == [
        '{"id":4}: the value cannot be used: undecodable (prices:1:3)',
        '{"id":7}: the value cannot be used: wrong_type (prices:1:2)',
        '{"id":8}: the value names a different key than its record (prices:1:4)',
    ]


def test_reads_fail_and_show_which_keys_are_in_error(history: History) -> None:
    first, second = history.refusals
    assert '3 keys of \'prices\' are in error: {"id":4}, {"id":7}, {"id":8}' in first
    assert "1 key of 'prices' is in error: {\"id\":8}" in second
    assert "--skip-errors" in first
    with pytest.raises(KeysInError):
        history.lake.rows(history.times[0])


def test_a_later_good_value_or_a_delete_heals_a_key(history: History) -> None:
    assert prices(history.lake.rows())[7] == 70
    assert 4 not in prices(history.lake.rows())


def test_the_command_line_skips_keys_in_error_on_request(
    history: History, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tidelake.spark.session.start_session", lambda **_: history.lake.spark)
    at = ["--as-of", str(history.times[0])]
    command = ["tidelake", "read", "prices", "--json", "--config", str(history.lake.file), *at]
    for more, status, text in (([], 2, "in error"), (["--skip-errors"], 0, '"price":11')):
        monkeypatch.setattr("sys.argv", [*command, *more])
        with pytest.raises(SystemExit) as end:
            main()
        captured = capsys.readouterr()
        assert (end.value.code, text in captured.out + captured.err) == (status, True), captured


@pytest.mark.sweep
def test_a_recount_agrees_before_and_after_a_compaction(tmp_path: Path, spark: SparkSession) -> None:
    lake = tick_three_times(tmp_path, spark).lake
    assert not lake.validate(full=True).damaged
    lake.configure(keep=0)
    assert lake.compact().runs_after == 1
    assert not lake.validate(full=True).damaged
    assert prices(lake.rows()) == {2: 22, 3: None, 5: 50, 6: 60, 7: 70, 8: 80}
    assert read_status(lake.collection).keys_in_error == 0


PRICE = {"type": "record", "name": "price", "fields": [{"name": "price", "type": "int"}]}
SHOP_KEY = {"type": "record", "name": "key", "fields": [{"name": "shop", "type": "string"}]}


def test_the_columns_of_the_key_are_added_to_the_value_and_a_key_of_one_column_may_be_bare(
    tmp_path: Path, spark: SparkSession
) -> None:
    more = {"topic": ["eu", "us"], "metadata": {"topic": "origin", "offset": "at"}}
    lake = RawLake(tmp_path, spark, envelope="upsert", key="shop", key_schema=SHOP_KEY, schema=PRICE, **more)
    lake.put({"key": 'a"b', "value": {"price": 1}}, {"key": "7", "value": {"price": 2}}, topic="eu")
    lake.put({"key": {"shop": "7"}, "value": {"price": 3}}, {"key": '"c"', "value": {"price": 4}}, topic="us")
    lake.put({"key": "true", "value": {"price": 5}}, {"key": None, "value": {"price": 6}}, topic="us")
    assert lake.ingest().quarantined == 1
    assert lake.rows() == [
        {"shop": "7", "price": 3, "origin": "us", "at": 0, "_diff": 1},
        {"shop": 'a"b', "price": 1, "origin": "eu", "at": 0, "_diff": 1},
        {"shop": "c", "price": 4, "origin": "us", "at": 1, "_diff": 1},
        {"shop": "true", "price": 5, "origin": "us", "at": 2, "_diff": 1},
    ]
    assert lake.times[-1].ends == {("eu", 0): 2, ("us", 0): 4}


def test_a_column_that_is_in_the_key_and_in_the_value_is_refused_and_named(tmp_path: Path, spark: SparkSession) -> None:
    schema = SHOP_KEY | {"name": "value"}
    with pytest.raises(ConfigurationError, match="key_schema: the column 'shop' is in the key and in the value"):
        RawLake(tmp_path, spark, envelope="upsert", key="shop", key_schema=SHOP_KEY, schema=schema)


KEY = {"type": "record", "name": "key", "fields": [{"name": "shop", "type": "string"}, {"name": "no", "type": "long"}]}
STOCK = {
    "type": "record",
    "name": "stock",
    "fields": [
        {"name": "pieces", "type": ["null", "int"]},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
    ],
}
REVERSED = STOCK | {"fields": STOCK["fields"][::-1]}


def avro(record: dict[str, Any], value: Any, schema_id: int | None) -> str:
    written = io.BytesIO()
    fastavro.schemaless_writer(written, fastavro.parse_schema(record), value)
    head = b"" if schema_id is None else b"\0" + schema_id.to_bytes(4, "big")
    return base64.b64encode(head + written.getvalue()).decode("ascii")


def test_the_same_history_in_json_avro_and_confluent_framing_ends_in_equal_tables(
    tmp_path: Path, spark: SparkSession
) -> None:
    history: list[tuple[tuple[str, int], tuple[int | None, str] | None]] = [
        (("a", 1), (5, "1.25")),
        (("a", 2), (None, "0.10")),
        (("a", 1), (7, "12.00")),
        (("b", 1), (1, "3")),
        (("a", 2), None),
    ]
    more = {"key": ["shop", "no"], "key_schema": KEY, "schema": STOCK, "envelope": "upsert"}
    ids = {"encoding": "confluent", "key_schema_ids": {3: KEY}, "schema_ids": {1: STOCK, 2: REVERSED}}
    shown = []
    for name, settings in (("json", {}), ("avro", {"format": "avro"}), ("confluent", {"format": "avro"} | ids)):
        lake = RawLake(tmp_path / name, spark, **more, **settings)
        for place, ((shop, no), value) in enumerate(history):
            key = {"shop": shop, "no": no}
            data: dict[str, Any] | None = None if value is None else {"pieces": value[0], "price": value[1]}
            if name == "json":
                lake.put({"key": key, "value": data})
                continue
            framed = name == "confluent"
            record: dict[str, Any] = {"key_b64": avro(KEY, key, 3 if framed else None), "value": None}
            if data is not None:
                del record["value"]
                writer, schema_id = (REVERSED, 2) if framed and place % 2 else (STOCK, 1 if framed else None)
                record["value_b64"] = avro(writer, data | {"price": Decimal(data["price"])}, schema_id)
            lake.put(record)
        if name == "confluent":
            lake.put({"key_b64": "AAAAAAM=", "value": None}, {"key_b64": "AQ==", "value": None})
            in_header = {"headers": [{"key": "__key_schema_id", "value": "x"}]}
            lake.put({"key_b64": avro(KEY, {"shop": "b", "no": 1}, 3), "value": None, **in_header})
            whole = base64.b64decode(avro(STOCK, {"pieces": 1, "price": Decimal(1)}, 1))
            for no, stray in enumerate((b"\1" + whole[1:], b"\0\0\0\0\x09" + whole[5:], whole + b"\0"), start=6):
                key_b64 = avro(KEY, {"shop": "c", "no": no}, 3)
                lake.put({"key_b64": key_b64, "value_b64": base64.b64encode(stray).decode("ascii")})
            lake.ingest()
            reasons = ["undecodable", "wrong_magic_byte", "schema_id_in_header"]
            assert [reason for _, reason in lake.quarantined()] == reasons
            assert read_status(lake.collection).keys_in_error_first == [
                '{"shop":"c","no":6}: the value cannot be used: wrong_magic_byte (prices:0:8)',
                '{"shop":"c","no":7}: the value cannot be used: unknown_schema_id, schema id 9 (prices:0:9)',
                '{"shop":"c","no":8}: the value cannot be used: bytes_left_over (prices:0:10)',
            ]
        else:
            lake.ingest()
        shown.append(lake.rows(skip_errors=True))
    expected = [("a", 1, 7, Decimal("12.00")), ("b", 1, 1, Decimal("3.00"))]
    for rows in shown:
        assert [(row["shop"], row["no"], row["pieces"], row["price"]) for row in rows] == expected


@pytest.mark.sweep
def test_a_status_and_a_read_agree_on_which_keys_are_equal(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    spot = {
        "type": "record",
        "name": "spot",
        "fields": [{"name": "f", "type": "double"}, {"name": "a", "type": "long"}],
    }
    whole = [{"name": "id", "type": spot}, {"name": "x", "type": ["null", "double"]}, {"name": "v", "type": "string"}]
    lake = RawLake(
        tmp_path,
        spark,
        envelope="upsert",
        key=["id", "x"],
        schema={"type": "record", "name": "place", "fields": whole},
    )

    def place(f: str, x: str, good: bool = True) -> dict[str, Any]:
        key = f'{{"id":{{"f":{f},"a":1}},"x":{x}}}'
        return {"key": key, "value": f'{key[:-1]},"v":"v"}}' if good else "bad"}

    def seen() -> int:
        try:
            lake.rows()
        except KeysInError as refused:
            return refused.count
        return 0

    bad = [("0.0", "1.5"), ("1.5", "0.0"), ("2.0", "null"), ("3.0", "0.0")]
    lake.put(*(place(*key, good=False) for key in bad), place("-0.0", "7.0"))
    lake.ingest()
    assert read_status(lake.collection).keys_in_error == seen() == 4
    lake.put(place("-0.0", "1.5"), place("1.5", "-0.0"), place("2.0", "null"))
    lake.ingest()
    assert read_status(lake.collection).keys_in_error == seen() == 1
    monkeypatch.setattr("sys.argv", ["tidelake", "status", "--config", str(lake.file)])
    with pytest.raises(SystemExit):
        main()
    assert " 1 key in error" in capsys.readouterr().out


@pytest.mark.sweep
def test_a_bare_key_may_have_a_schema_around_it(tmp_path: Path, spark: SparkSession) -> None:
    def keyed(name: str, kind: str, *keys: str) -> RawLake:
        key = {"type": "record", "name": "key", "fields": [{"name": "k", "type": kind}]}
        lake = RawLake(tmp_path / name, spark, envelope="upsert", key="k", key_schema=key, schema=ITEM)
        lake.put(*({"key": text, "value": {"id": at, "price": at}} for at, text in enumerate(keys)))
        lake.ingest()
        return lake

    around = '{"schema":{"type":"string","optional":false},"payload":%s}'
    texts = ("k1", around % '"k1"', around % '"{\\"k2 \\u00e9"', around % '{"k":"k3"}', '{"payload":"7","schema":null}')
    lake = keyed("texts", "string", *texts, around % "8", '{"schema":null,"payload":null}', "payload schema")
    assert {row["k"]: row["id"] for row in lake.rows()} == {"k1": 1, '{"k2 é': 2, "k3": 3, "7": 4, "payload schema": 7}
    reasons = {row["offset"]: row["reason"] for row in quarantine_rows(lake.collection)}
    assert reasons == {5: "wrong_type", 6: "missing_field"}
    lake.put({"key": around % '"k1"', "value": None})
    lake.ingest()
    assert "k1" not in {row["k"] for row in lake.rows()}
    numbers = keyed("numbers", "long", "9", around % "9", around % "9223372036854775807", around % '"9"')
    assert {row["k"]: row["id"] for row in numbers.rows()} == {9: 1, 2**63 - 1: 2}
