"""Converts change events to rows of the positioned form."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidelake.decode.debezium.columns import IS_GOOD, KIND, MARKS, PART, PREVIOUS_KEY, REASON, ROW
from tidelake.decode.debezium.shape import ChangeShape
from tidelake.decode.metadata import metadata_column
from tidelake.spark.column_cache import cached
from tidelake.store.layout import DIFF, ERROR, POSITION, TIME, UNAVAILABLE


def change_rows(changes: DataFrame, shape: ChangeShape, time: Column, place: Sequence[str] = ()) -> DataFrame:
    """Convert change events to rows of the positioned form.

    In:  the DataFrame that `read_events` returns, with _position, and _marks (not null).
    Out: the table's columns, and _marks. A change of a row's key (without a key, every change of a row) becomes a
         delete (without marks) and a value. A tombstone, or a record with a reason or without a position, becomes a row
         without a time, which is not stored.

    Args:
        changes: the DataFrame.
        shape: the shape of the events.
        time: the time of an event's rows.
        place: columns to carry along.
    """
    numbered = changes.select("*", *_numbers())
    marks, *columns = _row_columns(shape)
    return numbered.select(marks, F.when(F.col(IS_GOOD), time).alias(TIME), *columns, *place)


@cached
def _numbers() -> list[Column]:
    """Return two columns: whether a record's rows have a time, and each row's number within its record; see `PART`."""
    # Numbers are exploded, not the rows themselves, which would be copied into a list and out of it.
    good = F.col(REASON).isNull() & F.col(POSITION).isNotNull() & (F.col(KIND) != "tombstone")
    changes_key = good & F.col(PREVIOUS_KEY).isNotNull()
    numbers = F.when(changes_key, F.array(F.lit(0), F.lit(1))).otherwise(F.array(F.lit(0)))
    return [good.alias(IS_GOOD), F.explode(numbers).alias(PART)]


@cached
def _row_columns(shape: ChangeShape) -> list[Column]:
    """Return the columns of a row except its time."""
    kind, error, first = F.col(KIND), F.col(ERROR), F.col(PART) == 0
    whole = first & (kind == "value") & error.isNull()
    sign = F.when(first & (kind == "value"), 1).when(~first | (kind == "delete"), -1).otherwise(0)

    def cell(name: str) -> Column:
        row_value = F.col(f"{ROW}.{name}")
        if name not in shape.before_columns:
            return F.when(whole, row_value)
        return F.when(first, F.when(kind != "barrier", row_value)).otherwise(F.col(f"{PREVIOUS_KEY}.{name}"))

    # Seal counts events by their positions. The second row of an event gets a longer position, which is not counted.
    position = F.col(POSITION)
    if shape.transactions:
        position = F.when(first, position).otherwise(F.concat(position, F.array(F.lit(-1).cast("bigint"))))
    return [
        F.when(first, F.col(MARKS)).alias(MARKS),
        sign.cast("bigint").alias(DIFF),
        position.alias(POSITION),
        F.when(first, F.col(UNAVAILABLE)).alias(UNAVAILABLE),
        F.when(first & (kind == "value"), error).alias(ERROR),
        *(cell(name).alias(name) for name, _ in shape.columns),
        *(F.when(whole, metadata_column(kind)).alias(name) for name, kind in shape.metadata.items()),
    ]
