"""JSON records on the JVM, read so that nothing that does not fit becomes a null in silence.

A record is read as the first of two elements of a list, of which the second must come out as it went in: so nothing is
left over behind it. Names are counted: where fewer were seen than there are, or a text may have been something else,
the record is parsed once more, as a variant, which refuses an object with one name twice. See `json_types`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidelake.delta.decode import reason_by
from tidelake.delta.json_types import Reading, read_record
from tidelake.schema import resolved_schema

_SENTINEL = "_8f1d0c63a95be24780f36e1bd2c4097a"
_CORRUPT = "_corrupt"
_OPTIONS = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": _CORRUPT,
    "allowSingleQuotes": "false",
    "allowNonNumericNumbers": "false",
}
PAYLOAD = '"payload":'
"""What stands between the schema of a message and the rest; a text inside cannot have it, as its quotes are marked."""
_SPACED_NAMES = ('" ', '"\t', '"\n', '"\r')
"""A name may have space before its colon, and then it is not counted."""

_SURROGATE = r"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F]"
"""Half of a pair, which stands for no letter."""


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
    text, plain, payload, wire, broken_so_far, suspect, parsed, _, note = (F.col(f"{target}_{one}") for one in _STAGES)
    wrapped = _is_wrapped(text, names)
    # One step for each, or the optimizer would read a record once for each use.
    staged = frame.withColumn(f"{target}_text", F.col(source).cast("string"))
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
    broken = F.coalesce(
        F.when(wrapped, breakage_of(text, payload)).otherwise(breakage_of(text, plain)),
        F.when(F.contains(text, F.lit(r"\u")) & text.rlike(_SURROGATE), F.lit("undecodable")),
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
    refusal = refusal_of(text, refused or {})
    reason, column = F.substring_index(note, " ", 1), F.regexp_extract(note, " (.*)", 1)
    done = staged.withColumns(
        {
            target: F.when(note.isNull() & refusal.isNull(), reading.stored(wire)),
            f"{target}_reason": F.coalesce(F.when(refusal.isNotNull(), F.lit("schema_not_resolved")), reason),
            f"{target}_detail": F.coalesce(refusal, F.when(column != "", F.concat(F.lit("column "), column))),
        }
    )
    return done.drop(*(f"{target}_{name}" for name in _STAGES))


_STAGES = ("text", "plain", "payload", "wire", "broken", "suspect", "parsed", "exact", "note")


def _is_wrapped(text: Column, names: list[str]) -> Column:
    """Whether Kafka Connect's converter has put a schema around the value; never null."""
    if {"schema", "payload"} & set(names):
        return F.lit(False)
    begins = F.ltrim(text).startswith('{"schema"') & F.contains(text, F.lit('"payload"'))
    return F.coalesce(begins, F.lit(False))


def schema_hash(text: Column) -> Column:
    """What tells the schema in front of a message's payload from others; null where there is none."""
    has_one = F.ltrim(text).startswith('{"schema"') & F.contains(text, F.lit(PAYLOAD))
    return F.when(has_one, F.xxhash64(F.substring_index(text, PAYLOAD, 1)))


def refusal_of(text: Column, refused: Mapping[int, str]) -> Column:
    """Why a message with such a schema cannot be read; null where it may be.

    Args:
        text: the message.
        refused: the reasons, by what `schema_hash` gives.
    """
    return reason_by(schema_hash(text), refused)


def read_object(text: Column, ddl: str) -> Column:
    """Read an object of a type (Spark's `struct<…>`): it and the sentinel are the elements of `v`."""
    element = f"struct<{ddl.removeprefix('struct<').removesuffix('>')}, `{_SENTINEL}`: int>"
    whole = F.concat(F.lit('{"v":['), text, F.lit(f',{{"{_SENTINEL}":1}}]}}'))
    return F.from_json(whole, f"v array<{element}>, {_CORRUPT} string", _OPTIONS)


def breakage_of(text: Column, read: Column) -> Column:
    """Why a record is not one JSON object of these types; null where it is."""
    alone = F.try_parse_json(text).isNotNull()
    closed = F.try_parse_json(F.concat(F.lit('{"v":['), text, F.lit("]}"))).isNotNull()
    elements = read["v"]
    whole = (F.size(elements) == 2) & (elements[1][_SENTINEL] == 1)
    return F.coalesce(
        F.when(~F.is_valid_utf8(text), F.lit("undecodable")),
        F.when(
            read[_CORRUPT].isNotNull(),
            F.when(~alone, F.lit("undecodable")).when(~closed, F.lit("bytes_left_over")).otherwise(F.lit("wrong_type")),
        ),
        F.when(~F.coalesce(whole, F.lit(False)), F.lit("bytes_left_over")),
    )


def _is_suspect(text: Column, wire: Column, reading: Reading) -> Column:
    """Whether a record may have one name twice, or something else than text, so that a variant has to tell."""
    assert reading.names is not None
    # Two characters for each name; those that a text holds make it only more.
    counted = (F.length(text) - F.length(F.replace(text, F.lit('":'), F.lit("")))) / 2
    suspect = (counted != reading.names(wire)) | _any_of(F.contains(text, F.lit(one)) for one in _SPACED_NAMES)
    return suspect if reading.odd is None else suspect | reading.odd(wire)


def _any_of(columns: Iterable[Column]) -> Column:
    return reduce(lambda one, other: one | other, columns)
