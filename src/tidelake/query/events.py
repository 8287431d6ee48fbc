"""Change events in SQL: a statement removes its row `before` and adds its row `after`. See `tidelake.forms.events`."""

from __future__ import annotations

from collections.abc import Sequence

from tidelake.query.form import Form, matched
from tidelake.query.keyed import newest_rows, once_each, states_by_time
from tidelake.query.names import listed, names_of, quoted
from tidelake.query.reads import Reads, Where
from tidelake.query.sums import add_up
from tidelake.schema.change_events import AFTER, BEFORE
from tidelake.store.entry import Entry
from tidelake.store.layout import DIFF, TIME
from tidelake.store.table_schema import data_fields


class EventForm(Form):
    """With a key, the newest row of each key is kept; without a key, equal rows are added up."""

    def __init__(self, entry: Entry) -> None:
        after = next(field for field in data_fields(entry.record_schema) if field.name == AFTER)
        self.fields = list(after.type)
        self.key = entry.key
        self.key_before = () if entry.before == "whole" else entry.key
        """The key's columns if `before` has only those, otherwise empty."""

    def contents(self, reads: Reads, at: int, columns: Sequence[str], where: Where | None = None) -> str:
        """Add up the rows that events add and remove; with a key, take the newest."""
        updates = self._updates(reads, -1, at)
        if not self.key:
            condition = "" if where is None else f" WHERE ({where.condition}\n)"
            return add_up(f"SELECT {names_of([*columns, DIFF])} FROM ({updates}){condition}", self.chosen(columns))
        newest = newest_rows(add_up(updates, self.fields, [TIME]), self.key, self.fields)
        return once_each(newest, columns, where)

    def row_updates(self, reads: Reads, after: int, through: int) -> str | None:
        """Return the updates of rows; None with a key."""
        return None if self.key else self._updates(reads, after, through)

    def states(self, reads: Reads, after: int, through: int, with_errors: bool) -> str:
        """Add up the updates of each touched key, and take the newest row at each time."""
        between = reads.keep(self._updates(reads, after, through))
        same = matched("r", "t", self.key)
        earlier = f"SELECT r.* FROM ({self._updates(reads, -1, after)}) r SEMI JOIN {between} t ON {same}"
        by_time = add_up(f"SELECT * FROM {between} UNION ALL {earlier}", self.fields, [TIME])
        return states_by_time(by_time, self.key, self.fields, after)

    def _updates(self, reads: Reads, after: int, through: int) -> str:
        """Turn events into updates of rows: `before` with the negated diff, and `after` with the diff.

        A `before` that has only the key is left out if `after` is a row with the same key.
        """
        rows = reads.rows([BEFORE, AFTER, TIME, DIFF], through, after)
        leaves = f"{BEFORE} IS NOT NULL"
        if self.key_before:
            pairs = (f"{BEFORE}.{quoted(name)} = {AFTER}.{quoted(name)}" for name in self.key_before)
            leaves += f" AND NOT coalesce({' AND '.join(pairs)}, false)"
        return (
            f"SELECT {self._row(BEFORE)}, {TIME}, -({DIFF}::HUGEINT) AS {DIFF} FROM ({rows}) WHERE {leaves} UNION ALL "
            f"SELECT {self._row(AFTER)}, {TIME}, {DIFF}::HUGEINT AS {DIFF} FROM ({rows}) WHERE {AFTER} IS NOT NULL"
        )

    def _row(self, name: str) -> str:
        return listed(f"{name}.{quoted(field.name)} AS {quoted(field.name)}" for field in self.fields)
