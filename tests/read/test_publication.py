"""Publications that cannot be read, and what is reported about them; without a JVM."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

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
