"""Decodes JSON records on the JVM. A value that does not fit its type is reported, and never silently becomes null.

A record is read as the first of two list elements, and the second must be read back unchanged, which rules out trailing
bytes. Names are counted: if fewer were read than the record holds, or a string may originally have been a value of
another type, the record is parsed again as a variant, which refuses an object with a repeated name. If a decimal may
have more digits than a double can hold, the record is read again with its numbers in quotes. See `json_scalars` and
`json_types`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidelake.decode.columns import Target
from tidelake.decode.framing import reason_by
from tidelake.decode.json_scalars import JsonForm
from tidelake.decode.json_types import record_form
from tidelake.schema.avro import resolved_schema
from tidelake.spark.column_cache import cached
from tidelake.spark.conditions import any_of

_SENTINEL = "_8f1d0c63a95be24780f36e1bd2c4097a"
CORRUPT = "_corrupt"
"""The field in which `from_json` stores the text of a record that it cannot read as the given type."""
STRICT = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": CORRUPT,
    "allowSingleQuotes": "false",
    "allowNonNumericNumbers": "false",
}
"""Options with which `from_json` accepts only standard JSON."""
TEXT_CHARACTERS_MAX = 20_000_000
"""Maximum length of a string inside JSON: the parser that Spark uses refuses longer ones without saying why."""
PAYLOAD = '"payload":'
"""The text between a message's schema and its payload; no string contains it, because strings escape quotes."""
WRAPPING = frozenset({"schema", "payload"})
"""The names around a payload. If the row has a column with one of these names, no message counts as wrapped."""
_HASH_MAX = 2**63 - 1
"""A mask that keeps the hash of a schema non-negative, like all state that a table stores."""
_SPACED_NAMES = ('" ', '"\t', '"\n', '"\r')
"""The end of a name if whitespace comes before its colon; such names are not counted."""

_SURROGATE = (
    r"\A(?:[^\\]++|\\[^u]|\\u(?:[0-9a-ce-fA-CE-F][0-9a-fA-F]{3}|[dD][0-7][0-9a-fA-F]{2}"
    r"|[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}))*+\\u"
)
"""Whole characters, then a lone surrogate. Possessive quantifiers, so that long strings cannot overflow the stack."""
_LONG_NUMBER = r"[:,\[\s]-?[0-9](?:[0-9.]{16}|[0-9.]*+[eE])"
"""A number that a double might not hold exactly: 16 digits and a point, or an exponent; 15 digits are always exact."""
_NUMBERS = r'\G((?:[^"0-9-]++|"(?:[^"\\]++|\\.)*+")*+)(-?[0-9][0-9.eE+-]*+)'
"""Everything up to a number, with strings skipped whole, then the number. Possessive quantifiers, as above."""


def decode_json(
    frame: DataFrame, source: str, target: str, record: dict[str, Any], refused: Mapping[int, str] | None = None
) -> DataFrame:
    """Decode JSON objects, with or without Kafka Connect's `schema` and `payload` around them.

    In:  `source` binary, and any other columns.
    Out: the same, `target` struct of the record's columns, `<target>_reason` and `<target>_detail` string. The struct
         is null if there is a reason, or if `source` or the JSON in it is null.

    Args:
        frame: the records.
        source: the column with their bytes.
        target: the column to add.
        record: the record schema. Unknown names are ignored.
        refused: why records cannot be read, by the hash of their embedded schema.

    Raises:
        SchemaRefused: the record has a type that cannot be represented in JSON.
    """
    for step in _json_steps(source, target, record, refused):
        frame = frame.withColumns(step)
    return frame.drop(*Target(target).json_steps)


