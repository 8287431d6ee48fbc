"""Turns records into rows, for topics in which each record states an event or the value of its key."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidelake.decode.formats import decode_keys, decode_values
from tidelake.decode.json import is_wrapped
from tidelake.decode.metadata import metadata_column
from tidelake.decode.writers import SourceSchemas
from tidelake.plugins.envelope import RecordBatch, WrittenRecords
from tidelake.settings.reclock import ReclockSettings
from tidelake.spark.column_cache import cached
from tidelake.spark.conditions import all_of
from tidelake.spark.observation import Observed
from tidelake.spark.runtime_constant import parameter
from tidelake.store.files import discard_run
from tidelake.store.layout import DIFF, ERROR, POSITION, TIME, UNAVAILABLE, new_run
from tidelake.store.runs import write_updates
from tidelake.store.state import HAS_ERRORS


@dataclass(frozen=True)
class PlainRecords:
    """Records that become rows in one pass: all of them, or the last of each key."""

    batch: RecordBatch
    read: Callable[[DataFrame, ReclockSettings, SourceSchemas], DataFrame]
    """Decodes records. In: the raw columns and topic. Out: the result of `Records.decoded`."""
    rows: Callable[[DataFrame, ReclockSettings, SourceSchemas, int], DataFrame]
    """Makes rows of the table, all of them with the tick's time."""

    def decoded(self) -> DataFrame:
        """See `Records.decoded`."""
        return self.read(self.batch.raw, self.batch.settings, self.batch.schemas)

    def write(self) -> WrittenRecords:
        """See `Records.write`."""
        batch, is_bad = self.batch, F.col("_reason").isNotNull()
        seen = Observed(
            self.decoded(),
            F.count(F.lit(1)).alias("records"),
            F.count_if(is_bad).alias("quarantined"),
            F.count_if(~is_bad & F.col("_error").isNotNull()).alias("errors"),
        )
        rows = self.rows(seen.frame, batch.settings, batch.schemas, batch.time)
        run = new_run("ingest", batch.table.seq)
        files = write_updates(rows, batch.table.path, run, batch.table_schema).files
        if not files:
            discard_run(batch.table.path, run)
        counted = seen.values()
        return WrittenRecords(
            files,
            {HAS_ERRORS: 1} if counted["errors"] else {},
            records=counted["records"],
            quarantined=counted["quarantined"],
            errors=counted["errors"],
        )


def read_events(raw: DataFrame, settings: ReclockSettings, schemas: SourceSchemas) -> DataFrame:
    """Decode the values of an append-only topic; a record without a value is unusable.

    In:  the columns of `topic.RAW_SCHEMA`, and topic.
    Out: the same, _value struct of the value's columns, _reason, _detail, _error string.
    """
    decoded = decode_values(raw, schemas.values)
    absent = F.when(F.col("_value_reason").isNull() & F.col("_value").isNull(), F.lit("null_value"))
    return decoded.withColumns(
        {
            "_reason": F.coalesce("_value_reason", absent),
            "_detail": F.col("_value_detail"),
            "_error": F.lit(None).cast("string"),
        }
    ).drop("_value_reason", "_value_detail")


def append_only_rows(decoded: DataFrame, settings: ReclockSettings, schemas: SourceSchemas, time: int) -> DataFrame:
    """Return one row for each record that could be decoded.

    In:  the result of `read_events`.
    Out: the table's columns, _time (`time`) and _diff (1).
    """
    good = decoded.where(F.col("_reason").isNull())
    names = [column["name"] for column in schemas.values.record["fields"]]
    data = [F.col("_value")[name].alias(name) for name in names]
    return good.select(
        parameter(time, F.col("offset")).alias(TIME),
        F.lit(1).cast("bigint").alias(DIFF),
        *data,
        *metadata_columns(settings),
    )


def read_upserts(raw: DataFrame, settings: ReclockSettings, schemas: SourceSchemas) -> DataFrame:
    """Decode the keys and values of an upsert topic; a record without a readable key is unusable.

    In:  the columns of `topic.RAW_SCHEMA`, and topic.
    Out: the same, _key struct of the key's columns, _value struct of the value's columns (null if the key is
         deleted or in error), _reason, _detail, _error string.
    """
    with_key = raw.withColumn(
        "_stated_key", F.col("key") if settings.format == "avro" else _key_object(settings.key_schema)
    )
    assert schemas.keys is not None
    decoded = decode_keys(with_key, "_stated_key", schemas.keys).drop("_stated_key")
    decoded = decode_values(decoded, schemas.values)
    value_names = {column["name"] for column in schemas.values.record["fields"]}
    shared = tuple(column["name"] for column in settings.key_schema["fields"] if column["name"] in value_names)
    return decoded.withColumns(_faults(shared)).drop("_key_reason", "_key_detail", "_value_reason", "_value_detail")


