"""The README's commands, one after the other, in a folder of their own: what they print is what the README says."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.docs.blocks import PROJECT, Block, all_blocks, blocks_of
from tests.docs.shell import Ran, Shell, run_by_bash, write_file

pytestmark = pytest.mark.spark

README = list(blocks_of(PROJECT / "README.md"))


def test_the_tour_goes_as_the_readme_says(
    folder: Path, one_session: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shell = Shell(folder, monkeypatch, capsys)
    ran: list[Ran] = []
    for block in README:
        if block.marker in ("not run", "own process"):
            continue
        if block.marker == "file":
            write_file(folder, block)
        elif block.language == "python":
            exec(compile(block.text, str(block), "exec"), {"__name__": "readme"})
            ran.append(Ran(block.text, 0, capsys.readouterr().out))
        elif block.language == "bash":
            for command in block.commands():
                done = shell.run(command)
                assert (done.status != 0) == (block.marker == "fails"), f"{block}: {command}\n{done.output}"
                assert block.marker != "fails" or block.remark in done.output
                ran.append(done)
    check_what_the_readme_says(ran)


def check_what_the_readme_says(ran: list[Ran]) -> None:
    """Hold the README's numbers and words against what was printed."""

    def outputs(part: str) -> list[str]:
        found = [one.output for one in ran if part in one.command]
        assert found, part
        return found

    prose = " ".join((PROJECT / "README.md").read_text(encoding="utf-8").split())
    ingested = report_of(outputs("jobs.ingest")[0])
    stated = f"{ingested['updates_read']:,} updates were read and {ingested['updates_stored']:,} are stored"
    assert stated in prose
    first, second = outputs("tidelake status")
    assert "held back at time 40" in first
    assert "announced with 180 updates and with 181" in first
    assert "in order" in second
    assert [report_of(one)["upper"] for one in outputs("jobs.seal")] == [40, 50]
    assert (
        outputs("tidelake quarantine")[0].count("undecodable")
        + outputs("tidelake quarantine")[0].count("bytes_left_over")
        == 3
    )
    assert outputs("--as-of 10")[0] != outputs("--as-of 39")[0]
    replayed = json.loads(outputs("tidelake replay")[0].splitlines()[-1])
    assert (replayed["frontier"], len(replayed["updates"])) == ([10], 4)
    assert outputs("tidelake replay --engine delta")[0].startswith(outputs("tidelake replay examples")[0])
    since, upper, rows = outputs("snapshot(start_session()")[0].split()
    assert (since, upper) == ("0", "50")
    assert int(rows) > 0


def report_of(output: str) -> dict[str, int]:
    """What a job's report says of `orders`; the log lines around it are for people."""
    start = output.index('{\n  "job"')
    report, _ = json.JSONDecoder().raw_decode(output[start:])
    found: dict[str, int] = report["results"]["orders"]
    return found


@pytest.mark.parametrize("block", [one for one in all_blocks("bash") if one.marker == "own process"], ids=str)
def test_a_job_runs_by_spark_submit(folder: Path, block: Block) -> None:
    assert shutil.which("bash")
    (collections,) = [one for one in README if one.marker == "file"]
    write_file(folder, collections)
    generate = next(c for one in README for c in one.commands() if c.startswith(".venv/bin/tidelake generate orders"))
    assert run_by_bash(folder, generate).returncode == 0
    done = run_by_bash(folder, block.text)
    assert done.returncode == 0, done.stdout + done.stderr
    assert report_of(done.stdout)["updates_stored"] == 5000
