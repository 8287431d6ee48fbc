"""The contents AS OF the last sealed time as a query over `updates/`, in the SQL of another engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from tidelake.errors import NoView, UpperError
from tidelake.forms.events import EventForm
from tidelake.forms.form import Form
from tidelake.forms.keyed import KeyedForm
from tidelake.forms.positioned import PositionedForm
from tidelake.forms.sums import SumForm
from tidelake.plugins.envelope import form_of
from tidelake.read.asked import last_time
from tidelake.schema.change_events import AFTER, BEFORE
from tidelake.store.commit import OpenTable
from tidelake.store.entry import Collection
from tidelake.store.layout import DIFF, POSITION, TIME

Dialect = Literal["spark", "duckdb"]


@dataclass(frozen=True)
class _Engine:
    """How an engine's SQL quotes a name, and selects the stored rows of a table."""

    name: Dialect

    def column(self, name: str) -> str:
        """Quote a column's name."""
        mark = "`" if self.name == "spark" else '"'
        return mark + name.replace(mark, 2 * mark) + mark

    def rows(self, collection: Collection, table: OpenTable, as_of: int) -> str:
        """Return a query for the stored rows at or before a time, in the files of one version."""
        path = table.path
        if self.name == "spark":
            quoted = str(path).replace("`", "``")
            return f"SELECT * FROM delta.`{quoted}` VERSION AS OF {table.version} WHERE {TIME} <= {as_of}"
        files = [str(path / file.path) for file in table.files() if file.reach[0] <= as_of]
        listed = ",\n    ".join("'" + file.replace("'", "''") + "'" for file in files)
        source = f"read_parquet([\n    {listed}\n  ], union_by_name = true, hive_partitioning = false)"
        return f"SELECT * FROM {source} WHERE {TIME} <= {as_of}"


def view_sql(collection: Collection, dialect: Dialect) -> str:
    """Return a statement that creates a view of the contents AS OF the last sealed time.

    The view never shows another time: it reads the files of the version that was current when the statement was made,
    and fails once they are gone. DuckDB's view names these files, which stay for a day after they are merged. Spark's
    view names the version, and Delta finds its files in the log, which forgets a version once it is six hours old and
    two checkpoints follow it.

    Raises:
        UpperError: nothing is sealed yet.
        NoView: the contents cannot be expressed as such a query.

    Cost: the log of `updates/`.
    """
    table = OpenTable(collection.paths.updates)
    since, upper, closed = collection.readable_range(table)
    if not since or (upper == 0 and not closed):
        raise UpperError(0, [upper])
    as_of = max(last_time(upper, closed), 0)
    if dialect == "duckdb" and not any(file.reach[0] <= as_of for file in table.files()):
        fact = f"no row is stored at or before time {as_of}, and DuckDB cannot read an empty list"
        raise NoView(collection.name, fact)
    engine, form = _Engine(dialect), form_of(collection.entry, table)
    source = engine.rows(collection, table, as_of)
    names = [field.name for field in form.fields]
    body = _body(collection, form, engine.column, source, names)
    upper_text = "closed" if closed else str(upper)
    name = engine.column(collection.name)
    kind = "TEMPORARY VIEW" if dialect == "spark" else "VIEW"
    ends = "It fails a day after a merge has replaced one of its files"
    if dialect == "spark":
        ends = "Spark refuses it once the log has forgotten the version,\n-- which is at least six hours old by then"
    return (
        f"-- Contents of the Tidelake collection '{_one_line(collection.name)}' AS OF time {as_of} (upper is "
        f"{upper_text}).\n"
        f"-- The view reads the files of version {table.version} of updates/, and only the times up to {as_of}, so it\n"
        f"-- never shows another time. {ends}: print the view again.\n"
        f"CREATE OR REPLACE {kind} {name} AS\n{body};"
    )


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _body(collection: Collection, form: Form, quoted: Callable[[str], str], source: str, names: Sequence[str]) -> str:
    columns = ", ".join(quoted(name) for name in names)
    key = [quoted(name) for name in collection.entry.key]
    match form:
        case SumForm():
            return _added_up(source, columns)
        case KeyedForm():
            return _newest(source, columns, key, f"{TIME} DESC, {DIFF} > 0 DESC")
        case PositionedForm() if form.stores_errors or form.shape.barriers or form.shape.unavailable:
            kinds = {
                "keys in error": form.stores_errors,
                "truncates or repeated snapshots": form.shape.barriers,
                "unavailable values": form.shape.unavailable,
            }
            stored = ", ".join(kind for kind, is_stored in kinds.items() if is_stored)
            raise NoView(collection.name, f"the table has stored {stored}")
        case PositionedForm():
            return _newest(source, columns, key, f"{POSITION} DESC, {DIFF} > 0 DESC, {TIME} DESC")
        case EventForm() if form.before_is_whole:
            updates = " UNION ALL\n  ".join(
                f"SELECT {', '.join(f'{side}.{quoted(name)} AS {quoted(name)}' for name in names)}, {TIME}, "
                f"{sign}{DIFF} AS {DIFF} FROM events WHERE {side} IS NOT NULL"
                for side, sign in ((quoted(BEFORE), "-"), (quoted(AFTER), ""))
            )
            rows = f"SELECT * FROM (\n  WITH events AS ({source})\n  {updates})"
            if not key:
                return _added_up(rows, columns)
            by_time = (
                f"SELECT {columns}, {TIME}, sum({DIFF}) AS {DIFF} FROM ({rows}) AS updates "
                f"GROUP BY {columns}, {TIME} HAVING sum({DIFF}) <> 0"
            )
            return _newest(by_time, columns, key, f"{TIME} DESC, {DIFF} > 0 DESC")
    raise NoView(collection.name, "its rows do not state the whole row that an event replaced")


def _added_up(source: str, columns: str) -> str:
    return (
        f"SELECT {columns}, CAST(sum({DIFF}) AS BIGINT) AS {DIFF}\nFROM (\n  {source}\n) AS updates\n"
        f"GROUP BY {columns}\nHAVING sum({DIFF}) <> 0"
    )


def _newest(source: str, columns: str, key: Sequence[str], order: str) -> str:
    rank = f"row_number() OVER (PARTITION BY {', '.join(key)} ORDER BY {order}) AS _newest"
    return (
        f"SELECT {columns}\nFROM (\n  SELECT *, {rank}\n  FROM (\n  {source}\n  ) AS updates\n) AS ranked\n"
        f"WHERE _newest = 1 AND {DIFF} > 0"
    )
