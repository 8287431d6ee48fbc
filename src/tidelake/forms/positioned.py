"""The positioned form: statements about keys in their source's order. Only a key's newest statement has an effect.

Statements are stored as they arrive: nothing is looked up, and no time moves. The model, with the rules, is
`tidelake.model.positioned`; docs/decisions/positions.md gives the reasons.

All DataFrames of rows here have the data's columns and _time, _diff, _position, _unavailable (names of columns without
a value of their own; null if all have one), _error. A delete and the row of a key in error have values only in the
key's columns; a barrier has none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from tidelake.forms.form import Form, RowFilter, takes_all
from tidelake.forms.key_states import ROW, Range, rows_of_keys, state_time
from tidelake.schema.change_events import Interval
from tidelake.spark.equality import same_in
from tidelake.store.commit import OpenTable
from tidelake.store.entry import Entry
from tidelake.store.layout import DIFF, ERROR, POSITION, TIME, UNAVAILABLE
from tidelake.store.state import HAS_BARRIERS, HAS_ERRORS, HAS_UNAVAILABLE
from tidelake.store.table_schema import data_fields

_SYSTEM = (TIME, DIFF, POSITION, UNAVAILABLE, ERROR)
_RANK = "_rank"


@dataclass(frozen=True)
class Shape:
    """The columns of one table, and which kinds of rows it has ever stored."""

    data: tuple[str, ...]
    """All columns of the data."""
    key: tuple[str, ...]
    """The columns that identify a row."""
    barriers: bool = True
    """Whether some row may be a barrier; if not, reads do not look for barriers."""
    unavailable: bool = True
    """Whether some row may lack a column's value; if not, reads do not look for such rows."""

    @property
    def columns(self) -> list[str]:
        """The columns of the table."""
        return [*self.data, *_SYSTEM]

    @property
    def fillable(self) -> list[str]:
        """The columns that may be unavailable."""
        return [name for name in self.data if name not in self.key]


class PositionedForm(Form):
    """Statements about keys in the order of their source.

    It makes no base: a row that arrives later may be older in the source's order than the rows that a merge has kept.
    """

    cancels_copies = False
    breaches_stay = True
    moves_times = False
    is_additive = False
    makes_base = False
    key_of_values: Sequence[str] | None = None

    def __init__(self, entry: Entry, table: OpenTable | None, resent_within_ms: int) -> None:
        """Take the columns from a collection's entry; the table's log tells which kinds of rows were ever stored.

        Args:
            entry: the collection's entry.
            table: its updates table; if None, every kind of row is possible.
            resent_within_ms: how long a record may be sent again, with its old position, after it was first read.
        """
        self.fields = data_fields(entry.record_schema)
        self.resent_within_ms = resent_within_ms
        self.stores_errors = table is None or bool(table.value(HAS_ERRORS))
        self.shape = Shape(
            tuple(field.name for field in self.fields),
            entry.key,
            barriers=table is None or bool(table.value(HAS_BARRIERS)),
            unavailable=table is None or bool(table.value(HAS_UNAVAILABLE)),
        )

    def contents(
        self, rows: DataFrame, columns: Sequence[str], keep: RowFilter, base: DataFrame | None = None
    ) -> DataFrame:
        """Take the newest row of each key; see `Form.contents`."""
        return keep(contents(rows, self.shape)).select(*_quoted(columns), DIFF)

    def key_states(self, rows: Range, with_errors: bool) -> DataFrame:
        """Follow the newest row of each touched key; see `Form.key_states`. A barrier touches every key.

        Cost: if a barrier was ever stored, one more job over the rows of the range.
        """
        return key_states(rows, self.shape, with_errors and self.stores_errors)

    def merged(self, sealed: DataFrame, through: int, others: Sequence[Interval]) -> DataFrame:
        """Keep what later reads need; see `merged_rows`."""
        return merged_rows(sealed, self.shape, through, takes_all(through, others), self.resent_within_ms)

    def keys_in_error(self, rows: DataFrame) -> DataFrame | None:
        """See the function `keys_in_error`."""
        return keys_in_error(rows, self.shape) if self.stores_errors else None

    def unknown_values(self, rows: DataFrame) -> DataFrame | None:
        """See the function `unknown_values`."""
        return unknown_values(rows, self.shape) if self.shape.unavailable else None


