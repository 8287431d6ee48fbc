"""Generates the data for all measurements, on the JVM: a state of many rows, and ticks that change its rows.

Update number `n` of a stream concerns key `(n * STEP + SHIFT) mod rows`. This is a permutation, so consecutive ticks
change different keys. Otherwise, a MERGE would find keys in the small file that the last MERGE wrote.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import to_avro

from tidelake.schema.avro import PROGRESS

RECORD: dict[str, Any] = {
    "type": "record",
    "name": "order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "customer", "type": "string"},
        {"name": "price", "type": "double"},
        {"name": "quantity", "type": "long"},
        {"name": "place", "type": "string"},
    ],
}
"""The schema of the data. An update has about 60 bytes, including its time and diff."""

COLUMNS = tuple(field["name"] for field in RECORD["fields"])
KEY = "id"

Kind = Literal["upsert", "plain"]
Skew = Literal["uniform", "80/20"]
Writers = Literal["one", "two in step", "two in turn", "two a tick apart"]
"""With two writers, each update is stated twice. The second writer follows closely behind the first (`in step`), starts
when the first has finished its tick (`in turn`), or starts when that tick is sealed (`a tick apart`)."""

UPDATES_PER_MESSAGE = 100
UPDATES_PER_TIME = 100
TIMES_PER_STATEMENT = 100
TICK_UPDATES = 100_000
_TIMES_PER_BLOCK = 10
_STEP, _SHIFT = 618_033_989, 271_828  # the step is prime, and no number of rows in use is a multiple of it
_COPIES, _LATE = 0.02, 0.05
_LAG_MESSAGES = 50
_MESSAGES_PER_FILE = 20_000


def wrapped_schema() -> dict[str, Any]:
    """Return the schema of a record whose only field is the CDCv2 union; its encoding is the same as the union's."""
    update = {
        "type": "record",
        "name": "update",
        "fields": [
            {"name": "data", "type": RECORD},
            {"name": "time", "type": "long"},
            {"name": "diff", "type": "long"},
        ],
    }
    union = [{"type": "array", "items": update}, PROGRESS]
    return {"type": "record", "name": "message", "fields": [{"name": "m", "type": union}]}


