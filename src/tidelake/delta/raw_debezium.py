"""Change events as Debezium writes them: from what was read of a record to rows of the positioned form, on the JVM.

The position of an event is its place in the source's own order. Of PostgreSQL that is the end of the transaction that
was committed before its own (`source.sequence`), then its place in the log (`source.lsn`): transactions overlap in the
log, and arrive whole, in the order of their commits. What is read after a snapshot lies above it, though it may have
been written before. See docs/decisions/positions.md.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidelake.connect_types import Travel
from tidelake.delta.conditions import all_of, any_of
from tidelake.delta.connect_values import (
    Landed,
    is_infinite,
    is_unavailable_raw,
    is_unavailable_text,
    land_raw,
    land_text,
)
from tidelake.delta.layout import DIFF, ERROR, POSITION, TIME, UNAVAILABLE
from tidelake.delta.parameters import parameter
from tidelake.raw_configuration import UNAVAILABLE_VALUE

POSTGRESQL = "postgresql"
UNUSABLE = "the event cannot be used: "
ROW_OPS = ("c", "u", "r")
_IN_SNAPSHOT = ("true", "first", "first_in_data_collection", "last_in_data_collection", "last")
SNAPSHOT_ENDS = ("last_in_data_collection", "last")
_Fault = tuple[Column, Callable[[], Column]]
"""Whether something is wrong, never null, and how that is said."""
SCHEMA = "_schema"
"""The hash of the schema that a message in JSON has with it; see `json_format.schema_hash`."""
_SOURCE = ("connector", "lsn", "sequence", "snapshot")


@dataclass(frozen=True)
class ChangeShape:
    """What the events of one collection are about."""

    columns: tuple[tuple[str, Travel], ...]
    """Of a row."""
    key: tuple[str, ...]
    position: tuple[str, ...] = ()
    """Paths of numbers in an event that order events of one key, such as `source.pos`; PostgreSQL needs none."""
    placeholder: str = UNAVAILABLE_VALUE
    refused_schemas: Mapping[int, str] = field(default_factory=dict)
    """JSON: by the hash of a schema that messages have with them, why they cannot be read."""
    unreadable_keys: frozenset[int] = frozenset()
    """Those of them that have even the key written otherwise."""
    written: Mapping[int, Mapping[str, Travel]] = field(default_factory=dict)
    """JSON: by the hash of such a schema, the columns that are written otherwise than the collection's, and how."""
    schema_lengths: Mapping[int, int] = field(default_factory=dict)
    """JSON: of the schemas that were looked at, and may come again; see `json_format.schema_hash`."""
    more: dict[str, Column] = field(default_factory=dict)
    """Further columns of the table, from those of raw records."""


@dataclass(frozen=True)
class SnapshotStart:
    """One initial snapshot that a connector took: its place in the log, and when it was read."""

    lsn: int
    processed_ms: int


@dataclass(frozen=True)
class Reader:
    """How the values of rows are read: as JSON's text, or as what Avro has decoded."""

    columns: tuple[tuple[str, Travel], ...]
    """Those that were written; the shape may have more, which are null."""
    of_text: bool = True
    key_row: Column | None = None
    """Of Avro: the key's columns out of the record's key, where that is decoded."""
    stated_key: Mapping[str, Column] = field(default_factory=dict)
    """Of text: the texts of the key's columns out of the record's key, where that is read."""
    plain: frozenset[str] = frozenset()
    """Of text: what travels as one of these was read as what it is, not as its text; see `raw_debezium_plain`. Where
    there are any, what is wrong with a value is told by _wrong alone."""
    written: Mapping[int, Mapping[str, Travel]] = field(default_factory=dict)
    """See `ChangeShape`."""

    def land(self, given: Column, name: str, travel: Travel) -> Landed:
        """Turn the value of a column into what lands."""
        is_text = self.of_text and read_as_text(travel, self.plain)
        found = land_text(given, travel) if is_text else land_raw(given, travel)
        for hashed, columns in self.written.items():
            if name not in columns:
                continue
            is_other = F.coalesce(F.col(SCHEMA) == hashed, F.lit(False))
            if not is_text and columns[name].raw != travel.raw:  # what travels otherwise is not read plainly
                found = Landed(F.when(~is_other, found.value), found.bad | (is_other & given.isNotNull()))
                continue
            other = land_text(given, columns[name]) if is_text else land_raw(given, columns[name])
            value, bad = (F.when(is_other, one) for one in (other.value, other.bad))
            found = Landed(value.otherwise(found.value), bad.otherwise(found.bad))
        return found

    def is_unavailable(self, given: Column, travel: Travel, placeholder: str) -> Column:
        """Whether it stands for a value that was not sent."""
        if self.of_text:
            return is_unavailable_text(given, travel, placeholder)
        return is_unavailable_raw(given, travel, placeholder)


