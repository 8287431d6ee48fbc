"""A tick of a CDCv2 stream: reads ranges of offsets from its topics, and commits a run together with the next offsets.

Several topics state one stream: an update means the same wherever it was read, so copies are found across topics just
as they are within one topic, and counts cover all topics together.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import pyarrow as pa
import pyarrow.compute
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from tidelake.decode.cdcv2 import Decoder, Reading
from tidelake.decode.progress import COLUMNS, Statements, read_on_driver
from tidelake.decode.statements import explode_messages, explode_updates
from tidelake.decode.writers import SourceSchemas
from tidelake.errors import NotRewritable
from tidelake.forms.refusals import Refusal, reason_against
from tidelake.ingest.announced import bounds_of_future, statements_overlap
from tidelake.ingest.position import NAME_TOPIC_AGAIN, plan_topics, range_read_by, values_after
from tidelake.ingest.stream_schemas import resolve_stream
from tidelake.plugins.tick import PastTick, Tick, TickReport
from tidelake.protocol.order import INT64_MAX
from tidelake.settings.collection import CollectionSettings
from tidelake.spark.column_cache import cached
from tidelake.spark.observation import Observed
from tidelake.spark.runtime_constant import parameter
from tidelake.store.commit import OpenTable
from tidelake.store.entry import Collection
from tidelake.store.failpoints import reach
from tidelake.store.files import RunFile, discard_run, discard_runs, read_rows, write_run
from tidelake.store.layout import PROGRESS_SCHEMA, QUARANTINE_SCHEMA, RUN, TIME, new_run
from tidelake.store.retry import ATTEMPTS_MAX, LostRace, retry_commit
from tidelake.store.runs import WrittenRun, append_run, read_files, write_frame, write_updates
from tidelake.store.state import CLOSED, HAS_LATE, HAS_QUARANTINE, LENGTHS_INSUFFICIENT, UPPER
from tidelake.store.table_schema import late_schema, updates_schema
from tidelake.topic.topic import OffsetRange, Topic

_MESSAGES_PER_TASK_MIN = 2_000
_FUTURE = "_future"
"""0 for rows that will be sealed soon, 1 for later ones, 2 for the far future; each has files of its own."""
_ACCEPTED, _NULL, _REJECTED, _BROKEN, _DOUBTFUL = (1 << bit for bit in range(5))
"""The bits of `_flags`.

