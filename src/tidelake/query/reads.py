"""Reads one version of a table: its files, and the stored rows in a range of times as SQL."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, count
from typing import Any

import numpy as np
import pyarrow as pa

from tidelake.protocol.order import INT64_MAX
from tidelake.query.engine import Engine
from tidelake.query.names import names_of, quoted
from tidelake.query.stored_rows import StoredRows
from tidelake.query.verified_files import ROW_NUMBER, VerifiedFiles, is_readable, may_be_read, path_of
from tidelake.store.base import split_base
from tidelake.store.commit import OpenTable
from tidelake.store.entry import Collection
from tidelake.store.files import RunFile, read_footer
from tidelake.store.layout import DIFF, RUN, TIME


@dataclass(frozen=True)
class Where:
    """An accepted predicate, and the columns that it needs."""

    condition: str
    columns: tuple[str, ...]


@dataclass
class Reads:
    """The reads of one collection by one engine."""

    engine: Engine
    collection: Collection
    table: OpenTable
    files: set[RunFile] = field(default_factory=set)
    """The files that may be opened."""
    _kept: count[int] = field(default_factory=count)

    def schema(self) -> pa.Schema:
        """Return the stored columns that the entry knows, without `_run`."""
        return pa.schema([each for each in self.collection.updates_schema() if each.name != RUN])

    def live(self, after: int, through: int) -> list[RunFile]:
        """Return the files that may have a row after a time, up to and including another."""
        return [file for file in self.table.files() if file.reach[0] <= through and file.reach[1] > after]

    def divided(self, through: int) -> tuple[list[RunFile], list[RunFile]]:
        """Split the files with rows up to a time into the base and all others; see `store.base`."""
        files = self.live(-1, through)
        # A column that was added after the entry was read is unknown here, so distinct rows of the base may seem equal.
        has_all_columns = len(self.collection.updates_schema()) == len(self.table.schema())
        return split_base(files) if has_all_columns else ([], files)

    def diffs(self, files: Sequence[RunFile]) -> tuple[int, int] | None:
        """Return the least and the greatest diff that files can have; None if their footers do not state them."""
        bounds: list[Any] = []
        for file in files:
            footer = read_footer(self.table.path, file)
            for number in range(footer.num_row_groups):
                group = footer.row_group(number)
                chunks = (group.column(place) for place in range(footer.num_columns))
                bounds.extend(chunk.statistics for chunk in chunks if chunk.path_in_schema == DIFF)
        if not bounds or any(bound is None or not bound.has_min_max for bound in bounds):
            return None
        return min(bound.min for bound in bounds), max(bound.max for bound in bounds)

    def rows(
        self, columns: Sequence[str], through: int, after: int = -1, files: Sequence[RunFile] | None = None
    ) -> str:
        """Return a query for the rows after a time, up to and including another, with these stored columns.

        Args:
            columns: the columns, each once.
            through: the last time.
            after: the last time before the rows.
            files: the files to read; by default all that may have such a row.
        """
        chosen = self.live(after, through) if files is None else files
        schema, where, within = self._plan(columns, through, after, chosen)
        relations = []
        large = {file: None for file in chosen if is_readable(self.table.path, file, schema)}
        if large:
            relations.append(self.engine.add_files(VerifiedFiles(self.table.path, list(large), schema.names)))
        others = [file for file in chosen if file not in large]
        if others or not large:
            relations.append(self.engine.add_rows(StoredRows(self.table.path, others, schema, within)))
        return " UNION ALL ".join(f"SELECT {names_of(columns)} FROM {relation}{where}" for relation in relations)

    def numbered(self, columns: Sequence[str], through: int, files: Sequence[RunFile]) -> str:
        """Return a query for the few rows of these files up to a time, with these columns and `_number`.

        `_number` is different in each row.

        Cost: if DuckDB cannot read a file itself, all rows are read into memory.
        """
        schema, where, within = self._plan(columns, through, -1, files)
        taken, table = names_of(columns), self.table.path
        numbers_itself = all(name.lower() != ROW_NUMBER for name in self.schema().names)
        if numbers_itself and all(is_readable(table, file, schema) for file in files):
            firsts = accumulate((file.rows for file in files), initial=0)
            parts = []
            for file, first in zip(files, firsts, strict=False):
                relation = self.engine.add_files(VerifiedFiles(table, [file], schema.names, with_row_number=True))
                parts.append(f"SELECT {taken}, {first} + {ROW_NUMBER} AS _number FROM {relation}{where}")
            return " UNION ALL ".join(parts)
        rows = StoredRows(table, files, schema, within).read_all()
        name = f"_numbered_{self.collection.entry.id}_{next(self._kept)}"
        self.engine.add_table(name, rows.append_column("_number", pa.array(np.arange(rows.num_rows))))
        return f"SELECT {taken}, _number FROM {quoted(name)}{where}"

    def _plan(
        self, columns: Sequence[str], through: int, after: int, files: Sequence[RunFile]
    ) -> tuple[pa.Schema, str, range]:
        """Add files to `self.files`; return the columns to read, the condition on the time, and the range of times."""
        self.files.update(files)
        bounds = []
        if any(file.reach[1] > through for file in files):
            bounds.append(f"{TIME} <= {through}")
        if any(file.reach[0] <= after for file in files):
            bounds.append(f"{TIME} > {after}")
        needed = list(dict.fromkeys([*columns, TIME])) if bounds else list(columns)
        stored = self.schema()
        where = f" WHERE {' AND '.join(bounds)}" if bounds else ""
        within = range(after + 1, min(through, INT64_MAX) + 1)
        return pa.schema([stored.field(name) for name in needed]), where, within

    def keep(self, query: str) -> str:
        """Run a query with few rows, keep them, and return the name of the relation."""
        name = f"_kept_{self.collection.entry.id}_{next(self._kept)}"
        self.engine.run(f"CREATE TEMP TABLE {quoted(name)} AS {query}")
        return quoted(name)


def engine_for(tables: Iterable[OpenTable]) -> Engine:
    """Return a database that may read the files of these tables.

    Cost: the log of each table.
    """
    return Engine(
        [path_of(table.path, file) for table in tables for file in table.files() if may_be_read(table.path, file)]
    )