def newest_rows(rows: DataFrame, shape: Shape) -> DataFrame:
    """Find, for each key, the newest row that no barrier erases: a value, a delete or an error.

    In:  rows.
    Out: rows; the key is unique. `_unavailable` is as it was stored.
    Cost: one exchange of at most one row for each key and task; one more pass over two columns for barriers.
    """
    standing = _without_erased(rows, shape)
    grouped = standing.groupBy(*_quoted(shape.key)).agg(F.max_by(_whole(shape.columns), _rank()).alias("_newest"))
    return grouped.select("_newest.*")


def resolved_rows(rows: DataFrame, shape: Shape) -> DataFrame:
    """Reduce rows at or before a time to one row per key, with unavailable columns filled from earlier rows.

    In:  rows.
    Out: rows; the key is unique, _diff is 1, `_unavailable` names the columns whose value was never stated (they are
         null), `_error` is not null if the key is in error.
    """
    live = newest_rows(rows, shape).where(F.col(DIFF) > 0)
    if not shape.unavailable:
        return live
    return live.where(~_lacks()).unionByName(_filled(rows, live.where(_lacks()), shape))


def contents(rows: DataFrame, shape: Shape) -> DataFrame:
    """Compute the contents from rows at or before a time; keys in error are left out (see `keys_in_error`).

    Out: the data's columns, and _diff, which is 1.
    """
    return resolved_rows(rows, shape).where(F.col(ERROR).isNull()).select(*_quoted(shape.data), DIFF)


def keys_in_error(rows: DataFrame, shape: Shape) -> DataFrame:
    """Find the keys whose newest row is an error.

    Out: the key's columns, _time (of the tick that read it), _error.
    """
    newest = newest_rows(rows.select(*_quoted(shape.key), *_SYSTEM), _bare(shape))
    return newest.where(F.col(ERROR).isNotNull()).select(*_quoted(shape.key), TIME, ERROR)


def unknown_values(rows: DataFrame, shape: Shape) -> DataFrame:
    """Find the rows of the contents that lack a value because no row has ever stated it.

    Out: the key's columns, _unavailable (the columns; not empty).
    """
    lacking = resolved_rows(rows, shape).where(_lacks())
    return lacking.select(*_quoted(shape.key), UNAVAILABLE)


def merged_rows(rows: DataFrame, shape: Shape, through: int, takes_all: bool, resent_within: int) -> DataFrame:
    """Merge rows: no reader can tell times at or before `through` apart.

    In, out: rows. Each key keeps its newest row at or before `through`, the rows that fill its unavailable columns, and
             every later row. The greatest barrier stays. If `takes_all`, deletes older than `resent_within` are
             dropped.

    Args:
        rows: the rows.
        shape: the shape of the table.
        through: the last time that no reader can tell from an earlier one.
        takes_all: whether no other run holds a row at or before `through`.
        resent_within: how long a statement may be sent again after it was first read; a delete stays at least that
            long.
    """
    old, later = rows.where(F.col(TIME) <= through), rows.where(F.col(TIME) > through)
    newest = newest_rows(old, shape)
    remaining = newest
    if takes_all:
        remaining = newest.where((F.col(DIFF) > 0) | (F.col(TIME) > through - resent_within))
    if shape.unavailable:
        remaining = remaining.unionByName(_fillers(old, newest.where(_lacks()), shape))
    if shape.barriers:
        greatest = old.where(F.col(DIFF) == 0).agg(F.max_by(_whole(shape.columns), _rank()).alias("_newest"))
        remaining = remaining.unionByName(greatest.where(F.col("_newest").isNotNull()).select("_newest.*"))
    return remaining.unionByName(later.select(*_quoted(shape.columns)))


def key_states(rows: Range, shape: Shape, with_errors: bool) -> DataFrame:
    """Follow the newest row of each touched key over a range of times; see `Form.key_states`.

    In:  rows of the range, and of the times before.
    Out: states; see `forms.key_states`.
    Cost: the rows of touched keys, or all rows if there is a barrier in the range; one exchange of these rows, by key.
    """
    if shape.barriers and not rows.between.where(F.col(DIFF) == 0).isEmpty():
        every = rows.earlier(None).unionByName(rows.between)
        return _followed(every.where(F.col(DIFF) != 0), _barriers(every, rows.after), shape, rows.after)
    about = rows.between.where(F.col(DIFF) != 0)
    touched = about.select(*_quoted(shape.key))
    if with_errors:
        failed = rows.earlier(None).where(F.col(ERROR).isNotNull())
        touched = touched.unionByName(failed.select(*_quoted(shape.key)))
    before = rows.earlier(touched).where(F.col(DIFF) != 0)
    followed = about.unionByName(rows_of_keys(before, touched, shape.key, shape.key, rows.few))
    barriers = _barriers(rows.earlier(None), rows.after) if shape.barriers else None
    return _followed(followed, barriers, shape, rows.after)