@cached
def _json_steps(
    source: str, target: str, record: dict[str, Any], refused: Mapping[int, str] | None
) -> list[dict[str, Column]]:
    """Return the columns of `decode_json` in steps: in a single step, Spark would read a record again for each use."""
    form = record_form(resolved_schema(record))
    names = [field["name"] for field in record["fields"]]
    columns = Target(target)
    text, wrapped, wire = F.col(columns.text), F.col(columns.is_wrapped), F.col(columns.wire)
    plain, payload, problem = F.col(columns.plain), F.col(columns.payload), F.col(columns.problem)
    first = F.struct(*(plain["v"][0][name].alias(name) for name in names))
    quoting, quoting_failure = _quoting_steps(columns, form)
    broken = F.coalesce(
        F.when(wrapped, defect_of(text, payload)).otherwise(defect_of(text, plain)),
        quoting_failure,
    )
    misfits = [form.problem(wire)] if form.problem else []
    refusal = F.when(wrapped, refusal_of(F.col(source), refused)) if refused else F.lit(None).cast("string")
    reason, column = F.substring_index(problem, " ", 1), F.regexp_extract(problem, " (.*)", 1)
    return [
        {columns.text: F.col(source).cast("string")},
        {columns.is_wrapped: is_wrapped(text, names)},
        {
            columns.plain: F.when(~wrapped, read_object(text, form.ddl)),
            columns.payload: F.when(wrapped, read_object(text, f"struct<payload: {form.ddl}>")),
        },
        {columns.wire: F.when(wrapped, payload["v"][0]["payload"]).when(plain["v"][0].isNotNull(), first)},
        *quoting,
        {columns.broken: F.when(F.col(source).isNotNull(), F.coalesce(broken, *misfits, F.lit(None).cast("string")))},
        *_suspect_steps(columns, form),
        {
            target: F.when(problem.isNull() & refusal.isNull(), form.stored(wire)),
            columns.reason: F.coalesce(F.when(refusal.isNotNull(), F.lit("schema_not_resolved")), reason),
            columns.detail: F.coalesce(
                refusal,
                F.when(column != "", F.concat(F.lit("column "), column)),
                F.when(reason == "undecodable", oversize_detail(text)),
            ),
        },
    ]


def _quoting_steps(columns: Target, form: JsonForm) -> tuple[list[dict[str, Column]], Column]:
    """Return the steps that read numbers again, in quotes, if a double might not hold them.

    Also return why this failed, as a column; null if it did not.
    """
    if form.quoted_ddl is None:
        return [], F.lit(None).cast("string")
    assert form.has_point is not None and form.with_quoted is not None
    text, wrapped, wire = F.col(columns.text), F.col(columns.is_wrapped), F.col(columns.wire)
    rounded, plain, payload = F.col(columns.is_rounded), F.col(columns.plain_quoted), F.col(columns.payload_quoted)
    may_be_rounded = form.has_point(wire) & text.rlike(_LONG_NUMBER)
    quoted = F.regexp_replace(text, _NUMBERS, '$1"$2"')
    exact = F.when(wrapped, form.with_quoted(wire, payload["v"][0]["payload"])).otherwise(
        form.with_quoted(wire, plain["v"][0])
    )
    steps = [
        {columns.is_rounded: F.coalesce(may_be_rounded, F.lit(False))},
        {
            columns.plain_quoted: F.when(rounded & ~wrapped, read_object(quoted, form.quoted_ddl)),
            columns.payload_quoted: F.when(
                rounded & wrapped, read_object(quoted, f"struct<payload: {form.quoted_ddl}>")
            ),
        },
        {columns.wire: F.when(rounded, exact).otherwise(wire)},
    ]
    return steps, F.when(plain[CORRUPT].isNotNull() | payload[CORRUPT].isNotNull(), F.lit("undecodable"))


def _suspect_steps(columns: Target, form: JsonForm) -> list[dict[str, Column]]:
    """Return the steps that read suspect records again as variants, and then add the problem of each record."""
    text, wrapped, wire = F.col(columns.text), F.col(columns.is_wrapped), F.col(columns.wire)
    broken, suspect, variant = F.col(columns.broken), F.col(columns.is_suspect), F.col(columns.variant)
    may_be_suspect = broken.isNull() & wire.isNotNull() & _is_suspect(text, wire, form)
    steps = [
        {columns.is_suspect: F.coalesce(may_be_suspect, F.lit(False))},
        {columns.variant: F.when(suspect, F.try_parse_json(text))},
    ]
    not_text: list[Column] = []
    if form.variant_ddl is not None and form.not_text is not None:
        inside = F.when(wrapped, F.try_variant_get(variant, "$.payload", form.variant_ddl))
        parts = inside.otherwise(F.try_variant_get(variant, "$", form.variant_ddl))
        steps.append({columns.variant_parts: parts})
        not_text = [F.concat(F.lit("wrong_type "), form.not_text(F.col(columns.variant_parts)))]
    repeated = F.when(suspect & variant.isNull(), F.lit("repeated_name"))
    return [*steps, {columns.problem: F.coalesce(broken, repeated, *not_text)}]


def is_wrapped(text: Column, names: Collection[str]) -> Column:
    """Return whether a value is an object of only a schema and a payload, as Kafka Connect writes it.

    The result is never null.

    Cost: two searches, and one walk through objects that contain both names.
    """
    if WRAPPING & set(names):
        return F.lit(False)
    both = F.contains(text, F.lit('"payload"')) & F.contains(text, F.lit('"schema"'))
    keys = F.array_sort(F.array_distinct(F.json_object_keys(text)))
    return F.coalesce(F.when(both, keys == F.array(*map(F.lit, sorted(WRAPPING)))), F.lit(False))


