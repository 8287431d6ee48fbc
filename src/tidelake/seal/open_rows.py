"""The rows at unsealed times, counted by Arrow or by Spark; at suspect times, Spark compares whole statements."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tidelake.decode.entered_statements import statement_frame
from tidelake.forms.form import Form
from tidelake.protocol.order import INT64_MAX
from tidelake.seal.count_arrow import count_in_arrow
from tidelake.seal.count_positions import count_positions
from tidelake.seal.count_spark import (
    TIMES_LISTED_MAX,
    count_differing_events,
    count_open_times,
    count_positions_in_spark,
    find_differing_contents,
    rows_at,
)
from tidelake.seal.counts import OpenCounts, TimeCount
from tidelake.seal.fingerprints import count_statements, group_statements
from tidelake.seal.rulings import Rulings
from tidelake.spark.runtime_constant import parameter
from tidelake.store.commit import OpenTable
from tidelake.store.entry import Collection
from tidelake.store.files import RunFile
from tidelake.store.layout import TIME
from tidelake.store.runs import read_files
from tidelake.store.table_schema import data_fields


@dataclass(frozen=True)
class OpenRows:
    """The rows at or after upper, in one state of a table.

    Args:
        spark: the session.
        collection: the collection.
        form: the form of its table.
        rulings: the operators' decisions.
        table: its updates table.
        upper: the first time that is not sealed.
        end: the first time that is not counted; None if every time is counted.
    """

    spark: SparkSession
    collection: Collection
    form: Form
    rulings: Rulings
    table: OpenTable
    upper: int
    end: int | None

    @property
    def data(self) -> list[str]:
        """The data's columns."""
        return [field.name for field in data_fields(self.collection.entry.record_schema)]

    def files(self) -> list[RunFile]:
        """Return the files that may hold a row to count."""
        files = [file for file in self.table.files() if file.time_max is None or file.time_max >= self.upper]
        if self.end is None:
            return files
        return [file for file in files if file.time_min is None or file.time_min < self.end]

    @contextmanager
    def count(self, files: list[RunFile]) -> Iterator[OpenCounts]:
        """Count what is stored at each open time; the counts occupy memory in Spark until the `with` block ends.

        Args:
            files: the result of the method `files`.

        Cost: one pass over the rows; Spark compares whole statements only at suspect times and at times with a discard.
        """
        counts = self._count_all(files) if files else OpenCounts()
        if files and not self.collection.entry.counts_positions:
            counts.suspects |= self.rulings.discarded_times(self.upper)
        try:
            if counts.suspects:
                counts.surplus = [_without_times(rows, counts.suspects) for rows in counts.surplus]
                self._count_exactly(counts, files)
            yield counts
        finally:
            if counts.statements is not None:
                counts.statements.unpersist()

    def _count_all(self, files: list[RunFile]) -> OpenCounts:
        """Count with Arrow, or with Spark if Arrow cannot count the rows."""
        key = self.form.key_of_values
        within = range(self.upper, INT64_MAX + 1 if self.end is None else self.end)
        if self.collection.entry.counts_positions:
            counts = count_positions(self.table.path, files, within)
            counts = count_positions_in_spark(self._read(files)) if counts is None else counts
            self._compare_repeated(counts, files)
            return counts
        if key is not None:
            schema = self.collection.updates_schema()
            counts = count_in_arrow(self.table.path, files, schema, self.data, key, within)
            if counts is not None:
                return counts
        return count_open_times(self.spark, self.form, self.data, files, self._read)

    def _compare_repeated(self, counts: OpenCounts, files: Sequence[RunFile]) -> None:
        """Count the events that were repeated with different contents; nothing is read if no event was repeated."""
        times = [time for time, count in counts.by_time.items() if count.copies]
        if not times:
            return
        rows, discards = rows_at(self.spark, self._read(files), times), self._discards()
        for time, (differing, gone) in count_differing_events(rows, self.data, discards).items():
            count = counts.by_time[time]
            counts.by_time[time] = replace(count, differing=differing, distinct=count.distinct - gone)
        differ = [time for time in times if counts.by_time[time].differing]
        if differ:
            for time, evidence in find_differing_contents(rows_at(self.spark, rows, differ), self.data).items():
                counts.by_time[time] = replace(counts.by_time[time], evidence=evidence)

    def _discards(self) -> DataFrame | None:
        """Return the discarded statements as rows; None if there are none."""
        statements = [(discard.time, discard.statement) for discard in self.rulings.discards]
        return statement_frame(self.spark, self.collection.entry.statement_schema, statements)

    def _read(self, files: Sequence[RunFile]) -> DataFrame:
        """Read the rows to count from these files."""
        rows = read_files(self.spark, self.table.path, files, self.collection.updates_schema())
        unsealed = rows.where(F.col(TIME) >= parameter(self.upper, F.col(TIME)))
        return unsealed if self.end is None else unsealed.where(F.col(TIME) < parameter(self.end, F.col(TIME)))

    def _count_exactly(self, counts: OpenCounts, files: list[RunFile]) -> None:
        """Compare whole statements at suspect times, and replace the counts of these times."""
        rows = self._read(files)
        if len(counts.suspects) < len(counts.by_time) or len(counts.suspects) <= TIMES_LISTED_MAX:
            rows = rows_at(self.spark, rows, sorted(counts.suspects))
        counts.statements = group_statements(rows, self.data, self._discards()).persist()
        exact = count_statements(counts.statements, self.data).toArrow().to_pylist()
        broken = self.form.breaches(counts.statements)
        breaches = {} if broken is None else {row[TIME]: row for row in broken.toArrow().to_pylist()}
        no_breach = {"doubled": 0, "large": 0, "evidence": None}
        for row in exact:
            breach = breaches.get(row[TIME], no_breach)
            counts.by_time[row[TIME]] = TimeCount(
                row["distinct"],
                row["copies"],
                conflict=(row["least"], row["greatest"]) if row["conflicts"] else None,
                evidence=row["evidence"] or breach["evidence"],
                doubled=breach["doubled"],
                large=breach["large"],
            )


def _without_times(rows: pa.Table, times: Iterable[int]) -> pa.Table:
    return rows.filter(pc.invert(pc.is_in(rows[TIME], pa.array(list(times), pa.int64()))))
