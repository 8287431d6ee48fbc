"""Compares late statements with what was published, and gives each a verdict.

The verdict is the kind of the run that holds a late row: ingest writes `late-…`, and a comparison swaps those runs for
`copy-…`, `contradiction-…`, `settled-…` (discarded by a decision) and `untold-…` (unverifiable) in one commit. So each
row is compared once, an interruption only repeats work, and the log alone shows how many rows have each verdict.
"""

from __future__ import annotations

import time as clock
from bisect import bisect_left
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from tidelake.decode.entered_statements import statement_frame
from tidelake.decode.landing import ROW_TEXT
from tidelake.errors import Conflict
from tidelake.plugins.envelope import form_of
from tidelake.settings.terms import envelope_terms
from tidelake.spark.equality import same_in
from tidelake.spark.runtime_constant import parameter
from tidelake.store.commit import OpenTable, maintain
from tidelake.store.decision import discards_in
from tidelake.store.entry import Collection
from tidelake.store.failpoints import reach
from tidelake.store.files import HASHED_BYTES_MAX, RunFile, discard_runs, meets
from tidelake.store.late_notes import (
    CONTRADICTED_RUN,
    CONTRADICTION,
    COPY,
    LATE_UPDATE,
    NOT_COMPARED,
    SETTLED,
    UNTOLD,
    kind_of,
)
from tidelake.store.layout import DIFF, POSITION, PROOFS_SCHEMA, TIME, new_run
from tidelake.store.retry import LostRace, retry_commit, retry_work
from tidelake.store.runs import append_run, read_files, write_frame
from tidelake.store.state import SINCE, offset_value
from tidelake.store.table_schema import data_fields, late_schema

_ATTEMPTS_MAX = 16
_TIMES_LISTED_MAX = 500
_PLACE = ("_topic", "_partition", "_offset")


@dataclass
class LateReport:
    """The number of late statements with each verdict. Copies are counted once in each message that contains them."""

    copies: int = 0
    contradictions: int = 0
    settled: int = 0
    """Statements that have no effect because of a decision."""
    untold: int = 0
    """Unverifiable statements: compaction has since merged their times with other times."""


def compare_late(spark: SparkSession, collection: Collection) -> LateReport:
    """Compare the late statements that have not been compared yet, and note each contradiction with its evidence.

    Rows of a tick that has not committed its offsets wait: a repeated tick would write the same rows again.

    Cost: the rows to compare, and the files of `updates/` that may hold their times; one exchange of both by data and
        time.

    Raises:
        Conflict: every attempt failed, because a merge had replaced the runs or other processes committed first;
            nothing was compared.
        Fenced: the epoch was raised in the meantime.
    """

    def compare() -> LateReport:
        if not _not_compared(OpenTable(collection.paths.late)):
            return LateReport()
        return _Comparison(spark, collection).run()

    failure = f"{_ATTEMPTS_MAX} attempts to compare late statements failed"
    return retry_work(compare, collection.paths.late, failure, attempts_max=_ATTEMPTS_MAX)


def _not_compared(late: OpenTable) -> list[RunFile]:
    return [file for file in late.files() if kind_of(file.run) == NOT_COMPARED]


