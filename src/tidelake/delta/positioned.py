"""The positioned form: statements about keys in the order of their source, of which the newest counts.

What arrived is stored as it is: nothing is looked up when it comes, and no time is ever advanced. The model, with the
rules, is `tidelake.positioned`; why they are so is in docs/decisions/positions.md.

All frames of rows here have the data's columns and _time, _diff, _position, _unavailable (names of columns without a
value of their own; null where all have one), _error. Of a delete and of a key in error, the key's columns alone are
set; of a barrier none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidelake.delta.layout import DIFF, ERROR, POSITION, TIME, UNAVAILABLE
from tidelake.delta.proof import same_in

_SYSTEM = (TIME, DIFF, POSITION, UNAVAILABLE, ERROR)
_RANK = "_rank"


@dataclass(frozen=True)
class Shape:
    """What the rows of one table are, and which kinds of them it has ever held."""

    data: tuple[str, ...]
    """All columns of the data."""
    key: tuple[str, ...]
    """Those that name a row."""
    barriers: bool = True
    """Whether some row may be a barrier; false spares looking for one."""
    unavailable: bool = True
    """Whether some row may lack a column's value; false spares looking for such keys."""

    @property
    def columns(self) -> list[str]:
        """Of the table."""
        return [*self.data, *_SYSTEM]

    @property
    def fillable(self) -> list[str]:
        """The columns that may be unavailable."""
        return [name for name in self.data if name not in self.key]


def newest_rows(rows: DataFrame, shape: Shape) -> DataFrame:
    """The newest row of each key that no barrier erases, be it a value, a delete or an error.

    In:  rows.
    Out: rows; the key is unique. `_unavailable` is as it was stored.
    Cost: one exchange of at most one row for each key and task; one more pass over two columns for barriers.
    """
    standing = _without_erased(rows, shape)
    grouped = standing.groupBy(*_quoted(shape.key)).agg(F.max_by(_whole(shape.columns), _rank()).alias("_newest"))
    return grouped.select("_newest.*")


def resolved_rows(rows: DataFrame, shape: Shape) -> DataFrame:
    """What rows at or before a time amount to, with every column that is known filled in.

    In:  rows.
    Out: rows; the key is unique, _diff is 1, `_unavailable` names the columns whose value was never stated (they are
         null), `_error` is not null where the key is in error.
    """
    live = newest_rows(rows, shape).where(F.col(DIFF) > 0)
    if not shape.unavailable:
        return live
    return live.where(~_lacks()).unionByName(_filled(rows, live.where(_lacks()), shape))


def contents(rows: DataFrame, shape: Shape) -> DataFrame:
    """The contents that rows at or before a time amount to; keys in error are left out, so ask for them too.

    Out: the data's columns, and _diff, which is 1.
    """
    return resolved_rows(rows, shape).where(F.col(ERROR).isNull()).select(*_quoted(shape.data), DIFF)


def keys_in_error(rows: DataFrame, shape: Shape) -> DataFrame:
    """The keys whose newest row could not be decoded.

    Out: the key's columns, _time (of the tick that read it), _error.
    """
    newest = newest_rows(rows.select(*_quoted(shape.key), *_SYSTEM), _bare(shape))
    return newest.where(F.col(ERROR).isNotNull()).select(*_quoted(shape.key), TIME, ERROR)


def unknown_values(rows: DataFrame, shape: Shape) -> DataFrame:
    """The rows of the contents that lack a value which no row has ever stated.

    Out: the key's columns, _unavailable (the columns; not empty).
    """
    lacking = resolved_rows(rows, shape).where(_lacks())
    return lacking.select(*_quoted(shape.key), UNAVAILABLE)


def merged_rows(rows: DataFrame, shape: Shape, through: int, takes_all: bool, resent_within: int) -> DataFrame:
    """What is left of rows when times at or before `through` cannot be told apart any more.

    In, out: rows. Of a key stays the newest row at or before `through`, what fills its unavailable columns, and every
             later row. The greatest barrier stays.

    Args:
        rows: what is merged.
        shape: of the table.
        through: the last of those times.
        takes_all: no other run holds a row at or before `through`.
        resent_within: how long after it was first read a statement may come again; until then its delete stays.
    """
    old, later = rows.where(F.col(TIME) <= through), rows.where(F.col(TIME) > through)
    newest = newest_rows(old, shape)
    kept = newest
    if takes_all:
        kept = newest.where((F.col(DIFF) > 0) | (F.col(TIME) > through - resent_within))
    if shape.unavailable:
        kept = kept.unionByName(_fillers(old, newest.where(_lacks()), shape))
    if shape.barriers:
        greatest = old.where(F.col(DIFF) == 0).agg(F.max_by(_whole(shape.columns), _rank()).alias("_newest"))
        kept = kept.unionByName(greatest.where(F.col("_newest").isNotNull()).select("_newest.*"))
    return kept.unionByName(later.select(*_quoted(shape.columns)))


