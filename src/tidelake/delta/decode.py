"""From message bytes to statements, on the JVM: framing, Avro, and every rule that one message can break by itself.

A record with one field of a union type has the union's bytes, so the CDCv2 union is decoded as such a record. Behind
the body go sixteen sentinel bytes and behind the union a `fixed` field that must read exactly those: a body that is
too short runs out of bytes, and one that has bytes left over shifts the sentinel. The sentinel has no border (no proper
suffix equals a prefix), so no number of left-over bytes can hide. Where lengths tell the same, no message is looked
into; see `lengths`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import reduce
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro, to_avro

from tidelake.codec_exact import suspect_pattern
from tidelake.delta.kept import kept
from tidelake.delta.layout import DIFF, TIME
from tidelake.delta.lengths import Lengths, bytes_of_statements, lengths_of_statement, measured_type
from tidelake.delta.types import Landing, land_record
from tidelake.schema import PROGRESS, resolved_schema

SENTINEL = bytes.fromhex("8f1d0c63a95be24780f36e1bd2c4097a")
PROGRESS_BYTE = bytes([2])  # zigzag of the union's second branch
MAGIC_BYTES = 5  # Confluent framing: a zero byte and a four-byte schema id
ID_HEADER = "__{}_schema_id"
"""The header in which newer producers say the schema of a record's `key` or `value`."""
_TO_THE_END = 2**31 - 1


class Reading(Enum):
    """How closely update messages are looked at. All but the last need their rows to be asked `Decoder.broken`."""

    MEASURED = "measured"
    """Not at all: lengths tell, over all messages, whether there are left-over bytes or numbers beyond their type."""
    COMPARED = "compared"
    """Each message is searched for these, and measured, which tells whether lengths would have done."""
    TRUSTING = "trusting"
    """Each message is searched for these."""
    CAREFUL = "careful"
    """Each message is searched for these, and each of its statements is looked at."""

    @property
    def measures(self) -> bool:
        """Whether `Decoder.lengths` has to be compared with what `Decoder.updates` says of bytes."""
        return self in (Reading.MEASURED, Reading.COMPARED)


