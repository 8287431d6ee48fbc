"""Computes, in SQL, contents whose source orders the statements about each key. See `tidelake.forms.positioned`."""

from __future__ import annotations

from collections.abc import Sequence

from tidelake.query.form import Form, matched
from tidelake.query.keyed import once_each
from tidelake.query.names import listed, names_of, packed, quoted, text, unpacked, whole
from tidelake.query.reads import Reads, Where
from tidelake.store.commit import OpenTable
from tidelake.store.entry import Entry
from tidelake.store.layout import DIFF, ERROR, POSITION, TIME, UNAVAILABLE
from tidelake.store.state import HAS_BARRIERS, HAS_ERRORS, HAS_UNAVAILABLE
from tidelake.store.table_schema import data_fields

_SYSTEM = (TIME, DIFF, POSITION, UNAVAILABLE, ERROR)
_RANK = f"struct_pack(position := {POSITION}, is_value := {DIFF} > 0, time := {TIME})"
"""The order of a key's rows: by position; at the same position, a value beats a delete; then the later time wins."""
_STATES_VALUES = f"({DIFF} > 0 AND {ERROR} IS NULL)"
_LACKS = f"({ERROR} IS NULL AND coalesce(len({UNAVAILABLE}), 0) > 0 AND {DIFF} > 0)"


