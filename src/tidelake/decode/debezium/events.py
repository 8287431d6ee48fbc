"""Interprets Debezium's change events, on the JVM: from the parsed record to the row, its key and its faults."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidelake.decode.debezium.columns import (
    BROKEN,
    DETAIL,
    EMPTY,
    EVENT,
    IS_ROW,
    IS_WRONG,
    KEY_BEFORE,
    KEY_ROW,
    KIND,
    LANDED,
    PREVIOUS_KEY,
    REASON,
    RECORD_KEY,
    ROW,
    SCHEMA,
    is_lacking,
)
from tidelake.decode.debezium.positions import position_columns
from tidelake.decode.debezium.shape import ChangeShape, RowReader
from tidelake.decode.debezium.values import Landed, is_infinite
from tidelake.schema.connect import WireType
from tidelake.spark.column_cache import cached
from tidelake.spark.conditions import all_of, any_of
from tidelake.store.layout import ERROR, UNAVAILABLE

UNUSABLE = "the event cannot be used: "
NO_BEFORE, UNREADABLE_ROW, WHOLE_TABLE = "no_row_before", "unreadable_row", "truncate_without_key"
"""The reasons why an event of a table without a key is unusable: it is not known which rows it removes or adds."""
ROW_OPS = ("c", "u", "r")
_Fault = tuple[Column, Callable[[], Column]]
"""A condition, never null, and the text that describes the fault."""


def event_struct(parsed: Column, rows: Sequence[Column], source: Column, transaction: Column | None = None) -> Column:
    """Return the parts of an event that are read, with its rows `before` and `after`."""
    texts = (parsed[name].cast("string").alias(name) for name in ("op", "ts_ms"))
    further = [] if transaction is None else [transaction.alias("transaction")]
    return F.struct(*rows, source.alias("source"), *texts, *further)


def contains_row(op: Column, after: Column, shape: ChangeShape) -> Column:
    """Return whether an event contains the current row with its key."""
    return op.isin(*ROW_OPS) & all_of(after[name].isNotNull() for name in shape.key)


def read_events(read: DataFrame, shape: ChangeShape, reader: RowReader) -> DataFrame:
    """Interpret events.

    In:  _event struct, as `event_struct` returns it, or as it was read from JSON; _broken string, _empty boolean;
         any other columns.
    Out: the same, and _kind, _row, _error string (why the row of this key cannot be read, or null), _unavailable
         array<string> (the columns whose values were not sent, or null), _left, _reason, _detail, the columns of a
         position. If values were read on the fast path, _error is always null, and a boolean `_wrong` is added, which
         says whether any value does not fit its column's type. See `tidelake.decode.debezium.columns`.
    """
    steps = _steps(shape, reader)
    staged = read.withColumns(steps.first)
    if steps.landed is not None:
        staged = staged.withColumn(LANDED, steps.landed)
    staged = staged.select("*", *steps.event)
    return staged.select("*", *steps.reason).drop(KEY_BEFORE, LANDED, IS_ROW, *steps.lacking)


class _Steps(NamedTuple):
    """The columns of the steps from a parsed record to an interpreted event."""

    first: dict[str, Column]
    landed: Column | None
    event: list[Column]
    reason: list[Column]
    lacking: list[str]


@cached
def _steps(shape: ChangeShape, reader: RowReader) -> _Steps:
    non_key_columns = [(name, wire) for name, wire in reader.columns if name not in shape.key]
    lacking = {name: is_lacking(place) for place, (name, _) in enumerate(non_key_columns)}
    lacks = {name: F.col(step) for name, step in lacking.items()}
    after, is_row = F.col(f"{EVENT}.after"), F.col(IS_ROW)
    # Columns that are used more than once are computed in an earlier step; otherwise Spark would generate their code
    # again for each use.
    is_read = ~F.col(EMPTY) & F.col(BROKEN).isNull()
    first = {
        KIND: _kind(),
        IS_ROW: F.coalesce(is_read & F.col(f"{EVENT}.op").isin(*ROW_OPS), F.lit(False)),
        **{
            lacking[name]: reader.is_unavailable(after[name], wire, shape.placeholder) for name, wire in non_key_columns
        },
    }
    landed = {name: reader.land(after[name], name, wire) for name, wire in reader.columns}
    values, landed_row = {name: F.when(is_row, value.value) for name, value in landed.items()}, None
    if reader.reads_text:
        # A separate step, because the columns are used more than once. Values decoded from Avro get no such step: they
        # are cheap to compute again, and if a step reads from structs, Spark copies its expressions into every later
        # step, until the heap is full.
        columns = F.struct(*(landed[name].value.alias(name) for name in landed))
        landed_row = F.when(is_row, columns)
        values = {name: F.col(f"{LANDED}.{name}") for name in landed}
    befores = _befores(shape, reader)
    keys = _keys_of(shape, reader, befores)
    value_of = partial(_value_of, values=values, lacks=lacks, keys=keys, has_key=bool(shape.key))
    row = F.struct(*(value_of(name).alias(name) for name, _ in shape.columns))
    faults_before = _faults_before(shape, reader, befores)
    faults = [*_faults(shape, landed, values, lacks, after), *faults_before]
    removing = [] if shape.key else faults_before
    # Column names contain no comma, so the joined names can be split again. (Filtering an array of names with a lambda
    # would be simpler, but Spark does not generate code for lambdas.)
    unavailable = F.split(F.concat_ws(",", *(F.when(lack, F.lit(name)) for name, lack in lacks.items())), ",")
    event = [
        row.alias(ROW),
        *(_fault_columns(faults, removing) if reader.plain else [_error(faults, removing).alias(ERROR)]),
        F.when(is_row & any_of(lacks.values()), unavailable).alias(UNAVAILABLE),
        _before_key(befores, shape).alias(KEY_BEFORE),
        *position_columns(shape),
    ]
    reason = _reason_by_key(shape) if shape.key else _reason_without_key(shape)
    return _Steps(first, landed_row, event, reason, list(lacking.values()))


def _kind() -> Column:
    # Even an unusable record concerns a row if its key is known; a log message (`m`) never does.
    op = F.col(f"{EVENT}.op")
    return (
        F.when(F.col(EMPTY), F.lit("tombstone"))
        .when(F.col(BROKEN).isNotNull(), F.lit("value"))
        .when(op.isin(*ROW_OPS), F.lit("value"))
        .when(op == "d", F.lit("delete"))
        .when(op == "t", F.lit("barrier"))
        .when(op.isNull() | (op != "m"), F.lit("value"))
    )


def _is_unknown() -> Column:
    """Return whether an event has an unknown operation."""
    return (F.col(KIND) == "value") & F.col(BROKEN).isNull() & ~F.col(IS_ROW)


def _operation() -> Column:
    return F.concat(F.lit("op is "), F.coalesce(F.col(f"{EVENT}.op"), F.lit("missing")))


def _fault_columns(faults: Sequence[_Fault], removing: Sequence[_Fault]) -> list[Column]:
    """Return a null _error, and _wrong: whether a row has a fault. The careful path explains it in another pass."""
    wrong = F.col(IS_ROW) & (F.col(f"{EVENT}.after").isNull() | any_of(fault for fault, _ in faults))
    if removing:
        wrong = wrong | ((F.col(KIND) == "delete") & any_of(fault for fault, _ in removing))
    return [F.lit(None).cast("string").alias(ERROR), wrong.alias(IS_WRONG)]


def _error(faults: Sequence[_Fault], removing: Sequence[_Fault]) -> Column:
    """Return why a key's row cannot be read.

    For a table without a key, also return why the row before a delete cannot be read.
    """
    is_row = F.col(IS_ROW)
    removed = F.concat_ws("; ", *(F.when(fault, text()) for fault, text in removing)) if removing else F.lit("")
    texts = F.concat_ws("; ", *(F.when(fault, text()) for fault, text in faults))
    return (
        F.when(F.col(BROKEN).isNotNull(), F.concat(F.lit("the event cannot be read: "), F.col(BROKEN)))
        .when(_is_unknown(), F.concat(F.lit(f"{UNUSABLE}unknown_operation, "), _operation()))
        .when(is_row & F.col(f"{EVENT}.after").isNull(), F.lit(f"{UNUSABLE}no_row"))
        .when(is_row & any_of(fault for fault, _ in faults), texts)
        .when((F.col(KIND) == "delete") & any_of(fault for fault, _ in removing), removed)
    )


def _reason_by_key(shape: ChangeShape) -> list[Column]:
    """Return why a record is unusable, and the previous key of a row."""
    keyless = any_of(F.col(f"{ROW}.{name}").isNull() for name in shape.key)
    reason = (
        F.when(F.col(KIND).isNull() | (_is_unknown() & keyless), F.lit("unknown_operation"))
        .when(_has_unreadable_key(shape), F.lit("schema_not_resolved"))
        # Without a key, the row in error is not identified.
        .when(F.col(KIND).isin("value", "delete") & keyless, F.lit("no_key"))
    )
    key_before, key = F.col(KEY_BEFORE), F.struct(*(F.col(f"{ROW}.{name}") for name in shape.key))
    is_same = all_of(key_before[name].eqNullSafe(key[name]) for name in shape.key)
    has_previous_key = (F.col(f"{EVENT}.op") == "u") & (F.col(KIND) == "value") & key_before.isNotNull() & ~is_same
    return [
        F.when(has_previous_key, key_before).alias(PREVIOUS_KEY),
        reason.alias(REASON),
        F.when(F.col(KIND).isNull() | _is_unknown(), _operation()).otherwise(F.col(BROKEN)).alias(DETAIL),
    ]


def _reason_without_key(shape: ChangeShape) -> list[Column]:
    """Return why a record of a table without a key is unusable, and the row before a change."""
    op, before = F.col(f"{EVENT}.op"), F.col(f"{EVENT}.before")
    required = [name for name, wire in shape.columns if not wire.nullable]
    is_whole = before.isNotNull() & all_of(F.col(f"{KEY_BEFORE}.{name}").isNotNull() for name in required)
    removes = (F.col(KIND) == "delete") | ((op == "u") & (F.col(KIND) == "value"))
    reason = (
        F.when(F.col(KIND).isNull() | _is_unknown(), F.lit("unknown_operation"))
        .when(F.col(BROKEN).isNotNull(), F.lit(UNREADABLE_ROW))
        .when(F.col(KIND) == "barrier", F.lit(WHOLE_TABLE))
        .when(removes & ~F.coalesce(is_whole, F.lit(False)), F.lit(NO_BEFORE))
        .when(F.col(ERROR).isNotNull(), F.lit(UNREADABLE_ROW))
    )
    hint = F.lit("the event does not have the whole row before the change: set REPLICA IDENTITY FULL for the table")
    detail = (
        F.when(F.col(KIND).isNull() | _is_unknown(), _operation())
        .when(removes & ~F.coalesce(is_whole, F.lit(False)), hint)
        .otherwise(F.coalesce(F.col(BROKEN), F.col(ERROR)))
    )
    return [
        F.when(removes & (F.col(KIND) == "value"), F.col(KEY_BEFORE)).alias(PREVIOUS_KEY),
        reason.alias(REASON),
        F.when(reason.isNotNull(), detail).alias(DETAIL),
    ]


def _has_unreadable_key(shape: ChangeShape) -> Column:
    """Return whether an event's schema makes even the key unreadable, so that it is unknown which row changes."""
    return F.col(SCHEMA).isin(*shape.unreadable_keys) if shape.unreadable_keys else F.lit(False)


