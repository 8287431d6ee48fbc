"""Reads change events from JSON, with or without an embedded schema, and reports everything that cannot be decoded.

Values are read as text, and converted by `tidelake.decode.debezium.events`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidelake.decode.debezium.columns import BROKEN, EMPTY, EVENT, PARSED, RECORD_KEY, SCHEMA
from tidelake.decode.debezium.events import contains_row, read_events
from tidelake.decode.debezium.shape import ChangeShape, RowReader, is_read_as_text
from tidelake.decode.framing import reason_by
from tidelake.decode.json import (
    CORRUPT,
    defect_of,
    has_lone_surrogate,
    is_wrapped,
    oversize_detail,
    read_object,
    schema_hash,
)
from tidelake.spark.column_cache import cached

_JSON_OPTIONS = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT, "allowSingleQuotes": "false"}
_PARTS = ("before", "after", "source", "op", "ts_ms")
_TRANSACTION = (("id", "string"), ("total_order", "string"), ("data_collection_order", "string"))


def read_changes(raw: DataFrame, shape: ChangeShape) -> DataFrame:
    """Read change events from JSON, with or without an embedded schema.

    In:  topic, partition and offset; key and value, both binary; and any other columns.
    Out: _schema bigint, and the columns that `read_events` returns, except _event, _broken and _empty.
    """
    for step in _careful_steps(shape):
        raw = raw.withColumns(step)
    reader = RowReader(shape.columns, stated_key=_paths_of_key(shape), written=shape.written)
    return read_events(raw, shape, reader).drop(PARSED, RECORD_KEY, BROKEN, EVENT, EMPTY)


@cached
def _careful_steps(shape: ChangeShape) -> list[dict[str, Column]]:
    """Return the columns that `read_events` needs, step by step."""
    text, parsed = F.col("value").cast("string"), F.col(f"{PARSED}.v")[0]
    surrogates = F.when(has_lone_surrogates(F.col(EVENT), shape, text), F.lit("undecodable"))
    broken = F.coalesce(
        reason_by(F.col(SCHEMA), shape.refused_schemas),
        defect_of(text, F.col(PARSED), surrogates=False),
        surrogates,
    )
    # The detail is null unless the event is large; `concat_ws` skips nulls.
    undecodable = F.concat_ws(", ", F.lit("undecodable"), oversize_detail(text))
    broken = F.when(broken == "undecodable", undecodable).otherwise(broken)
    # The record's key is read only if the event does not contain the row's key.
    contains_key = F.col(BROKEN).isNull() & contains_row(F.col(f"{EVENT}.op"), F.col(f"{EVENT}.after"), shape)
    key_text = F.col("key").cast("string")
    needed = F.when(~F.coalesce(contains_key, F.lit(False)) & ~has_lone_surrogate(key_text), key_text)
    return [
        {PARSED: read_object(text, event_ddl(shape))},
        {SCHEMA: embedded_schema_hash(parsed, shape, F.col("value")), EVENT: event_of(parsed, shape)},
        {BROKEN: F.when(text.isNotNull(), broken)},
        {EMPTY: text.isNull() | (F.col(BROKEN).isNull() & _is_wrapped_null(text, parsed))},
        *([{RECORD_KEY: _record_key(needed, shape)}] if shape.key else []),
    ]


def _record_key(text: Column, shape: ChangeShape) -> Column:
    """Return the record's key, parsed; the key may have an embedded schema."""
    keys = [(name, "string") for name in shape.key]
    if "payload" in shape.key:
        inside = F.get_json_object(text, "$.payload")
        text = F.when(is_wrapped(text, ()) & inside.startswith("{"), inside).otherwise(text)
        return F.from_json(text, _struct([*keys, (CORRUPT, "string")]), _JSON_OPTIONS)
    key = _struct([*keys, ("payload", _struct(keys)), (CORRUPT, "string")])
    return F.from_json(text, key, _JSON_OPTIONS)


def _paths_of_key(shape: ChangeShape) -> dict[str, tuple[str, ...]]:
    """Return, for each column of the row's key, the paths in a record's key where its value may be."""
    if "payload" in shape.key:
        return {name: (name,) for name in shape.key}
    return {name: (f"payload.{name}", name) for name in shape.key}