def read_as_text(travel: Travel, plain: Collection[str]) -> bool:
    """Whether a value in JSON is read as the text that stands there, though what travels as `plain` need not be."""
    return travel.raw not in plain or travel.turn == "decimal_text"


def event_struct(given: Column, rows: Sequence[Column], source: Column) -> Column:
    """The parts of an event that say something, with its rows `before` and `after`."""
    return F.struct(
        *rows, source.alias("source"), *(given[name].cast("string").alias(name) for name in ("op", "ts_ms"))
    )


def tells_row(op: Column, after: Column, shape: ChangeShape) -> Column:
    """Whether an event is of a row as it is now, and tells its key."""
    return op.isin(*ROW_OPS) & all_of(after[name].isNotNull() for name in shape.key)


def source_fields(shape: ChangeShape) -> list[str]:
    """The fields of `source` that say something."""
    declared = [path.partition(".")[2] for path in shape.position if path.startswith("source.")]
    return list(dict.fromkeys([*_SOURCE, *declared]))


def told(read: DataFrame, shape: ChangeShape, reader: Reader) -> DataFrame:
    """What an event says.

    In:  _event struct, as `event_struct` makes it, or as JSON was read for the reader; _broken string: why it cannot
         be read, or null; _empty boolean: whether it has no value; any others.
    Out: what came in, and
         _kind: `value` (or what cannot be used), `delete`, `barrier` (a truncate), `tombstone` (a null value, which
         only tells Kafka to forget); null where the record is about no row.
         _row struct: of a value the row, of a delete its key; null fields where they cannot be had.
         _error string: why the row of this key cannot be had, or null.
         _unavailable array<string>: the columns without a value of their own, or null.
         _left struct: the key that the row had before, where it has another one now; null else.
         _reason, _detail string: why the record is of no use at all, or null.
         _connector string, _committed bigint (where the transaction before has ended), _lsn bigint, _snapshot boolean,
         _snapshot_ends boolean, _processed_ms bigint, _declared array<bigint> (null unless the shape names them).
         _wrong boolean: of what is read plainly, whether _error, which is null then, would say something.
    """
    broken = F.col("_broken").isNotNull()
    op, after, source = F.col("_event.op"), F.col("_event.after"), F.col("_event.source")
    # What cannot be used is about a row too, if its key is known; a message of the log (`m`) is about none.
    kind = (
        F.when(F.col("_empty"), F.lit("tombstone"))
        .when(broken, F.lit("value"))
        .when(op.isin(*ROW_OPS), F.lit("value"))
        .when(op == "d", F.lit("delete"))
        .when(op == "t", F.lit("barrier"))
        .when(op.isNull() | (op != "m"), F.lit("value"))
    )
    beside_key = [(name, travel) for name, travel in reader.columns if name not in shape.key]
    lacking = {
        f"_lacks_{number}": reader.is_unavailable(after[name], travel, shape.placeholder)
        for number, (name, travel) in enumerate(beside_key)
    }
    lacks = {name: F.col(step) for (name, _), step in zip(beside_key, lacking, strict=True)}
    # What is asked for more than once is told in a step before: Spark would write it into the code each time.
    found = read.withColumns(
        {
            "_kind": kind,
            "_is_row": F.coalesce(~F.col("_empty") & ~broken & op.isin(*ROW_OPS), F.lit(False)),
            **lacking,
        }
    )
    is_row = F.col("_is_row")
    is_unknown = (F.col("_kind") == "value") & ~broken & ~is_row
    landed = {name: reader.land(after[name], name, travel) for name, travel in reader.columns}
    values = {name: F.when(is_row, one.value) for name, one in landed.items()}
    if reader.of_text:
        # In a step of its own, as it is asked for more than once. What Avro has decoded is cheap to ask for again, and
        # such a step between structs would be copied into each of those that follow until the heap is full.
        found = found.withColumn(
            "_landed", F.when(is_row, F.struct(*(landed[name].value.alias(name) for name in landed)))
        )
        values = {name: F.col(f"_landed.{name}") for name in landed}
    befores = _befores(shape, reader)
    keys = _keys_of(shape, reader, befores)
    row = F.struct(*(_value_of(name, values, lacks, keys).alias(name) for name, _ in shape.columns))
    op_is = F.concat(F.lit("op is "), F.coalesce(op, F.lit("not there")))
    faults = [*_faults(shape, landed, values, lacks, after), *_faults_before(shape, reader, befores)]
    if reader.plain:  # what it is that is wrong is left to a careful reading, which says it in another pass
        wrong = is_row & (after.isNull() | any_of(one for one, _ in faults))
        errors = [F.lit(None).cast("string").alias("_error"), wrong.alias("_wrong")]
    else:
        said = F.concat_ws("; ", *(F.when(one, fault()) for one, fault in faults))
        error = (
            F.when(broken, F.concat(F.lit("the event cannot be read: "), F.col("_broken")))
            .when(is_unknown, F.concat(F.lit(f"{UNUSABLE}unknown_operation, "), op_is))
            .when(is_row & after.isNull(), F.lit(f"{UNUSABLE}no_row"))
            .when(is_row & any_of(one for one, _ in faults), said)
        )
        errors = [error.alias("_error")]
    key_of_row = F.struct(*(F.col(f"_row.{name}") for name in shape.key))
    keyless = any_of(F.col(f"_row.{name}").isNull() for name in shape.key)
    # Names of columns have no comma; a lambda would keep Spark from compiling the step.
    unavailable = F.split(F.concat_ws(",", *(F.when(one, F.lit(name)) for name, one in lacks.items())), ",")
    found = found.select(
        "*",
        row.alias("_row"),
        *errors,
        F.when(is_row & any_of(lacks.values()), unavailable).alias("_unavailable"),
        _before_key(befores).alias("_before_key"),
        source["connector"].alias("_connector"),
        _first_of(source["sequence"]).alias("_committed"),
        source["lsn"].try_cast("bigint").alias("_lsn"),
        _is_of_snapshot(shape).alias("_snapshot"),
        F.coalesce(source["snapshot"].isin(*SNAPSHOT_ENDS), F.lit(False)).alias("_snapshot_ends"),
        F.col("_event.ts_ms").try_cast("bigint").alias("_processed_ms"),
        _declared_position(shape).alias("_declared"),
    )
    reason = (
        F.when(F.col("_kind").isNull() | (is_unknown & keyless), F.lit("unknown_operation"))
        .when(_has_unreadable_key(shape), F.lit("schema_not_resolved"))
        # Only a key tells which row is in error.
        .when(F.col("_kind").isin("value", "delete") & keyless, F.lit("no_key"))
    )
    left = F.col("_before_key")
    has_left = (op == "u") & (F.col("_kind") == "value") & left.isNotNull() & ~_same(left, key_of_row, shape.key)
    return found.select(
        "*",
        F.when(has_left, left).alias("_left"),
        reason.alias("_reason"),
        F.when(F.col("_kind").isNull() | is_unknown, op_is).otherwise(F.col("_broken")).alias("_detail"),
    ).drop("_before_key", "_landed", "_is_row", *lacking)


