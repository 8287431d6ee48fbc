"""JSON values: every digit is preserved, and no text crashes the parser."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tidelake.errors import CodecError
from tidelake.protocol.json_values import JsonFloat, identity, parse, parse_deep, to_text

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=12,
)


def shape(value: Any) -> tuple[str, Any]:
    """A value with its types, so that values that are equal only in Python stay different."""
    if isinstance(value, dict):
        return ("object", sorted((name, shape(inner)) for name, inner in value.items()))
    if isinstance(value, list):
        return ("list", [shape(inner) for inner in value])
    return (type(value).__name__, repr(abs(value) if value == 0 and isinstance(value, float) else value))


@given(VALUES)
@example("\ud800")
def test_a_value_is_written_and_read_without_loss(value: Any) -> None:
    text = json.dumps(value)
    parsed = parse(text)
    assert identity(parse(to_text(parsed))) == identity(parsed) == identity(value)
    assert to_text(parsed).isascii()
    assert shape(json.loads(to_text(parsed))) == shape(value)


@given(VALUES, VALUES)
def test_two_values_have_one_identity_exactly_when_they_are_the_same_value(first: Any, second: Any) -> None:
    assert (identity(first) == identity(second)) == (shape(first) == shape(second))


@given(VALUES)
def test_the_parser_with_its_own_stack_reads_the_same_values(value: Any) -> None:
    text = json.dumps(value, indent=1)
    parsed, end = parse_deep(text, 0)
    assert end == len(text)
    assert identity(parsed) == identity(parse(text))


@given(st.text(max_size=30) | st.text('[]{}",:0123456789.eE-+ntfru\\ ', max_size=14))
def test_text_is_a_value_exactly_when_it_is_json(text: str) -> None:
    def strict(constant: str) -> None:
        raise ValueError(constant)

    def unique(fields: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(fields)) != len(fields):
            raise ValueError("twice")
        return dict(fields)

    try:
        json.loads(text, parse_constant=strict, object_pairs_hook=unique)
        is_json = True
    except ValueError:
        is_json = False
    assert is_value(parse, text) == is_json
    assert is_value(parse_with_own_stack, text) == is_json


def parse_with_own_stack(text: str) -> None:
    start = len(text) - len(text.lstrip(" \t\n\r"))
    _, end = parse_deep(text, start)
    if text[end:].strip(" \t\n\r"):
        raise ValueError("more text")


def is_value(function: Callable[[str], object], text: str) -> bool:
    try:
        function(text)
    except Exception as error:
        if not isinstance(error, (CodecError, ValueError)) and type(error).__name__ != "_RepeatedName":
            raise
        return False
    return True


@given(st.binary(max_size=20))
def test_bytes_are_a_value_or_a_codec_error(line: bytes) -> None:
    try:
        parse(line)
    except CodecError as error:
        reason = error.reason
    else:
        reason = "undecodable"
    assert reason in ("undecodable", "repeated_name")


@pytest.mark.parametrize("opening", ["[", '{"a":', '[{"b":[0,'])
@pytest.mark.parametrize("depth", [10, 900, 20_000])
def test_nesting_may_have_any_depth(opening: str, depth: int) -> None:
    closing = {"[": "]", '{"a":': "}", '[{"b":[0,': "]}]"}[opening]
    text = opening * depth + "1" + closing * depth
    assert to_text(parse(text)) == identity(parse(text)) == text
    with pytest.raises(CodecError):
        parse(text[:-1])


@pytest.mark.parametrize("digits", [4000, 4001, 4300, 5000, 50_000])
@pytest.mark.parametrize("sign", ["", "-"])
def test_integers_may_have_any_length(digits: int, sign: str) -> None:
    text = sign + "1" + "0" * (digits - 2) + "7"
    assert to_text(parse(text)) == identity(parse(text)) == text
    assert parse(text) != parse(text[:-1] + "8")
    assert identity(parse(text + ".0")) != identity(parse(text))
    assert identity(parse(text + ".0")) == identity(parse(text + ".00"))


def test_exponents_may_have_any_length() -> None:
    text = "1e" + "9" * 5000
    assert to_text(parse(text)) == text
    assert parse(text) != parse("1e" + "9" * 4999)
    assert parse("10e" + "9" * 5000) == parse("1e1" + "0" * 5000)


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ("1.0", "1.00", True),
        ("1.0", "1e0", True),
        ("100.0", "1E+2", True),
        ("-0.0", "0.0", True),
        ("0e5", "0.0", True),
        ("0.1", "0.10000000000000000001", False),
        ("1.0", "1", False),
        ("1e400", "2e400", False),
        ("1.5", "-1.5", False),
    ],
)
def test_numbers_are_compared_exactly_and_an_integer_is_not_a_float(first: str, second: str, same: bool) -> None:
    assert (parse(first) == parse(second)) is same
    assert (identity(parse(first)) == identity(parse(second))) is same


def test_a_float_is_hashable_and_keeps_its_text() -> None:
    assert len({JsonFloat("1.0"), JsonFloat("1.00"), JsonFloat("2.0")}) == 2
    assert to_text([JsonFloat("1.50")]) == "[1.50]"
