"""A statement typed by a user is encoded to the same bytes as in a message of the topic, for every type and form."""

from __future__ import annotations

import base64
import math
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.lakes.every_type import ALL, everything
from tidelake.codec.avro import AvroCodec
from tidelake.codec.typed import encode_data, read_statement
from tidelake.decode.cdcv2 import Decoder
from tidelake.decode.entered_statements import statement_frame
from tidelake.decode.statements import explode_updates
from tidelake.errors import DataRefused, StatementRefused
from tidelake.protocol.json_values import JsonFloat, to_text
from tidelake.protocol.message import Updates
from tidelake.store.decision import DecisionDocument, Discard

SHORTEST = (-1234567).to_bytes(3, "big", signed=True)
CODEC = AvroCodec(ALL)


def b64(value: bytes) -> dict[str, str]:
    return {"b64": base64.b64encode(value).decode("ascii")}


def typed(**changed: Any) -> dict[str, Any]:
    """`everything()` as `read --json` prints it."""
    nothing = {"int": None, "long": None, "string": None, "place": None}
    return {
        **everything(),
        "by": b64(b"\x00\xff"),
        "day": "2022-01-08",
        "ms": "2023-11-14T22:13:20.123000Z",
        "us": "1969-12-31T23:59:59.999999Z",
        "dec": JsonFloat("-1234.567"),
        "fix": b64(b"abcd"),
        "several": nothing | {"long": 5},
        "two": {"float": 0.5, "double": None},
        "many": [{"int": 1, "long": None}, {"int": None, "long": 1}],
        **changed,
    }


FORMS: list[tuple[str, Any, Any]] = [
    ("b", False, False),
    ("i", 2**31 - 1, 2**31 - 1),
    ("l", -(2**63), -(2**63)),
    ("f", JsonFloat("0.1"), 0.1),
    ("f", "NaN", math.nan),
    ("f", -0.0, -0.0),
    ("d", 1, 1.0),
    ("d", "-Infinity", -math.inf),
    ("d", JsonFloat("1E300"), 1e300),
    ("by", "\x00ÿ", b"\x00\xff"),
    ("by", "", b""),
    ("s", "", ""),
    ("day", -719_163, -719_163),
    ("day", "0001-01-01", -719_162),
    ("day", "-0001-11-28", -719_562),
    ("day", "+5881580-07-11", 2**31 - 1),
    ("ms", 7, 7),
    ("ms", "1970-01-01 02:00:00.007+02:00", 7),
    ("ms", "1970-01-01T00:00Z", 0),
    ("us", -7, -7),
    ("us", "+10000-01-01T00:00:00.000000Z", 253402300800000000),
    ("us", "+294247-01-10T04:00:54.775807Z", 2**63 - 1),
    ("us", "-290308-12-21T19:59:05.224192Z", -(2**63)),
    ("us", "1969-12-31T18:30:00-05:30", 0),
    ("clock", 1, 1),
    ("uuid", "y", "y"),
    ("dec", "1.50", (1500).to_bytes(2, "big")),
    ("dec", 2, (2000).to_bytes(2, "big")),
    ("dec", "-0.001", b"\xff"),
    ("dec", "0.128", b"\x00\x80"),
    ("dec", "-0.128", b"\x80"),
    ("dec", JsonFloat("1E+3"), (1_000_000).to_bytes(3, "big")),
    ("dec", JsonFloat("0E-20"), b"\x00"),
    ("dec", "99999999999999999.999", (10**20 - 1).to_bytes(9, "big")),
    ("dec", b64(b"\x00\x00\x05"), b"\x00\x00\x05"),
    ("fix", "abcÿ", b"abc\xff"),
    ("color", "red", "red"),
    ("again", "red", "red"),
    ("again", {"color": "red"}, "red"),
    ("again", {"shop.color": "red"}, "red"),
    ("list", [{"long": 1}, None, 2], [1, None, 2]),
    ("list", [], []),
    ("place", None, None),
    ("place", {"place": {"city": "Ulm"}}, {"city": "Ulm"}),
    ("home", {"city": "Ulm"}, {"city": "Ulm"}),
    ("home", {"shop.place": {"city": "Ulm"}}, {"city": "Ulm"}),
    ("several", None, None),
    ("several", {"int": 5}, {"int": 5}),
    ("several", {"string": "5", "int": None}, {"string": "5"}),
    ("several", {"shop.place": {"city": "x"}}, {"place": {"city": "x"}}),
    ("two", {"double": 0.5}, {"double": 0.5}),
    ("many", [{"long": 1}], [{"long": 1}]),
]