class _Comparison:
    """One attempt to compare, from one state of `late/` and of `updates/`."""

    def __init__(self, spark: SparkSession, collection: Collection) -> None:
        self.spark, self.collection, self.path = spark, collection, collection.paths.late
        self.schema = late_schema(collection.entry.record_schema)
        self.data = [field.name for field in data_fields(collection.entry.record_schema)]
        self.form = form_of(collection.entry)
        # Because the tables are opened in this order, `late/` has the late rows of every committed offset.
        self.updates = OpenTable(collection.paths.updates)
        self.late = OpenTable(self.path)
        self.files = _not_compared(self.late)

    def run(self) -> LateReport:
        """Judge, note, swap.

        Raises:
            LostRace: a merge has replaced the runs, or other processes committed first at every attempt.
        """
        rows = read_files(self.spark, self.path, self.files, self.schema)
        committed = self._is_committed(rows)
        waiting = rows.where(~committed)
        judged = self._judge(rows.where(committed).distinct()).persist()
        try:
            verdicts = judged.groupBy("_verdict").count().toArrow().to_pylist()
            counts = {verdict["_verdict"]: verdict["count"] for verdict in verdicts}
            if not counts:
                return LateReport()
            if CONTRADICTION in counts:
                self._note(judged.where(F.col("_verdict") == CONTRADICTION))
            reach("validate.after_evidence")
            runs = {verdict: judged.where(F.col("_verdict") == verdict) for verdict in sorted(counts)}
            self._swap(runs | {NOT_COMPARED: waiting})
        finally:
            judged.unpersist()
        reach("validate.after_late")
        maintain(self.path)
        return LateReport(
            copies=counts.get(COPY, 0),
            contradictions=counts.get(CONTRADICTION, 0),
            settled=counts.get(SETTLED, 0),
            untold=counts.get(UNTOLD, 0),
        )

    def _is_committed(self, rows: DataFrame) -> Column:
        """Return whether the tick that read a row has committed its offsets."""
        places = rows.select("_topic", "_partition").distinct().toArrow().to_pylist()
        read = F.lit(False)
        for place in places:
            end = self.updates.value(offset_value(place["_topic"], place["_partition"])) or 0
            here = (F.col("_topic") == place["_topic"]) & (F.col("_partition") == place["_partition"])
            read = read | (here & (F.col("_offset") < parameter(end, F.col("_offset"))))
        return read

    # --- judge -----------------------------------------------------------------------------------------------------

    def _judge(self, rows: DataFrame) -> DataFrame:
        """Give each late row its verdict.

        In:  the columns of `late/`.
        Out: the same, _published decimal(38,0) (null if nothing is stored), _verdict string.
        """
        compacted = self.updates.value(SINCE) or 0
        # Times before `compacted` may have moved up to it; with keys, only the newest row of a key is left.
        first = compacted + 1 if compacted else 0
        marked = self._mark_discarded(rows)
        published = self._published(rows, first)
        same = same_in("stated", "published", [*self.data, TIME])
        if self.collection.entry.counts_positions and self.form.cancels_copies:
            same = same & (F.col("published._published") == F.col(f"stated.{DIFF}"))
        joined = marked.alias("stated").join(published.alias("published"), same, "left")
        stored, stated_time = F.col("published._published"), F.col(f"stated.{TIME}")
        verdict = (
            F.when(F.col("stated._discarded"), SETTLED)
            .when(F.coalesce(stored == F.col(f"stated.{DIFF}"), F.lit(False)), COPY)
            .when(stored.isNull() & (stated_time < parameter(first, stated_time)), UNTOLD)
            .otherwise(CONTRADICTION)
        )
        return joined.select("stated.*", stored.alias("_published"), verdict.alias("_verdict")).drop("_discarded")

    def _mark_discarded(self, rows: DataFrame) -> DataFrame:
        entry = self.collection.entry
        discarded = [(discard.time, discard.statement) for discard in discards_in(entry.decisions)]
        discards = statement_frame(self.spark, entry.statement_schema, discarded)
        if discards is None:
            return rows.withColumn("_discarded", F.lit(False))
        marked = F.broadcast(discards.distinct().withColumn("_ruled", F.lit(True))).alias("ruled")
        joined = rows.alias("stated").join(marked, same_in("stated", "ruled", [*self.data, TIME, DIFF]), "left")
        return joined.select("stated.*", F.coalesce(F.col("ruled._ruled"), F.lit(False)).alias("_discarded"))

    def _published(self, rows: DataFrame, first: int) -> DataFrame:
        """Find the published diffs at the times of late rows, by data and time.

        Out: the data's columns, _time, _published decimal(38,0). Data and time are unique together, except for
             transactions without a key, where one row may have several published diffs at one time.
        """
        schema = self.collection.updates_schema()
        times = sorted(rows.select(TIME).distinct().toArrow()[TIME].to_pylist())
        if self.form.moves_times:
            times = times[bisect_left(times, first) :]
        files = [file for file in self.updates.files() if meets(file, times)]
        stored = read_files(self.spark, self.updates.path, files, schema)
        is_large = any(file.bytes > HASHED_BYTES_MAX for file in files)
        if is_large and len(times) <= _TIMES_LISTED_MAX:  # listed times skip most of a large file
            stored = stored.where(F.col(TIME).isin(times))
        else:
            listed = self.spark.createDataFrame(pa.table({TIME: pa.array(times, pa.int64())}))
            stored = stored.join(F.broadcast(listed), TIME, "left_semi")
        # Copies that seal has not cancelled must not be added up.
        effect = F.sum(F.col(DIFF).cast("decimal(38,0)")) if self.form.cancels_copies else F.max(DIFF)
        if self.collection.entry.counts_positions and self.form.cancels_copies:
            # Several events of a transaction may add or remove equal rows; a late row that repeats one of these is a
            # copy.
            rows_of = [*(f"`{name}`" for name in self.data), TIME]
            by_event = stored.groupBy(*rows_of, POSITION).agg(F.sum(F.col(DIFF).cast("decimal(38,0)")).alias("_effect"))
            return by_event.select(*rows_of, F.col("_effect").alias("_published")).distinct()
        published = stored.groupBy(*(f"`{name}`" for name in self.data), TIME).agg(
            effect.cast("decimal(38,0)").alias("_published")
        )
        if envelope_terms(self.collection.entry.envelope).only_adds:
            # Statements only add rows, so a sum that is not positive is a removal by retention.
            return published.where(F.col("_published") > 0)
        return published

    # --- write -----------------------------------------------------------------------------------------------------

    def _note(self, contradictions: DataFrame) -> None:
        """Append the evidence: one row for each contradicting statement, with the first place where it was read."""
        columns = [f"`{name}`" for name in self.data]
        first = contradictions.groupBy(*columns, TIME, DIFF, "_published").agg(F.min(F.struct(*_PLACE)).alias("_first"))
        evidence = F.struct(
            F.col("_first._topic").alias("topic"),
            F.col("_first._partition").alias("partition"),
            F.col("_first._offset").alias("offset"),
            F.col(DIFF).alias("stated"),
            F.coalesce("_published", F.lit(0).cast("decimal(38,0)")).alias("published"),
            F.struct(*columns).alias("data"),
        )
        row = {
            TIME: F.col(TIME),
            "kind": F.lit(LATE_UPDATE),
            "counted": F.lit(1),
            "detail": F.to_json(evidence, ROW_TEXT),
            "at_ms": parameter(int(clock.time() * 1000), F.col(TIME)),
        }
        notes = first.select(
            *(row.get(name, F.lit(None)).alias(name) for name in PROOFS_SCHEMA.names if name != "_run")
        )
        path = self.collection.paths.proofs
        append_run(
            path,
            CONTRADICTED_RUN,
            lambda run: write_frame(notes.coalesce(1), path, run, PROOFS_SCHEMA),
            self.collection.entry.epoch,
        )

    def _swap(self, runs: dict[str, DataFrame]) -> None:
        """Replace the compared runs with one run per verdict, and one for the rows that wait.

        After a conflict, try again if the compared runs are still live.
        """
        added = [
            file
            for kind, frame in runs.items()
            for file in write_frame(frame.coalesce(1), self.path, new_run(kind, self.late.seq), self.schema)
        ]
        removed = sorted({file.run for file in self.files})

        def commit(late: OpenTable) -> None:
            late.commit({}, added, removed, epoch=self.collection.entry.epoch)

        def check_still_valid(late: OpenTable) -> None:
            if not set(removed) <= {file.run for file in late.files()}:
                raise LostRace

        try:
            failure = f"{_ATTEMPTS_MAX} attempts to swap late runs failed"
            retry_commit(self.late, commit, failure, after_conflict=check_still_valid, attempts_max=_ATTEMPTS_MAX)
        except (LostRace, Conflict) as lost:
            discard_runs(self.path, added)
            raise LostRace from lost
