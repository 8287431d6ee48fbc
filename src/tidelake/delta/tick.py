"""One ingest tick: a bounded range of offsets becomes one commit of a run and the offsets behind it."""

from __future__ import annotations

import operator
from dataclasses import dataclass, field
from functools import reduce

import pyarrow as pa
import pyarrow.compute
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from tidelake.configuration import CollectionSettings
from tidelake.delta.catalog import Collection
from tidelake.delta.commit import OpenTable, maintain
from tidelake.delta.decode import Decoder, Reading, explode_messages, explode_updates
from tidelake.delta.envelopes import DETAIL_OF_REASON, reason_against, refusals_of
from tidelake.delta.files import RunFile, discard_run, discard_runs, read_rows, write_run
from tidelake.delta.kept import kept
from tidelake.delta.layout import PROGRESS_SCHEMA, QUARANTINE_SCHEMA, RUN, TIME, new_run
from tidelake.delta.observed import Observed
from tidelake.delta.parameters import parameter
from tidelake.delta.position import plan_next, values_behind
from tidelake.delta.progress import COLUMNS, Statements, read_on_driver
from tidelake.delta.registry import with_schema_ids
from tidelake.delta.runs import WrittenRun, append_run, read_files, write_frame
from tidelake.delta.stated import are_stated_twice, bounds_of_future
from tidelake.delta.stops import reach
from tidelake.delta.topic import OffsetRange, Topic
from tidelake.delta.types import late_schema, updates_schema
from tidelake.delta.values import CLOSED, SEARCHES, UPPER
from tidelake.errors import Conflict, TopicGap

_ATTEMPTS_MAX = 64
_MESSAGES_PER_TASK_MIN = 2_000
_IS_THERE, _IS_NULL, _IS_BAD, _IS_BROKEN, _IS_DOUBTFUL = (1 << bit for bit in range(5))
"""What `_flags` has of a row.

There: it has a statement that the envelope allows. Null, bad: so is its message, and it is that one's first row.
Broken: the statement breaks a rule of its own. Doubtful: its length does not show that nothing was cut.
"""


@dataclass
class TickReport:
    """What one tick read and where it went; counts are of messages unless they say otherwise."""

    messages: int = 0
    null_records: int = 0
    quarantined: int = 0
    progress_statements: int = 0
    updates_read: int = 0
    updates_stored: int = 0
    updates_late: int = 0
    bytes_stored: int = 0
    values_in_error: int = 0
    """Raw upserts: values that could not be decoded; each marks its key, until a later record heals it."""
    reasons: dict[str, int] = field(default_factory=dict)
    gaps: list[TopicGap] = field(default_factory=list)
    version: int = -1

    @property
    def copies_dropped(self) -> int:
        """How many updates were copies of others in the same tick."""
        return self.updates_read - self.updates_late - self.updates_stored


@dataclass(frozen=True)
class _Sealed:
    """Which times are sealed, as one version of the table has it."""

    upper: int
    closed: bool

    def holds(self, time: Column) -> Column:
        """Whether a time is sealed; never a constant, which the optimizer would cut a plan short by."""
        return time >= 0 if self.closed else time < parameter(self.upper, time)

    def misses(self, time: Column) -> Column:
        """Whether a time is not sealed."""
        return time < 0 if self.closed else time >= parameter(self.upper, time)

    def reaches(self, file: RunFile) -> bool:
        """Whether a file may hold a sealed time."""
        return self.closed or file.time_min is None or file.time_min < self.upper


def decoder_of(collection: Collection, settings: CollectionSettings) -> Decoder:
    """How this collection's topic is read."""
    schemas = settings.schema_ids if settings.encoding == "confluent" else None
    return Decoder(collection.entry.record_schema, schemas, settings.refused_ids)


