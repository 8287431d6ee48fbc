"""What is said of a publication that cannot be read, without a JVM."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.report.published import configure, published
from tidelake import open_lake
from tidelake.read.publication import contents_rows, publication_of
from tidelake.read.status import CollectionStatus


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
