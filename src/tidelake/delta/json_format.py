"""JSON records on the JVM, read so that nothing that does not fit becomes a null in silence.

A record is read as the first of two elements of a list, of which the second must come out as it went in: so nothing is
left over behind it. Names are counted: where fewer were seen than there are, or a text may have been something else,
the record is parsed once more, as a variant, which refuses an object with one name twice. Where a decimal may have been
written with more digits than a double has, it is read once more with its numbers in quotes. See `json_types`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidelake.delta.conditions import any_of
from tidelake.delta.decode import reason_by
from tidelake.delta.json_types import Reading, read_record
from tidelake.schema import resolved_schema

_SENTINEL = "_8f1d0c63a95be24780f36e1bd2c4097a"
CORRUPT = "_corrupt"
"""The field in which `from_json` leaves the text of a record that does not fit."""
STRICT = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": CORRUPT,
    "allowSingleQuotes": "false",
    "allowNonNumericNumbers": "false",
}
"""How `from_json` reads JSON and nothing that only looks like it."""
PAYLOAD = '"payload":'
"""What stands between the schema of a message and the rest; a text inside cannot have it, as its quotes are marked."""
WRAPPING = frozenset({"schema", "payload"})
"""Where a value has a column of these names, nothing tells it from one with a schema around it."""
_HASH_MAX = 2**63 - 1
"""Of the hash of a schema: the state that a table keeps is 0 or more."""
_SPACED_NAMES = ('" ', '"\t', '"\n', '"\r')
"""A name may have space before its colon, and then it is not counted."""

_SURROGATE = (
    r"\A(?:[^\\]++|\\[^u]|\\u(?:[0-9a-ce-fA-CE-F][0-9a-fA-F]{3}|[dD][0-7][0-9a-fA-F]{2}"
    r"|[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}))*+\\u"
)
"""Whole letters, then half of a pair, which stands for none; possessive, so that no text is too long for a stack."""
_LONG_NUMBER = r"[:,\[\s]-?[0-9](?:[0-9.]{16}|[0-9.]*+[eE])"
"""A number that a double may not hold: with 16 digits and a point, or with an exponent; 15 digits it gives back."""
_NUMBERS = r'\G((?:[^"0-9-]++|"(?:[^"\\]++|\\.)*+")*+)(-?[0-9][0-9.eE+-]*+)'
"""What is no number, texts as a whole, and then a number; possessive, so that no text is too long for a stack."""


def decode_json(
    frame: DataFrame, source: str, target: str, record: dict[str, Any], refused: Mapping[int, str] | None = None
) -> DataFrame:
    """Decode JSON objects, with or without Kafka Connect's `schema` and `payload` around them.

    In:  `source` binary, any others.
    Out: the same, `target` struct of the record's columns, `<target>_reason` and `<target>_detail` string. The struct
         is null where there is a reason, and where `source` or the JSON in it is null.

    Args:
        frame: the records.
        source: the column with their bytes.
        target: the column to add.
        record: the record schema. Names that it does not have are left out.
        refused: by the hash of the schema that records have with them, why they cannot be read.

    Raises:
        SchemaRefused: the record has a type that JSON has no form for.
    """
    reading = read_record(resolved_schema(record))
    names = [one["name"] for one in record["fields"]]
    named = (F.col(f"{target}_{one}") for one in _NAMED)
    text, wrapped, plain, payload, wire, broken_so_far, suspect, parsed, note = named
    # One step for each, or the optimizer would read a record once for each use.
    staged = frame.withColumn(f"{target}_text", F.col(source).cast("string"))
    staged = staged.withColumn(f"{target}_wrapped", is_wrapped(text, names))
    staged = staged.withColumns(
        {
            f"{target}_plain": F.when(~wrapped, read_object(text, reading.ddl)),
            f"{target}_payload": F.when(wrapped, read_object(text, f"struct<payload: {reading.ddl}>")),
        }
    )
    first = F.struct(*(plain["v"][0][name].alias(name) for name in names))
    staged = staged.withColumn(
        f"{target}_wire",
        F.when(wrapped, payload["v"][0]["payload"]).when(plain["v"][0].isNotNull(), first),
    )
    unmended = F.lit(None).cast("string")
    if reading.again is not None:
        staged, unmended = _mended(staged, target, reading, wrapped)
    broken = F.coalesce(
        F.when(wrapped, breakage_of(text, payload)).otherwise(breakage_of(text, plain)),
        unmended,
    )
    found = [reading.problem(wire)] if reading.problem else []
    staged = staged.withColumn(
        f"{target}_broken", F.when(F.col(source).isNotNull(), F.coalesce(broken, *found, F.lit(None).cast("string")))
    )
    looked_at = broken_so_far.isNull() & wire.isNotNull() & _is_suspect(text, wire, reading)
    staged = staged.withColumn(f"{target}_suspect", F.coalesce(looked_at, F.lit(False)))
    staged = staged.withColumn(f"{target}_parsed", F.when(suspect, F.try_parse_json(text)))
    mistaken: list[Column] = []
    if reading.exact is not None and reading.mistaken is not None:
        at = F.when(wrapped, F.try_variant_get(parsed, "$.payload", reading.exact))
        staged = staged.withColumn(f"{target}_exact", at.otherwise(F.try_variant_get(parsed, "$", reading.exact)))
        mistaken = [F.concat(F.lit("wrong_type "), reading.mistaken(F.col(f"{target}_exact")))]
    repeated = F.when(suspect & parsed.isNull(), F.lit("repeated_name"))
    staged = staged.withColumn(f"{target}_note", F.coalesce(broken_so_far, repeated, *mistaken))
    refusal = F.when(wrapped, refusal_of(F.col(source), refused)) if refused else F.lit(None).cast("string")
    reason, column = F.substring_index(note, " ", 1), F.regexp_extract(note, " (.*)", 1)
    done = staged.withColumns(
        {
            target: F.when(note.isNull() & refusal.isNull(), reading.stored(wire)),
            f"{target}_reason": F.coalesce(F.when(refusal.isNotNull(), F.lit("schema_not_resolved")), reason),
            f"{target}_detail": F.coalesce(refusal, F.when(column != "", F.concat(F.lit("column "), column))),
        }
    )
    return done.drop(*(f"{target}_{name}" for name in _STAGES))


_NAMED = ("text", "wrapped", "plain", "payload", "wire", "broken", "suspect", "parsed", "note")
_STAGES = (*_NAMED, "exact", "rounded", "plain_again", "payload_again")


def _mended(staged: DataFrame, target: str, reading: Reading, wrapped: Column) -> tuple[DataFrame, Column]:
    """Put what stands there into `<target>_wire`, where numbers were read as doubles, and say where that fails."""
    assert reading.again is not None and reading.pointed is not None and reading.mended is not None
    text, wire, rounded, plain, payload = (
        F.col(f"{target}_{one}") for one in ("text", "wire", "rounded", "plain_again", "payload_again")
    )
    may_be = reading.pointed(wire) & text.rlike(_LONG_NUMBER)
    staged = staged.withColumn(f"{target}_rounded", F.coalesce(may_be, F.lit(False)))
    quoted = F.regexp_replace(text, _NUMBERS, '$1"$2"')
    staged = staged.withColumns(
        {
            f"{target}_plain_again": F.when(rounded & ~wrapped, read_object(quoted, reading.again)),
            f"{target}_payload_again": F.when(
                rounded & wrapped, read_object(quoted, f"struct<payload: {reading.again}>")
            ),
        }
    )
    exact = F.when(wrapped, reading.mended(wire, payload["v"][0]["payload"])).otherwise(
        reading.mended(wire, plain["v"][0])
    )
    failed = F.when(plain[CORRUPT].isNotNull() | payload[CORRUPT].isNotNull(), F.lit("undecodable"))
    return staged.withColumn(f"{target}_wire", F.when(rounded, exact).otherwise(wire)), failed


def is_wrapped(text: Column, names: Collection[str]) -> Column:
    """Whether the value is an object of a schema and a payload alone, as Kafka Connect's converter writes; never null.

    Cost: two searches, and one walk through an object that has both names somewhere.
    """
    if WRAPPING & set(names):
        return F.lit(False)
    both = F.contains(text, F.lit('"payload"')) & F.contains(text, F.lit('"schema"'))
    found = F.array_sort(F.array_distinct(F.json_object_keys(text)))
    return F.coalesce(F.when(both, found == F.array(*map(F.lit, sorted(WRAPPING)))), F.lit(False))


def schema_hash(value: Column, lengths: Mapping[int, int] | None = None) -> Column:
    """What tells the schema that a message has with it from others; null where it has none.

    Args:
        value: the bytes of the message.
        lengths: of schemas that are known, by their hashes, how many bytes they have in front of the payload.

    Cost: little more than a copy of that many bytes for a schema that is known; a search for the payload, which looks
    at each byte, for any other; one parse where what may be a schema is not in front.
    """
    text = value.cast("string")
    found = _searched_hash(text)
    for hashed, length in (lengths or {}).items():
        is_behind = F.substring(value, length + 1, len(PAYLOAD)) == F.lit(PAYLOAD.encode())
        is_same = is_behind & (_hash(F.substring(value, 1, length)) == hashed)
        found = F.when(is_same, F.lit(hashed).cast("bigint")).otherwise(found)
    return found


def _hash(stated: Column) -> Column:
    return F.xxhash64(stated).bitwiseAND(F.lit(_HASH_MAX))


def _searched_hash(text: Column) -> Column:
    in_front = F.ltrim(text).startswith('{"schema"') & F.contains(text, F.lit(PAYLOAD))
    elsewhere = F.when(F.contains(text, F.lit(PAYLOAD.rstrip(":"))), F.get_json_object(text, "$.schema"))
    stated = F.when(in_front, F.substring_index(text, PAYLOAD, 1)).otherwise(elsewhere)
    return F.when(stated.isNotNull(), _hash(stated))


def refusal_of(value: Column, refused: Mapping[int, str]) -> Column:
    """Why a message with such a schema cannot be read; null where it may be.

    Args:
        value: the bytes of the message.
        refused: the reasons, by what `schema_hash` gives.
    """
    return reason_by(schema_hash(value), refused)


def read_object(text: Column, ddl: str) -> Column:
    """Read an object of a type (Spark's `struct<…>`): it and the sentinel are the elements of `v`."""
    element = f"struct<{ddl.removeprefix('struct<').removesuffix('>')}, `{_SENTINEL}`: int>"
    whole = F.concat(F.lit('{"v":['), text, F.lit(f',{{"{_SENTINEL}":1}}]}}'))
    return F.from_json(whole, f"v array<{element}>, {CORRUPT} string", STRICT)


def breakage_of(text: Column, read: Column, *, letters: bool = True) -> Column:
    """Why a record is not one JSON object of these types; null where it is.

    Args:
        text: the record.
        read: what `read_object` has made of it.
        letters: whether half of a letter counts, wherever it stands.
    """
    alone = F.try_parse_json(text).isNotNull()
    closed = F.try_parse_json(F.concat(F.lit('{"v":['), text, F.lit("]}"))).isNotNull()
    elements = read["v"]
    whole = (F.size(elements) == 2) & (elements[1][_SENTINEL] == 1)
    return F.coalesce(
        F.when(~F.is_valid_utf8(text), F.lit("undecodable")),
        F.when(
            read[CORRUPT].isNotNull(),
            F.when(~alone, F.lit("undecodable")).when(~closed, F.lit("bytes_left_over")).otherwise(F.lit("wrong_type")),
        ),
        F.when(~F.coalesce(whole, F.lit(False)), F.lit("bytes_left_over")),
        *([F.when(holds_half_a_pair(text), F.lit("undecodable"))] if letters else []),
    )


def holds_half_a_pair(text: Column) -> Column:
    """Whether an escape in a text stands for no letter: it would be read as a question mark."""
    return F.contains(text, F.lit(r"\u")) & text.rlike(_SURROGATE)


def _is_suspect(text: Column, wire: Column, reading: Reading) -> Column:
    """Whether a record may have one name twice, or something else than text, so that a variant has to tell."""
    assert reading.names is not None
    # Two characters for each name; those that a text holds make it only more.
    counted = (F.length(text) - F.length(F.replace(text, F.lit('":'), F.lit("")))) / 2
    suspect = (counted != reading.names(wire)) | any_of(F.contains(text, F.lit(one)) for one in _SPACED_NAMES)
    return suspect if reading.odd is None else suspect | reading.odd(wire)