def ingest_tick(
    spark: SparkSession, collection: Collection, settings: CollectionSettings, topic: Topic
) -> TickReport | None:
    """Read the next bounded range of the topic and commit it; None when there is nothing new and no gap.

    Raises:
        Fenced: the writer's epoch has moved.
        Indeterminate: it cannot be said whether the commit is there; the next tick finds out from the offsets.
    """
    for _ in range(_ATTEMPTS_MAX):
        table = OpenTable(collection.paths.updates)
        offsets, gaps = plan_next(topic, table, collection, settings.messages_per_tick_max)
        if not offsets.intervals:
            return TickReport(gaps=gaps) if gaps else None
        # Only now, with the end offsets known, does a registry know every id before them.
        report = _Tick(spark, collection, with_schema_ids(settings), topic, table, offsets).run()
        if report is not None:
            report.gaps = gaps
            maintain(collection.paths.updates)
            return report
    raise Conflict(str(collection.paths.updates), -1, f"{_ATTEMPTS_MAX} ticks in a row lost their offsets to others")


class _Tick:
    """The steps of one tick, all from one state of the table."""

    def __init__(
        self,
        spark: SparkSession,
        collection: Collection,
        settings: CollectionSettings,
        topic: Topic,
        table: OpenTable,
        offsets: OffsetRange,
    ) -> None:
        self.spark, self.collection, self.settings = spark, collection, settings
        self.topic, self.table, self.offsets = topic, table, offsets
        self.schema = collection.entry.record_schema
        self.decoder = decoder_of(collection, settings)
        self.sealed = _Sealed(table.value(UPPER) or 0, bool(table.value(CLOSED)))
        self.report = TickReport(messages=offsets.messages)
        self.late_offsets: tuple[int, int] | None = None
        self.reading = self.decoder.readings[0]
        if table.value(SEARCHES) and self.reading is Reading.MEASURED:
            self.reading = Reading.TRUSTING
        self.searches = False
        """Whether it was found out that lengths do not show good messages of this topic."""
        self.decoded: list[DataFrame] = []
        """What the last written run was made of, share by share; nothing is read before somebody acts on it."""

    def run(self) -> TickReport | None:
        """Do it; None when another ingest took the same offsets."""
        reach("ingest.before_write")
        progress = self._read_progress()
        bounds = bounds_of_future(self.collection, progress, self.sealed.upper)
        files = self._write_updates(bounds, drops_copies=are_stated_twice(progress))
        reach("ingest.after_write")
        if self.report.quarantined:
            self._quarantine()
        reach("ingest.after_quarantine")
        self._append_progress(progress)
        reach("ingest.after_progress")
        if self.late_offsets is not None:
            self.report.updates_late += self._set_late_aside(self._exploded(self.late_offsets), self.sealed)
        reach("ingest.after_late")
        if not self._commit(files):
            return None
        reach("ingest.after_commit")
        return self.report

    def _read_progress(self) -> pa.Table:
        """The good progress statements of the range, on the driver; the bad ones are counted for the quarantine."""
        read = read_on_driver(self.topic, self.offsets, self.decoder)
        if read is None:
            found = self.decoder.progress(self._raw(self.offsets)).select("reason", *COLUMNS).toArrow()
            good = found.filter(pa.compute.is_null(found["reason"])).drop_columns(["reason"])
            read = Statements(good, found.num_rows - good.num_rows)
        self.report.quarantined += read.bad
        self.report.progress_statements = read.good.num_rows
        return read.good.append_column("topic", pa.array([self.topic.name] * read.good.num_rows, pa.string()))

    def _write_updates(self, bounds: tuple[int, int] | None, drops_copies: bool) -> list[RunFile]:
        """Write the rows of unsealed times as a run; again, with a closer look at messages, if anything is wrong."""
        written = self._write_run(bounds, drops_copies)
        while (closer := _closer_reading(self.reading, written)) is not None:
            discard_run(self.table.path, written.run)
            self.reading = closer
            written = self._write_run(bounds, drops_copies)
        self.searches = self.reading is Reading.COMPARED and _lacks_proof(written)
        if not written.files:
            discard_run(self.table.path, written.run)
        self.report.null_records += written.counts["null_records"]
        self.report.quarantined += written.counts["quarantined"]
        self.report.updates_read += written.counts["updates"]
        self.report.updates_stored = sum(file.rows for file in written.files)
        self.report.bytes_stored = sum(file.bytes for file in written.files)
        self.late_offsets = written.late_offsets
        return written.files

    def _write_run(self, bounds: tuple[int, int] | None, drops_copies: bool) -> WrittenRun:
        """Write a run and count on the way, also what tells that a closer reading is needed; its rows are in it then.

        Args:
            bounds: see `bounds_of_future`.
            drops_copies: whether copies inside one task's share are dropped; without an exchange.
        """
        observed: list[Observed] = []
        frames, self.decoded = [], []
        told = _told(self.decoder, self.settings.envelope, self.reading)
        for share in _shares(self.offsets, self.spark.sparkContext.defaultParallelism):
            raw = self._raw(share).coalesce(1)
            decoded = self.decoder.updates(raw, self.reading)
            self.decoded.append(decoded)
            messages = decoded.select(*_told_of_messages(self.settings.envelope, self.reading))
            rows = self._observe(explode_messages(messages, self.schema, self.reading, told), observed)
            stored = rows.where(_has(_IS_THERE) & self.sealed.misses(F.col(TIME))).drop("_offset", "_excess", "_flags")
            # One partition each, so that this is local: no shuffle.
            frames.append(stored.distinct() if drops_copies else stored)
        rows = reduce(DataFrame.unionAll, frames)
        run = new_run("ingest")
        if bounds is not None:
            # A straggler from the far future gets a file of its own, or it would keep this one in every seal.
            soon, far = (F.col(TIME) >= parameter(bound, F.col(TIME)) for bound in bounds)
            rows = rows.withColumn("_future", soon.cast("int") + far.cast("int"))
        schema = updates_schema(self.schema)
        files = write_frame(rows, self.table.path, run, schema, ["_future"] if bounds is not None else [])
        return WrittenRun(run, files, [one.values() for one in observed])

    def _observe(self, rows: DataFrame, observed: list[Observed]) -> DataFrame:
        """Count what `_told` tells."""
        late_offset = F.when(_has(_IS_THERE) & self.sealed.holds(F.col(TIME)), F.col("_offset"))
        late = F.min(late_offset).alias("late_first"), F.max(late_offset).alias("late_last")
        seen = Observed(rows, *_counts(self.reading), *late)
        observed.append(seen)
        return seen.frame

    def _is_refused(self, statement: Column) -> Column:
        return _is_refused(self.settings.envelope, statement)

    def _explode(self, messages: DataFrame) -> DataFrame:
        """One row for each statement that the envelope allows."""
        refused = self._is_refused if refusals_of(self.settings.envelope) else None
        return explode_updates(messages, self.schema, refused=refused)

    def _exploded(self, between: tuple[int, int] | None = None) -> DataFrame:
        """The updates of the range, or of its messages from one offset to another, whatever the partition."""
        messages = reduce(DataFrame.unionAll, self.decoded)
        if between is not None:
            first, last = (parameter(one, F.col("offset")) for one in between)
            messages = messages.where(F.col("offset").between(first, last))
        if self.reading is not Reading.CAREFUL:  # no statement is broken, or refused
            return explode_updates(messages, self.schema, self.reading)
        return self._explode(messages)

    def _quarantine(self) -> None:
        """Put what cannot be used aside, whole and with its place; a repeated tick writes the same rows again."""
        raw = self._raw(self.offsets)
        messages = self.decoder.updates(raw)
        breach, times = F.lit(None).cast("string"), F.col("times")
        envelope = self.settings.envelope
        if refusals_of(envelope):
            broken = F.filter("updates", self._is_refused)
            breach = F.when(F.size(broken) > 0, reason_against(envelope, broken[0]))
            times = F.when(
                F.col("reason").isNull(), F.array_distinct(F.transform(broken, lambda one: one["time"]))
            ).otherwise(times)
        bad_updates = messages.select(
            "partition",
            "offset",
            "timestamp_ms",
            F.coalesce("reason", breach).alias("reason"),
            times.alias("times"),
            "key",
            "value",
        )
        bad_progress = self.decoder.progress(raw).select(
            "partition",
            "offset",
            "timestamp_ms",
            "reason",
            F.lit(None).cast("array<bigint>").alias("times"),
            "key",
            "value",
        )
        rows = (
            bad_updates.unionAll(bad_progress)
            .where(F.col("reason").isNotNull())
            .select(
                F.lit(self.topic.name).alias("topic"),
                "*",
                F.coalesce(_detail_of(F.col("reason")), self.decoder.detail_of_refusal()).alias("detail"),
            )
            .coalesce(1)
        )
        run = new_run("quarantine")
        files = write_frame(rows, self.collection.paths.quarantine, run, QUARANTINE_SCHEMA)
        append_run(self.collection.paths.quarantine, files, self.collection.entry.epoch)
        reasons = read_rows(self.collection.paths.quarantine, files, QUARANTINE_SCHEMA)["reason"].value_counts()
        for one in reasons.to_pylist():
            self.report.reasons[one["values"]] = self.report.reasons.get(one["values"], 0) + one["counts"]

    def _append_progress(self, progress: pa.Table) -> None:
        if progress.num_rows == 0:
            return
        columns = [name for name in PROGRESS_SCHEMA.names if name != RUN]
        rows = progress.select(columns).cast(pa.schema([PROGRESS_SCHEMA.field(name) for name in columns]))
        path = self.collection.paths.progress
        append_run(path, write_run(path, new_run("progress"), rows), self.collection.entry.epoch)

    def _set_late_aside(self, rows: DataFrame, sealed: _Sealed) -> int:
        """Store statements about sealed times in `late/`, with where they were read; return how many there are."""
        late = rows.where(sealed.holds(F.col(TIME))).withColumn("_topic", F.lit(self.topic.name)).coalesce(1)
        path = self.collection.paths.late
        files = write_frame(late, path, new_run("late"), late_schema(self.schema))
        append_run(path, files, self.collection.entry.epoch)
        return sum(file.rows for file in files)

    def _commit(self, files: list[RunFile]) -> bool:
        """Commit the run and the offsets; a loser keeps its files unless others read the same offsets."""
        table = self.table
        for _ in range(_ATTEMPTS_MAX):
            now = _Sealed(table.value(UPPER) or 0, bool(table.value(CLOSED)))
            if any(now.reaches(file) for file in files):
                files = self._take_out_sealed(files, now)
            self.sealed = now
            values = values_behind(table, self.topic.name, self.offsets) | ({SEARCHES: 1} if self.searches else {})
            try:
                done = table.commit(values, files, epoch=self.collection.entry.epoch)
            except Conflict:
                before = self._offsets_of(table)
                table = OpenTable(self.table.path)
                if self._offsets_of(table) != before:
                    discard_runs(table.path, files)
                    reach("ingest.after_lost_offsets")
                    return False
                reach("ingest.after_conflict")
                continue
            self.report.version = done.version
            return True
        raise Conflict(str(self.table.path), table.version, f"{_ATTEMPTS_MAX} attempts to commit a tick failed")

    def _take_out_sealed(self, files: list[RunFile], now: _Sealed) -> list[RunFile]:
        """Write a run again without the rows that a seal has overtaken; they are late now."""
        rows = read_files(self.spark, self.table.path, files, updates_schema(self.schema))
        located = self._exploded().where(self.sealed.misses(F.col(TIME)))
        self._set_late_aside(located, now)
        reach("ingest.after_overtaken_late")
        left = write_frame(
            rows.where(now.misses(F.col(TIME))), self.table.path, new_run("ingest"), updates_schema(self.schema)
        )
        discard_runs(self.table.path, files)
        reach("ingest.after_overtaken_write")
        late = sum(file.rows for file in files) - sum(file.rows for file in left)
        self.report.updates_late += late
        self.report.updates_stored -= late
        return left

    def _offsets_of(self, table: OpenTable) -> dict[str, int]:
        return table.values(f"offset/{self.topic.name}/", [str(one) for one in self.offsets.intervals])

    def _raw(self, offsets: OffsetRange) -> DataFrame:
        return self.topic.read(self.spark, offsets)