ACCEPTED: the row holds an allowed statement. NULL, REJECTED: the row is the first of a null or rejected message.
BROKEN: the statement breaks a rule regardless of other statements. DOUBTFUL: the statement's length does not prove that
nothing was truncated.
"""


@dataclass(frozen=True)
class _Sealed:
    """Which times are sealed in one version of the table."""

    upper: int
    closed: bool

    def holds(self, time: Column) -> Column:
        """Return whether a time is sealed; never a constant, which would let the optimizer drop parts of the plan."""
        return time >= 0 if self.closed else time < parameter(self.upper, time)

    def misses(self, time: Column) -> Column:
        """Return whether a time is not sealed."""
        return time < 0 if self.closed else time >= parameter(self.upper, time)

    def reaches(self, file: RunFile) -> bool:
        """Return whether a file may hold a sealed time."""
        return self.closed or file.time_min is None or file.time_min < self.upper


def decoder_of(schemas: SourceSchemas) -> Decoder:
    """Make the decoder of a topic with these schemas."""
    writers = schemas.values.writers
    return Decoder(schemas.table, writers.by_id, writers.refused)


class StreamTick(Tick):
    """The steps of a tick of a CDCv2 stream."""

    def __init__(
        self,
        spark: SparkSession,
        collection: Collection,
        settings: CollectionSettings,
        topics: Sequence[Topic],
        refusals: Sequence[Refusal],
    ) -> None:
        self.spark, self.collection, self.settings, self.topics = spark, collection, settings, topics
        self.refusals, self.schema = refusals, collection.entry.record_schema
        self.table = OpenTable(collection.paths.updates, may_be_stale=True)
        self.sealed = _Sealed(self.table.value(UPPER) or 0, bool(self.table.value(CLOSED)))
        self.report = TickReport()
        self.late_offsets: tuple[int, int] | None = None
        self.lengths_insufficient = False
        """Whether all messages turned out to be good although their lengths did not prove it."""
        self.files: list[RunFile] = []
        self.ranges: list[tuple[Topic, OffsetRange]] = []
        self.decoded: list[tuple[Topic, DataFrame]] = []
        """The messages of the ranges, share by share; each DataFrame has one partition."""

    def plan(self) -> bool:
        """See `Tick.plan`."""
        self.ranges, self.report.gaps = plan_topics(
            self.table, self.collection, self.topics, self.settings.messages_per_tick_max
        )
        self.report.messages = sum(offsets.messages for _, offsets in self.ranges)
        return bool(self.ranges)

    def read(self) -> None:
        """Read the schemas of the ranges and their progress statements."""
        # The end offsets are known by now, so the registry has the schema id of every message before them.
        self.decoder = decoder_of(resolve_stream(self.settings, self.schema))
        self.reading = self.decoder.readings[0]
        if self.table.value(LENGTHS_INSUFFICIENT) and self.reading is Reading.MEASURED:
            self.reading = Reading.TRUSTING
        reach("ingest.before_write")
        self.progress = self._read_progress()

    def decode(self) -> None:
        """Decode the ranges share by share, with the current reading."""
        tasks, messages = self.spark.sparkContext.defaultParallelism, sum(each.messages for _, each in self.ranges)
        self.decoded = [
            (topic, self.decoder.updates(topic.read(self.spark, share).coalesce(1), self.reading))
            for topic, offsets in self.ranges
            for share in _shares(offsets, max(1, tasks * offsets.messages // messages))
        ]

    def write(self) -> None:
        """Write the updates, the quarantine, the progress statements and the late updates."""
        bounds = bounds_of_future(self.collection, self.progress, self.sealed.upper)
        self.files = self._write_updates(bounds, drops_copies=statements_overlap(self.progress))
        reach("ingest.after_write")
        if self.report.quarantined:
            self._quarantine()
        reach("ingest.after_quarantine")
        self._append_progress(self.progress)
        reach("ingest.after_progress")
        if self.late_offsets is not None:
            self.report.updates_late += self._set_late_aside(self._exploded(self.late_offsets), self.sealed)
        reach("ingest.after_late")

    def write_again(self, past: PastTick) -> list[RunFile]:
        """See `Tick.write_again`."""
        ranges = [(topic, range_read_by(past, topic, self.collection)) for topic in self.topics]
        self.ranges = [(topic, offsets) for topic, offsets in ranges if offsets is not None]
        if not self.ranges:
            names = ", ".join(topic.name for topic in self.topics)
            fact = f"its topic has since been accepted under another name or retired; the topics are now: {names}"
            raise NotRewritable(str(past.table.path), fact, NAME_TOPIC_AGAIN)
        self.table = past.table
        self.sealed = _Sealed(past.table.value(UPPER) or 0, bool(past.table.value(CLOSED)))
        self.read()
        self.decode()
        return self._write_updates(_bounds_of(past.files), drops_copies=statements_overlap(self.progress))

    def _read_progress(self) -> pa.Table:
        """Read the good progress statements of the ranges on the driver, and count the bad ones."""
        tables = []
        for topic, offsets in self.ranges:
            read = read_on_driver(topic, offsets, self.decoder)
            if read is None:
                decoded = self.decoder.progress(topic.read(self.spark, offsets)).select("reason", *COLUMNS).toArrow()
                good = decoded.filter(pa.compute.is_null(decoded["reason"])).drop_columns(["reason"])
                read = Statements(good, decoded.num_rows - good.num_rows)
            self.report.quarantined += read.bad
            tables.append(read.good.append_column("topic", pa.array([topic.name] * read.good.num_rows, pa.string())))
        progress = pa.concat_tables(tables)
        self.report.progress_statements = progress.num_rows
        return progress

    def _write_updates(self, bounds: tuple[int, int] | None, drops_copies: bool) -> list[RunFile]:
        """Write the rows at unsealed times as a run; rewrite it with a closer reading if anything is wrong."""
        written = self._write_run(bounds, drops_copies)
        while (closer := _closer_reading(self.reading, written)) is not None:
            discard_run(self.table.path, written.run)
            self.reading = closer
            self.decode()
            written = self._write_run(bounds, drops_copies)
        self.lengths_insufficient = self.reading is Reading.COMPARED and _lacks_proof(written)
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
        """Write a run, with counts that tell whether it needs a closer reading.

        Args:
            bounds: see `bounds_of_future`.
            drops_copies: whether to drop copies inside a task's share, without an exchange.
        """
        observed: list[Observed] = []
        frames = []
        columns = _row_columns(self.decoder, self.refusals, self.reading)
        for _, decoded in self.decoded:
            messages = decoded.select(*_message_columns(self.refusals, self.reading))
            rows = self._observe(explode_messages(messages, self.schema, self.reading, columns), observed)
            stored = rows.where(_has(_ACCEPTED) & self.sealed.misses(F.col(TIME))).drop("_offset", "_excess", "_flags")
            # Each share has one partition, so `distinct` needs no exchange.
            frames.append(stored.distinct() if drops_copies else stored)
        rows = reduce(DataFrame.unionAll, frames)
        run = new_run("ingest", self.table.seq)
        if bounds is not None:
            # Rows in the far future get a file of their own; otherwise they would share a file that every seal opens.
            soon, far = (F.col(TIME) >= parameter(bound, F.col(TIME)) for bound in bounds)
            rows = rows.withColumn(_FUTURE, soon.cast("int") + far.cast("int"))
        schema = updates_schema(self.schema)
        written = write_updates(rows, self.table.path, run, schema, [_FUTURE] if bounds is not None else [])
        return WrittenRun(run, written.files, [counts.values() for counts in observed])

    def _observe(self, rows: DataFrame, observed: list[Observed]) -> DataFrame:
        """Observe the sums over the columns of `_row_columns`, and the lowest and highest offset of late updates."""
        late_offset = F.when(_has(_ACCEPTED) & self.sealed.holds(F.col(TIME)), F.col("_offset"))
        late = F.min(late_offset).alias("late_first"), F.max(late_offset).alias("late_last")
        seen = Observed(rows, *_counts(self.reading), *late)
        observed.append(seen)
        return seen.frame

    def _is_refused(self, statement: Column) -> Column:
        return _is_refused(self.refusals, statement)

    def _explode(self, messages: DataFrame) -> DataFrame:
        """Return one row for each statement that the envelope allows."""
        refused = self._is_refused if self.refusals else None
        return explode_updates(messages, self.schema, refused=refused)

    def _exploded(self, between: tuple[int, int] | None = None) -> DataFrame:
        """Return the updates of the ranges or, given two offsets, of the messages between them in every partition.

        Out: the data's columns, _time, _diff, _partition, _offset, _topic.
        """
        by_topic = []
        for topic, _ in self.ranges:
            messages = reduce(DataFrame.unionAll, (decoded for each, decoded in self.decoded if each is topic))
            if between is not None:
                first, last = (parameter(offset, F.col("offset")) for offset in between)
                messages = messages.where(F.col("offset").between(first, last))
            if self.reading is not Reading.CAREFUL:  # no statement is broken or refused
                rows = explode_updates(messages, self.schema, self.reading)
            else:
                rows = self._explode(messages)
            by_topic.append(rows.withColumn("_topic", F.lit(topic.name)))
        return reduce(DataFrame.unionAll, by_topic)

    def _quarantine(self) -> None:
        """Quarantine unusable messages, each with its place in the topic. A repeated tick writes the same rows."""
        parts = (self._unusable(topic, topic.read(self.spark, offsets)) for topic, offsets in self.ranges)
        rows = reduce(DataFrame.unionAll, parts).coalesce(1)
        path = self.collection.paths.quarantine
        files = append_run(
            path,
            "quarantine",
            lambda run: write_frame(rows, path, run, QUARANTINE_SCHEMA),
            self.collection.entry.epoch,
        )
        reasons = read_rows(path, files, QUARANTINE_SCHEMA)["reason"].value_counts()
        self.report.count_reasons({row["values"]: row["counts"] for row in reasons.to_pylist()})

    def _unusable(self, topic: Topic, raw: DataFrame) -> DataFrame:
        """Return the rows of the quarantine for a topic's messages."""
        messages = self.decoder.updates(raw)
        breach, times = F.lit(None).cast("string"), F.col("times")
        if self.refusals:
            refused = F.filter("updates", self._is_refused)
            breach = F.when(F.size(refused) > 0, reason_against(self.refusals, refused[0]))
            times = F.when(
                F.col("reason").isNull(), F.array_distinct(F.transform(refused, lambda update: update["time"]))
            ).otherwise(times)
        place = ("partition", "offset", "timestamp_ms")
        bad_updates = messages.select(
            *place, F.coalesce("reason", breach).alias("reason"), times.alias("times"), "key", "value"
        )
        no_times = F.lit(None).cast("array<bigint>").alias("times")
        bad_progress = self.decoder.progress(raw).select(*place, "reason", no_times, "key", "value")
        return (
            bad_updates.unionAll(bad_progress)
            .where(F.col("reason").isNotNull())
            .select(
                F.lit(topic.name).alias("topic"),
                "*",
                F.coalesce(self._detail(), self.decoder.detail_of_refusal()).alias("detail"),
            )
        )

    def _detail(self) -> Column:
        """Return the detail of a reason that the envelope gives; null for any other reason."""
        details = (F.when(F.col("reason") == refusal.reason, F.lit(refusal.detail)) for refusal in self.refusals)
        return F.coalesce(*details, F.lit(None).cast("string"))

    def _append_progress(self, progress: pa.Table) -> None:
        if progress.num_rows == 0:
            return
        columns = [name for name in PROGRESS_SCHEMA.names if name != RUN]
        rows = progress.select(columns).cast(pa.schema([PROGRESS_SCHEMA.field(name) for name in columns]))
        path = self.collection.paths.progress
        append_run(path, "progress", lambda run: write_run(path, run, rows), self.collection.entry.epoch)

    def _set_late_aside(self, rows: DataFrame, sealed: _Sealed) -> int:
        """Store statements about sealed times in `late/`, each with its place in the topic; return their number."""
        late = rows.where(sealed.holds(F.col(TIME))).coalesce(1)
        path = self.collection.paths.late
        schema = late_schema(self.schema)
        files = append_run(path, "late", lambda run: write_frame(late, path, run, schema), self.collection.entry.epoch)
        return sum(file.rows for file in files)

    def commit(self) -> None:
        """Commit the run and the offsets; retry after a conflict, unless another ingest read the same offsets."""

        def adapt_to_seals(table: OpenTable) -> None:
            now = _Sealed(table.value(UPPER) or 0, bool(table.value(CLOSED)))
            if any(now.reaches(file) for file in self.files):
                self.files = self._take_out_sealed(self.files, now)
            self.sealed = now

        def commit(table: OpenTable) -> None:
            values: dict[str, int] = {}
            for topic, offsets in self.ranges:
                values |= values_after(table, topic.name, offsets)
            flags = {
                LENGTHS_INSUFFICIENT: self.lengths_insufficient,
                HAS_QUARANTINE: self.report.quarantined,
                HAS_LATE: self.report.updates_late,
            }
            values |= {flag: 1 for flag, is_set in flags.items() if is_set}
            self.report.version = table.commit(values, self.files, epoch=self.collection.entry.epoch).version

        def check_still_valid(table: OpenTable) -> None:
            if self._offsets_of(table) != self._offsets_of(self.table):
                discard_runs(table.path, self.files)
                reach("ingest.after_lost_offsets")
                raise LostRace
            reach("ingest.after_conflict")
            adapt_to_seals(table)

        adapt_to_seals(self.table)
        failure = f"{ATTEMPTS_MAX} attempts to commit a tick failed"
        retry_commit(self.table, commit, failure, after_conflict=check_still_valid)
        reach("ingest.after_commit")

    def _take_out_sealed(self, files: list[RunFile], now: _Sealed) -> list[RunFile]:
        """Rewrite a run without the rows whose times have been sealed in the meantime: they are late now."""
        rows = read_files(self.spark, self.table.path, files, updates_schema(self.schema))
        located = self._exploded().where(self.sealed.misses(F.col(TIME)))
        self._set_late_aside(located, now)
        reach("ingest.after_overtaken_late")
        run, open_rows = new_run("ingest", self.table.seq), rows.where(now.misses(F.col(TIME)))
        left = write_updates(open_rows, self.table.path, run, updates_schema(self.schema)).files
        discard_runs(self.table.path, files)
        reach("ingest.after_overtaken_write")
        late = sum(file.rows for file in files) - sum(file.rows for file in left)
        self.report.updates_late += late
        self.report.updates_stored -= late
        return left

    def _offsets_of(self, table: OpenTable) -> dict[str, dict[str, int]]:
        """Return the next offsets of the partitions that the tick reads, by topic."""
        return {
            topic.name: table.values(f"offset/{topic.name}/", [str(partition) for partition in offsets.intervals])
            for topic, offsets in self.ranges
        }