@dataclass(frozen=True)
class Decoder:
    """How one topic's messages are read.

    Args:
        record_schema: what the collection's `data` is.
        writer_schemas: Confluent framing: by schema id, what `data` was written as; None means bare Avro.
        refused_ids: Confluent framing: why messages of schema ids that are known cannot be read.
    """

    record_schema: dict[str, Any]
    writer_schemas: Mapping[int, dict[str, Any]] | None = None
    refused_ids: Mapping[int, str] = field(default_factory=dict)

    def progress(self, raw: DataFrame) -> DataFrame:
        """The progress statements among raw messages; update messages are told by one byte and not decoded.

        In:  partition, offset, timestamp_ms, key, value.
        Out: the same, reason string (null where the statement is good), lower, upper, count_times, count_values
             array<bigint>.
        """
        framed = self._framed(raw).where(_is_progress())
        decoded = framed.withColumn("_m", _from_avro(F.col("_body"), land_record(self.record_schema).decoding))
        statement = F.col("_m.m.member1")
        overflow = _overflow_reason(self.record_schema)
        return decoded.select(
            *_SOURCE,
            F.coalesce(_avro_reason(statement), overflow, _progress_reason(statement)).alias("reason"),
            statement["lower"].alias("lower"),
            statement["upper"].alias("upper"),
            statement["counts"]["time"].alias("count_times"),
            statement["counts"]["count"].alias("count_values"),
        )

    def updates(self, raw: DataFrame, reading: Reading = Reading.CAREFUL) -> DataFrame:
        """Everything but progress statements: update messages, and whatever is neither.

        In:  partition, offset, timestamp_ms, key, value.
        Out: the same, reason string (null where the message is good or null), times array<bigint> (of a message that
             could be decoded), updates array<struct<data, time, diff>> (null unless the message is good; data as it is
             stored where the reading is careful, else as it was decoded); where it measures, also bytes bigint: how
             many bytes of a good message its statements have.

        Args:
            raw: the messages.
            reading: one of `readings`. Looking into arrays is interpreted, row by row; the same rules over exploded
                rows are compiled.
        """
        framed = self._framed(raw).where(~_is_progress())
        if self.writer_schemas is None:
            return self._decoded_updates(framed, self.record_schema, reading)
        parts = [
            self._decoded_updates(framed.where(F.col("_schema_id") == schema_id), schema, reading)
            for schema_id, schema in self.writer_schemas.items()
        ]
        known = F.coalesce(F.col("_schema_id").isin(list(self.writer_schemas)), F.lit(False))
        parts.append(self._decoded_updates(framed.where(~known), self.record_schema, reading))
        return reduce(DataFrame.unionByName, parts)

    @property
    def readings(self) -> list[Reading]:
        """The readings that may be tried, one after the other: the fastest first, the one that is always right last.

        Rows can only be asked what their messages were not where all of them have the same columns as decoded.
        """
        landings = [land_record(schema) for schema in (self.record_schema, *(self.writer_schemas or {}).values())]
        names = [[one.name for one in landing.arrow] for landing in landings]
        if all((one.decoding, one.arrow) == (landings[0].decoding, landings[0].arrow) for one in landings):
            if lengths_of_statement(landings[0].decoding) is not None:
                return [Reading.MEASURED, Reading.COMPARED, Reading.CAREFUL]
        elif any(landing.project is not None for landing in landings) or any(one != names[0] for one in names):
            return [Reading.CAREFUL]
        return [Reading.TRUSTING, Reading.CAREFUL]

    def lengths(self, statement: Column) -> Lengths:
        """How long a statement is that a measured reading gives.

        The messages are what an encoder would write of their statements where these are together as long as `updates`
        says, and none is doubtful. Nothing is left over then, and no number was cut.
        """
        measure = lengths_of_statement(land_record(self.record_schema).decoding)
        assert measure is not None
        return measure(statement)

    def broken(self, statement: Column) -> Column:
        """Whether a statement, a struct of data, time and diff, breaks a rule that spoils its message; never null."""
        broken = land_record(self.record_schema).broken
        rules = (statement["diff"] == 0) | (statement["time"] < 0)
        return rules if broken is None else rules | broken(statement["data"])

    def detail_of_refusal(self) -> Column:
        """Of a message whose `reason` is that its schema does not fit, which one and why; null for any other."""
        why = reason_by(schema_id_of(F.col("value")), self.refused_ids)
        return F.when(F.col("reason") == "schema_not_resolved", why)

    def _framed(self, raw: DataFrame) -> DataFrame:
        """Add `_body`, `_schema_id` and `_framing`, the reason why there is no body."""
        if self.writer_schemas is None:
            return raw.select("*", *_unframed())
        value = F.col("value")
        long_enough = F.length(value) >= MAGIC_BYTES
        magic = long_enough & (F.substring(value, 1, 1) == F.lit(bytes(1)))
        schema_id = schema_id_of(value)
        framing = (
            F.when(value.isNull(), F.lit(None))
            .when(holds_id_in_header(raw, "value"), F.lit("schema_id_in_header"))
            .when(F.substring(value, 1, 1) != F.lit(bytes(1)), F.lit("wrong_magic_byte"))
            .when(~long_enough, F.lit("undecodable"))
            .when(schema_id.isin(list(self.refused_ids)), F.lit("schema_not_resolved"))
            .when(~schema_id.isin(list(self.writer_schemas)), F.lit("unknown_schema_id"))
        )
        body = F.when(magic, body_of(value))
        return raw.withColumns({"_body": body, "_framing": framing, "_schema_id": F.when(magic, schema_id)})

    def _decoded_updates(self, framed: DataFrame, schema: dict[str, Any], reading: Reading) -> DataFrame:
        decoded, reason, columns = _columns_of_updates(schema, self.record_schema, reading)
        # Three steps, so that the optimizer does not decode once for each use.
        return framed.withColumn("_m", decoded).withColumn("reason", reason).select(*_SOURCE, "reason", *columns)


@kept
def _unframed() -> list[Column]:
    """What `_framed` adds where there is no framing."""
    nothing = {"_framing": "string", "_schema_id": "bigint"}
    return [F.col("value").alias("_body"), *(F.lit(None).cast(kind).alias(name) for name, kind in nothing.items())]


_SOURCE = ("partition", "offset", "timestamp_ms", "key", "value")


@kept
def _columns_of_updates(
    schema: dict[str, Any], record_schema: dict[str, Any], reading: Reading
) -> tuple[Column, Column, list[Column]]:
    """What is decoded; from that the reason; and from both the columns that `Decoder.updates` adds."""
    landing = land_record(schema)
    batch = F.col("_m.m.member0")
    reasons = [F.col("_framing")]
    if reading is Reading.MEASURED:
        decoded = _from_avro(F.col("_body"), measured_type(landing.decoding), sealed=False)
        reasons.append(_undecodable(batch))
    else:
        decoded = _from_avro(F.col("_body"), landing.decoding)
        if reading is Reading.CAREFUL and landing.beyond is not None:
            reasons.append(_any_statement(batch, landing.beyond, "undecodable"))
        reasons += [_avro_reason(batch), _overflow_reason(schema)]
    careful = reading is Reading.CAREFUL
    if careful:
        reasons.append(_updates_reason(batch, landing))
    good = F.col("reason").isNull() & F.col("value").isNotNull()
    columns = [
        F.array_distinct(F.transform(batch, lambda one: one["time"])).alias("times"),
        F.when(good, _stored(batch, landing, record_schema) if careful else batch).alias("updates"),
    ]
    if reading.measures:
        columns.append(F.when(good, bytes_of_statements(F.col("_body"), batch)).alias("bytes"))
    return decoded, F.when(F.col("value").isNotNull(), F.coalesce(*reasons)), columns