def embedded_schema_hash(parsed: Column, shape: ChangeShape, value: Column) -> Column:
    """Return the hash of the schema embedded in `value`, which was parsed with `event_ddl`; null if it has none."""
    return F.when(parsed["payload"].isNotNull(), schema_hash(value, shape.schema_lengths))


def _is_wrapped_null(text: Column, parsed: Column) -> Column:
    """Return whether a value has an embedded schema, and null as its payload; the result is never null.

    Some converters write tombstones in this form.
    """
    variant = F.try_parse_json(text)
    has_schema = F.try_variant_get(variant, "$.schema", "variant").isNotNull()
    is_null = F.is_variant_null(F.try_variant_get(variant, "$.payload", "variant"))
    says_nothing = parsed["op"].isNull() & parsed["payload"].isNull()
    return F.when(says_nothing, F.coalesce(has_schema & is_null, F.lit(False))).otherwise(False)


def event_ddl(shape: ChangeShape, plain: Mapping[str, str] | None = None) -> str:
    """Return the type of an event, which may be inside a `payload`, as Spark's `struct<…>`.

    Args:
        shape: the shape of the events.
        plain: the Spark type for each wire type that is not read as text; by default, everything is read as text.
    """
    types_of_plain = plain or {}

    def number_type(path: str) -> str:
        return "string" if path in shape.position else types_of_plain.get("long", "string")

    types = {
        name: "string" if is_read_as_text(wire, types_of_plain) else types_of_plain[wire.name]
        for name, wire in shape.columns
    }
    rows = {"before": [(name, types[name]) for name in shape.before_columns], "after": list(types.items())}
    rows["source"] = [(name, number_type("source.lsn") if name == "lsn" else "string") for name in shape.source_fields]
    parts = [
        *((name, _struct(fields)) for name, fields in rows.items()),
        ("op", "string"),
        ("ts_ms", number_type("ts_ms")),
        *([("transaction", _struct(_TRANSACTION))] if shape.transactions else []),
    ]
    return _struct([*parts, ("payload", _struct(parts))])


def _struct(fields: Sequence[tuple[str, str]]) -> str:
    return f"struct<{', '.join(f'`{name}`: {kind}' for name, kind in fields)}>"


def event_of(parsed: Column, shape: ChangeShape) -> Column:
    """Return the event from a value parsed with `event_ddl`: its payload, if it has one."""
    parts = (*_PARTS, "transaction") if shape.transactions else _PARTS
    bare = F.struct(*(parsed[name].alias(name) for name in parts))
    return F.when(parsed["payload"].isNotNull(), parsed["payload"]).otherwise(bare)


def has_lone_surrogates(event: Column, shape: ChangeShape, text: Column, not_text: Collection[str] = ()) -> Column:
    """Return whether a string in an event may hold a lone surrogate; the result is never null.

    A lone surrogate was read as a question mark; in lists and records, which are read later, it is still an escape.
    Searching the columns costs a fraction of searching the whole text, so the text is searched only if a column
    contains a question mark or an escape.

    Args:
        event: the event, parsed with `event_ddl`.
        shape: the shape of the event.
        text: the whole text of the value.
        not_text: the wire types that were not read as text.
    """

    def has(names: Sequence[str], sign: str) -> Column:
        return F.contains(F.concat_ws("", *cells_of(event, names, shape)), F.lit(sign))

    nested = [name for name, wire in shape.columns if wire.name in ("array", "record")]
    flat = [name for name, wire in shape.columns if is_read_as_text(wire, not_text) and name not in nested]
    may_have = has(flat, "?") | has(nested, r"\u") if nested else has(flat, "?")
    return F.coalesce(may_have & has_lone_surrogate(text), F.lit(False))


def cells_of(event: Column, names: Sequence[str], shape: ChangeShape) -> list[Column]:
    """Return the named columns of an event's row `after`, and of its row `before` if they are read from that row."""
    return [event["after"][name] for name in names] + [
        event["before"][name] for name in names if name in shape.before_columns
    ]