def _barriers(rows: DataFrame, after: int) -> DataFrame:
    """Collect the greatest barrier of each time, as one row.

    Out: _barriers array of structs (time, position); barriers before the range have the time `after`.
    """
    times = rows.where(F.col(DIFF) == 0).groupBy(state_time(after).alias(TIME)).agg(F.max(POSITION).alias(POSITION))
    return times.agg(F.collect_list(F.struct(TIME, POSITION)).alias("_barriers"))


def _followed(rows: DataFrame, barriers: DataFrame | None, shape: Shape, after: int) -> DataFrame:
    """Return the states of keys from all of their rows. At and after its time, a barrier erases all lower positions."""
    key = _quoted(shape.key)
    if barriers is not None:
        # Each barrier in the range gives each key a state of its own, without a row.
        times = barriers.select(F.explode("_barriers").alias("_barrier")).select(f"_barrier.{TIME}")
        without_row = rows.select(*key).distinct().crossJoin(F.broadcast(times.where(F.col(TIME) > after)))
        rows = rows.unionByName(without_row, allowMissingColumns=True)
    rank = F.when(F.col(DIFF).isNotNull(), _rank())
    states = (F.col(DIFF) > 0) & F.col(ERROR).isNull()
    top = F.struct(rank.alias(_RANK), F.col(ERROR), F.col(DIFF), *(F.col(f"`{name}`") for name in shape.data))
    newest = {"_top": F.max_by(top, rank)}
    if shape.unavailable:
        newest["_stop"] = F.max_by(F.struct(rank.alias(_RANK)), F.when(~states, rank))
        newest |= _stated_values(shape, states, rank)
    by_time = rows.repartition(*key).groupBy(*key, state_time(after).alias("_state_time"))
    until = Window.partitionBy(*key).orderBy("_state_time").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    followed = by_time.agg(*(column.alias(name) for name, column in newest.items())).select(
        *key, "_state_time", *(F.max_by(name, f"{name}.{_RANK}").over(until).alias(name) for name in newest)
    )
    erased = F.lit(None).cast("array<bigint>")
    if barriers is not None:
        followed = followed.crossJoin(F.broadcast(barriers))
        reached = F.filter("_barriers", lambda barrier: barrier[TIME] <= F.col("_state_time"))
        erased = F.array_max(F.transform(reached, lambda barrier: barrier[POSITION]))
    standing = F.col("_top").isNotNull() & (erased.isNull() | (F.col(f"_top.{_RANK}.{POSITION}") >= erased))
    values = {name: F.col(f"_top.`{name}`") for name in shape.data}
    if shape.unavailable:
        for place, name in enumerate(shape.fillable):
            found = F.col(f"_found_{place}")
            stop = F.col(f"_stop.{_RANK}")
            known = (stop.isNull() | (found[_RANK] > stop)) & (erased.isNull() | (found[_RANK][POSITION] >= erased))
            values[name] = F.when(known, found["value"])
    row = F.struct(*(value.alias(name) for name, value in values.items()))
    is_value = standing & (F.col(f"_top.{DIFF}") > 0) & F.col(f"_top.{ERROR}").isNull()
    return followed.select(
        *key,
        F.col("_state_time").alias(TIME),
        F.when(is_value, row).alias(ROW),
        F.when(standing, F.col(f"_top.{ERROR}")).alias(ERROR),
    )


def _filled(rows: DataFrame, lacking: DataFrame, shape: Shape) -> DataFrame:
    """Fill the columns that the newest rows lack, with the values that earlier rows state."""
    by_key = _candidates_by_key(rows, lacking, shape)
    values = {name: F.col(f"_found_{place}") for place, name in enumerate(shape.fillable)}
    unknown = F.filter(
        F.array(*(F.when(~_is_known(value), F.lit(name)) for name, value in values.items())),
        lambda name: name.isNotNull(),
    )
    return by_key.select(
        *(F.col(f"`{name}`") for name in shape.key),
        *(F.when(_is_known(value), value["value"]).alias(name) for name, value in values.items()),
        *(F.col(f"_top.{name}").alias(name) for name in (TIME, DIFF, POSITION)),
        F.when(F.size(unknown) > 0, unknown).alias(UNAVAILABLE),
        F.col(f"_top.{ERROR}").alias(ERROR),
    )


