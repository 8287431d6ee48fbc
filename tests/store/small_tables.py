"""A small table for tests that damage its log."""

from __future__ import annotations

import pyarrow as pa

from tidelake.integrity.verification import Damage, Verification, verify_table
from tidelake.storage.location import Location
from tidelake.store.commit import OpenTable, create_table
from tidelake.store.files import write_run
from tidelake.store.layout import new_run

SCHEMA = pa.schema([("_time", pa.int64()), ("_run", pa.string())])


def create(path: Location, commits: int = 3) -> Location:
    """Create a table whose `upper` is the number of its commits, each of which has added a run."""
    create_table(path, SCHEMA, {"upper": 0})
    for upper in range(1, commits + 1):
        commit(path, upper)
    return path


def commit(table: Location, upper: int) -> None:
    """Add a run with one row, and set `upper`."""
    opened = OpenTable(table)
    run = new_run("ingest", opened.seq)
    opened.commit({"upper": upper}, write_run(table, run, pa.table({"_time": [upper]})))


def contents(table: Location) -> tuple[object, ...]:
    """The state of the newest version."""
    opened = OpenTable(table)
    return opened.version, opened.seq, opened.value("upper"), sorted(file.run for file in opened.files())


def damages(table: Location) -> list[Damage]:
    """The findings of a verification."""
    found = Verification()
    verify_table(table, False, found)
    return found.damages
