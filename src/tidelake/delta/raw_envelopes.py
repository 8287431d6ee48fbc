"""What the records of a raw topic amount to, by envelope: `append_only` and `upsert`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidelake.configuration import CollectionSettings
from tidelake.delta.conditions import all_of
from tidelake.delta.formats import decode_keys, decode_values
from tidelake.delta.json_format import is_wrapped
from tidelake.delta.layout import DIFF, ERROR, POSITION, TIME, UNAVAILABLE
from tidelake.delta.parameters import parameter


@dataclass(frozen=True)
class RawEnvelope:
    """How one envelope makes rows of records."""

    read: Callable[[DataFrame, CollectionSettings], DataFrame]
    """Decodes records. In: the columns of `topic.RAW_SCHEMA`, topic. Out: the same, _reason string (why a record cannot
    be used at all, or null), _detail string, _error string (why the value of its key is not known, or null), and what
    `rows` asks for."""
    rows: Callable[[DataFrame, CollectionSettings, int], DataFrame]
    """Makes rows of the table of what was read; all have the one time."""


def read_events(raw: DataFrame, settings: CollectionSettings) -> DataFrame:
    """Decode the values of an append-only topic; an event without a value says nothing.

    In:  the columns of `topic.RAW_SCHEMA`, topic.
    Out: the same, _value struct of the value's columns, _reason, _detail, _error string.
    """
    decoded = decode_values(raw, settings)
    absent = F.when(F.col("_value_reason").isNull() & F.col("_value").isNull(), F.lit("null_value"))
    return decoded.withColumns(
        {
            "_reason": F.coalesce("_value_reason", absent),
            "_detail": F.col("_value_detail"),
            "_error": F.lit(None).cast("string"),
        }
    ).drop("_value_reason", "_value_detail")


def append_only_rows(decoded: DataFrame, settings: CollectionSettings, time: int) -> DataFrame:
    """Each record that could be decoded is one event.

    In:  what `read_events` gives.
    Out: the table's columns, _time, which is `time`, and _diff, which is 1.
    """
    good = decoded.where(F.col("_reason").isNull())
    names = [one["name"] for one in settings.value_schema["fields"]]
    data = [F.col("_value")[name].alias(name) for name in names]
    return good.select(
        parameter(time, F.col("offset")).alias(TIME),
        F.lit(1).cast("bigint").alias(DIFF),
        *data,
        *metadata_columns(settings),
    )


def read_upserts(raw: DataFrame, settings: CollectionSettings) -> DataFrame:
    """Decode the keys and values of an upsert topic; without its key a record cannot be used.

    In:  the columns of `topic.RAW_SCHEMA`, topic.
    Out: the same, _key struct of the key's columns, _value struct of the value's columns (null where the key is
         deleted, or in error), _reason, _detail, _error string.
    """
    stated = raw.withColumn("_stated_key", F.col("key") if settings.format == "avro" else _key_object(settings))
    decoded = decode_values(decode_keys(stated, "_stated_key", settings).drop("_stated_key"), settings)
    absent = F.when(F.col("_key_reason").isNull() & F.col("_key").isNull(), F.lit("null_key"))
    return decoded.withColumns(
        {
            "_reason": F.coalesce("_key_reason", absent),
            "_detail": F.when(F.col("_key_reason").isNotNull(), F.concat_ws(", ", F.lit("the key"), "_key_detail")),
            "_error": _placed(F.coalesce(_value_fault(), _other_key(settings))),
        }
    ).drop("_key_reason", "_key_detail", "_value_reason", "_value_detail")


def upsert_rows(decoded: DataFrame, settings: CollectionSettings, time: int) -> DataFrame:
    """The last record of each key: a value, a delete, or that its value cannot be decoded.

    In:  what `read_upserts` gives.
    Out: the columns of a table in the positioned form; the key is unique.
    Cost: one exchange of at most one record for each key and task.
    """
    order = F.struct(*_place(settings), (F.col("offset")).alias("_at"))
    position = F.array(
        parameter(time, F.col("offset")), *(one.cast("bigint") for one in _place(settings)), F.col("offset")
    )
    has_value = F.col("_value").isNotNull() & F.col("_error").isNull()
    sign = F.when(F.col("_value").isNotNull() | F.col("_error").isNotNull(), 1).otherwise(-1)
    keys = {one["name"] for one in settings.key_schema["fields"]}
    values = [one["name"] for one in settings.value_schema["fields"] if one["name"] not in keys]
    row = F.struct(
        parameter(time, F.col("offset")).alias(TIME),
        sign.cast("bigint").alias(DIFF),
        position.alias(POSITION),
        F.lit(None).cast("array<string>").alias(UNAVAILABLE),
        F.col("_error").alias(ERROR),
        *(F.col("_key")[name].alias(name) for name in sorted(keys)),
        *(F.when(has_value, F.col("_value")[name]).alias(name) for name in values),
        *(F.when(has_value, column).alias(name) for name, column in metadata_of(settings).items()),
    )
    good = decoded.where(F.col("_reason").isNull())
    last = good.groupBy("_key").agg(F.max_by(row, order).alias("_last"))
    return last.select("_last.*")


def _key_object(settings: CollectionSettings) -> Column:
    """The bytes of a key as a JSON object; the key of one column may be written without one, and a text bare.

    One that is not an object may have a schema around it, too.
    """
    key, names = F.col("key"), [one["name"] for one in settings.key_schema["fields"]]
    if len(names) > 1:
        return key
    text = F.trim(key.cast("string"))
    is_text = settings.key_schema["fields"][0]["type"] in ("string", {"type": "string"})
    bare = text if not is_text else F.when(text.startswith('"'), text).otherwise(_quoted(key.cast("string")))
    whole = F.concat(F.lit(f'{{"{names[0]}":'), bare, F.lit("}"))
    is_object = text.startswith("{") | ~F.is_valid_utf8(key.cast("string"))
    inside = F.when(is_wrapped(text, names), F.try_variant_get(F.try_parse_json(text), "$.payload", "variant"))
    inner = F.to_json(inside)
    taken_out = F.concat(F.lit(f'{{"{names[0]}":'), inner, F.lit("}"))
    is_bare = F.coalesce(~inner.startswith("{"), F.lit(False))
    return F.when(is_object & ~is_bare, key).otherwise(F.when(is_bare, taken_out).otherwise(whole).cast("binary"))


def _quoted(text: Column) -> Column:
    """A text as JSON writes it."""
    return F.regexp_extract(F.to_json(F.struct(text.alias("t"))), r'(?s)^\{"t":(.*)\}$', 1)


def _value_fault() -> Column:
    """What is wrong with a value; null where nothing is."""
    of_column = F.when(F.col("_value_detail").isNotNull(), F.concat(F.lit(", "), F.col("_value_detail")))
    fault = F.concat(F.lit("the value cannot be used: "), F.col("_value_reason"), F.coalesce(of_column, F.lit("")))
    return F.when(F.col("_value_reason").isNotNull(), fault)


def _other_key(settings: CollectionSettings) -> Column:
    """That a value names another key than its record; null where it does not, or names none."""
    named = {one["name"] for one in settings.value_schema["fields"]}
    both = [one["name"] for one in settings.key_schema["fields"] if one["name"] in named]
    if not both:
        return F.lit(None).cast("string")
    agrees = all_of(F.col("_key")[name].eqNullSafe(F.col("_value")[name]) for name in both)
    return F.when(F.col("_value").isNotNull() & ~agrees, F.lit("the value names another key than the record has"))


def _placed(fault: Column) -> Column:
    """A fault with where it was read."""
    place = F.concat_ws(":", F.col("topic"), F.col("partition").cast("string"), F.col("offset").cast("string"))
    return F.when(fault.isNotNull(), F.concat(fault, F.lit(" ("), place, F.lit(")")))


def _place(settings: CollectionSettings) -> Sequence[Column]:
    """What orders records of one tick and one key before their offsets."""
    if len(settings.topics) == 1:
        return [F.col("partition")]
    topics = F.array_position(F.array(*(F.lit(one) for one in settings.topics)), F.col("topic"))
    return [topics.alias("_topic"), F.col("partition")]


def metadata_columns(settings: CollectionSettings) -> list[Column]:
    """What else is known of each record, under the names that the settings give."""
    return [column.alias(name) for name, column in metadata_of(settings).items()]


def metadata_of(settings: CollectionSettings) -> dict[str, Column]:
    """The same by name."""
    sources = {"timestamp": F.timestamp_millis("timestamp_ms")}
    return {name: sources.get(kind, F.col(kind)) for kind, name in settings.metadata.items()}


RAW_ENVELOPES = {
    "append_only": RawEnvelope(read_events, append_only_rows),
    "upsert": RawEnvelope(read_upserts, upsert_rows),
}