def _befores(shape: ChangeShape, reader: RowReader) -> dict[str, Column]:
    """Return the converted value of each column that is read from the row before the change."""
    wires, before = dict(reader.columns), F.col(f"{EVENT}.before")
    names = shape.key or [name for name in shape.before_columns if name in wires]
    return {name: reader.land(before[name], name, wires[name]).value for name in names}


def _keys_of(shape: ChangeShape, reader: RowReader, befores: Mapping[str, Column]) -> dict[str, Column]:
    """Return the value of each key column, from the record's key or from the row before the change."""
    if not reader.reads_text:
        if not reader.has_key_row:
            return dict(befores)
        return {name: F.coalesce(F.col(KEY_ROW)[name], value) for name, value in befores.items()}
    wires = dict(reader.columns)
    keys = {}
    for name, event_value in befores.items():
        if name not in reader.stated_key:
            keys[name] = event_value
            continue
        stated = F.coalesce(*(F.col(f"{RECORD_KEY}.{path}") for path in reader.stated_key[name]))
        record_value = replace(reader, plain=frozenset()).land(stated, name, wires[name]).value
        # For a delete, the event takes precedence, because the fast path reads only the event.
        parts = F.coalesce(event_value, record_value), F.coalesce(record_value, event_value)
        keys[name] = F.when(F.col(KIND) == "delete", parts[0]).otherwise(parts[1])
    return keys