def explode_updates(
    messages: DataFrame,
    record_schema: dict[str, Any],
    reading: Reading = Reading.CAREFUL,
    refused: Callable[[Column], Column] | None = None,
) -> DataFrame:
    """One row for each update of the good messages.

    In:  what `Decoder.updates` gives.
    Out: the data's columns, _time bigint, _diff bigint, and where each was read: _partition, _offset.

    Args:
        messages: the decoded messages.
        record_schema: the collection's, which names the columns.
        reading: how they were decoded.
        refused: whether an element of `updates` is left out; None keeps all.
    """
    exploded = messages.select(
        F.col("partition").alias("_partition"), F.col("offset").alias("_offset"), F.explode("updates").alias("_u")
    )
    if refused is not None:
        exploded = exploded.where(~refused(F.col("_u")))
    return exploded.select(*_statement_columns(record_schema, reading), "_partition", "_offset")


def explode_messages(
    messages: DataFrame, record_schema: dict[str, Any], reading: Reading, told: Sequence[Column]
) -> DataFrame:
    """One row for each update, and one for each message that has none: all can be counted in one pass.

    To count messages before they are exploded would copy each of them.

    In:  updates, as `Decoder.updates` gives them; whatever `told` looks at.
    Out: the data's columns, _time bigint, _diff bigint, all null of a message without updates; what `told` says.

    Args:
        messages: the decoded messages.
        record_schema: the collection's, which names the columns.
        reading: how they were decoded.
        told: further columns of messages, of `_u`, an element of `updates` that is null where there is none, and of
            `_at`, the number of that element, null where there is none.
    """
    exploded = messages.select("*", F.posexplode_outer("updates").alias("_at", "_u"))
    return exploded.select(*_statement_columns(record_schema, reading), *told)


@kept
def _statement_columns(record_schema: dict[str, Any], reading: Reading) -> list[Column]:
    """The columns of the element `_u`, its data as it is stored."""
    data = []
    for name, landing in land_record(record_schema).fields:
        value = F.col("_u.data")[name]
        if reading is not Reading.CAREFUL and landing.project is not None:
            value = landing.project(value)
        if reading is Reading.MEASURED and pa.types.is_int32(landing.arrow):  # is read as a long
            value = value.try_cast("int")
        data.append(value.alias(name))
    return [*data, F.col("_u.time").alias(TIME), F.col("_u.diff").alias(DIFF)]


def schema_id_of(framed: Column) -> Column:
    """The schema id (bigint) in Confluent's five bytes."""
    return F.conv(F.hex(F.substring(framed, 2, 4)), 16, 10).cast("bigint")


def body_of(framed: Column) -> Column:
    """What stands behind Confluent's five bytes."""
    return F.substring(framed, MAGIC_BYTES + 1, _TO_THE_END)


def reason_by(number: Column, reasons: Mapping[int, str]) -> Column:
    """The text that a number has; null where it has none."""
    found: Column = F.lit(None).cast("string")
    for one, why in reasons.items():
        found = F.when(number == one, F.lit(why)).otherwise(found)
    return found


def holds_id_in_header(frame: DataFrame, part: str) -> Column:
    """Whether a record says the schema of its `key` or `value` in a header, as newer producers may; never null."""
    if "headers" not in frame.columns:
        return F.lit(False)
    name = F.lit(ID_HEADER.format(part))
    return F.coalesce(F.exists("headers", lambda one: one["key"] == name), F.lit(False))


@kept
def _is_progress() -> Column:
    """Whether a framed message is a progress statement by its first byte; never null, so that no message is lost."""
    first_byte = F.substring(F.col("_body"), 1, 1)
    return F.coalesce(F.col("_framing").isNull() & (first_byte == F.lit(PROGRESS_BYTE)), F.lit(False))


def _from_avro(body: Column, decoding: Any, sealed: bool = True) -> Column:
    """Decode a CDCv2 body, with the sentinel behind it if it is `sealed`; null where it is none."""
    stated = F.concat(body, F.lit(SENTINEL)) if sealed else body
    return from_avro(stated, json.dumps(_schema(decoding, sealed)), {"mode": "PERMISSIVE"})