def _is_of_snapshot(shape: ChangeShape) -> Column:
    """Whether an event states a row of a snapshot that has a place in the log: others are rows, and erase nothing."""
    if shape.position:
        return F.lit(False)
    source = F.col("_event.source")
    of_row = source["snapshot"].isin(*_IN_SNAPSHOT) & (F.col("_event.op") == "r")
    return F.coalesce(of_row & source["lsn"].try_cast("bigint").isNotNull(), F.lit(False))


def _has_unreadable_key(shape: ChangeShape) -> Column:
    """Whether an event has a schema that has the key written otherwise, so that nobody knows which one it is about."""
    return F.col(SCHEMA).isin(*shape.unreadable_keys) if shape.unreadable_keys else F.lit(False)


def _first_of(sequence: Column) -> Column:
    """The first number of `source.sequence`, which is a list of texts; null where it has none."""
    found = F.substring_index(F.substring_index(sequence, '"', 2), '"', -1)
    number = found.try_cast("bigint")
    # A cast takes space around it, too. A pattern costs a twentieth of the tick, and one more question a fiftieth.
    return F.when(sequence.startswith('["') & (number.cast("string") == found), number)


def _befores(shape: ChangeShape, reader: Reader) -> dict[str, Column]:
    """By key column its value before the change, as it lands."""
    travels, before = dict(reader.columns), F.col("_event.before")
    return {name: reader.land(before[name], name, travels[name]).value for name in shape.key}


