"""Change events in JSON as Debezium writes them, read at the price of parsing: numbers as numbers, and each byte once.

Whatever is not written so is left to `raw_debezium_json.read_changes`, which knows every way not to fit. See
docs/decisions/plain.md.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidelake.delta.conditions import all_of, any_of
from tidelake.delta.json_format import CORRUPT, STRICT
from tidelake.delta.raw_debezium import ROW_OPS, SCHEMA, ChangeShape, Reader, read_as_text, told
from tidelake.delta.raw_debezium_json import cells_of, event_ddl, event_of, reads_half_letters, schema_around

_SENTINEL = "_3b0d"
"""Short, as it is parsed with each event; no event has a part of this name beside `op`."""
_PLAIN = {"boolean": "boolean", "int": "int", "long": "bigint", "double": "double"}
"""What JSON's own types hold whole. A float is not among them: it would be rounded twice."""


def read_plain_changes(raw: DataFrame, shape: ChangeShape) -> DataFrame:
    """Read change events that are plainly written, and say which are not.

    In, out: as with `raw_debezium_json.read_changes`, and _unread boolean: whether a record has a value that was not
             read here; then nothing else is true of it.
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
    # Of what was sealed, so that an event need not be carried along twice: it begins like the value.
    schema = schema_around(given, shape, F.col("_sealed").cast("binary"))
    read = read.withColumns({SCHEMA: schema, "_broken": F.lit(None).cast("string")})
    is_whole = (given[_SENTINEL] == 1) & given[CORRUPT].isNull() & F.col("_text")
    read = read.withColumns({"_whole": is_whole, "_event": event_of(given)})
    read = read.withColumn("_plain", F.coalesce(F.col("_whole") & _is_plain(shape), F.lit(False)))
    found = told(read, shape, Reader(shape.columns, plain=frozenset(_PLAIN), written=shape.written))
    # A key that was told and did not land: the record's own may.
    keyless = F.coalesce(F.col("_reason") == "no_key", F.lit(False))
    found = found.withColumn("_unread", ~F.col("_empty") & (~F.col("_plain") | F.col("_wrong") | keyless))
    return found.drop("_given", "_text", "_sealed", "_whole", "_event", "_plain", "_wrong", "_broken", "_empty")


def _is_plain(shape: ChangeShape) -> Column:
    """Whether an event, read whole, has nothing in it that a plain reading takes for something else; null is no."""
    event = F.col("_event")
    found = _tells_key(event, shape) & ~_holds_infinity(event, shape)
    found = found & ~reads_half_letters(event, shape, F.col("_sealed"), _PLAIN)
    if shape.refused_schemas:
        found = found & ~F.coalesce(F.col(SCHEMA).isin(*shape.refused_schemas), F.lit(False))
    return found


def _tells_key(event: Column, shape: ChangeShape) -> Column:
    """Whether an event itself says which key it is about, so that the record's key is not needed; null is no."""
    op, before, after = (event[name] for name in ("op", "before", "after"))
    whole = all_of(F.when(op == "d", before[name]).otherwise(after[name]).isNotNull() for name in shape.key)
    return (op == "t") | (op.isin(*ROW_OPS, "d") & whole)


def _holds_infinity(event: Column, shape: ChangeShape) -> Column:
    """Whether a number is beyond a double: JSON has no infinite ones; never null."""
    cells = cells_of(
        event,
        [name for name, travel in shape.columns if travel.raw == "double" and not read_as_text(travel, _PLAIN)],
        shape,
    )
    return F.coalesce(any_of(F.abs(one) == float("inf") for one in cells), F.lit(False))
