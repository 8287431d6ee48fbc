"""`tidelake path` says, without a JVM, where the contents are and whether they can be read there."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from tests.cli.commands import call, invoke
from tests.report.published import configure, published, tear


def test_a_damaged_publication_is_still_found_and_its_problem_is_reported(tmp_path: Path) -> None:
    stored, table = published(tmp_path)
    config = ("--config", str(configure(tmp_path)))
    assert call("path", "prices", *config) == f"{table}\n"
    shutil.copytree(table.local, stored.collection.paths.current.local)  # an earlier version published it there
    tear(table)
    damaged = invoke("path", "prices", *config)
    assert (damaged.exit_code, damaged.stdout) == (1, f"{table}\n")
    problem = f"{table} is damaged: the log entry of version 0 is torn"
    assert damaged.stderr == f"error: {problem}\n"
    shown = invoke("path", "prices", "--json", *config)
    assert shown.exit_code == 1
    assert json.loads(shown.stdout)["publication"]["problem"] == problem
