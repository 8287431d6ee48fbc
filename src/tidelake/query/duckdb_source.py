"""Reads the updates of a subscription with DuckDB, in this process."""

from __future__ import annotations

import pyarrow as pa

from tidelake.query.answer import Answer
from tidelake.query.contents import contents, updates
from tidelake.query.forms import form_of
from tidelake.query.names import names_of
from tidelake.read.source import Selection
from tidelake.store.commit import OpenTable
from tidelake.store.entry import Collection
from tidelake.store.layout import DIFF, TIME


class DuckDBSource:
    """See `Source`. Each answer keeps its database open until `release`."""

    def __init__(self) -> None:
        self._last: Answer | None = None

    @classmethod
    def of(cls, collection: Collection) -> DuckDBSource:
        """Return a source for a collection.

        Raises:
            EngineRefused: the envelope is from another package.
        """
        form_of(collection, OpenTable(collection.paths.updates))
        return cls()

    def contents(self, collection: Collection, at: int, selection: Selection) -> Answer:
        """Read the footers; the rows are read when they are requested."""
        rows = contents(collection, at, **selection.as_arguments()).rows
        timed = f"SELECT {names_of(rows.columns[:-1])}, {at}::BIGINT AS {TIME}, {DIFF} FROM ({rows.query})"
        return self._keep(rows, timed, "")

    def changes(
        self, collection: Collection, table: OpenTable, after: int, through: int, selection: Selection, in_order: bool
    ) -> Answer:
        """With a key, read the rows of the keys that changed; without one, rows are read when they are requested."""
        rows = updates(collection, after, through, **selection.as_arguments(), table=table).rows
        return self._keep(rows, rows.query, TIME if in_order else "")

    def _keep(self, rows: Answer, query: str, order: str) -> Answer:
        self.release()
        names = [*(name for name in rows.columns if name not in (TIME, DIFF)), TIME, DIFF]
        known = {field.name: field for field in rows.schema} | {TIME: pa.field(TIME, pa.int64())}
        schema = pa.schema([known[name] for name in names])
        self._last = Answer(
            rows.engine, f"SELECT {names_of(names)} FROM ({query})", schema, rows.name, rows.where, order
        )
        return self._last

    def release(self) -> None:
        """Close the database of the last answer."""
        if self._last is not None:
            self._last.close()
            self._last = None
