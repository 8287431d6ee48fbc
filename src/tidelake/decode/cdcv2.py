"""Decodes message bytes to statements, on the JVM: framing, Avro, and every rule that a single message can break.

A sentinel after the body reveals trailing bytes; see `sentinel`. If lengths prove that there are none, individual
messages are not searched; see `lengths`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro, to_avro

from tidelake.codec.exact import suspect_pattern
from tidelake.decode.columns import BODY, BODY_REASON, MESSAGE, SCHEMA_ID
from tidelake.decode.framing import MAGIC_BYTES, body_of, holds_id_in_header, reason_by, schema_id_of
from tidelake.decode.landing import Landing, land_record
from tidelake.decode.lengths import Lengths, bytes_of_statements, lengths_of_statement, measured_type
from tidelake.decode.sentinel import SENTINEL, message_schema, with_sentinel, without_logical_types
from tidelake.schema.avro import PROGRESS, resolved_schema
from tidelake.spark.column_cache import cached

PROGRESS_BYTE = bytes([2])  # zigzag of the union's second branch


class Reading(Enum):
    """How closely update messages are searched for trailing bytes and numbers out of range for their type.

    Every reading except the last requires that rows are checked with `Decoder.broken`.
    """

    MEASURED = "measured"
    """Messages are not searched: their total length reveals whether anything is wrong."""
    COMPARED = "compared"
    """Each message is searched, and measured as well, which shows whether lengths would have sufficed."""
    TRUSTING = "trusting"
    """Each message is searched, and none is measured."""
    CAREFUL = "careful"
    """Each message is searched, and each of its statements is examined."""

    @property
    def measures(self) -> bool:
        """Whether `Decoder.lengths` must be compared with the column `bytes` of `Decoder.updates`."""
        return self in (Reading.MEASURED, Reading.COMPARED)


@dataclass(frozen=True)
class Decoder:
    """How one topic's messages are read.

    Args:
        record_schema: the schema of the collection's `data`.
        writer_schemas: for Confluent framing, the writers' schemas of `data`, by schema id; None means bare Avro.
        refused_ids: for Confluent framing, why the messages of a known schema cannot be read, by schema id.
    """

    record_schema: dict[str, Any]
    writer_schemas: Mapping[int, dict[str, Any]] | None = None
    refused_ids: Mapping[int, str] = field(default_factory=dict)

    def progress(self, raw: DataFrame) -> DataFrame:
        """Decode the progress statements; one byte tells them apart from updates, which are not decoded.

        In:  partition, offset, timestamp_ms, key, value.
        Out: the same, reason string (null if the statement is good), lower, upper, count_times, count_values
             array<bigint>.
        """
        framed = self._framed(raw).where(_is_progress())
        decoded = framed.withColumn(MESSAGE, _from_avro(F.col(BODY), land_record(self.record_schema).decoding))
        statement = F.col(f"{MESSAGE}.m.member1")
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
        """Decode everything but progress statements: update messages, and messages that are neither.

        In:  partition, offset, timestamp_ms, key, value.
        Out: the same, reason string (null if the message is good, or has no value), times array<bigint> (null unless
             the message could be decoded), updates array<struct<data, time, diff>> (null unless the message is good;
             data in stored form if the reading is careful, else as decoded). If the reading measures, bytes bigint is
             added: the number of bytes of the statements in a good message.

        Args:
            raw: the messages.
            reading: one of `readings`. With every reading except the careful one, the exploded rows must be checked
                against the rules for statements: Spark compiles rules over rows, but interprets rules over arrays.
        """
        framed = self._framed(raw).where(~_is_progress())
        if self.writer_schemas is None:
            return self._decoded_updates(framed, self.record_schema, reading)
        parts = [
            self._decoded_updates(framed.where(F.col(SCHEMA_ID) == schema_id), schema, reading)
            for schema_id, schema in self.writer_schemas.items()
        ]
        known = F.coalesce(F.col(SCHEMA_ID).isin(list(self.writer_schemas)), F.lit(False))
        parts.append(self._decoded_updates(framed.where(~known), self.record_schema, reading))
        return reduce(DataFrame.unionByName, parts)

    @property
    def readings(self) -> list[Reading]:
        """The readings to try in turn: the fastest first, and the one that is always correct last.

        Rows can be checked instead of their messages only if all messages decode to the same columns, apart from those
        that a writer lacks.
        """
        own, *others = (land_record(schema) for schema in (self.record_schema, *(self.writer_schemas or {}).values()))
        if all((other.decoding, other.arrow) == (own.decoding, own.arrow) for other in others):
            if lengths_of_statement(own.decoding) is not None:
                return [Reading.MEASURED, Reading.COMPARED, Reading.CAREFUL]
        elif any(landing.project is not None for landing in (own, *others)) and not all(
            _is_part(other, own) for other in others
        ):
            return [Reading.CAREFUL]
        return [Reading.TRUSTING, Reading.CAREFUL]

    def lengths(self, statement: Column) -> Lengths:
        """Return the length of a statement that was decoded with a reading that measures.

        If the total length of all statements equals the sum of the column `bytes` of `updates`, and `is_doubtful` of
        the result is false for every statement, the messages are exactly what an encoder would write: they have no
        trailing bytes, and no number was truncated.
        """
        measure = lengths_of_statement(land_record(self.record_schema).decoding)
        assert measure is not None
        return measure(statement)

    def broken(self, statement: Column) -> Column:
        """Return whether a statement (data, time and diff) makes its message unusable; the result is never null."""
        broken = land_record(self.record_schema).broken
        rules = (statement["diff"] == 0) | (statement["time"] < 0)
        return rules if broken is None else rules | broken(statement["data"])

    def detail_of_refusal(self) -> Column:
        """Return why the schema of a message was refused; null if the message has a different `reason`, or none."""
        detail = reason_by(schema_id_of(F.col("value")), self.refused_ids)
        return F.when(F.col("reason") == "schema_not_resolved", detail)

    def _framed(self, raw: DataFrame) -> DataFrame:
        """Add the body, the schema id, and the reason if the framing shows that the body cannot be decoded."""
        if self.writer_schemas is None:
            return raw.select("*", *_unframed())
        value = F.col("value")
        long_enough = F.length(value) >= MAGIC_BYTES
        magic = long_enough & (F.substring(value, 1, 1) == F.lit(bytes(1)))
        schema_id = schema_id_of(value)
        reason = (
            F.when(value.isNull(), F.lit(None))
            .when(holds_id_in_header(raw, "value"), F.lit("schema_id_in_header"))
            .when(F.substring(value, 1, 1) != F.lit(bytes(1)), F.lit("wrong_magic_byte"))
            .when(~long_enough, F.lit("undecodable"))
            .when(schema_id.isin(list(self.refused_ids)), F.lit("schema_not_resolved"))
            .when(~schema_id.isin(list(self.writer_schemas)), F.lit("unknown_schema_id"))
        )
        body = F.when(magic, body_of(value))
        return raw.withColumns({BODY: body, BODY_REASON: reason, SCHEMA_ID: F.when(magic, schema_id)})

    def _decoded_updates(self, framed: DataFrame, schema: dict[str, Any], reading: Reading) -> DataFrame:
        decoded, reason, columns = _columns_of_updates(schema, self.record_schema, reading)
        # Three steps, so that the optimizer does not decode once for each use.
        return framed.withColumn(MESSAGE, decoded).withColumn("reason", reason).select(*_SOURCE, "reason", *columns)


@cached
def _unframed() -> list[Column]:
    """Return the columns of `_framed` for messages without framing."""
    nothing = {BODY_REASON: "string", SCHEMA_ID: "bigint"}
    return [F.col("value").alias(BODY), *(F.lit(None).cast(kind).alias(name) for name, kind in nothing.items())]


_SOURCE = ("partition", "offset", "timestamp_ms", "key", "value")


@cached
def _columns_of_updates(
    schema: dict[str, Any], record_schema: dict[str, Any], reading: Reading
) -> tuple[Column, Column, list[Column]]:
    """Return the decoded message, the reason computed from it, and the columns that `Decoder.updates` adds."""
    landing = land_record(schema)
    batch = F.col(f"{MESSAGE}.m.member0")
    reasons = [F.col(BODY_REASON)]
    if reading is Reading.MEASURED:
        decoded = _from_avro(F.col(BODY), measured_type(landing.decoding), sealed=False)
        reasons.append(_undecodable(batch))
    else:
        decoded = _from_avro(F.col(BODY), landing.decoding)
        if reading is Reading.CAREFUL and landing.too_large is not None:
            reasons.append(_any_statement(batch, landing.too_large, "undecodable"))
        reasons += [_avro_reason(batch), _overflow_reason(schema)]
    careful = reading is Reading.CAREFUL
    if careful:
        reasons.append(_updates_reason(batch, landing))
    good = F.col("reason").isNull() & F.col("value").isNotNull()
    columns = [
        F.array_distinct(F.transform(batch, lambda update: update["time"])).alias("times"),
        F.when(good, _with_columns(batch, landing, record_schema, stored=careful)).alias("updates"),
    ]
    if reading.measures:
        columns.append(F.when(good, bytes_of_statements(F.col(BODY), batch)).alias("bytes"))
    return decoded, F.when(F.col("value").isNotNull(), F.coalesce(*reasons)), columns


@cached
def _is_progress() -> Column:
    """Return whether the first byte marks a message as a progress statement.

    The result is never null, so that no message is lost.
    """
    first_byte = F.substring(F.col(BODY), 1, 1)
    return F.coalesce(F.col(BODY_REASON).isNull() & (first_byte == F.lit(PROGRESS_BYTE)), F.lit(False))


def _from_avro(body: Column, decoding: Any, sealed: bool = True) -> Column:
    """Decode a CDCv2 body, with the sentinel appended if `sealed`; null if the body cannot be decoded."""
    source = with_sentinel(body) if sealed else body
    return from_avro(source, json.dumps(_schema(decoding, sealed)), {"mode": "PERMISSIVE"})


def _overflow_reason(record_schema: dict[str, Any]) -> Column:
    """Detect numbers beyond int64 (int32), whose high bits Java's decoder silently drops.

    Such a number has nine (four) bytes of 0x80 or more, followed by a byte that is too large. Text may look like that,
    too. So a body with such bytes is decoded without logical types and encoded again: the result differs only if a
    number was truncated, or if the body is one that no common encoder writes, such as a batch in several blocks.
    `tidelake.codec.exact` defines the rule.
    """
    pattern = suspect_pattern(resolved_schema(record_schema))
    schema = json.dumps(_schema(without_logical_types(land_record(record_schema).decoding)))
    sealed = with_sentinel(F.col(BODY))
    reencoded = to_avro(from_avro(sealed, schema, {"mode": "PERMISSIVE"}), schema)
    suspect = F.decode(F.col(BODY), "ISO-8859-1").rlike(pattern)
    return F.when(suspect, F.when(~reencoded.eqNullSafe(sealed), F.lit("undecodable")))


def _schema(data: Any, sealed: bool = True) -> dict[str, Any]:
    """Return the schema of a body and the sentinel after it. The names do not matter: the bytes hold none."""
    update = {
        "type": "record",
        "name": "update",
        "fields": [
            {"name": "data", "type": data},
            {"name": "time", "type": "long"},
            {"name": "diff", "type": "long"},
        ],
    }
    return message_schema([{"type": "array", "items": update}, PROGRESS], sealed)


def _avro_reason(branch: Column) -> Column:
    tail = F.col(f"{MESSAGE}.tail")
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
        F.when(F.exists(batch, lambda update: update["diff"] == 0), F.lit("zero_diff")),
        F.when(F.exists(batch, lambda update: update["time"] < 0), F.lit("negative_time")),
    )


def _any_statement(batch: Column, check: Callable[[Column], Column], reason: str) -> Column:
    """Return `reason` if the check holds for the data of any statement."""
    return F.when(F.exists(batch, lambda update: check(update["data"])), F.lit(reason))


def _progress_reason(statement: Column) -> Column:
    """Check the rules of `message.Progress` for integer times, in the order in which it checks them."""
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
        F.when(F.exists(counts, lambda count: count["count"] < 0), F.lit("negative_count")),
        F.when(F.coalesce(outside, F.lit(False)), F.lit("count_outside_interval")),
        F.when(F.size(F.array_distinct(times)) < F.size(times), F.lit("duplicate_count")),
    )


def _is_part(landing: Landing, whole: Landing) -> bool:
    """Return whether each column of a record decodes in the same way as the column of that name in another record."""
    columns = {name: (column.decoding, column.arrow) for name, column in whole.fields}
    return all(columns.get(name) == (column.decoding, column.arrow) for name, column in landing.fields)


def _with_columns(batch: Column, landing: Landing, record_schema: dict[str, Any], stored: bool) -> Column:
    """Return the decoded updates with the collection's columns in its order; those that the writer lacks are null.

    Args:
        batch: the decoded updates.
        landing: the landing of the writer's record.
        record_schema: the schema of the collection's `data`.
        stored: whether to convert `data` to its stored form.
    """
    own = land_record(record_schema)
    names, written = [name for name, _ in own.fields], [name for name, _ in landing.fields]
    project = landing.project if stored else None
    if project is None and names == written:
        return batch

    def whole(update: Column) -> Column:
        data = update["data"] if project is None else project(update["data"])
        if names != written:
            columns = [data[name] if name in written else _null(own, name, stored) for name in names]
            data = F.struct(*(column.alias(name) for column, name in zip(columns, names, strict=True)))
        return F.struct(data.alias("data"), update["time"].alias("time"), update["diff"].alias("diff"))

    return F.transform(batch, whole)


def _null(landing: Landing, name: str, stored: bool) -> Column:
    """Return a null of a column's decoded type or, if `stored`, of its stored type."""
    nothing = from_avro(F.lit(None).cast("binary"), json.dumps(_schema(landing.decoding)), {"mode": "PERMISSIVE"})
    value, column = F.get(nothing["m"]["member0"], F.lit(0))["data"][name], dict(landing.fields)[name]
    return column.project(value) if stored and column.project is not None else value