@dataclass(frozen=True)
class Stream:
    """Numbered updates of a state of `rows` rows.

    Args:
        rows: the number of rows in the state.
        kind: `upsert` sets new values; `plain` alternately retracts the old row and adds the new row.
        skew: whether all keys are equally likely, or 80% of the updates concern 20% of the keys.
        state_updates_per_time: the number of updates at each time of the state; a state with fewer times loads faster.
    """

    rows: int
    kind: Kind = "upsert"
    skew: Skew = "uniform"
    state_updates_per_time: int = 10_000

    @property
    def state_times(self) -> int:
        """The number of distinct times in the state. They start at 0 and precede those of the ticks."""
        return -(-self.rows // self.state_updates_per_time)

    @property
    def tick_times(self) -> int:
        """The number of distinct times in a tick."""
        return TICK_UPDATES // UPDATES_PER_TIME

    def tick_start(self, tick: int) -> int:
        """Return the first time of a tick; ticks are numbered from 0."""
        return self.state_times + tick * self.tick_times

    def state(self, number: str = "n") -> str:
        """Return update `number` of the state, as SQL."""
        time = f"{number} div {self.state_updates_per_time}"
        return f"named_struct('data', {_row(number, '0L')}, 'time', {time}, 'diff', 1L)"

    def change(self) -> str:
        """Return update `n` of the ticks, as SQL; the numbers continue from tick to tick."""
        time = f"{self.state_times}L + n div {UPDATES_PER_TIME}"
        if self.kind == "upsert":
            key, version = self._key("n")
            return f"named_struct('data', {_row(key, f'1 + {version}')}, 'time', {time}, 'diff', 1L)"
        key, version = self._key("(n div 2)")
        data = _row(key, f"{version} + n % 2")
        return f"named_struct('data', {data}, 'time', {time}, 'diff', 2 * (n % 2) - 1)"

    def _key(self, number: str) -> tuple[str, str]:
        """Return the key of a change, and the number of earlier changes of that key."""
        if self.skew == "uniform":
            return _permuted(number, self.rows), f"({number} div {self.rows})"
        hot = self.rows // 5
        cold = self.rows - hot
        hot_number = f"({number} div 5 * 4 + {number} % 5)"
        key_hot, key_cold = _permuted(hot_number, hot), f"({hot} + {_permuted(f'({number} div 5)', cold)})"
        is_hot = f"{number} % 5 < 4"
        return (
            f"if({is_hot}, {key_hot}, {key_cold})",
            f"if({is_hot}, {hot_number} div {hot}, ({number} div 5) div {cold})",
        )


def _permuted(number: str, size: int) -> str:
    return f"(({number} * {_STEP}L + {_SHIFT}) % {size})"


def _row(key: str, version: str) -> str:
    return (
        f"named_struct('id', {key}, 'customer', concat('customer-', lpad(({key}) % 1000003, 7, '0')), "
        f"'price', pmod(xxhash64({key}, {version}), 100000) / 100.0D, 'quantity', 1 + {version}, "
        f"'place', concat('aisle-', lpad(({key}) % 997, 3, '0'), '/shelf-', lpad(({key}) % 89, 2, '0')))"
    )


def _numbers(message: str, first: int) -> str:
    """Return the numbers of the updates in a message.

    A message has a tenth of the updates at each of ten times, so a copy of the message affects all ten times.
    """
    block = UPDATES_PER_TIME * _TIMES_PER_BLOCK
    per_block = block // UPDATES_PER_MESSAGE
    start = f"{first}L + ({message} div {per_block}) * {block} + {message} % {per_block}"
    return f"transform(sequence(0, {UPDATES_PER_MESSAGE - 1}), step -> {start} + step * {per_block})"


def _update_messages(ids: DataFrame, update: str, first: int) -> DataFrame:
    """Return one message of updates for each row of `ids`, which has `message` and `offset`."""
    items = F.expr(f"transform({_numbers('message', first)}, n -> {update})")
    return ids.select("offset", _encoded(items.alias("member0"), F.lit(None).cast(_PROGRESS_TYPE).alias("member1")))


_PROGRESS_TYPE = (
    "struct<lower: array<bigint>, upper: array<bigint>, counts: array<struct<time: bigint, count: bigint>>>"
)
_UPDATES_TYPE = (
    "array<struct<data: struct<id: bigint, customer: string, price: double, quantity: bigint, place: string>, "
    "time: bigint, diff: bigint>>"
)


def _encoded(member0: Any, member1: Any) -> Any:
    union = F.struct(member0, member1).alias("m")
    return to_avro(F.struct(union), json.dumps(wrapped_schema())).alias("value")


def _progress_messages(ids: DataFrame, start: int, times: int, updates_per_time: int) -> DataFrame:
    """Return one progress statement for every `TIMES_PER_STATEMENT` times; `ids` has `number` and `offset`."""
    low = f"{start}L + number * {TIMES_PER_STATEMENT}"
    high = f"least({low} + {TIMES_PER_STATEMENT}, {start + times}L)"
    counts = f"transform(sequence({low}, {high} - 1), t -> named_struct('time', t, 'count', {updates_per_time}L))"
    statement = F.expr(f"named_struct('lower', array({low}), 'upper', array({high}), 'counts', {counts})")
    return ids.select("offset", _encoded(F.lit(None).cast(_UPDATES_TYPE).alias("member0"), statement.alias("member1")))


def _topic_frame(messages: DataFrame, topic: str) -> DataFrame:
    """Return messages in the shape of Spark's Kafka source."""
    return messages.select(
        F.lit(None).cast("binary").alias("key"),
        "value",
        F.lit(topic).alias("topic"),
        F.lit(0).alias("partition"),
        "offset",
        F.timestamp_millis(F.lit(1_735_689_600_000) + F.col("offset")).alias("timestamp"),
    )


def write_bulk(spark: SparkSession, folder: Path, rows: int, update: str, updates_per_time: int, prefix: str) -> int:
    """Write the first `rows` updates as topic files `<prefix>-…`, then their progress; return the next offset.

    Args:
        spark: the session.
        folder: the topic's folder; its name is that of the topic.
        rows: the number of updates; a multiple of ten thousand.
        update: update number `n`, as SQL.
        updates_per_time: the number of updates at each time.
        prefix: the prefix of the file names.
    """
    messages = rows // UPDATES_PER_MESSAGE
    times = -(-rows // updates_per_time)
    files = max(1, messages // _MESSAGES_PER_FILE)
    ids = spark.range(0, messages, 1, files).select(F.col("id").alias("message"), F.col("id").alias("offset"))
    _write_files(_topic_frame(_update_messages(ids, update, 0), folder.name), folder, f"{prefix}-updates")
    progress_messages = -(-times // TIMES_PER_STATEMENT)
    ids = spark.range(0, progress_messages, 1, 1).select(
        F.col("id").alias("number"), (F.col("id") + messages).alias("offset")
    )
    progress = _progress_messages(ids, 0, times, updates_per_time)
    _write_files(_topic_frame(progress, folder.name), folder, f"{prefix}-progress")
    return messages + progress_messages


@dataclass
class Ticks:
    """Standard ticks. Each is written to a file before the measurement, and added to a topic during it.

    A tick has 100,000 updates in 1,000 messages, copies of 2% of these messages, late copies of 5% of the previous
    tick, which is sealed by then, and a progress statement for every 100 times.
    """

    spark: SparkSession
    stream: Stream
    folder: Path
    topic: str
    next_offset: int
    made: int = 0
    disturbed: bool = True
    """Whether there are copies and late messages."""
    writers: Writers = "one"
    """Whether a second writer states each update again, and when; with a second writer, `disturbed` must be false."""

    def make(self, ticks: int) -> None:
        """Write more ticks."""
        for _ in range(ticks):
            self._make_tick()

    def file(self, tick: int) -> Path:
        """Return the file of a tick."""
        return self.folder / f"tick-{tick:05d}.parquet"

    def _make_tick(self) -> None:
        tick, messages = self.made, TICK_UPDATES // UPDATES_PER_MESSAGE
        first = tick * TICK_UPDATES
        copies = int(messages * _COPIES) if self.disturbed else 0
        late = int(messages * _LATE) if self.disturbed and tick else 0
        if self.writers == "two a tick apart":
            late = messages if tick else 0
        elif self.writers != "one":
            copies = messages
        offset = self.next_offset
        # The messages that are sent again are spread over their tick.
        own = self._ids(messages, 1, 0, offset)
        again = self._ids(copies, messages // max(copies, 1), 0, offset + messages)
        if self.writers == "two in step":
            own = own.withColumn("offset", offset + (F.col("offset") - offset) * 2)
            again = again.withColumn("offset", offset + (F.col("offset") - offset - messages) * 2 + 1)
            again = again.withColumn("message", (F.col("message") + messages - _LAG_MESSAGES) % messages)
        before = self._ids(late, messages // max(late, 1), 0, offset + messages + copies)
        parts = _update_messages(own.unionAll(again), self.stream.change(), first)
        if late:
            parts = parts.unionAll(_update_messages(before, self.stream.change(), first - TICK_UPDATES))
        end = offset + messages + copies + late
        progress_messages = self.stream.tick_times // TIMES_PER_STATEMENT
        ids = self.spark.range(0, progress_messages, 1, 1).select(
            F.col("id").alias("number"), (F.col("id") + end).alias("offset")
        )
        parts = parts.unionAll(
            _progress_messages(ids, self.stream.tick_start(tick), self.stream.tick_times, UPDATES_PER_TIME)
        )
        scratch = self.folder / "scratch"
        _topic_frame(parts, self.topic).coalesce(1).sortWithinPartitions("offset").write.parquet(str(scratch))
        (written,) = scratch.glob("*.parquet")
        written.replace(self.file(tick))
        shutil.rmtree(scratch)
        self.next_offset, self.made = end + progress_messages, tick + 1

    def _ids(self, number: int, step: int, first: int, offset: int) -> DataFrame:
        ids = self.spark.range(0, number, 1, 1)
        return ids.select((F.col("id") * step + first).alias("message"), (F.col("id") + offset).alias("offset"))


def write_ticks(spark: SparkSession, stream: Stream, folder: Path, topic: str, ticks: int, updates: int) -> list[Path]:
    """Write many ticks at once, one file for each: updates without copies, then one progress statement.

    Args:
        spark: the session.
        stream: the source of the changes; its state is left out, but times begin where the state would end.
        folder: the folder of the files, which are named in the order of ticks.
        topic: the name of the topic.
        ticks: the number of ticks.
        updates: the number of updates in a tick; a multiple of a thousand.
    """
    messages, times = updates // UPDATES_PER_MESSAGE, updates // UPDATES_PER_TIME
    low = f"(if(tick = 0, 0L, {stream.state_times}L + tick * {times}))"
    high = f"({stream.state_times}L + (tick + 1) * {times})"
    counts = f"transform(sequence({high} - {times}, {high} - 1), t -> named_struct('time', t, 'count', "
    statement = f"named_struct('lower', array({low}), 'upper', array({high}), 'counts', {counts}{UPDATES_PER_TIME}L)))"
    items = f"transform({_numbers('message', 0)}, n -> {stream.change()})"
    ids = spark.range(0, ticks * (messages + 1), 1, ticks).select(
        F.col("id").alias("offset"),
        F.expr(f"id div {messages + 1}").alias("tick"),
        F.expr(f"id % {messages + 1} < {messages}").alias("is_update"),
        F.expr(f"id div {messages + 1} * {messages} + id % {messages + 1}").alias("message"),
    )
    parts = ids.select(
        "offset",
        _encoded(
            F.expr(f"if(is_update, {items}, null)").alias("member0"),
            F.expr(f"if(is_update, null, {statement})").cast(_PROGRESS_TYPE).alias("member1"),
        ),
    )
    _write_files(_topic_frame(parts, topic), folder, "tick")
    return sorted(folder.glob("tick-*.parquet"))


def write_rows_of(spark: SparkSession, stream: Stream, updates: int, folder: Path) -> None:
    """Write the first `updates` updates of the ticks as two Parquet files in time order.

    This is the minimum that has to be written for these updates.
    """
    rows = spark.range(0, updates, 1, 2).select(F.col("id").alias("n")).select(F.expr(stream.change()).alias("u"))
    decoded = rows.select("u.data.*", F.col("u.time").alias("_time"), F.col("u.diff").alias("_diff"))
    decoded.write.mode("overwrite").parquet(str(folder))


def _write_files(frame: DataFrame, folder: Path, prefix: str) -> None:
    scratch = folder.parent / f"scratch-{folder.name}"
    frame.write.parquet(str(scratch))
    folder.mkdir(parents=True, exist_ok=True)
    for number, path in enumerate(sorted(scratch.glob("*.parquet"))):
        path.replace(folder / f"{prefix}-{number:05d}.parquet")
    shutil.rmtree(scratch)


def state_rows(spark: SparkSession, stream: Stream) -> DataFrame:
    """Return the state as plain rows with `_time`, for creating a peer's table."""
    return (
        spark.range(0, stream.rows, 1, max(2, stream.rows // 2_500_000))
        .select(F.expr(stream.state("id")).alias("u"))
        .select("u.data.*", F.col("u.time").alias("_time"))
    )
