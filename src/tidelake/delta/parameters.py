"""Numbers that differ from tick to tick, kept out of the code that Spark generates.

Spark writes a literal number into the Java code of a plan. A tick that compares with its own upper or its own offsets
would run code that this JVM has never seen: it is compiled, run slowly until it is compiled once more, and thrown away.
Code that is the same in each tick is kept, and gets fast. See docs/decisions/generated-code.md.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F


def parameter(number: int, beside: Column) -> Column:
    """A bigint that goes to generated code as data, like the parameter of a prepared statement.

    Lists are not written into code, and an index that depends on a row is not worked out beforehand. Where files are
    read, such a number prunes nothing; a literal does.

    Args:
        number: within int64.
        beside: a bigint of the rows that the number meets; where it is null, so is the number.
    """
    return F.get(F.array(F.lit(number).cast("bigint")), beside.bitwiseAND(F.lit(0)).cast("int"))
