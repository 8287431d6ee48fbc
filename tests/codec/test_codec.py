"""Messages and their bytes: round trips, framing, and a clear reason if bytes cannot be decoded."""

from __future__ import annotations

import io
import re
import struct
from typing import Any

import fastavro
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tidelake.codec.avro import AvroCodec, ConfluentCodec
from tidelake.codec.exact import suspect_pattern
from tidelake.codec.json import AvroJsonCodec
from tidelake.errors import CodecError, InvalidUsage, MalformedMessage
from tidelake.protocol.message import Message, Progress, Updates
from tidelake.schema.avro import cdcv2_schema, resolved_schema

INNER = {"type": "record", "name": "place", "fields": [{"name": "city", "type": ["null", "string"]}]}
SCHEMA = {
    "type": "record",
    "name": "data",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "small", "type": "int"},
        {"name": "ratio", "type": "double"},
        {"name": "flag", "type": "boolean"},
        {"name": "raw", "type": "bytes"},
        {"name": "name", "type": ["null", "string"]},
        {"name": "many", "type": ["null", "int", "long", "string", INNER]},
        {"name": "two", "type": ["float", "double"]},
        {"name": "where", "type": "place"},
        {"name": "tags", "type": {"type": "array", "items": ["null", "string"]}},
        {"name": "colour", "type": {"type": "enum", "name": "colour", "symbols": ["red", "blue"]}},
        {"name": "key", "type": {"type": "fixed", "name": "key", "size": 4}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
    ],
}
INT64 = st.integers(-(2**63), 2**63 - 1)
INT32 = st.integers(-(2**31), 2**31 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
FLOAT = st.floats(width=32, allow_nan=False)
PLACE = st.fixed_dictionaries({"city": st.none() | TEXT})
DATA = st.fixed_dictionaries(
    {
        "id": INT64,
        "small": INT32,
        "ratio": st.floats(allow_nan=False),
        "flag": st.booleans(),
        "raw": st.binary(max_size=8),
        "name": st.none() | TEXT,
        "many": st.one_of(
            st.none(),
            *(
                st.fixed_dictionaries({branch: values})
                for branch, values in {"int": INT32, "long": INT64, "string": TEXT, "place": PLACE}.items()
            ),
        ),
        "two": st.fixed_dictionaries({"float": FLOAT}) | st.fixed_dictionaries({"double": st.floats(allow_nan=False)}),
        "where": PLACE,
        "tags": st.lists(st.none() | TEXT, max_size=3),
        "colour": st.sampled_from(["red", "blue"]),
        "key": st.binary(min_size=4, max_size=4),
        "at": INT64,
        "price": st.integers(-(10**9) + 1, 10**9 - 1).map(
            lambda n: n.to_bytes(n.bit_length() // 8 + 1, "big", signed=True)
        ),
    }
)
TIME = st.integers(0, 2**63 - 1)
UPDATES = st.lists(st.tuples(DATA, TIME, INT64.filter(bool)), max_size=3).map(Updates)
PROGRESS = st.tuples(TIME, TIME, st.integers(0, 2**63 - 1)).map(
    lambda v: Progress([min(v[:2])], [max(v[:2])], [(min(v[:2]), v[2])] if v[0] != v[1] else [])
)
MESSAGES = UPDATES | PROGRESS | st.just(Progress([3], []))
CODEC, JSON_CODEC = AvroCodec(SCHEMA), AvroJsonCodec(SCHEMA)
CONFLUENT = ConfluentCodec({7: SCHEMA, 2**32 - 1: cdcv2_schema(SCHEMA)}.get)
QUICK = settings(deadline=None, max_examples=300, suppress_health_check=list(HealthCheck))


@QUICK
@given(MESSAGES)
def test_a_message_survives_each_encoding(message: Message) -> None:
    assert CODEC.decode(CODEC.encode(message)) == message
    assert JSON_CODEC.decode(JSON_CODEC.encode(message)) == message
    for schema_id in (7, 2**32 - 1):
        framed = CONFLUENT.encode(message, schema_id)
        assert framed[:5] == b"\0" + schema_id.to_bytes(4, "big")
        assert CONFLUENT.decode(framed) == message


@QUICK
@given(DATA)
def test_another_encoder_writes_the_same_bytes_with_the_given_schema(data: dict[str, Any]) -> None:
    def unwrap(branch: dict[str, Any] | None) -> tuple[str, Any] | None:
        return None if branch is None else next(iter(branch.items()))

    foreign = {**data, "many": unwrap(data["many"]), "two": unwrap(data["two"])}
    if foreign["many"] and foreign["many"][0] == "place":
        foreign["many"] = ("com.materialize.cdc.place", foreign["many"][1])
    buffer = io.BytesIO()
    schema = fastavro.parse_schema(cdcv2_schema(SCHEMA))
    fastavro.schemaless_writer(buffer, schema, [{"data": foreign, "time": 4, "diff": 1}])
    assert buffer.getvalue() == CODEC.encode(Updates([(data, 4, 1)]))


@QUICK
@given(DATA, DATA)
def test_identities_are_equal_exactly_when_the_data_is_equal(first: dict[str, Any], second: dict[str, Any]) -> None:
    assert (CODEC.identity(first) == CODEC.identity(second)) == (first == second)


def test_all_zeros_are_one_datum_and_all_nans_are_another_but_each_is_written_with_its_own_bits() -> None:
    fields = [
        {"name": "f", "type": ["null", "float"]},
        {"name": "many", "type": {"type": "array", "items": ["double", "string"]}},
        {"name": "in", "type": {"type": "record", "name": "r", "fields": [{"name": "d", "type": "double"}]}},
    ]
    codec = AvroCodec({"type": "record", "name": "d", "fields": fields})
    nans = [
        struct.unpack("<d", bits.to_bytes(8, "little"))[0] for bits in (0x7FF8 << 48, 0xFFF8 << 48, 0x7FF8 << 48 | 1)
    ]
    for same in ([0.0, -0.0], nans):
        made = [{"f": x, "many": [{"double": x}], "in": {"d": x}} for x in same]
        assert len({codec.identity(data) for data in made}) == 1
        assert len({codec.encode_data(data) for data in made}) == len(same)
        assert len({codec.encode(Updates([(data, 1, 1)])) for data in made}) == len(same)
    apart: list[dict[str, Any]] = [
        {"f": x, "many": [], "in": {"d": 0.0}} for x in (None, 0.0, float("nan"), float("inf"), -1.0)
    ]
    assert len({codec.identity(data) for data in apart}) == len(apart)


def test_branches_of_a_union_remain_distinct() -> None:
    codec = AvroCodec({"type": "record", "name": "d", "fields": [{"name": "n", "type": ["int", "long", "string"]}]})
    encoded = {codec.encode(Updates([({"n": {branch: 5}}, 1, 1)])) for branch in ("int", "long")}
    assert len(encoded) == 2
    assert [first_data(codec.decode(value))["n"] for value in sorted(encoded)] == [{"int": 5}, {"long": 5}]


def first_data(message: Message | None) -> Any:
    assert isinstance(message, Updates)
    return message.batch[0].data


REASONS = {"undecodable", "wrong_magic_byte", "unknown_schema_id", "bytes_left_over"}


def outcome(codec: AvroCodec | ConfluentCodec | AvroJsonCodec, value: bytes) -> object:
    """The message, None, or the content of one of the two documented errors; any other error is raised."""
    try:
        return codec.decode(value)
    except CodecError as error:
        return error.reason
    except MalformedMessage as error:
        return error.problems


def decode_all_ways(value: bytes) -> None:
    for codec in (CODEC, CONFLUENT, JSON_CODEC):
        result = outcome(codec, value)
        assert result is None or isinstance(result, (Updates, Progress, tuple)) or result in REASONS


@settings(QUICK, max_examples=1500)
@given(st.binary(max_size=60))
def test_random_bytes_give_a_message_or_a_documented_error(value: bytes) -> None:
    decode_all_ways(value)
    decode_all_ways(b"\0\0\0\0\7" + value)


@settings(QUICK, max_examples=600)
@given(MESSAGES, st.data())
def test_a_message_with_some_bytes_changed_gives_a_message_or_a_documented_error(
    message: Message, data: st.DataObject
) -> None:
    for encoded in (CODEC.encode(message), CONFLUENT.encode(message, 7), JSON_CODEC.encode(message)):
        at = data.draw(st.integers(0, len(encoded)))
        cut = data.draw(st.integers(0, 3))
        decode_all_ways(encoded[:at] + data.draw(st.binary(max_size=4)) + encoded[at + cut :])


@settings(QUICK, max_examples=200)
@given(MESSAGES)
def test_a_truncated_message_is_undecodable_and_an_extended_message_has_trailing_bytes(message: Message) -> None:
    encoded = CODEC.encode(message)
    for end in range(len(encoded)):
        with pytest.raises(CodecError) as caught:
            CODEC.decode(encoded[:end])
        assert caught.value.reason == "undecodable"
    with pytest.raises(CodecError) as caught:
        CODEC.decode(encoded + b"\0")
    assert caught.value.reason == "bytes_left_over"


LONG = bytes([0xFE, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x01])  # 2**63 - 1 as Avro writes it


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\xff" * 40,
        b"\0" + LONG,
        b"\0\2" + LONG,
        b"\2" + LONG + b"\0",
        b"\4",
        b"\x80" * 9 + b"\1",
        b"\0" + b"\1" * 30,
    ],
    ids=["nothing", "no end", "long batch", "long string", "many elements", "no such branch", "no number", "blocks"],
)
def test_absurd_lengths_are_undecodable(value: bytes) -> None:
    with pytest.raises(CodecError) as caught:
        CODEC.decode(value)
    assert caught.value.reason == "undecodable"


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"", "wrong_magic_byte"),
        (b"\1\0\0\0\7\0\0", "wrong_magic_byte"),
        (b"{}", "wrong_magic_byte"),
        (b"\0\0\0", "undecodable"),
        (b"\0\0\0\0\7", "undecodable"),
        (b"\0\0\0\0\x08\0\0", "unknown_schema_id"),
        (b"\0\0\0\0\7\0\0\0", "bytes_left_over"),
    ],
)
def test_framing_errors_say_what_is_wrong(value: bytes, reason: str) -> None:
    with pytest.raises(CodecError) as caught:
        CONFLUENT.decode(value)
    assert caught.value.reason == reason


