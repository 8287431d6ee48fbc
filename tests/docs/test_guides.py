"""The guides work as written: their files, commands and outputs are real."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.docs.blocks import PROJECT, blocks_of
from tests.docs.shell import Shell, write_file
from tests.services.object_store import ObjectStore
from tests.sweeps import swept

pytestmark = pytest.mark.spark

TOKEN = re.compile(r"[0-9a-f]{32}\.[0-9a-f]{16}\.[0-9a-f]{32}")
_NAMES = (
    *("append-only", "debezium", "following-changes", "holding-a-time", "keeping-and-forgetting"),
    *("moving-a-collection", "publishing", "reading-at-a-time", "several-tables", "transactions", "upsert"),
    "thousands-of-tables",
)
GUIDES = [PROJECT / "docs" / "guides" / f"{name}.md" for name in _NAMES]
_EVERYDAY = [page for page in GUIDES if page.stem in ("debezium", "publishing", "several-tables")]


def holds(printed: str, lines: str) -> bool:
    """Whether these lines were printed in this order; `…` matches anything, and other text may surround a line."""
    patterns = [re.escape(line).replace(r"\ …\ ", ".*").replace("…", ".*") for line in lines.splitlines()]
    pattern = r".*\n(?:.*\n)*?.*".join(patterns)
    return re.search(pattern, re.sub(r"[ │]+", " ", printed)) is not None


@pytest.mark.parametrize("page", swept(GUIDES, _EVERYDAY, ids=lambda page: page.stem))
def test_a_guide_works_as_written(
    page: Path,
    folder: Path,
    one_session: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    check_guide(page, Shell(folder, monkeypatch, capsys))


@pytest.mark.services
def test_the_guide_to_s3_works_as_written(
    folder: Path,
    one_session: SparkSession,
    object_store: ObjectStore,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    object_store.create_bucket("lake")
    check_guide(PROJECT / "docs" / "guides" / "s3.md", Shell(folder, monkeypatch, capsys))


def check_guide(page: Path, shell: Shell) -> None:
    """Write the files of a guide, run its commands, and compare the output."""
    folder, printed, token = shell.folder, "", ""
    for block in blocks_of(page):
        if block.marker == "not run":
            continue
        if block.marker == "file":
            write_file(folder, block)
        elif block.language == "python":
            exec(compile(block.text, str(block), "exec"), {"__name__": "guide"})
        elif block.language == "output":
            assert holds(printed, block.text), f"{block}:\n{printed}"
        elif block.language == "bash":
            printed = ""
            for command in block.commands():
                if command.startswith("FIRST="):
                    continue
                if "$FIRST" in command:
                    command = command.replace("$FIRST", first_time(shell, page))
                is_asked = command.startswith("TOKEN=$(")
                command = command.removeprefix("TOKEN=$(").removesuffix(")") if is_asked else command
                done = shell.run(command.replace("$TOKEN", token))
                token = TOKEN.findall(done.output)[0] if is_asked else token
                assert (done.status != 0) == (block.marker == "fails"), f"{block}: {command}\n{done.output}"
                assert block.marker != "fails" or block.remark in done.output
                printed += done.output


def first_time(shell: Shell, page: Path) -> str:
    """Return the first of the times that the guide's `tidelake times` lists; a reader would type it in."""
    command = next(line for block in blocks_of(page) for line in block.commands() if "tidelake times" in line)
    done = shell.run(f"{command} --json")
    times = json.loads(done.output)["rows"]
    return str(times[0]["time"])
