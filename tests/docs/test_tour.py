"""The commands in the README's tour, and in the pages that build on it, print what the text says."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.docs.blocks import PROJECT, Block, all_blocks, blocks_of
from tests.docs.shell import Ran, Shell, run_by_bash, write_file

pytestmark = pytest.mark.spark

README = list(blocks_of(PROJECT / "README.md"))
FURTHER = [
    block
    for name in ("topics.md", "recordings.md", "operations.md", "reference/python.md")
    for block in blocks_of(PROJECT / "docs" / name)
]
"""The blocks of the pages that build on what the tour has created."""


def test_the_tour_works_as_the_readme_says(
    folder: Path, one_session: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shell = Shell(folder, monkeypatch, capsys)
    check_what_the_readme_says(run_blocks(shell, README))
    check_what_the_pages_say(run_blocks(shell, FURTHER))


def run_blocks(shell: Shell, blocks: list[Block]) -> list[Ran]:
    """Run blocks in order; a block that must fail must also print the text in its comment."""
    ran: list[Ran] = []
    for block in blocks:
        if block.marker in ("not run", "own process"):
            continue
        if block.marker == "file":
            write_file(shell.folder, block)
        elif block.language == "python":
            exec(compile(block.text, str(block), "exec"), {"__name__": "page"})
            ran.append(Ran(block.text, 0, shell.capsys.readouterr().out))
        elif block.language == "bash":
            for command in block.commands():
                done = shell.run(command)
                assert (done.status != 0) == (block.marker == "fails"), f"{block}: {command}\n{done.output}"
                assert block.marker != "fails" or block.remark in done.output
                ran.append(done)
    return ran


def outputs(ran: list[Ran], part: str) -> list[str]:
    """The outputs of the commands that contain `part`."""
    printed = [result.output for result in ran if part in result.command]
    assert printed, part
    return printed


def check_what_the_readme_says(ran: list[Ran]) -> None:
    """Check the README's numbers and words against what was printed."""
    prose = " ".join((PROJECT / "README.md").read_text(encoding="utf-8").split())
    rows, copies = re.findall(r"([0-9,]+) rows stored, ([0-9,]+) copies dropped", outputs(ran, "tidelake ingest")[0])[0]
    assert f"{rows} rows are stored and {copies} copies were dropped" in prose
    people, first, second = outputs(ran, "tidelake status")
    assert "people: in order, definite in [0" in people
    assert outputs(ran, "tidelake path people")[0].strip().endswith("data/first/data/store/tables/people")
    assert "held back at time 40" in first
    assert "announced with different counts: 180 and 181" in first
    assert "in order" in second
    assert [re.findall(r"upper is (\d+)", output) for output in outputs(ran, "tidelake seal")] == [["40"], ["50"]]
    quarantined = outputs(ran, "tidelake quarantine")[0]
    assert quarantined.count("undecodable") + quarantined.count("bytes_left_over") == 3
    assert outputs(ran, "--as-of 10")[0] != outputs(ran, "--as-of 39")[0]


def check_what_the_pages_say(ran: list[Ran]) -> None:
    """Check the other pages' words against what was printed."""
    replayed = json.loads(outputs(ran, "tidelake replay")[0].splitlines()[-1])
    assert (replayed["frontier"], len(replayed["updates"])) == ([10], 4)
    assert outputs(ran, "tidelake replay --engine delta")[0].startswith(outputs(ran, "tidelake replay examples")[0])
    standing, taken = outputs(ran, "import tidelake")[0].splitlines()
    as_of, rows = taken.split()
    assert (standing, as_of) == ("0 50 in order", "10")
    assert int(rows) > 0


def report_of(output: str) -> dict[str, int]:
    """The part about `sales` of the job report in this output; the log lines around the report are ignored."""
    start = output.index('{\n  "job"')
    report, _ = json.JSONDecoder().raw_decode(output[start:])
    results: dict[str, int] = report["results"]["sales"]
    return results


@pytest.mark.sweep
@pytest.mark.parametrize("block", [block for block in all_blocks("bash") if block.marker == "own process"], ids=str)
def test_spark_submit_runs_a_job(folder: Path, block: Block) -> None:
    assert shutil.which("bash")
    (collections,) = [part for part in README if part.marker == "file"]
    write_file(folder, collections)
    generate = next(c for part in README for c in part.commands() if c.startswith(".venv/bin/tidelake generate sales"))
    assert run_by_bash(folder, generate).returncode == 0
    done = run_by_bash(folder, block.text)
    assert done.returncode == 0, done.stdout + done.stderr
    assert report_of(done.stdout)["updates_stored"] == 5000