def number(value: int) -> bytes:
    """The bytes that Avro writes for a number of any size that is already zigzag-encoded."""
    encoded = b""
    while value > 0x7F:
        encoded += bytes([value & 0x7F | 0x80])
        value >>= 7
    return encoded + bytes([value])


@pytest.mark.parametrize("wrapped", [2**64, 2**64 + 10, 2**70 + 10, 2**200])
@pytest.mark.parametrize("place", ["data", "time", "diff"])
def test_a_number_out_of_range_for_its_type_is_undecodable_and_never_wraps_around(place: str, wrapped: int) -> None:
    codec = AvroCodec({"type": "record", "name": "d", "fields": [{"name": "n", "type": "int"}]})
    for beyond in (wrapped, 2**33 if place == "data" else wrapped):
        numbers = {"data": 2, "time": 4, "diff": 6, place: beyond}
        with pytest.raises(CodecError) as caught:
            codec.decode(b"\0\2" + b"".join(map(number, numbers.values())) + b"\0")
        assert caught.value.reason == "undecodable"


MANY = {
    "type": "record",
    "name": "d",
    "fields": [
        {"name": "n", "type": ["null", "long", "string"]},
        {"name": "e", "type": {"type": "enum", "name": "e", "symbols": ["a", "b"]}},
        {"name": "ok", "type": "boolean"},
    ],
}


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"\1\0\0\0", "undecodable"),  # branch -1 of the message, which in Python means the last one
        (b"\0\2\1\2\0\1\2\2\0", "undecodable"),  # branch -1 of a union
        (b"\0\2\0\1\1\2\2\0", "undecodable"),  # symbol -1
        (b"\0\2\0\4\1\2\2\0", "undecodable"),  # symbol 2 of two
        (b"\x82\0\0\0\0", "undecodable"),  # progress, with its branch in two bytes
        (b"\x82\0\0\0\0\0", "bytes_left_over"),
        (b"\0\2\2\x80\x80\x80\x80\x80\x80\x80\x80\x80\2\0\1\2\2\0", "undecodable"),  # 2^63, out of range for the type
        (b"\0\2\2\x84\x80\x80\x80\x80\x80\x80\x80\x80\0\0\1\2\2\0", None),  # 2 in ten bytes
        (b"\0\2\2\x84\x80\x80\x80\x80\x80\x80\x80\x80\x80\0\0\1\2\2\0", "undecodable"),  # 2 in eleven
        (b"\0\2\x82\x80\x80\x80\x10\4\0\1\2\2\0", "undecodable"),  # branch 2^32 + 1
        (b"\0\2\4\3\0\1\2\2\0", "undecodable"),  # a string of -2 bytes
        (b"\0\2\4\4\xc3\x28\0\1\2\2\0", "undecodable"),  # a string that is not UTF-8
        (b"\0\2\4\4\xc3\x28\0\1\2\2\0\0", "bytes_left_over"),
    ],
)
def test_bytes_that_no_encoder_writes_are_read_or_refused_with_the_right_reason(
    value: bytes, reason: str | None
) -> None:
    result = outcome(AvroCodec(MANY), value)
    assert result == (reason or Updates([({"n": {"long": 2}, "e": "a", "ok": True}, 1, 1)]))


