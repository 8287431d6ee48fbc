"""Computes contents, in SQL, from the newest statement about each key. See `tidelake.forms.keyed`."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from tidelake.query.form import Form, matched
from tidelake.query.names import listed, names_of, packed, quoted, unpacked
from tidelake.query.reads import Reads, Where
from tidelake.store.entry import Entry
from tidelake.store.files import RunFile
from tidelake.store.layout import DIFF, ERROR, TIME
from tidelake.store.table_schema import data_fields

RANK = f"({TIME}::HUGEINT * 2 + ({DIFF} > 0)::HUGEINT)"
"""The order of a key's rows: by time; at equal times, a value is newer than a delete."""
_SMALL_BELOW = 2**62
"""If all times are below this one, the order fits into an int64, which costs less to compare."""


class KeyedForm(Form):
    """Only the newest statement of each key has an effect."""

    def __init__(self, entry: Entry) -> None:
        self.fields = data_fields(entry.record_schema)
        self.key = entry.key

    def contents(self, reads: Reads, at: int, columns: Sequence[str], where: Where | None = None) -> str:
        """Take the newest row of each key. A predicate applies to that row, so it is evaluated last."""
        base, later = reads.divided(at)
        needed = self.needed([*self.key, *columns], where)
        if not base:
            rows = reads.rows([*needed, TIME, DIFF], at, files=later)
            return once_each(newest_rows(rows, self.key, self.chosen(needed)), columns, where)
        every = reads.rows(needed, at, files=base)
        if not later:
            return once_each(every, columns, where)
        newest, keys = self._newest_of_few(reads, at, later, needed)
        others = f"SELECT b.* FROM ({every}) b ANTI JOIN {keys} f ON {matched('b', 'f', self.key)}"
        return " UNION ALL ".join(once_each(part, columns, where) for part in (newest, others))

    def _newest_of_few(
        self, reads: Reads, at: int, later: Sequence[RunFile], columns: Sequence[str]
    ) -> tuple[str, str]:
        """Return a query for the newest row of each key in a few files, and the relation with all of these keys.

        The query leaves out deletes; the relation has their keys, too.

        Args:
            reads: how to read stored rows.
            at: the time.
            later: the files.
            columns: the columns to return.

        Rows are represented by numbers, whereas `newest_rows` has to pack and unpack each row.
        """
        rows = reads.numbered([*columns, TIME, DIFF], at, later)
        last = min(at, max(file.reach[1] for file in later))
        rank = RANK if last >= _SMALL_BELOW else f"({TIME} * 2 + ({DIFF} > 0)::BIGINT)"
        newest = f"arg_max(_number, {rank}) AS _newest, count(*) AS _rows"
        keys = reads.keep(f"SELECT {names_of(self.key)}, {newest} FROM ({rows}) GROUP BY {names_of(self.key)}")
        taken = f"SELECT {names_of(columns)} FROM ({rows}) r"
        if reads.engine.scalar(f"SELECT coalesce(max(_rows), 0) > 1 FROM {keys}"):
            # Most keys have a single row, so only the older rows of the other keys are searched for.
            several = f"SELECT * FROM {keys} WHERE _rows > 1"
            taken += f" ANTI JOIN ({several}) k ON {matched('r', 'k', self.key)} AND r._number <> k._newest"
        return f"{taken} WHERE {DIFF} > 0", keys

    def row_updates(self, reads: Reads, after: int, through: int) -> str | None:
        """Return None: a statement does not say which row it replaces."""
        return None

    def states(self, reads: Reads, after: int, through: int, with_errors: bool) -> str:
        """Take the newest row of each touched key at each time."""
        names = [field.name for field in self.fields]
        stored = [*names, TIME, DIFF]
        touched = reads.keep(f"SELECT DISTINCT {names_of(self.key)} FROM ({reads.rows(self.key, through, after)})")
        earlier = f"SELECT r.* FROM ({reads.rows(stored, after)}) r SEMI JOIN {touched} t"
        rows = f"{reads.rows(stored, through, after)} UNION ALL {earlier} ON {matched('r', 't', self.key)}"
        return states_by_time(rows, self.key, self.fields, after)


def newest_rows(rows: str, key: Sequence[str], fields: Sequence[pa.Field]) -> str:
    """Return the newest row of each key, unless it is a delete.

    Args:
        rows: a query with the columns, _time and _diff.
        key: the key's columns, which are among the fields.
        fields: the columns to return.
    """
    newest = f"SELECT arg_max({packed(fields, [DIFF])}, {RANK}) AS _newest FROM ({rows}) GROUP BY {names_of(key)}"
    taken = listed(f"{unpacked('_newest', field)} AS {quoted(field.name)}" for field in fields)
    return f"SELECT {taken} FROM ({newest}) WHERE _newest.{DIFF} > 0"


def once_each(rows: str, columns: Sequence[str], where: Where | None = None) -> str:
    """Return rows, one for each key, as contents: each row occurs once."""
    condition = "" if where is None else f" WHERE ({where.condition}\n)"
    return f"SELECT {names_of(columns)}, 1::BIGINT AS {DIFF} FROM ({rows}){condition}"


def states_by_time(rows: str, key: Sequence[str], fields: Sequence[pa.Field], after: int) -> str:
    """Return the states of keys, given by their newest rows; at equal times, a value is newer than a delete.

    Args:
        rows: a query with the data's columns, _time and _diff: all rows of these keys until the end of the range.
        key: the key's columns.
        fields: the data's columns.
        after: the last time before the range.
    """
    places = listed(map(str, range(1, len(key) + 2)))
    newest = (
        f"SELECT {names_of(key)}, greatest({TIME}, {after}) AS _state_time, arg_max({packed(fields, [DIFF])}, {RANK}) "
        f"AS _newest FROM ({rows}) GROUP BY {places}"
    )
    values = listed(f"{quoted(field.name)} := {unpacked('_newest', field)}" for field in fields)
    row = f"CASE WHEN _newest.{DIFF} > 0 THEN struct_pack({values}) END"
    return f"SELECT {names_of(key)}, _state_time, {row} AS _row, NULL::VARCHAR AS {ERROR} FROM ({newest})"


def updates_of_states(states: str, key: Sequence[str], data: Sequence[str], after: int) -> str:
    """Turn states into updates of rows: the old row is removed and the new row is added. Equal rows give no update.

    Out: the data's columns, _time, _diff: 1 or -1.
    """
    by_key = f"OVER (PARTITION BY {names_of(key)} ORDER BY _state_time)"
    steps = f"SELECT _state_time, _row AS _new, lag(_row) {by_key} AS _old FROM ({states})"
    both = "[{'row': _old, 'diff': -1::BIGINT}, {'row': _new, 'diff': 1::BIGINT}]"
    present = f"unnest(list_filter({both}, lambda step: step.row IS NOT NULL)) AS _step"
    changed = f"SELECT _state_time, {present} FROM ({steps}) WHERE _state_time > {after} AND _old IS DISTINCT FROM _new"
    taken = listed(f"_step.row.{quoted(name)} AS {quoted(name)}" for name in data)
    return f"SELECT {taken}, _state_time AS {TIME}, _step.diff AS {DIFF} FROM ({changed})"