def _fillers(old: DataFrame, lacking: DataFrame, shape: Shape) -> DataFrame:
    """Find the rows below the newest row of each key that are still needed for its unavailable columns.

    These are the rows that fill the columns, and the delete or error at which the search for a column's value ends.
    """
    by_key = _candidates_by_key(old, lacking, shape)
    needed = F.array_distinct(
        F.filter(
            F.array(
                *(
                    F.when(_is_known(F.col(f"_found_{place}")), F.col(f"_found_{place}.{_RANK}")).otherwise(
                        F.col("_stop")
                    )
                    for place in range(len(shape.fillable))
                )
            ),
            lambda rank: rank.isNotNull() & (rank < F.col("_top_rank")),
        )
    )
    wanted = by_key.select(*_quoted(shape.key), needed.alias("_needed"))
    left, right = old.where(F.col(DIFF) != 0).withColumn(_RANK, _rank()).alias("row"), wanted.alias("wanted")
    joined = left.join(right, same_in("row", "wanted", shape.key)).where(
        F.array_contains("_needed", F.col(f"row.{_RANK}"))
    )
    # Copies within one tick have the same rank.
    return joined.select(*(f"row.`{name}`" for name in shape.columns)).dropDuplicates(
        [*shape.key, TIME, DIFF, POSITION]
    )


def _candidates_by_key(rows: DataFrame, lacking: DataFrame, shape: Shape) -> DataFrame:
    """Collect, by key, the values that can complete those newest rows that lack values.

    Out: the key's columns (unique), _top struct (the newest row's system columns), _top_rank, _stop (the rank of the
         newest delete or error; null if none), and for each fillable column `_found_<place>`: the newest value with its
         rank, null if there is none.
    """
    keys = lacking.select(*_quoted(shape.key)).alias("lacking")
    about = _without_erased(rows, shape).alias("row").join(keys, same_in("row", "lacking", shape.key), "left_semi")
    states = (F.col(DIFF) > 0) & F.col(ERROR).isNull()
    values = [column.alias(name) for name, column in _stated_values(shape, states, _rank()).items()]
    return about.groupBy(*_quoted(shape.key)).agg(
        F.max_by(_whole(_SYSTEM), _rank()).alias("_top"),
        F.max(_rank()).alias("_top_rank"),
        F.max(F.when(~states, _rank())).alias("_stop"),
        *values,
    )


def _stated_values(shape: Shape, states: Column, rank: Column) -> dict[str, Column]:
    """Return aggregates, `_found_<place>` for each fillable column: the newest stated value with its rank, or null."""
    values = {}
    for place, name in enumerate(shape.fillable):
        has = states & ~F.coalesce(F.array_contains(UNAVAILABLE, F.lit(name)), F.lit(False))
        value = F.struct(rank.alias(_RANK), F.col(f"`{name}`").alias("value"))
        values[f"_found_{place}"] = F.max_by(value, F.when(has, rank))
    return values


def _is_known(value: Column) -> Column:
    """Return whether there is a value above the newest delete or error."""
    stop = F.col("_stop")
    return F.coalesce(value.isNotNull() & (stop.isNull() | (value[_RANK] > stop)), F.lit(False))


def _without_erased(rows: DataFrame, shape: Shape) -> DataFrame:
    """Drop barriers, and the rows below the greatest barrier."""
    about_keys = rows.where(F.col(DIFF) != 0)
    if not shape.barriers:
        return about_keys
    greatest = rows.where(F.col(DIFF) == 0).agg(F.max(POSITION).alias("_barrier"))
    joined = about_keys.crossJoin(F.broadcast(greatest))
    return joined.where(F.col("_barrier").isNull() | (F.col(POSITION) >= F.col("_barrier"))).drop("_barrier")


def _rank() -> Column:
    """Return the rank of a row among the rows of its key."""
    return F.struct(F.col(POSITION), (F.col(DIFF) > 0).alias("_is_value"), F.col(TIME))


def _lacks() -> Column:
    return F.coalesce(F.col(ERROR).isNull() & (F.size(UNAVAILABLE) > 0) & (F.col(DIFF) > 0), F.lit(False))


def _bare(shape: Shape) -> Shape:
    """Return the shape of the same table with no data columns except the key."""
    return Shape(shape.key, shape.key, shape.barriers, shape.unavailable)


def _whole(columns: Sequence[str]) -> Column:
    return F.struct(*(F.col(f"`{name}`") for name in columns))


def _quoted(names: Sequence[str]) -> list[str]:
    return [f"`{name}`" for name in names]