def test_only_the_byte_1_is_true() -> None:
    decoded = [first_data(AvroCodec(MANY).decode(b"\0\2\0\0" + bytes([byte]) + b"\2\2\0")) for byte in (0, 1, 2, 255)]
    assert [data["ok"] for data in decoded] == [False, True, False, False]


def test_decimals_and_timestamps_that_no_table_can_hold_are_undecodable_and_cannot_be_encoded() -> None:
    fields = [
        {"name": "d", "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 3, "scale": 1}]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ]
    codec = AvroCodec({"type": "record", "name": "d", "fields": fields})
    good, most = b"\x03\xe7", (2**63 - 1) // 1000
    written = codec.encode(Updates([({"d": good, "at": most}, 1, 1)]))
    assert outcome(codec, written) == Updates([({"d": good, "at": most}, 1, 1)])
    assert outcome(codec, written.replace(good, b"\x03\xe8")) == "undecodable"
    assert outcome(codec, b"\0\2\2\0" + b"\0\2\2\0") == "undecodable"
    for data in ({"d": b"\x03\xe8", "at": 0}, {"d": b"", "at": 0}, {"d": None, "at": most + 1}):
        with pytest.raises(InvalidUsage):
            codec.encode(Updates([(data, 1, 1)]))
    assert codec.identity({"d": b"\0\0\5", "at": 0}) == codec.identity({"d": b"\5", "at": 0})
    assert codec.identity({"d": b"\xff", "at": 0}) != codec.identity({"d": b"\0\xff", "at": 0})


@given(
    st.booleans(),
    st.lists(
        st.sampled_from([b"\x00", b"\x01", b"\x0f", b"\x10", b"\x7f", b"\x80", b"\xff", b"\x80\x80"]), max_size=24
    ),
)
def test_the_pattern_of_suspect_bytes_finds_each_kind_of_number_that_is_out_of_range(
    holds_int: bool, parts: list[bytes]
) -> None:
    value = b"".join(parts).decode("latin-1")
    schema = {"type": "record", "name": "r", "fields": [{"name": "n", "type": "int" if holds_int else "long"}]}
    long = r"[\x80-\xff]{9}[^\x00\x01]"
    other = r"[\x80-\xff]{4}[^\x00-\x0f]" if holds_int else r"[\x80-\xff]{2}\x80\x80[\x10\x20\x30\x40\x50\x60\x70]"
    match = re.search(suspect_pattern(resolved_schema(schema)), value)
    assert (match is None) == (re.search(f"{long}|{other}", value) is None)


def test_arrays_in_several_blocks_are_read() -> None:
    codec = AvroCodec({"type": "record", "name": "d", "fields": [{"name": "n", "type": "int"}]})
    first, second = b"\2\4\6", b"\4\4\6"
    sized = b"\1\6" + second  # a block with a negative count states its size
    assert codec.decode(b"\0\2" + first + sized + b"\0") == Updates([({"n": 1}, 2, 3), ({"n": 2}, 2, 3)])


def test_a_null_value_is_not_a_message() -> None:
    assert CODEC.decode(None) is None
    assert CONFLUENT.decode(None) is None


def test_a_message_that_can_be_decoded_but_has_invalid_contents_is_malformed() -> None:
    buffer = io.BytesIO()
    schema = fastavro.parse_schema(
        cdcv2_schema({"type": "record", "name": "d", "fields": [{"name": "a", "type": "int"}]})
    )
    fastavro.schemaless_writer(buffer, schema, [{"data": {"a": 1}, "time": -4, "diff": 0}])
    codec = AvroCodec({"type": "record", "name": "d", "fields": [{"name": "a", "type": "int"}]})
    with pytest.raises(MalformedMessage) as caught:
        codec.decode(buffer.getvalue())
    assert caught.value.problems == (("negative_time", -4), ("zero_diff", -4))


def test_big_values_nested_nulls_and_empty_strings_survive() -> None:
    schema = {
        "type": "record",
        "name": "d",
        "fields": [{"name": "s", "type": "string"}, {"name": "p", "type": ["null", INNER]}],
    }
    for data in ({"s": "x" * 2**20, "p": None}, {"s": "", "p": {"city": None}}, {"s": "\0", "p": {"city": ""}}):
        for codec in (AvroCodec(schema), AvroJsonCodec(schema)):
            assert first_data(codec.decode(codec.encode(Updates([(data, 1, 1)])))) == data


@pytest.mark.parametrize("data", [{}, {"n": "x"}, {"n": None}, 5, None, {"n": 2**40}, {"n": 1, "other": 2}])
def test_data_that_does_not_fit_is_refused_when_it_is_written(data: Any) -> None:
    codec = AvroCodec({"type": "record", "name": "d", "fields": [{"name": "n", "type": "int"}]})
    with pytest.raises(InvalidUsage):
        codec.encode(Updates([(data, 1, 1)]))


@pytest.mark.parametrize(
    "line",
    [
        b'{"array":[{"data":{"n":1},"time":1}]}',
        b'{"array":[{"data":{"n":1.0},"time":1,"diff":1}]}',
        b'{"array":[{"data":{"n":1,"m":2},"time":1,"diff":1}]}',
        b'{"array":[{"data":{"n":2147483648},"time":1,"diff":1}]}',
        b'{"array":[{"data":{"n":{"int":1}},"time":1,"diff":1}]}',
        b'{"array":[{"data":{"n":1,"n":1},"time":1,"diff":1}]}',
        b'{"array":{}}',
        b'{"progress":{"lower":[],"upper":[],"counts":[]}}',
        b'{"com.materialize.cdc.progress":{"lower":[0],"upper":[3],"counts":[[1,1]]}}',
        b"[]",
        b"",
    ],
)
def test_a_line_that_is_not_a_message_of_the_schema_is_undecodable(line: bytes) -> None:
    codec = AvroJsonCodec({"type": "record", "name": "d", "fields": [{"name": "n", "type": "int"}]})
    with pytest.raises(CodecError) as caught:
        codec.decode(line)
    assert caught.value.reason == "undecodable"