def _closer_reading(reading: Reading, written: WrittenRun) -> Reading | None:
    """Return the closer reading that a written run needs; None if the run is right."""
    if written.counts["broken"]:
        return Reading.CAREFUL
    return Reading.COMPARED if reading is Reading.MEASURED and _lacks_proof(written) else None


def _lacks_proof(written: WrittenRun) -> bool:
    """Return whether lengths do not prove that all messages of a written run are good."""
    return bool(written.counts["doubtful"] or written.counts["excess"])


@cached
def _message_columns(refusals: Sequence[Refusal], reading: Reading) -> list[Column]:
    """Return the updates of messages, and the columns that count messages."""
    rejected = F.col("reason").isNotNull()
    if reading is Reading.CAREFUL and refusals:
        refused = F.exists("updates", lambda update: _is_refused(refusals, update))
        rejected = rejected | F.coalesce(refused, F.lit(False))
    names = ["offset", "updates", *(["bytes"] if reading.measures else [])]
    return [*(F.col(name) for name in names), F.col("value").isNull().alias("_null"), rejected.alias("_rejected")]


@cached
def _row_columns(decoder: Decoder, refusals: Sequence[Refusal], reading: Reading) -> list[Column]:
    """Return the columns that count each row's statement and, in a message's first row, the message itself.

    See `explode_messages`.
    """
    statement, is_first = F.col("_u"), F.coalesce("_at", F.lit(0)) == 0
    is_present, refused = statement.isNotNull(), bool(refusals)
    flags, columns = {}, [F.col("offset").alias("_offset")]
    if reading is Reading.CAREFUL:
        flags[_ACCEPTED] = is_present & ~_is_refused(refusals, statement) if refused else is_present
    else:
        broken = decoder.broken(statement)
        flags[_ACCEPTED] = is_present
        flags[_BROKEN] = broken | _is_refused(refusals, statement) if refused else broken
    flags |= {_NULL: is_first & F.col("_null"), _REJECTED: is_first & F.col("_rejected")}
    if reading.measures:
        lengths = decoder.lengths(statement)
        flags[_DOUBTFUL] = lengths.is_doubtful
        actual, encoded = F.when(is_first, F.col("bytes")), F.when(is_present, lengths.bytes)
        columns.append((F.coalesce(actual, F.lit(0)) - F.coalesce(encoded, F.lit(0))).alias("_excess"))
    bits = [F.when(is_set, bit).otherwise(0) for bit, is_set in flags.items()]
    return [*columns, reduce(operator.add, bits).alias("_flags")]


