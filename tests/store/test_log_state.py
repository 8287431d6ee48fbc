"""A log as Tidelake reads it and as delta-rs reads it: the values, files and schema of each version are the same."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelake.errors import Conflict, DamagedTable
from tidelake.storage.location import Location, locate
from tidelake.store.commit import OpenTable, create_table
from tidelake.store.files import RunFile, write_run
from tidelake.store.layout import RUN
from tidelake.store.table_log import acknowledge_newest_checkpoint, load_table

SCHEMA = pa.schema([("_time", pa.int64()), ("a b", pa.int64()), ("_run", pa.string())])
Read = tuple[dict[str, int | None], list[tuple[object, ...]], pa.Schema]
"""Values by name, files, and the schema."""
NAMES = ("upper", "offset/a topic:é/0", "minted")

step = st.one_of(
    st.tuples(st.just("set"), st.sampled_from(NAMES), st.integers(0, 3)),
    st.tuples(st.just("add"), st.integers(1, 3), st.integers(-5, 5)),
    st.tuples(st.just("replace"), st.integers(0, 5), st.integers(0, 5)),
    st.tuples(st.just("column"), st.just(0), st.just(0)),
    st.tuples(st.just("checkpoint"), st.just(0), st.just(0)),
)


def written(opened: OpenTable, run: str, rows: int, first: int) -> list[RunFile]:
    """Write a run whose columns are those of the table."""
    values = [{"_time": first + number, "a b": number} for number in range(rows)]
    return write_run(opened.path, run, pa.Table.from_pylist(values, opened.schema()))


def read_by_delta_rs(
    table: Location, version: int
) -> tuple[dict[str, int | None], list[tuple[object, ...]], pa.Schema]:
    """The values, the files and the schema of a version, as delta-rs reads them."""
    delta = DeltaTable(str(table), version=version)
    actions = pa.table(delta.get_add_actions(flatten=True)).to_pylist()
    files = [
        (
            action["path"],
            action[f"partition.{RUN}"],
            action["num_records"],
            action["size_bytes"],
            action["min._time"],
            action["max._time"],
        )
        for action in actions
    ]
    values = {name: delta.transaction_version(name) for name in (*NAMES, "seq", "format", "never")}
    return values, sorted(files), pa.schema(delta.schema().to_arrow())


def read_by_tidelake(opened: OpenTable) -> Read:
    """The values, the files and the schema of an open table, as Tidelake reads them."""
    files = [(f.path, f.run, f.rows, f.bytes, f.time_min, f.time_max) for f in opened.files()]
    return {name: opened.value(name) for name in (*NAMES, "seq", "format", "never")}, sorted(files), opened.schema()


@settings(max_examples=25, deadline=None)
@given(st.lists(step, min_size=1, max_size=12))
def test_every_version_is_read_as_delta_rs_reads_it(steps: list[tuple[str, object, int]]) -> None:
    with TemporaryDirectory() as folder:
        table = locate(Path(folder)) / "a table"
        create_table(table, SCHEMA, {"upper": 0})
        for number, (kind, what, amount) in enumerate(steps):
            opened = OpenTable(table)
            runs = sorted({file.run for file in opened.files()})
            match kind:
                case "set":
                    opened.commit({str(what): (opened.value(str(what)) or 0) + amount})
                case "add":
                    opened.commit({}, written(opened, f"run-{number}", int(str(what)), amount))
                case "replace" if runs:
                    opened.commit({}, written(opened, f"run-{number}", amount, 0), runs[: int(str(what)) or 1])
                case "column":
                    opened.add_columns([pa.field(f"c{number}", pa.string())])
                case "checkpoint":
                    load_table(table).create_checkpoint()
                    acknowledge_newest_checkpoint(table)
            assert read_by_tidelake(OpenTable(table)) == read_by_delta_rs(table, OpenTable(table).version)
        newest = OpenTable(table)
        for version in range(newest.version):
            earlier = newest.at(version)
            assert earlier is not None
            assert read_by_tidelake(earlier) == read_by_delta_rs(table, version)


def test_a_commit_conflicts_if_the_log_has_a_later_version(tmp_path: Path) -> None:
    table = locate(tmp_path) / "t"
    create_table(table, SCHEMA)
    stale, winner = OpenTable(table), OpenTable(table)
    winner.commit({"upper": 1})
    with pytest.raises(Conflict):
        stale.commit({"upper": 2})
    assert OpenTable(table).value("upper") == 1


def test_a_folder_without_a_log_is_not_a_table(tmp_path: Path) -> None:
    table = locate(tmp_path) / "t"
    with pytest.raises(DamagedTable, match="there is no table"):
        OpenTable(table)


def test_a_merge_removes_what_it_has_verified_even_if_the_checkpoint_has_changed_since(tmp_path: Path) -> None:
    table = locate(tmp_path) / "t"
    create_table(table, SCHEMA)
    OpenTable(table).commit({}, written(OpenTable(table), "old", 2, 0))
    load_table(table).create_checkpoint()
    acknowledge_newest_checkpoint(table)
    planned = OpenTable(table)
    (checkpoint,) = (table.local / "_delta_log").glob("*.checkpoint.parquet")
    rows = pq.read_table(checkpoint)
    pq.write_table(rows.filter(pc.is_null(rows["add"])), checkpoint)
    planned.commit({}, written(planned, "new", 2, 0), ["old"])
    assert [file.run for file in OpenTable(table).files()] == ["new"], "the checkpoint was set aside"
    assert not checkpoint.exists()