def _closer_reading(reading: Reading, written: WrittenRun) -> Reading | None:
    """How the messages of a written run have to be read instead; None where what is in it is right."""
    if written.counts["broken"]:
        return Reading.CAREFUL
    return Reading.COMPARED if reading is Reading.MEASURED and _lacks_proof(written) else None


def _lacks_proof(written: WrittenRun) -> bool:
    """Whether lengths do not show that all messages of a written run are good."""
    return bool(written.counts["doubtful"] or written.counts["excess"])


@kept
def _told_of_messages(envelope: str, reading: Reading) -> list[Column]:
    """What is told of messages, and their updates."""
    bad = F.col("reason").isNotNull()
    if reading is Reading.CAREFUL and refusals_of(envelope):
        refused = F.exists("updates", lambda one: _is_refused(envelope, one))
        bad = bad | F.coalesce(refused, F.lit(False))
    names = ["offset", "updates", *(["bytes"] if reading.measures else [])]
    return [*(F.col(name) for name in names), F.col("value").isNull().alias("_null"), bad.alias("_bad")]


@kept
def _told(decoder: Decoder, envelope: str, reading: Reading) -> list[Column]:
    """What a row has to tell of its statement and, where it is the first, of its message; see `explode_messages`."""
    statement, is_first = F.col("_u"), F.coalesce("_at", F.lit(0)) == 0
    is_there, refused = statement.isNotNull(), bool(refusals_of(envelope))
    flags, told = {}, [F.col("offset").alias("_offset")]
    if reading is Reading.CAREFUL:
        flags[_IS_THERE] = is_there & ~_is_refused(envelope, statement) if refused else is_there
    else:
        broken = decoder.broken(statement)
        flags[_IS_THERE] = is_there
        flags[_IS_BROKEN] = broken | _is_refused(envelope, statement) if refused else broken
    flags |= {_IS_NULL: is_first & F.col("_null"), _IS_BAD: is_first & F.col("_bad")}
    if reading.measures:
        lengths = decoder.lengths(statement)
        flags[_IS_DOUBTFUL] = lengths.is_doubtful
        stated, encoded = F.when(is_first, F.col("bytes")), F.when(is_there, lengths.bytes)
        told.append((F.coalesce(stated, F.lit(0)) - F.coalesce(encoded, F.lit(0))).alias("_excess"))
    return [*told, reduce(operator.add, [F.when(one, bit).otherwise(0) for bit, one in flags.items()]).alias("_flags")]