def _before_key(befores: Mapping[str, Column], shape: ChangeShape) -> Column:
    """Return the key before the change; null unless the event contains a readable value of each of its columns.

    For a table without a key, return the row before the change; null if the event does not contain one.
    """
    if not shape.key:
        cells = (befores.get(name, F.lit(None)).alias(name) for name in shape.before_columns)
        return F.when(F.col(f"{EVENT}.before").isNotNull(), F.struct(*cells))
    whole = all_of(value.isNotNull() for value in befores.values())
    return F.when(whole, F.struct(*(value.alias(name) for name, value in befores.items())))


def _value_of(
    name: str, values: dict[str, Column], lacks: dict[str, Column], keys: dict[str, Column], has_key: bool
) -> Column:
    if name not in values:
        return F.lit(None)
    if not has_key:
        # A value that was not sent has not changed.
        return F.when((F.col(KIND) == "delete") | lacks[name], keys[name]).otherwise(values[name])
    return F.coalesce(values[name], keys[name]) if name in keys else F.when(~lacks[name], values[name])


def _faults(
    shape: ChangeShape,
    landed: dict[str, Landed],
    values: dict[str, Column],
    lacks: dict[str, Column],
    after: Column,
) -> list[_Fault]:
    """Return the possible faults of a row's columns."""
    faults: list[_Fault] = []
    for name, wire in shape.columns:
        if name not in landed:  # a nullable column that was not written
            continue
        was_sent, is_present = ~lacks.get(name, F.lit(False)), after[name].isNotNull()
        nested = wire.name in ("array", "record")
        bad = landed[name].bad if nested else is_present & values[name].isNull()
        faults.append((was_sent & bad, partial(_unread_text, after[name], name, wire)))
        if not wire.nullable and name not in shape.key:
            faults.append((was_sent & ~is_present, partial(F.lit, f"{name} is missing, but is not nullable")))
    return faults


