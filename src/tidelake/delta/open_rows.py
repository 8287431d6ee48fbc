"""What is stored at times that are not sealed, counted in Arrow or by Spark: exactly, wherever it matters."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tidelake.delta.catalog import Collection, Decision
from tidelake.delta.commit import OpenTable
from tidelake.delta.counting import TIMES_LISTED_MAX, OpenTimes, count_open_times, of_times
from tidelake.delta.counting_in_arrow import count_in_arrow
from tidelake.delta.files import RunFile
from tidelake.delta.forms import Form, form_of
from tidelake.delta.layout import TIME
from tidelake.delta.parameters import parameter
from tidelake.delta.proof import count_statements, group_statements
from tidelake.delta.runs import read_files
from tidelake.delta.seal_changes import Surplus
from tidelake.delta.statements import statement_frame
from tidelake.delta.types import data_fields, updates_schema
from tidelake.order import INT64_MAX


@dataclass(frozen=True)
class Counted:
    """What is stored at one open time."""

    distinct: int
    copies: int = 0
    conflict: tuple[int, int] | None = None
    evidence: str | None = None
    """The data of a conflict or a breach, as JSON."""
    doubled: int = 0
    """Keys with two values; only where there are keys."""
    large: int = 0
    """What is stated of keys with another diff than +1 and -1; only where there are keys."""


@dataclass
class OpenRows:
    """The rows from upper on, in one state of a table.

    Args:
        spark: the session.
        collection: whose rows.
        table: its updates.
        upper: the first time that is not sealed.
        aim: the first time that is not counted; None counts all.
    """

    spark: SparkSession
    collection: Collection
    table: OpenTable
    upper: int
    aim: int | None
    number: int = 0
    """How many rows there are, once they are counted."""
    surplus: Surplus = field(default_factory=Surplus)
    """The copies and discarded statements among them."""

    @property
    def form(self) -> Form:
        """What the rows are."""
        return form_of(self.collection)

    @property
    def data(self) -> list[str]:
        """The data's columns."""
        return [one.name for one in data_fields(self.collection.entry.record_schema)]

    @property
    def schema(self) -> pa.Schema:
        """The table's schema."""
        return updates_schema(self.collection.entry.record_schema, self.collection.entry.positioned)

    @property
    def discards(self) -> list[Decision]:
        """The decisions that leave a statement out."""
        return [one for one in self.collection.entry.decisions if one.discard is not None]

    def files(self) -> list[RunFile]:
        """The files that may hold a row that is counted."""
        files = [one for one in self.table.files() if one.time_max is None or one.time_max >= self.upper]
        if self.aim is None:
            return files
        return [one for one in files if one.time_min is None or one.time_min < self.aim]

    def count(self, files: list[RunFile]) -> dict[int, Counted]:
        """What is stored at each open time.

        Args:
            files: what `files` gives.
        """
        if not files:
            return {}
        found = self._count_rows(files)
        self.number = found.rows
        counted = {time: Counted(distinct, found.copies.get(time, 0)) for time, distinct in found.distinct.items()}
        decided = {one.time for one in self.discards if one.time is not None and one.time >= self.upper}
        suspects = found.suspects | decided
        self.surplus = Surplus(None, [_without_times(one, suspects) for one in found.surplus])
        if suspects:
            rows = self._read(files)
            if len(suspects) < len(counted) or len(suspects) <= TIMES_LISTED_MAX:
                rows = of_times(self.spark, rows, sorted(suspects))
            counted.update(self._count_exactly(rows))
        return counted

    def release(self) -> None:
        """Give back what Spark holds for `surplus`."""
        if self.surplus.grouped is not None:
            self.surplus.grouped.unpersist()

    def _count_rows(self, files: list[RunFile]) -> OpenTimes:
        """Count in Arrow; by Spark where that would not do."""
        key = self.form.key_of_values
        if key is not None:
            within = range(self.upper, INT64_MAX + 1 if self.aim is None else self.aim)
            found = count_in_arrow(self.table.path, files, self.schema, self.data, key, within)
            if found is not None:
                return found
        return count_open_times(self.spark, self.form, self.data, files, self._read)

    def _read(self, files: Sequence[RunFile]) -> DataFrame:
        """The rows of these files that are counted."""
        unsealed = read_files(self.spark, self.table.path, files, self.schema).where(
            F.col(TIME) >= parameter(self.upper, F.col(TIME))
        )
        return unsealed if self.aim is None else unsealed.where(F.col(TIME) < parameter(self.aim, F.col(TIME)))

    def _count_exactly(self, rows: DataFrame) -> dict[int, Counted]:
        ruled = [(one.time, one.discard) for one in self.discards]
        discards = statement_frame(self.spark, self.collection.entry.record_schema, ruled)
        grouped = group_statements(rows, self.data, discards).persist()
        self.surplus = replace(self.surplus, grouped=grouped)
        found = count_statements(grouped, self.data).toArrow().to_pylist()
        broken = self.form.breaches(grouped)
        breaches = {} if broken is None else {one[TIME]: one for one in broken.toArrow().to_pylist()}
        nothing = {"doubled": 0, "large": 0, "evidence": None}
        counted = {}
        for one in found:
            breach = breaches.get(one[TIME], nothing)
            counted[one[TIME]] = Counted(
                one["distinct"],
                one["copies"],
                (one["least"], one["greatest"]) if one["conflicts"] else None,
                one["evidence"] or breach["evidence"],
                breach["doubled"],
                breach["large"],
            )
        return counted


def _without_times(rows: pa.Table, times: Iterable[int]) -> pa.Table:
    return rows.filter(pc.invert(pc.is_in(rows[TIME], pa.array(list(times), pa.int64()))))