@cached
def _counts(reading: Reading) -> list[Column]:
    """Return the counts over the columns of `_row_columns`."""
    names = {
        "updates": _ACCEPTED,
        "null_records": _NULL,
        "quarantined": _REJECTED,
        "broken": _BROKEN,
        "doubtful": _DOUBTFUL,
    }
    excess = [F.sum("_excess").alias("excess")] if reading.measures else []
    return [*(F.count_if(_has(flag)).alias(name) for name, flag in names.items()), *excess]


def _is_refused(refusals: Sequence[Refusal], statement: Column) -> Column:
    """Return whether the envelope refuses a statement."""
    return reason_against(refusals, statement).isNotNull()


@cached
def _has(flag: int) -> Column:
    """Return whether a row's `_flags` include this flag."""
    return F.col("_flags").bitwiseAND(F.lit(flag)) != 0


def _bounds_of(files: Sequence[RunFile]) -> tuple[int, int] | None:
    """Return bounds that divide rows as these files do, see `bounds_of_future`; None if the files are not divided."""
    if not any(f"/{_FUTURE}=" in file.path for file in files):
        return None
    starts = dict.fromkeys((1, 2), INT64_MAX)
    for file in files:
        for future in starts:
            if f"/{_FUTURE}={future}/" in file.path:
                starts[future] = min(starts[future], file.reach[0])
    return min(starts.values()), starts[2]


def _shares(offsets: OffsetRange, tasks_max: int) -> list[OffsetRange]:
    """Split the range into at most `tasks_max` parts with about the same number of messages."""
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
    return [OffsetRange(share, offsets.parquet, offsets.json_lines) for share in shares if share]