def _keys_of(shape: ChangeShape, reader: Reader, befores: Mapping[str, Column]) -> dict[str, Column]:
    """By key column its value as the record's key has it, or what stood before."""
    if not reader.of_text:
        if reader.key_row is None:
            return dict(befores)
        return {name: F.coalesce(reader.key_row[name], value) for name, value in befores.items()}
    travels = dict(reader.columns)
    found = {}
    for name, of_event in befores.items():
        if name not in reader.stated_key:
            found[name] = of_event
            continue
        of_record = replace(reader, plain=frozenset()).land(reader.stated_key[name], name, travels[name]).value
        # Of a delete the event itself is asked first, as a plain reading asks it alone.
        parts = F.coalesce(of_event, of_record), F.coalesce(of_record, of_event)
        found[name] = F.when(F.col("_kind") == "delete", parts[0]).otherwise(parts[1])
    return found


def _before_key(befores: Mapping[str, Column]) -> Column:
    """The key before the change; null where it is not told in full."""
    whole = all_of(value.isNotNull() for value in befores.values())
    return F.when(whole, F.struct(*(value.alias(name) for name, value in befores.items())))


def _value_of(name: str, values: dict[str, Column], lacks: dict[str, Column], keys: dict[str, Column]) -> Column:
    if name not in values:
        return F.lit(None)
    return F.coalesce(values[name], keys[name]) if name in keys else F.when(~lacks[name], values[name])


def _faults(
    shape: ChangeShape,
    landed: dict[str, Landed],
    values: dict[str, Column],
    lacks: dict[str, Column],
    after: Column,
) -> list[_Fault]:
    """What may be wrong with the columns of a row."""
    faults: list[_Fault] = []
    for name, travel in shape.columns:
        if name not in landed:  # may be null, and was not written
            continue
        stated, given = ~lacks.get(name, F.lit(False)), after[name].isNotNull()
        nested = travel.raw in ("array", "record")
        bad = landed[name].bad if nested else given & values[name].isNull()
        faults.append((stated & bad, partial(_said_unread, after[name], name, travel)))
        if not travel.nullable and name not in shape.key:
            faults.append((stated & ~given, partial(F.lit, f"{name} is missing, and is not null")))
    return faults


def _said_unread(given: Column, name: str, travel: Travel) -> Column:
    unread = F.lit(f"{name} cannot be read as {_named(travel)}")
    endless = F.lit(f"{name} is infinite; declared as {travel.raw} it lands as it travels")
    return F.when(is_infinite(given, travel), endless).otherwise(unread)


def _faults_before(shape: ChangeShape, reader: Reader, befores: Mapping[str, Column]) -> list[_Fault]:
    """The same of the key that an update says the row had before: unread, its row would stay in the table."""
    travels, before = dict(reader.columns), F.col("_event.before")
    is_update = F.coalesce(F.col("_event.op") == "u", F.lit(False))
    faults: list[_Fault] = []
    for name, value in befores.items():
        said = f"{name}, as it was before, cannot be read as {_named(travels[name])}"
        faults.append((is_update & before[name].isNotNull() & value.isNull(), partial(F.lit, said)))
    return faults


