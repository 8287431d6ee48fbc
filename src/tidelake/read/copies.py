"""The contents as a published table stores them: a row for each key, rows with `_diff`, or, in a bag, repeated rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidelake.decode.landing import ROW_TEXT
from tidelake.errors import BagRefused
from tidelake.spark.observation import Observed
from tidelake.store.entry import Collection
from tidelake.store.layout import DIFF

Shape = Literal["key", "diff", "bag"]
"""How a table shows multiplicities: each key has one row, `_diff` states the multiplicity, or rows are repeated."""
COPIES_MAX = 100_000
"""Maximum number of times that a bag repeats one row."""


def shape_of(collection: Collection, bag: bool) -> Shape:
    """Return the shape of a collection's published table; if the collection has a key, no row needs to be repeated."""
    if collection.entry.key:
        return "key"
    return "bag" if bag else "diff"


class Shaped:
    """Contents in the shape of a published table; their multiplicities are counted while Spark writes them."""

    def __init__(self, contents: DataFrame, shape: Shape) -> None:
        """Take rows with `_diff`, which is never 0."""
        diff = F.col(DIFF)
        self._contents, self._shape = contents, shape
        self._observed = Observed(
            contents,
            F.sum(diff.cast("decimal(38,0)")).alias("total"),
            F.min(diff).alias("least"),
            F.max(diff).alias("greatest"),
        )
        self.rows = _shaped(self._observed.frame, shape)
        """Out: the data's columns and, in the shape `diff`, `_diff`."""

    def total(self, collection: Collection, as_of: int) -> int:
        """Return the sum of `_diff`. Call this after the rows have been written.

        Raises:
            BagRefused: a row cannot be repeated as often as it occurs; what was written is not the contents.
        """
        sums = self._observed.values()
        if self._shape == "bag":
            self._refuse(collection, as_of, sums)
        return int(sums["total"] or 0)

    def _refuse(self, collection: Collection, as_of: int, sums: dict[str, Any]) -> None:
        if (sums["least"] or 1) > 0 and (sums["greatest"] or 0) <= COPIES_MAX:
            return
        wrong = self._contents.where((F.col(DIFF) < 0) | (F.col(DIFF) > COPIES_MAX))
        names = [f"`{name}`" for name in self._contents.columns if name != DIFF]
        row = wrong.select(F.to_json(F.struct(*names), ROW_TEXT).alias("row"), DIFF).orderBy("row").first()
        assert row is not None
        raise BagRefused(collection.name, as_of, row["row"], row[DIFF], COPIES_MAX)


def _shaped(contents: DataFrame, shape: Shape) -> DataFrame:
    names = [f"`{name}`" for name in contents.columns if name != DIFF]
    if shape == "key":
        return contents.select(*names)
    if shape == "diff":
        return contents
    copies = F.array_repeat(F.lit(True), F.least(F.col(DIFF), F.lit(COPIES_MAX)).cast("int"))
    return contents.select(*names, F.explode(copies).alias("_copy")).select(*names)


def counted_rows(rows: DataFrame, names: Sequence[str], shape: Shape) -> DataFrame:
    """Return rows of a published table with `_diff`, which is 1 for each row unless the shape is `diff`."""
    selected = [f"`{name}`" for name in names]
    return (
        rows.select(*selected, DIFF) if shape == "diff" else rows.select(*selected, F.lit(1).cast("bigint").alias(DIFF))
    )