class PositionedForm(Form):
    """For each key, only the statement with the greatest position has an effect, whichever tick read it."""

    def __init__(self, entry: Entry, table: OpenTable) -> None:
        self.fields = data_fields(entry.record_schema)
        self.key = entry.key
        self.barriers = bool(table.value(HAS_BARRIERS))
        self.unavailable = bool(table.value(HAS_UNAVAILABLE))
        self.stores_errors = bool(table.value(HAS_ERRORS))

    def contents(self, reads: Reads, at: int, columns: Sequence[str], where: Where | None = None) -> str:
        """Take the newest row of each key; keys in error are left out."""
        needed = self.needed([*self.key, *columns], where)
        resolved = self._resolved(reads, at, needed)
        return once_each(f"SELECT * FROM ({resolved}) WHERE {ERROR} IS NULL", columns, where)

    def row_updates(self, reads: Reads, after: int, through: int) -> str | None:
        """Return None: a statement does not say which row it replaces."""
        return None

    def errors(self, reads: Reads, at: int) -> str | None:
        """Find the keys whose newest row is an error."""
        if not self.stores_errors:
            return None
        newest = self._newest(reads, at, self.key)
        return f"SELECT {names_of([*self.key, TIME, ERROR])} FROM ({newest}) WHERE {ERROR} IS NOT NULL"

    def unknown(self, reads: Reads, at: int) -> str | None:
        """Find the rows of the contents that lack a value because no row has ever stated it."""
        if not self.unavailable:
            return None
        resolved = self._resolved(reads, at, [field.name for field in self.fields])
        return f"SELECT {names_of([*self.key, UNAVAILABLE])} FROM ({resolved}) WHERE {_LACKS}"

    def states(self, reads: Reads, after: int, through: int, with_errors: bool) -> str:
        """Follow the newest row of each touched key over the range. A barrier in the range touches every key."""
        names = [field.name for field in self.fields]
        stored = [*names, *_SYSTEM]
        barrier_inside = f"SELECT count(*) FROM ({reads.rows([DIFF], through, after)}) WHERE {DIFF} = 0"
        if self.barriers and reads.engine.scalar(barrier_inside):
            rows = f"SELECT * FROM ({reads.rows(stored, through)}) WHERE {DIFF} <> 0"
        else:
            touched = f"{reads.rows([*self.key, DIFF], through, after)}"
            keys = f"SELECT {names_of(self.key)} FROM ({touched}) WHERE {DIFF} <> 0"
            if with_errors and self.stores_errors:
                failed = reads.rows([*self.key, ERROR], after)
                keys += f" UNION ALL SELECT {names_of(self.key)} FROM ({failed}) WHERE {ERROR} IS NOT NULL"
            few = reads.keep(f"SELECT DISTINCT * FROM ({keys})")
            every = f"SELECT * FROM ({reads.rows(stored, through)}) WHERE {DIFF} <> 0"
            rows = f"SELECT r.* FROM ({every}) r SEMI JOIN {few} k ON {matched('r', 'k', self.key)}"
        return self._followed(reads, rows, names, after, through)

    def _newest(self, reads: Reads, at: int, columns: Sequence[str]) -> str:
        """Return each key's newest row that no barrier erases: a value, a delete or an error."""
        standing = self._standing(reads, at, columns)
        fields = self.chosen(columns)
        top = f"arg_max({packed(fields, _SYSTEM)}, {_RANK}) AS _newest"
        values = {field.name: unpacked("_newest", field) for field in fields}
        values |= {name: f"_newest.{name}" for name in _SYSTEM}
        taken = listed(f"{value} AS {quoted(name)}" for name, value in values.items())
        return f"SELECT {taken} FROM (SELECT {top} FROM ({standing}) GROUP BY {names_of(self.key)})"

    def _standing(self, reads: Reads, at: int, columns: Sequence[str]) -> str:
        """Leave out barriers, and the rows below the greatest barrier."""
        rows = f"SELECT * FROM ({reads.rows([*columns, *_SYSTEM], at)}) WHERE {DIFF} <> 0"
        if not self.barriers:
            return rows
        greatest = f"SELECT max({POSITION}) FROM ({reads.rows([DIFF, POSITION], at)}) WHERE {DIFF} = 0"
        return f"{rows} AND coalesce({POSITION} >= ({greatest}), true)"

    def _resolved(self, reads: Reads, at: int, columns: Sequence[str]) -> str:
        """Reduce rows to one per key, with unavailable columns filled from earlier rows.

        Out: the columns, and the system columns; `_unavailable` names the columns whose value was never stated.
        """
        live = f"SELECT * FROM ({self._newest(reads, at, columns)}) WHERE {DIFF} > 0"
        if not self.unavailable:
            return live
        taken = names_of([*columns, *_SYSTEM])
        filled = self._filled(reads, at, columns)
        return f"SELECT {taken} FROM ({live}) WHERE NOT {_LACKS} UNION ALL SELECT {taken} FROM ({filled})"

    def _filled(self, reads: Reads, at: int, columns: Sequence[str]) -> str:
        """Fill the columns that the newest rows lack, with the values that earlier rows state."""
        newest = self._newest(reads, at, self.key)
        lacking = f"SELECT {names_of(self.key)} FROM ({newest}) WHERE {_LACKS}"
        standing = self._standing(reads, at, columns)
        about = f"SELECT r.* FROM ({standing}) r SEMI JOIN ({lacking}) k ON {matched('r', 'k', self.key)}"
        fillable = [name for name in columns if name not in self.key]
        found = [
            f"arg_max(struct_pack(rank := {_RANK}, value := {packed([field])}), {_RANK}) FILTER "
            f"({_STATES_VALUES} AND NOT {_is_lacking(field.name)}) AS _found_{place}"
            for place, field in enumerate(self.chosen(fillable))
        ]
        by_key = (
            f"SELECT {names_of(self.key)}, arg_max({whole(_SYSTEM)}, {_RANK}) AS _top, "
            f"max({_RANK}) FILTER (NOT {_STATES_VALUES}) AS _stop{''.join(f', {each}' for each in found)} "
            f"FROM ({about}) GROUP BY {names_of(self.key)}"
        )
        known = {name: _is_known(f"_found_{place}", "_stop") for place, name in enumerate(fillable)}
        values = {
            field.name: f"CASE WHEN {known[field.name]} THEN {unpacked(f'_found_{place}.value', field)} END"
            for place, field in enumerate(self.chosen(fillable))
        }
        values |= {name: quoted(name) for name in self.key}
        unknown = listed(f"CASE WHEN NOT {known[name]} THEN {text(name)} END" for name in fillable)
        values |= {name: f"_top.{name}" for name in (TIME, DIFF, POSITION, ERROR)}
        values[UNAVAILABLE] = f"list_filter([{unknown}]::VARCHAR[], lambda name: name IS NOT NULL)"
        taken = listed(f"{values[name]} AS {quoted(name)}" for name in [*columns, *_SYSTEM])
        return f"SELECT {taken} FROM ({by_key})"

    def _followed(self, reads: Reads, rows: str, names: Sequence[str], after: int, through: int) -> str:
        """Return the states of keys from all of their rows. From its time on, a barrier erases all lower positions."""
        key = names_of(self.key)
        top = f"struct_pack(rank := {_RANK}, diff := {DIFF}, error := {ERROR}, row := {packed(self.fields)})"
        newest = {"_top": (top, f"{DIFF} IS NOT NULL")}
        fillable = [name for name in names if name not in self.key] if self.unavailable else []
        if self.unavailable:
            newest["_stop"] = (f"struct_pack(rank := {_RANK})", f"NOT {_STATES_VALUES}")
        for place, field in enumerate(self.chosen(fillable)):
            stated = f"struct_pack(rank := {_RANK}, value := {packed([field])})"
            newest[f"_found_{place}"] = (stated, f"{_STATES_VALUES} AND NOT {_is_lacking(field.name)}")
        at_times = f"SELECT *, greatest({TIME}, {after}) AS _state_time FROM ({rows})"
        barriers = None
        if self.barriers:
            stated = reads.rows([TIME, DIFF, POSITION], through)
            barriers = reads.keep(
                f"SELECT greatest({TIME}, {after}) AS _from, max({POSITION}) AS _erased FROM ({stated}) "
                f"WHERE {DIFF} = 0 GROUP BY 1"
            )
            # At each barrier in the range, each key gets another state, even if no row of the key has this time.
            every = f"SELECT DISTINCT {key} FROM ({rows})"
            empty = f"SELECT k.*, _from AS _state_time FROM ({every}) k, {barriers} WHERE _from > {after}"
            at_times = f"{at_times} UNION ALL BY NAME {empty}"
        grouped = listed(f"arg_max({value}, {_RANK}) FILTER ({has}) AS {name}" for name, (value, has) in newest.items())
        places = listed(map(str, range(1, len(self.key) + 2)))
        by_time = f"SELECT {key}, _state_time, {grouped} FROM ({at_times}) GROUP BY {places}"
        until = f"OVER (PARTITION BY {key} ORDER BY _state_time ROWS UNBOUNDED PRECEDING)"
        running = listed(f"arg_max({name}, {name}.rank) {until} AS {name}" for name in newest)
        followed = f"SELECT {key}, _state_time, {running} FROM ({by_time})"
        erased = "NULL::BIGINT[]"
        if barriers is not None:
            followed = (
                f"SELECT f.*, (SELECT max(_erased) FROM {barriers} b WHERE b._from <= f._state_time) AS _erased "
                f"FROM ({followed}) f"
            )
            erased = "_erased"
        standing = f"(_top IS NOT NULL AND coalesce(_top.rank.position >= {erased}, true))"
        values = {field.name: unpacked("_top.row", field) for field in self.fields}
        for place, field in enumerate(self.chosen(fillable)):
            found = f"_found_{place}"
            known = f"{_is_known(found, '_stop.rank')} AND coalesce({found}.rank.position >= {erased}, true)"
            values[field.name] = f"CASE WHEN {known} THEN {unpacked(f'{found}.value', field)} END"
        row = listed(f"{quoted(name)} := {value}" for name, value in values.items())
        is_value = f"{standing} AND _top.diff > 0 AND _top.error IS NULL"
        return (
            f"SELECT {key}, _state_time, CASE WHEN {is_value} THEN struct_pack({row}) END AS _row, "
            f"CASE WHEN {standing} THEN _top.error END AS {ERROR} FROM ({followed})"
        )


def _is_lacking(name: str) -> str:
    return f"coalesce(list_contains({UNAVAILABLE}, {text(name)}), false)"


def _is_known(found: str, stop: str) -> str:
    """Return the condition that a value was found above the newest delete or error."""
    return f"({found} IS NOT NULL AND coalesce({found}.rank > {stop}, true))"
