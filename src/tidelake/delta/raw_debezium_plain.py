"""Change events in JSON as Debezium writes them, read at the price of parsing: numbers as numbers, and each byte once.

Whatever is not written so is left to `raw_debezium.read_changes`, which knows every way not to fit. See
docs/decisions/plain.md.
"""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidelake.delta.json_format import refusal_of
from tidelake.delta.raw_debezium import ChangeShape, Reader, event_ddl, told_by

_SENTINEL = "_3b0de7c1496f4a52b8a1f60c7d25e98f"
_CORRUPT = "_corrupt"
_OPTIONS = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": _CORRUPT,
    "allowSingleQuotes": "false",
    "allowNonNumericNumbers": "false",
}
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
    ddl = f"{event_ddl(shape, _PLAIN).removesuffix('>')}, `{_SENTINEL}`: int, `{_CORRUPT}`: string>"
    read = raw.withColumn("_given", F.from_json(F.when(ends_plainly, sealed), ddl, _OPTIONS))
    given = F.col("_given")
    is_plain = (given[_SENTINEL] == 1) & given[_CORRUPT].isNull() & F.is_valid_utf8(value.cast("string"))
    if shape.refused_schemas:
        is_plain = is_plain & refusal_of(value.cast("string"), shape.refused_schemas).isNull()
    is_plain = is_plain & ~_holds_infinity(given, shape) & ~_holds_infinity(given["payload"], shape)
    read = read.withColumn("_unread", value.isNotNull() & ~F.coalesce(is_plain, F.lit(False)))
    read = read.withColumn("_broken", F.lit(None).cast("string"))
    return told_by(read, given, shape, Reader(shape.columns, plain=frozenset(_PLAIN))).drop("_given")


def _holds_infinity(event: Column, shape: ChangeShape) -> Column:
    """Whether a number is beyond a double: JSON has no infinite ones; never null."""
    of_row = {name for name, travel in shape.columns if travel.raw == "double"}
    cells = [event["after"][name] for name in of_row] + [event["before"][name] for name in of_row & set(shape.key)]
    found = [F.abs(one) == float("inf") for one in cells]
    return F.coalesce(reduce(lambda one, other: one | other, found, F.lit(False)), F.lit(False))