@cached
def _faults(shared: tuple[str, ...]) -> dict[str, Column]:
    """Return `_reason`, `_detail` and `_error` of a record; `shared` names the columns that both key and value have."""
    absent = F.when(F.col("_key_reason").isNull() & F.col("_key").isNull(), F.lit("null_key"))
    return {
        "_reason": F.coalesce("_key_reason", absent),
        "_detail": F.when(F.col("_key_reason").isNotNull(), F.concat_ws(", ", F.lit("the key"), "_key_detail")),
        "_error": _placed(F.coalesce(_value_fault(), _key_mismatch(shared))),
    }


def upsert_rows(decoded: DataFrame, settings: ReclockSettings, schemas: SourceSchemas, time: int) -> DataFrame:
    """Return one row for the last record of each key: a value, a delete or an error.

    In:  the result of `read_upserts`.
    Out: the columns of a table in the positioned form; the key is unique.
    Cost: one exchange of at most one record for each key and task.
    """
    order = F.struct(*_place(settings), (F.col("offset")).alias("_at"))
    position = F.array(
        parameter(time, F.col("offset")), *(column.cast("bigint") for column in _place(settings)), F.col("offset")
    )
    has_value = F.col("_value").isNotNull() & F.col("_error").isNull()
    sign = F.when(F.col("_value").isNotNull() | F.col("_error").isNotNull(), 1).otherwise(-1)
    keys = {column["name"] for column in settings.key_schema["fields"]}
    values = [column["name"] for column in schemas.values.record["fields"] if column["name"] not in keys]
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


@cached
def _key_object(key_schema: Mapping[str, Any]) -> Column:
    """Return a key's bytes as a JSON object. A key of one column may be a bare value, and a string may lack its quotes.

    A bare value may itself have an embedded schema.
    """
    key, names = F.col("key"), [column["name"] for column in key_schema["fields"]]
    if len(names) > 1:
        return key
    text = F.trim(key.cast("string"))
    is_text = key_schema["fields"][0]["type"] in ("string", {"type": "string"})
    bare = text if not is_text else F.when(text.startswith('"'), text).otherwise(_quoted(key.cast("string")))
    whole = F.concat(F.lit(f'{{"{names[0]}":'), bare, F.lit("}"))
    is_object = text.startswith("{") | ~F.is_valid_utf8(key.cast("string"))
    inside = F.when(is_wrapped(text, names), F.try_variant_get(F.try_parse_json(text), "$.payload", "variant"))
    inner = F.to_json(inside)
    unwrapped = F.concat(F.lit(f'{{"{names[0]}":'), inner, F.lit("}"))
    is_bare = F.coalesce(~inner.startswith("{"), F.lit(False))
    return F.when(is_object & ~is_bare, key).otherwise(F.when(is_bare, unwrapped).otherwise(whole).cast("binary"))


def _quoted(text: Column) -> Column:
    """Return a string in JSON notation."""
    return F.regexp_extract(F.to_json(F.struct(text.alias("t"))), r'(?s)^\{"t":(.*)\}$', 1)


def _value_fault() -> Column:
    """Return the fault of a value, or null."""
    detail = F.when(F.col("_value_detail").isNotNull(), F.concat(F.lit(", "), F.col("_value_detail")))
    fault = F.concat(F.lit("the value cannot be used: "), F.col("_value_reason"), F.coalesce(detail, F.lit("")))
    return F.when(F.col("_value_reason").isNotNull(), fault)


def _key_mismatch(shared: tuple[str, ...]) -> Column:
    """Return the fault of a value that names a different key than its record, or null."""
    if not shared:
        return F.lit(None).cast("string")
    agrees = all_of(F.col("_key")[name].eqNullSafe(F.col("_value")[name]) for name in shared)
    return F.when(F.col("_value").isNotNull() & ~agrees, F.lit("the value names a different key than its record"))


def _placed(fault: Column) -> Column:
    """Return a fault with its place in the topic."""
    place = F.concat_ws(":", F.col("topic"), F.col("partition").cast("string"), F.col("offset").cast("string"))
    return F.when(fault.isNotNull(), F.concat(fault, F.lit(" ("), place, F.lit(")")))


def _place(settings: ReclockSettings) -> Sequence[Column]:
    """Return the columns that order the records of a key within a tick; if they are equal, offsets decide."""
    if len(settings.topics) == 1:
        return [F.col("partition")]
    topics = F.array_position(F.array(*(F.lit(topic) for topic in settings.topics)), F.col("topic"))
    return [topics.alias("_topic"), F.col("partition")]


def metadata_columns(settings: ReclockSettings) -> list[Column]:
    """Return the metadata columns, under the names in the settings."""
    return [column.alias(name) for name, column in metadata_of(settings).items()]


def metadata_of(settings: ReclockSettings) -> dict[str, Column]:
    """Return the metadata columns by name."""
    return {name: metadata_column(kind) for kind, name in settings.metadata.items()}
