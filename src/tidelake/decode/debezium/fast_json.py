"""Reads change events from JSON as Debezium writes it, at little more than the cost of parsing.

Numbers are read as numbers, and each byte is read once. A record written in any other way is left to `read_changes`,
which reports everything that cannot be decoded. See docs/decisions/plain.md.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidelake.decode.debezium.columns import (
    BROKEN,
    EMPTY,
    EVENT,
    IS_PLAIN,
    IS_UNREAD,
    IS_UTF8,
    IS_WHOLE,
    IS_WRONG,
    PARSED,
    REASON,
    SCHEMA,
    WITH_SENTINEL,
)
from tidelake.decode.debezium.events import NO_BEFORE, ROW_OPS, UNREADABLE_ROW, read_events
from tidelake.decode.debezium.json import cells_of, embedded_schema_hash, event_ddl, event_of, has_lone_surrogates
from tidelake.decode.debezium.shape import ChangeShape, RowReader, is_read_as_text
from tidelake.decode.json import CORRUPT, STRICT
from tidelake.decode.types import spark_type
from tidelake.schema.types import scalar_type
from tidelake.spark.column_cache import cached
from tidelake.spark.conditions import all_of, any_of

_SENTINEL = "_3b0d"
"""Short, because it is parsed with each event; no event has a field of this name next to `op`."""
_PLAIN = {name: spark_type(scalar_type(name)).sql for name in ("boolean", "int", "long", "double")}
"""The wire types that JSON's own types hold exactly, except float, which would be rounded twice."""


def read_plain_changes(raw: DataFrame, shape: ChangeShape) -> DataFrame:
    """Read change events in plain JSON, and mark the records that are left to the careful path.

    In:  as for `tidelake.decode.debezium.json.read_changes`.
    Out: as for `read_changes`, and _unread boolean: whether a record has a value that was not read here. If so, none of
         the record's other columns is valid.
    """
    for step in _plain_steps(shape):
        raw = raw.withColumns(step)
    changes = read_events(raw, shape, RowReader(shape.columns, plain=frozenset(_PLAIN), written=shape.written))
    changes = changes.withColumn(IS_UNREAD, _is_unread())
    return changes.drop(PARSED, IS_UTF8, WITH_SENTINEL, IS_WHOLE, EVENT, IS_PLAIN, IS_WRONG, BROKEN, EMPTY)


@cached
def _plain_steps(shape: ChangeShape) -> list[dict[str, Column]]:
    """Return the columns that `read_events` needs, step by step."""
    value = F.col("value")
    # The sentinel replaces the last brace. If it is read, the value was one object with nothing after it.
    open_object = F.substring(value, F.lit(1), F.octet_length(value) - 1)
    with_sentinel = F.concat(open_object, F.lit(f',"{_SENTINEL}":1}}'.encode())).cast("string")
    ends_with_brace = F.substring(value, -1, 1) == F.lit(b"}")
    ddl = f"{event_ddl(shape, _PLAIN).removesuffix('>')}, `{_SENTINEL}`: int, `{CORRUPT}`: string>"
    parsed = F.col(PARSED)
    # Computed from the text with the sentinel, which begins like the value: the value itself is not carried along.
    schema = embedded_schema_hash(parsed, shape, F.col(WITH_SENTINEL).cast("binary"))
    is_whole = (parsed[_SENTINEL] == 1) & parsed[CORRUPT].isNull() & F.col(IS_UTF8)
    return [
        # The text that ends with the sentinel is used twice, so it has a step of its own, in which its expression is
        # compiled. As an argument of `from_json`, the expression would be evaluated without being compiled.
        {EMPTY: value.isNull(), WITH_SENTINEL: F.when(ends_with_brace, with_sentinel)},
        {IS_UTF8: F.is_valid_utf8(WITH_SENTINEL), PARSED: F.from_json(WITH_SENTINEL, ddl, STRICT)},
        {SCHEMA: schema, BROKEN: F.lit(None).cast("string")},
        {IS_WHOLE: is_whole, EVENT: event_of(parsed, shape)},
        {IS_PLAIN: F.coalesce(F.col(IS_WHOLE) & _is_plain(shape), F.lit(False))},
    ]


@cached
def _is_unread() -> Column:
    """Return whether the careful path has to read a record."""
    # If the key in the event is unusable, the record's own key may be usable. If not, the careful path says why.
    keyless = F.coalesce(F.col(REASON).isin("no_key", NO_BEFORE, UNREADABLE_ROW), F.lit(False))
    return ~F.col(EMPTY) & (~F.col(IS_PLAIN) | F.col(IS_WRONG) | keyless)


def _is_plain(shape: ChangeShape) -> Column:
    """Return whether an event contains nothing that the fast path would misread; null means no."""
    event = F.col(EVENT)
    is_plain = _contains_key(event, shape) & ~_holds_infinity(event, shape)
    is_plain = is_plain & ~has_lone_surrogates(event, shape, F.col(WITH_SENTINEL), _PLAIN)
    if shape.refused_schemas:
        is_plain = is_plain & ~F.coalesce(F.col(SCHEMA).isin(*shape.refused_schemas), F.lit(False))
    return is_plain


def _contains_key(event: Column, shape: ChangeShape) -> Column:
    """Return whether an event contains its key or empties the table, and so needs no record key; null means no."""
    op, before, after = (event[name] for name in ("op", "before", "after"))
    whole = all_of(F.when(op == "d", before[name]).otherwise(after[name]).isNotNull() for name in shape.key)
    return (op == "t") | (op.isin(*ROW_OPS, "d") & whole)


def _holds_infinity(event: Column, shape: ChangeShape) -> Column:
    """Return whether a number is beyond a double's range, and was therefore read as infinite.

    The result is never null.
    """
    names = [name for name, wire in shape.columns if wire.name == "double" and not is_read_as_text(wire, _PLAIN)]
    return F.coalesce(any_of(F.abs(cell) == float("inf") for cell in cells_of(event, names, shape)), F.lit(False))