def schema_hash(value: Column, lengths: Mapping[int, int] | None = None) -> Column:
    """Return the hash of a message's embedded schema; null if the message has none.

    Args:
        value: the bytes of the message.
        lengths: the number of bytes before the payload for known schemas, by hash.

    Cost: for a known schema, little more than a copy of those bytes; for any other, a search for the payload, which
    reads every byte, or a parse if the schema does not come first.
    """
    text = value.cast("string")
    schema = _hash_by_search(text)
    for hashed, length in (lengths or {}).items():
        payload_follows = F.substring(value, length + 1, len(PAYLOAD)) == F.lit(PAYLOAD.encode())
        is_same = payload_follows & (_hash(F.substring(value, 1, length)) == hashed)
        schema = F.when(is_same, F.lit(hashed).cast("bigint")).otherwise(schema)
    return schema


def _hash(schema_text: Column) -> Column:
    return F.xxhash64(schema_text).bitwiseAND(F.lit(_HASH_MAX))


def _hash_by_search(text: Column) -> Column:
    schema_is_first = F.ltrim(text).startswith('{"schema"') & F.contains(text, F.lit(PAYLOAD))
    parsed_schema = F.when(F.contains(text, F.lit(PAYLOAD.rstrip(":"))), F.get_json_object(text, "$.schema"))
    schema_text = F.when(schema_is_first, F.substring_index(text, PAYLOAD, 1)).otherwise(parsed_schema)
    return F.when(schema_text.isNotNull(), _hash(schema_text))


def refusal_of(value: Column, refused: Mapping[int, str]) -> Column:
    """Return why a message cannot be read because of its schema; null if the schema is not refused.

    Args:
        value: the bytes of the message.
        refused: the reasons, by the hash of the schema.
    """
    return reason_by(schema_hash(value), refused)


def oversize_detail(text: Column) -> Column:
    """State the size of a record that may contain a string too long to be read, and the limit; null for other records.

    Args:
        text: a record that could not be read.
    """
    size = F.octet_length(text)
    detail = F.concat(
        F.lit("it has "), size, F.lit(f" bytes, and strings longer than {TEXT_CHARACTERS_MAX} characters are not read")
    )
    return F.when(size > TEXT_CHARACTERS_MAX, detail)


def read_object(text: Column, ddl: str) -> Column:
    """Read an object of a type (Spark's `struct<…>`); the elements of `v` are the object and the sentinel."""
    element = f"struct<{ddl.removeprefix('struct<').removesuffix('>')}, `{_SENTINEL}`: int>"
    whole = F.concat(F.lit('{"v":['), text, F.lit(f',{{"{_SENTINEL}":1}}]}}'))
    return F.from_json(whole, f"v array<{element}>, {CORRUPT} string", STRICT)


def defect_of(text: Column, read: Column, *, surrogates: bool = True) -> Column:
    """Return why a record is not one JSON object of the expected types; null if it is.

    Args:
        text: the record.
        read: the result of `read_object`.
        surrogates: whether a lone surrogate anywhere in the record is a defect.
    """
    is_json = F.try_parse_json(text).isNotNull()
    is_json_list = F.try_parse_json(F.concat(F.lit('{"v":['), text, F.lit("]}"))).isNotNull()
    elements = read["v"]
    whole = (F.size(elements) == 2) & (elements[1][_SENTINEL] == 1)
    return F.coalesce(
        F.when(~F.is_valid_utf8(text), F.lit("undecodable")),
        F.when(
            read[CORRUPT].isNotNull(),
            F.when(~is_json, F.lit("undecodable"))
            .when(~is_json_list, F.lit("bytes_left_over"))
            .otherwise(F.lit("wrong_type")),
        ),
        F.when(~F.coalesce(whole, F.lit(False)), F.lit("bytes_left_over")),
        *([F.when(has_lone_surrogate(text), F.lit("undecodable"))] if surrogates else []),
    )


def has_lone_surrogate(text: Column) -> Column:
    """Return whether a string contains an escaped lone surrogate, which would be read as a question mark."""
    return F.contains(text, F.lit(r"\u")) & text.rlike(_SURROGATE)


def _is_suspect(text: Column, wire: Column, form: JsonForm) -> Column:
    """Return whether a record may repeat a name, or hold a non-string where a string is expected."""
    assert form.name_count is not None
    # Each name ends with these two characters; any that are inside strings only increase the count.
    counted = (F.length(text) - F.length(F.replace(text, F.lit('":'), F.lit("")))) / 2
    suspect = (counted != form.name_count(wire)) | any_of(F.contains(text, F.lit(ending)) for ending in _SPACED_NAMES)
    return suspect if form.suspect is None else suspect | form.suspect(wire)
