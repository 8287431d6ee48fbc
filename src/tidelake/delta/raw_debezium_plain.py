"""Change events in JSON as Debezium writes them, read at the price of parsing: numbers as numbers, and each byte once.

Whatever is not written so is left to `raw_debezium.read_changes`, which knows every way not to fit. See
docs/decisions/plain.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidelake.delta.json_format import CORRUPT, STRICT, any_of, holds_half_a_pair
from tidelake.delta.raw_debezium import (
    ROW_OPS,
    SCHEMA,
    ChangeShape,
    Reader,
    event_ddl,
    part_of,
    schema_around,
    told_by,
)

_SENTINEL = "_3b0de7c1496f4a52b8a1f60c7d25e98f"
_PLAIN = {"boolean": "boolean", "int": "int", "long": "bigint", "double": "double"}
"""What JSON's own types hold whole. A float is not among them: it would be rounded twice."""


def read_plain_changes(raw: DataFrame, shape: ChangeShape) -> DataFrame:
    """Read change events that are plainly written, and say which are not.

    In, out: as with `raw_debezium.read_changes`, and _unread boolean: whether a record has a value that was not read
             here; then nothing else is true of it.
    """
    value = F.col("value")
    # The last brace makes room for a name that has to come out: then this was one object, and nothing lies behind it.
    open_object = F.substring(value, F.lit(1), F.octet_length(value) - 1)
    sealed = F.concat(open_object, F.lit(f',"{_SENTINEL}":1}}'.encode())).cast("string")
    ends_plainly = F.substring(value, -1, 1) == F.lit(b"}")
    ddl = f"{event_ddl(shape, _PLAIN).removesuffix('>')}, `{_SENTINEL}`: int, `{CORRUPT}`: string>"
    # Asked for twice, so it stays a step of its own, which Spark compiles; inside the parse it would be interpreted.
    read = raw.withColumns({"_empty": value.isNull(), "_sealed": F.when(ends_plainly, sealed)})
    read = read.withColumns({"_text": F.is_valid_utf8("_sealed"), "_given": F.from_json("_sealed", ddl, STRICT)})
    given = F.col("_given")
    read = read.withColumn(SCHEMA, schema_around(given, shape))
    is_plain = (given[_SENTINEL] == 1) & given[CORRUPT].isNull() & F.col("_text")
    is_plain = is_plain & ~_holds_infinity(given, shape) & ~_holds_infinity(given["payload"], shape)
    is_plain = is_plain & _tells_key(given, shape)
    # To look through texts that were read takes a fraction of a look through all that was sent.
    texts = F.concat_ws("", *_texts(given, shape), *_texts(given["payload"], shape))
    is_plain = is_plain & ~(F.contains(texts, F.lit("?")) & holds_half_a_pair(F.col("_sealed")))
    if shape.refused_schemas:
        is_plain = is_plain & ~F.coalesce(F.col(SCHEMA).isin(*shape.refused_schemas), F.lit(False))
    read = read.withColumn("_unread", ~F.col("_empty") & ~F.coalesce(is_plain, F.lit(False)))
    read = read.withColumn("_broken", F.lit(None).cast("string"))
    reader = Reader(shape.columns, plain=frozenset(_PLAIN), written=shape.written)
    found = told_by(read, given, shape, reader)
    # A key that was told and did not land: the record's own may.
    keyless = F.coalesce(F.col("_reason") == "no_key", F.lit(False))
    return found.withColumn("_unread", F.col("_unread") | keyless).drop("_given", "_text", "_sealed")


def _tells_key(given: Column, shape: ChangeShape) -> Column:
    """Whether an event itself says which key it is about, so that the record's key is not needed; null is no."""
    op, before, after = (part_of(given, name) for name in ("op", "before", "after"))
    told = [F.when(op == "d", before[name]).otherwise(after[name]) for name in shape.key]
    whole = reduce(lambda one, other: one & other, [one.isNotNull() for one in told])
    return (op == "t") | (op.isin(*ROW_OPS, "d") & whole)


def _holds_infinity(event: Column, shape: ChangeShape) -> Column:
    """Whether a number is beyond a double: JSON has no infinite ones; never null."""
    cells = _cells(event, [name for name, travel in shape.columns if travel.raw == "double"], shape)
    return F.coalesce(any_of(F.abs(one) == float("inf") for one in cells), F.lit(False))


def _texts(event: Column, shape: ChangeShape) -> list[Column]:
    """What was read as text; half a letter is a question mark there."""
    return _cells(event, [name for name, travel in shape.columns if travel.raw not in _PLAIN], shape)


def _cells(event: Column, names: Sequence[str], shape: ChangeShape) -> list[Column]:
    """These columns of an event's row, and of its key before."""
    return [event["after"][name] for name in names] + [event["before"][name] for name in names if name in shape.key]