def _unread_text(value: Column, name: str, wire: WireType) -> Column:
    unread = F.lit(f"{name} cannot be read as type {_described(wire)}")
    endless = F.lit(f"{name} is infinite; to store the value as it is sent, declare the column as plain {wire.name}")
    return F.when(is_infinite(value, wire), endless).otherwise(unread)


def _faults_before(shape: ChangeShape, reader: RowReader, befores: Mapping[str, Column]) -> list[_Fault]:
    """Return the possible faults of the key before an update: if that key is unreadable, the old row cannot be removed.

    For a table without a key, return those of the row before a change.
    """
    wires, before = dict(reader.columns), F.col(f"{EVENT}.before")
    is_update = F.coalesce(F.col(f"{EVENT}.op").isin("u", *([] if shape.key else ["d"])), F.lit(False))
    faults: list[_Fault] = []
    for name, value in befores.items():
        if not shape.key and not wires[name].nullable:
            continue  # an unreadable value here is reported as an incomplete row before the change
        text = f"the previous value of {name} cannot be read as type {_described(wires[name])}"
        faults.append((is_update & before[name].isNotNull() & value.isNull(), partial(F.lit, text)))
    return faults


def _described(wire: WireType) -> str:
    return wire.name if wire.conversion == "as_is" else f"{wire.conversion.replace('_', ' ')} ({wire.name})"
