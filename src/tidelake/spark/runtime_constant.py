"""Numbers that differ from tick to tick, kept out of the code that Spark generates.

Spark writes a literal number into the Java code of a plan. If a tick compared rows with its own upper or offsets as
literals, it would run code that this JVM has never seen: such code is compiled, runs slowly until the JIT compiles it
again, and is then discarded. Code that is the same in each tick is cached and becomes fast. See
docs/decisions/generated-code.md.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F


def parameter(number: int, anchor: Column) -> Column:
    """Return a bigint that generated code receives as data, like a parameter of a prepared statement.

    Spark does not write lists into code, and does not fold an index that depends on a row. Unlike a literal, the result
    does not prune files.

    Args:
        number: an int64.
        anchor: a bigint column of the rows that use the number; if it is null in a row, the number is null as well.
    """
    return F.get(F.array(F.lit(number).cast("bigint")), anchor.bitwiseAND(F.lit(0)).cast("int"))
