"""What is reported about publications that are damaged or that another engine has changed. No JVM is started."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.cli.commands import invoke
from tests.expectations.reports import STATUS
from tests.report.published import configure, published, tear
from tidelake import open_lake
from tidelake.errors import NotPublished
from tidelake.read.publication import contents_rows, publication_of
from tidelake.read.status import CollectionStatus
from tidelake.report.pages import render_collection
from tidelake.report.problems import problems_of


def test_a_table_that_cannot_be_opened_is_a_problem_of_the_publication_alone(tmp_path: Path) -> None:
    stored, table = published(tmp_path)
    assert contents_rows(stored.collection) == (2, 4)
    shutil.rmtree(table.local)
    table.local.symlink_to(table.local)  # a loop
    found = publication_of(stored.collection)
    assert found is not None and found.shown is None
    assert found.problem is not None and found.problem.startswith(f"{table} cannot be read: ")
    status = open_lake(configure(tmp_path)).status()["prices"]
    assert isinstance(status, CollectionStatus) and status.publication is not None
    assert status.publication["problem"] == found.problem


def test_status_and_the_page_say_that_the_published_table_is_damaged(tmp_path: Path) -> None:
    stored, table = published(tmp_path)
    config = ("--config", str(configure(tmp_path)))
    assert "are a plain Delta table at" in render_collection(stored.facts(), [], False)
    tear(table)
    problem = f"{table} is damaged: the log entry of version 0 is torn"
    status = invoke("status", *config)
    assert status.exit_code == 0  # the collection itself is not affected
    assert f"prices: published table is damaged: {problem}\n" in status.stdout
    assert status.stdout.count(problem) == 1
    assert "run `tidelake current prices`" in status.stdout
    page = render_collection(stored.facts(), [], False)
    assert "are a plain Delta table at" not in page
    assert f"but cannot be read there: {problem}." in page
    state = open_lake(configure(tmp_path)).status()["prices"]
    assert isinstance(state, CollectionStatus)
    (found,) = problems_of(state, None)
    assert (found.level, found.commands) == ("warning", ("tidelake path prices", "tidelake current prices"))
    assert problem in found.text


def test_a_table_that_another_engine_wrote_to_is_named_with_the_engine_and_what_happens_next(tmp_path: Path) -> None:
    stored, table = published(tmp_path)
    assert "are a plain Delta table at" in render_collection(stored.facts(), [], False)
    config = ("--config", str(configure(tmp_path)))
    write_deltalake(str(table), pa.table({"id": [9], "_diff": [1]}), mode="append")
    said = invoke("path", "prices", *config)
    assert (said.exit_code, said.stdout) == (1, f"{table}\n")
    shown = json.loads(invoke("path", "prices", "--json", *config).stdout)["publication"]
    assert shown["changed_by"].startswith("delta-rs") and shown["as_of"] is None
    problem = f"{shown['changed_by']} has written to {table}; the next `tidelake current prices` writes all rows again"
    assert said.stderr == f"error: {problem}\n" and shown["problem"] == problem
    status = invoke("status", *config)
    assert status.exit_code == 0  # the collection itself is not affected
    assert status.stdout.count(f"prices: published table was changed: {problem}\n") == 1
    assert "move the folder" not in status.stdout
    state = open_lake(configure(tmp_path)).status()["prices"]
    assert isinstance(state, CollectionStatus) and state.verdict.severity == "warning"
    (found,) = problems_of(state, None)
    assert (found.level, found.commands) == ("warning", ("tidelake path prices", "tidelake current prices"))
    assert problem in found.text and "Make its folder" not in found.text
    assert f"but are no longer there: {problem}." in render_collection(stored.facts(), [], False)
    DeltaTable(str(table)).restore(0)  # the rows are right again, but Tidelake did not publish them
    assert problem in invoke("path", "prices", *config).stderr


def test_a_table_that_another_engine_gave_properties_shows_the_same_contents(tmp_path: Path) -> None:
    stored, table = published(tmp_path)
    DeltaTable(str(table)).alter.set_table_properties({"delta.appendOnly": "false"})
    found = publication_of(stored.collection)
    assert found is not None and found.shown is not None and (found.problem, found.changed_by) == (None, None)


def test_a_damaged_publication_is_no_worse_than_what_stops_the_collection() -> None:
    publication = {"path": "t", "problem": "t is damaged"}
    decided = replace(STATUS, publication=publication, contradictions=[{"time": 9, "detail": "x", "decided": True}])
    assert (decided.state, decided.verdict.severity) == ("published table is damaged", "warning")
    assert replace(decided, damaged="a file is missing").state == "DAMAGED below upper"
    assert replace(STATUS, publication=publication | {"problem": None}).state == "in order"


@pytest.mark.parametrize("counts", [[], [9]])
def test_a_command_in_a_message_exists_in_an_installed_wheel(counts: list[int]) -> None:
    assert "run `tidelake current prices` once" in NotPublished("prices").hint
    noted = {"time": 9, "detail": "x", "decided": True}
    (problem,) = problems_of(replace(STATUS, contradictions=[noted], decided_counts=counts), None)
    assert problem.commands[0] == "tidelake seal prices"