@kept
def _counts(reading: Reading) -> list[Column]:
    """What is counted of what `_told` tells."""
    names = {
        "updates": _IS_THERE,
        "null_records": _IS_NULL,
        "quarantined": _IS_BAD,
        "broken": _IS_BROKEN,
        "doubtful": _IS_DOUBTFUL,
    }
    excess = [F.sum("_excess").alias("excess")] if reading.measures else []
    return [*(F.count_if(_has(flag)).alias(name) for name, flag in names.items()), *excess]


def _is_refused(envelope: str, statement: Column) -> Column:
    """Whether the envelope does not allow a statement."""
    return reason_against(envelope, statement).isNotNull()


@kept
def _has(flag: int) -> Column:
    """Whether a row's `_flags` have this one."""
    return F.col("_flags").bitwiseAND(F.lit(flag)) != 0


def _detail_of(reason: Column) -> Column:
    """What an envelope's reason says in words; null for any other."""
    details = [F.when(reason == name, F.lit(detail)) for name, detail in DETAIL_OF_REASON.items()]
    return F.coalesce(*details)


def _shares(offsets: OffsetRange, tasks_max: int) -> list[OffsetRange]:
    """The range in at most `tasks_max` parts of about the same number of messages."""
    tasks = max(1, min(tasks_max, offsets.messages // _MESSAGES_PER_TASK_MIN))
    if tasks == 1:
        return [offsets]
    shares: list[dict[int, tuple[int, int]]] = [{} for _ in range(tasks)]
    for partition, (start, end) in offsets.intervals.items():
        for index in range(tasks):
            low = start + (end - start) * index // tasks
            high = start + (end - start) * (index + 1) // tasks
            if low < high:
                shares[index][partition] = (low, high)
    return [OffsetRange(one, offsets.parquet, offsets.json_lines) for one in shares if one]