def _named(travel: Travel) -> str:
    return travel.raw if travel.turn == "as_is" else f"{travel.turn.replace('_', ' ')} ({travel.raw})"


def _declared_position(shape: ChangeShape) -> Column:
    """The declared numbers; those of texts like `binlog.000012` are their last digits."""
    if not shape.position:
        return F.lit(None).cast("array<bigint>")
    numbers = []
    for path in shape.position:
        text = F.col(f"_event.{path}")
        digits = F.regexp_extract(text, r"([0-9]+)$", 1)
        numbers.append(F.coalesce(text.try_cast("bigint"), digits.try_cast("bigint")))
    return F.when(all_of(one.isNotNull() for one in numbers), F.array(*numbers))


def position_of(shape: ChangeShape, snapshots: Sequence[SnapshotStart]) -> Column:
    """The position of what `told` gives; null where it is not told.

    Args:
        shape: what the events are about. Where it declares positions, nothing else tells one: they would not compare.
        snapshots: the initial snapshots that are known; what a connector has processed since one lies above it.
    """
    if shape.position:
        return F.concat(F.col("_declared"), F.array(F.col("offset")))
    above = F.greatest(
        F.lit(None).cast("bigint"),
        F.lit(None).cast("bigint"),
        *(F.when(F.col("_processed_ms") >= one.processed_ms, F.lit(one.lsn)) for one in snapshots),
    )
    committed = F.greatest(F.coalesce(F.col("_committed"), above, F.col("_lsn")), above)
    streamed = F.array(committed, F.col("_lsn"), F.col("offset"))
    stated = F.array(F.col("_lsn"), F.lit(0).cast("bigint"), F.col("offset"))
    source = F.when(F.col("_lsn").isNotNull(), F.when(F.col("_snapshot"), stated).otherwise(streamed))
    return F.when(F.col("_connector") == POSTGRESQL, source)


def change_rows(changes: DataFrame, shape: ChangeShape, time: int) -> DataFrame:
    """Turn change events into rows of the positioned form.

    In:  what `told` gives, with _position, and _marks (not null).
    Out: the table's columns, and _marks. A change of a row's key is a delete, without marks, and a value. A tombstone,
         and a record with a reason or no position, is a row without a time, which has no place in the table.
    """
    # Numbers are what is exploded, not the rows themselves: those would be copied into a list, and out of it.
    good = F.col("_reason").isNull() & F.col(POSITION).isNotNull() & (F.col("_kind") != "tombstone")
    twice = good & F.col("_left").isNotNull()
    numbers = F.when(twice, F.array(F.lit(0), F.lit(1))).otherwise(F.array(F.lit(0)))
    numbered = changes.select("*", good.alias("_good"), F.explode(numbers).alias("_number"))
    kind, error, first = F.col("_kind"), F.col("_error"), F.col("_number") == 0
    whole = first & (kind == "value") & error.isNull()
    sign = F.when(first & (kind == "value"), 1).when(~first | (kind == "delete"), -1).otherwise(0)

    def cell(name: str) -> Column:
        of_row = F.col(f"_row.{name}")
        if name not in shape.key:
            return F.when(whole, of_row)
        return F.when(first, F.when(kind != "barrier", of_row)).otherwise(F.col(f"_left.{name}"))

    return numbered.select(
        F.when(first, F.col("_marks")).alias("_marks"),
        F.when(F.col("_good"), parameter(time, F.col("offset"))).alias(TIME),
        sign.cast("bigint").alias(DIFF),
        POSITION,
        F.when(first, F.col("_unavailable")).alias(UNAVAILABLE),
        F.when(first & (kind == "value"), error).alias(ERROR),
        *(cell(name).alias(name) for name, _ in shape.columns),
        *(F.when(whole, value).alias(name) for name, value in shape.more.items()),
    )


def _same(left: Column, right: Column, key: Sequence[str]) -> Column:
    return all_of(left[name].eqNullSafe(right[name]) for name in key)