@pytest.mark.parametrize(("column", "form", "meant"), FORMS)
def test_every_form_of_a_value_becomes_the_bytes_of_the_topics_message(column: str, form: Any, meant: Any) -> None:
    data = everything(**{"dec": SHORTEST, column: meant})
    encoded = encode_data(ALL, typed(**{column: form}))
    assert encoded == CODEC.encode_data(data)
    assert encoded in CODEC.encode(Updates([(data, 1, 1)]))


def test_the_forms_cover_every_type_that_a_table_can_hold() -> None:
    assert {name for name, _, _ in FORMS} == {field["name"] for field in ALL["fields"]}


@pytest.mark.parametrize(("column", "form", "meant"), FORMS)
def test_a_statement_loses_nothing_when_it_is_stored(column: str, form: Any, meant: Any) -> None:
    stored = read_statement(ALL, to_text({"data": typed(**{column: form}), "diff": -1}))
    document = DecisionDocument.of(Discard(time=1, statement=stored, reason="r", at_ms=0)).model_dump_json()
    read = DecisionDocument.model_validate_json(document).decision()
    assert isinstance(read, Discard)
    again = read.statement
    assert again == stored
    assert again["diff"] == -1
    data = everything(**{"dec": SHORTEST, column: meant})
    if isinstance(form, dict) and column == "dec":
        data["dec"] = b"\x05"  # the same number in fewer bytes
    assert encode_data(ALL, again["data"]) == CODEC.encode_data(data)


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("b", 1, "column 'b' is 1, not of type boolean"),
        ("i", 2**31, "column 'i' is 2147483648, not of type int"),
        ("i", True, "column 'i' is True, not of type int"),
        ("l", JsonFloat("1.0"), "column 'l' is .*, not of type long"),
        ("f", 1e39, "column 'f' is out of range for the type float"),
        ("d", JsonFloat("1e309"), "column 'd' is out of range for the type double"),
        ("d", 10**400, "column 'd' is out of range for the type double"),
        ("d", "nan", "column 'd' is 'nan', not of type double"),
        ("by", "Ā", "column 'by' is .* nor text of code points from 0 to 255"),
        ("by", {"b64": "!"}, "column 'by' is not valid base64"),
        ("by", {"b64": 5}, "column 'by' is not valid base64"),
        ("s", "\ud800", "column 's' is not valid text"),
        ("day", "2022-02-29", "column 'day' is '2022-02-29', not of type date"),
        ("day", "٢٠٢٢-٠١-٠١", "column 'day'"),
        ("ms", "1970-01-01T00:00:00", "column 'ms' is .*, not of type timestamp-millis"),
        ("ms", "1970-01-01T00:00:00.000001Z", "column 'ms' is .*, not of type timestamp-millis"),
        ("ms", 2**63 // 1000 + 1, "column 'ms' is .*, not of type timestamp-millis"),
        ("us", "1970-01-01T24:00:00Z", "column 'us' is"),
        ("us", "+294247-01-10T04:00:54.775808Z", "column 'us' is"),
        ("dec", "1.0001", "column 'dec' is '1.0001', which has too many digits after the point: the maximum is 3"),
        ("dec", "1e17", "column 'dec' is '1e17', which has too many digits before the point: the maximum is 17"),
        ("dec", "1e9999999999999999999999", "column 'dec' is .*, not a decimal"),
        ("dec", "NaN", "column 'dec' is 'NaN', not a decimal"),
        ("dec", b64(b""), "column 'dec' is not the bytes of a decimal"),
        ("dec", b64(b"\x7f" * 9), "column 'dec' is not the bytes of a decimal"),
        ("fix", "abc", "column 'fix' has length 3, not 4"),
        ("color", "blue", "column 'color' is 'blue', not one of red, green"),
        ("list", [1, "x"], r"column 'list\[1\]' is 'x', not of type long"),
        ("place", {}, "column 'place.city' is missing"),
        ("place", {"city": "x", "more": 1}, "column 'place.more' is not in the schema"),
        ("i", None, "column 'i' is None, not of type int"),
        ("two", None, "column 'two' is null, but is not nullable"),
        ("two", {"float": None, "double": None}, "column 'two' has a value in 0 branches"),
        (
            "several",
            5,
            "column 'several' is 5, without a branch; write {branch: value} with one of the branches int, long",
        ),
        ("several", {"int": 5, "long": 5}, "column 'several' has a value in 2 branches"),
        ("several", {"short": 5}, "column 'several' has no branch 'short'"),
        ("several", {"int": 2**31}, "column 'several.int' is 2147483648"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_with_its_column(column: str, value: Any, message: str) -> None:
    with pytest.raises(DataRefused, match=f"does not fit the collection's schema: {message}"):
        encode_data(ALL, typed(**{column: value}))


def test_missing_and_extra_columns_are_reported() -> None:
    data = typed()
    del data["l"]
    with pytest.raises(DataRefused, match="column 'l' is missing"):
        encode_data(ALL, data)
    with pytest.raises(DataRefused, match="column '_diff' is not in the schema"):
        encode_data(ALL, typed(_diff=1))
    with pytest.raises(DataRefused, match=r"the record is \[\], not an object"):
        encode_data(ALL, [])


FOUR = {"type": "fixed", "name": "f", "size": 2, "logicalType": "decimal", "precision": 4, "scale": 2}


def test_a_decimal_of_fixed_size_fills_its_bytes() -> None:
    schema = {"type": "record", "name": "d", "fields": [{"name": "n", "type": FOUR}]}
    assert encode_data(schema, {"n": "-0.01"}) == b"\xff\xff"
    assert encode_data(schema, {"n": "1.5"}) == b"\x00\x96"
    assert read_statement(schema, '{"data": {"n": {"b64": "AAU="}}, "diff": 1}')["data"] == {"n": "0.05"}
    with pytest.raises(DataRefused, match="column 'n' has length 1, not 2"):
        encode_data(schema, {"n": {"b64": "AA=="}})


def test_a_record_that_looks_like_a_branch_is_refused_if_it_is_ambiguous() -> None:
    inner = {"type": "record", "name": "b", "fields": [{"name": "a", "type": ["null", "string"]}]}
    outer = {"type": "record", "name": "a", "fields": [{"name": "a", "type": ["null", inner]}]}
    schema = {"type": "record", "name": "d", "fields": [{"name": "c", "type": ["null", outer]}]}
    with pytest.raises(DataRefused, match="column 'c' can be read in two ways"):
        encode_data(schema, {"c": {"a": {"a": None}}})
    text = '{"data": {"c": {"a": {"a": {"b": {"a": null}}}}}, "diff": 1}'
    stored = read_statement(schema, text)
    assert encode_data(schema, stored["data"]) == AvroCodec(schema).encode_data({"c": {"a": {"a": None}}})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "the statement cannot be read"),
        ('{"data": {}, "data": {}, "diff": 1}', "the statement cannot be read"),
        ("[" * 100_000, "the statement cannot be read"),
        ('{"data": {}}', "does not have exactly `data` and an integer `diff`"),
        ('{"data": {}, "diff": 1.0}', "does not have exactly `data` and an integer `diff`"),
        ('{"data": {}, "diff": true}', "does not have exactly `data` and an integer `diff`"),
        ('{"data": {}, "diff": 0}', "diff is 0"),
        ('{"data": {}, "diff": 9223372036854775808}', "diff is 9223372036854775808"),
        ('{"data": ' + "[" * 100_000 + "]" * 100_000 + ', "diff": 1}', "does not fit"),
    ],
)
def test_a_malformed_statement_is_refused(text: str, message: str) -> None:
    with pytest.raises((StatementRefused, DataRefused), match=message):
        read_statement(ALL, text)


@pytest.mark.spark
def test_a_typed_statement_becomes_the_same_row_as_its_message(spark: SparkSession) -> None:
    data = [everything(**{"dec": SHORTEST, column: meant}) for column, _, meant in FORMS]
    frame = statement_frame(
        spark, ALL, [(at, {"data": typed(**{column: form}), "diff": 1}) for at, (column, form, _) in enumerate(FORMS)]
    )
    assert frame is not None
    raw = spark.createDataFrame(
        [(0, 0, 0, None, bytearray(CODEC.encode(Updates([(datum, at, 1) for at, datum in enumerate(data)]))))],
        "partition int, offset bigint, timestamp_ms bigint, key binary, value binary",
    )
    landed = explode_updates(Decoder(ALL).updates(raw), ALL).drop("_partition", "_offset")
    assert frame.columns == landed.columns
    # Compared as JSON from the JVM: Python has neither a year 10000 nor a date before the year 1.
    made, meant = (sorted(rows.selectExpr("to_json(struct(*))").toArrow()[0].to_pylist()) for rows in (frame, landed))
    assert len(meant) == len(FORMS)
    assert made == meant
    assert statement_frame(spark, ALL, []) is None