def _filled(rows: DataFrame, lacking: DataFrame, shape: Shape) -> DataFrame:
    """The newest rows that lack columns, with those filled in that are known."""
    found = _by_key_in_need(rows, lacking, shape)
    values = {name: F.col(f"_found_{place}") for place, name in enumerate(shape.fillable)}
    unknown = F.filter(
        F.array(*(F.when(~_is_known(one), F.lit(name)) for name, one in values.items())),
        lambda name: name.isNotNull(),
    )
    return found.select(
        *(F.col(f"`{name}`") for name in shape.key),
        *(F.when(_is_known(one), one["value"]).alias(name) for name, one in values.items()),
        *(F.col(f"_top.{name}").alias(name) for name in (TIME, DIFF, POSITION)),
        F.when(F.size(unknown) > 0, unknown).alias(UNAVAILABLE),
        F.col(f"_top.{ERROR}").alias(ERROR),
    )


def _fillers(old: DataFrame, lacking: DataFrame, shape: Shape) -> DataFrame:
    """The rows below the newest of their key that its unavailable columns still need.

    They are those that fill them, and the delete or error that any other of them stops at.
    """
    found = _by_key_in_need(old, lacking, shape)
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
    wanted = found.select(*_quoted(shape.key), needed.alias("_needed"))
    left, right = old.where(F.col(DIFF) != 0).withColumn(_RANK, _rank()).alias("row"), wanted.alias("wanted")
    joined = left.join(right, same_in("row", "wanted", shape.key)).where(
        F.array_contains("_needed", F.col(f"row.{_RANK}"))
    )
    # Copies that one tick has read have one rank.
    return joined.select(*(f"row.`{name}`" for name in shape.columns)).dropDuplicates(
        [*shape.key, TIME, DIFF, POSITION]
    )


def _by_key_in_need(rows: DataFrame, lacking: DataFrame, shape: Shape) -> DataFrame:
    """What is known of the columns of keys whose newest row lacks some.

    Out: the key's columns (unique), _top struct (the newest row's system columns), _top_rank, _stop (the rank of the
         newest delete or error; null without), and for each fillable column `_found_<place>`: the newest value with its
         rank, null where there is none.
    """
    keys = lacking.select(*_quoted(shape.key)).alias("lacking")
    about = _without_erased(rows, shape).alias("row").join(keys, same_in("row", "lacking", shape.key), "left_semi")
    states = (F.col(DIFF) > 0) & F.col(ERROR).isNull()
    found = []
    for place, name in enumerate(shape.fillable):
        has = states & ~F.coalesce(F.array_contains(UNAVAILABLE, F.lit(name)), F.lit(False))
        value = F.struct(_rank().alias(_RANK), F.col(f"`{name}`").alias("value"))
        found.append(F.max_by(value, F.when(has, _rank())).alias(f"_found_{place}"))
    return about.groupBy(*_quoted(shape.key)).agg(
        F.max_by(_whole(_SYSTEM), _rank()).alias("_top"),
        F.max(_rank()).alias("_top_rank"),
        F.max(F.when(~states, _rank())).alias("_stop"),
        *found,
    )


def _is_known(found: Column) -> Column:
    """Whether a value was found above the newest delete or error."""
    stop = F.col("_stop")
    return F.coalesce(found.isNotNull() & (stop.isNull() | (found[_RANK] > stop)), F.lit(False))


def _without_erased(rows: DataFrame, shape: Shape) -> DataFrame:
    """The rows about keys that are not below a barrier."""
    about_keys = rows.where(F.col(DIFF) != 0)
    if not shape.barriers:
        return about_keys
    greatest = rows.where(F.col(DIFF) == 0).agg(F.max(POSITION).alias("_barrier"))
    joined = about_keys.crossJoin(F.broadcast(greatest))
    return joined.where(F.col("_barrier").isNull() | (F.col(POSITION) >= F.col("_barrier"))).drop("_barrier")


def _rank() -> Column:
    """What orders the rows of one key."""
    return F.struct(F.col(POSITION), (F.col(DIFF) > 0).alias("_is_value"), F.col(TIME))


def _lacks() -> Column:
    return F.coalesce(F.col(ERROR).isNull() & (F.size(UNAVAILABLE) > 0) & (F.col(DIFF) > 0), F.lit(False))


def _bare(shape: Shape) -> Shape:
    """The same table without the data beside the key."""
    return Shape(shape.key, shape.key, shape.barriers, shape.unavailable)


def _whole(columns: Sequence[str]) -> Column:
    return F.struct(*(F.col(f"`{name}`") for name in columns))


def _quoted(names: Sequence[str]) -> list[str]:
    return [f"`{name}`" for name in names]