def _overflow_reason(record_schema: dict[str, Any]) -> Column:
    """Find numbers beyond int64 (int32), whose last byte's high bits Java's decoder drops in silence.

    Such a number has nine (four) bytes of 0x80 or more and then one that says too much. Bytes that look like it, which
    text does as well, are decoded without logical types and encoded again: then only a number that was cut comes out
    otherwise, or what no common encoder writes, such as a batch in several blocks. `tidelake.codec_exact` has the rule.
    """
    pattern = suspect_pattern(resolved_schema(record_schema))
    schema = json.dumps(_schema(without_logical_types(land_record(record_schema).decoding)))
    stated = F.concat(F.col("_body"), F.lit(SENTINEL))
    again = to_avro(from_avro(stated, schema, {"mode": "PERMISSIVE"}), schema)
    suspect = F.decode(F.col("_body"), "ISO-8859-1").rlike(pattern)
    return F.when(suspect, F.when(~again.eqNullSafe(stated), F.lit("undecodable")))


def without_logical_types(kind: Any) -> Any:
    """The same Avro type without what its numbers and bytes stand for."""
    if isinstance(kind, list):
        return [without_logical_types(one) for one in kind]
    if isinstance(kind, dict):
        rest = {name: value for name, value in kind.items() if name not in ("logicalType", "precision", "scale")}
        return {name: without_logical_types(value) if name != "symbols" else value for name, value in rest.items()}
    return kind


def _schema(data: Any, sealed: bool = True) -> dict[str, Any]:
    """The schema of a body and the sentinel behind it. Names of records are fresh, as bytes do not hold names."""
    update = {
        "type": "record",
        "name": "update",
        "fields": [
            {"name": "data", "type": data},
            {"name": "time", "type": "long"},
            {"name": "diff", "type": "long"},
        ],
    }
    tail = {"name": "tail", "type": {"type": "fixed", "name": "tail", "size": len(SENTINEL)}}
    return {
        "type": "record",
        "name": "message",
        "fields": [
            {"name": "m", "type": [{"type": "array", "items": update}, PROGRESS]},
            *([tail] if sealed else []),
        ],
    }


def _avro_reason(branch: Column) -> Column:
    tail = F.col("_m.tail")
    return (
        F.when(tail.isNull(), F.lit("undecodable"))
        .when(tail != F.lit(SENTINEL), F.lit("bytes_left_over"))
        .otherwise(_undecodable(branch))
    )


def _undecodable(branch: Column) -> Column:
    return F.when(branch.isNull(), F.lit("undecodable"))


def _updates_reason(batch: Column, landing: Landing) -> Column:
    return F.coalesce(
        *([] if landing.not_text is None else [_any_statement(batch, landing.not_text, "undecodable")]),
        F.when(F.exists(batch, lambda one: one["diff"] == 0), F.lit("zero_diff")),
        F.when(F.exists(batch, lambda one: one["time"] < 0), F.lit("negative_time")),
    )


def _any_statement(batch: Column, check: Callable[[Column], Column], reason: str) -> Column:
    """The reason, where the data of any statement is so."""
    return F.when(F.exists(batch, lambda one: check(one["data"])), F.lit(reason))


def _progress_reason(statement: Column) -> Column:
    """The rules of `message.Progress` for integer times, in its order."""
    lower, upper, counts = statement["lower"], statement["upper"], statement["counts"]
    times = counts["time"]
    first, end = F.array_min(lower), F.array_min(upper)
    negative = F.exists(F.concat(lower, upper, times), lambda time: time < 0)
    backwards = (F.size(upper) > 0) & ((F.size(lower) == 0) | (end < first))
    outside = F.exists(
        times, lambda time: (F.size(lower) == 0) | (time < first) | F.coalesce(time >= end, F.lit(False))
    )
    return F.coalesce(
        F.when(negative, F.lit("negative_time")),
        F.when(backwards, F.lit("bad_interval")),
        F.when(F.exists(counts, lambda one: one["count"] < 0), F.lit("negative_count")),
        F.when(F.coalesce(outside, F.lit(False)), F.lit("count_outside_interval")),
        F.when(F.size(F.array_distinct(times)) < F.size(times), F.lit("duplicate_count")),
    )


def _stored(batch: Column, landing: Landing, record_schema: dict[str, Any]) -> Column:
    """The decoded updates with `data` as it is stored, columns in the collection's order."""
    names = [one.name for one in land_record(record_schema).arrow]
    in_order = names == [one.name for one in landing.arrow]
    if landing.project is None and in_order:
        return batch

    def stored(update: Column) -> Column:
        data = update["data"] if landing.project is None else landing.project(update["data"])
        if not in_order:
            data = F.struct(*(data[name].alias(name) for name in names))
        return F.struct(data.alias("data"), update["time"].alias("time"), update["diff"].alias("diff"))

    return F.transform(batch, stored)
