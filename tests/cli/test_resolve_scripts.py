"""The scripts of `resolve`: each case has a title and its own lake, and each command is followed by its answer.

`lake FAMILY KEY=VALUE…` chooses the collection's settings and comes first; without it the family is `plain`.
`u ID:PRICE TIME DIFF …` sends updates, `p LOWER UPPER TIME:COUNT…` a progress statement, and `bytes` a message in
hexadecimal; `lose N` skips N offsets. `run` runs the jobs `ingest` and `seal`, and answers with `upper` or with what
stopped them; `compare` compares late statements with the table; `contents TIME` shows what a reader sees; `state`
shows the state in the output of `status --json`, and what the collection is waiting for. Everything else is a command
of `tidelake`, and the answer is all that it prints, with ` / ` between lines.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from tests.lakes.lake import NAME, Lake, progress, updates
from tests.protocol.scripts import read_blocks
from tests.sweeps import some_of_each_kind
from tidelake.cli.app import app
from tidelake.errors import TidelakeError, TopicGap
from tidelake.validate.late import compare_late

pytestmark = pytest.mark.spark


class Case(NamedTuple):
    title: str
    steps: list[tuple[str, str]]


def read_cases() -> Iterator[Case]:
    for title, lines in read_blocks("resolve"):
        steps: list[tuple[str, str]] = []
        for line in lines:
            if line.startswith("= "):
                steps[-1] = (steps[-1][0], line[2:])
            else:
                steps.append((line, ""))
        yield Case(title, steps)


class Stage:
    """The lake of a case, and the commands that change or show it."""

    def __init__(self, root: Path, spark: SparkSession) -> None:
        self.root, self.spark = root, spark
        self.lake: Lake | None = None

    def do(self, line: str) -> str:
        """Run the command on a line and return its answer."""
        word, _, rest = line.partition(" ")
        if word == "lake":
            family, *settings = rest.split()
            more: dict[str, Any] = dict(setting.split("=") for setting in settings)
            self.lake = Lake(self.root, self.spark, family, **more)
            return ""
        lake = self.lake = self.lake or Lake(self.root, self.spark)
        match word:
            case "u":
                words = rest.split()
                triples = zip(words[::3], words[1::3], words[2::3], strict=True)
                lake.send(updates(*((_data(data), int(time), int(diff)) for data, time, diff in triples)))
            case "p":
                lower, upper, *counts = rest.split()
                lake.send(progress(json.loads(lower), json.loads(upper), dict(map(_count, counts))))
            case "bytes":
                lake.send(bytes.fromhex(rest))
            case "lose":
                lake.offset += int(rest)
            case "run":
                return self._run(lake)
            case "compare":
                compare_late(self.spark, lake.collection)
            case "contents":
                contents = lake.contents(int(rest))
                return " ".join(f"{row}:{price} {diff:+}" for (row, price), diff in sorted(contents.items()))
            case _:
                return call(*shlex.split(line), "--config", str(lake.file))
        return ""

    def _run(self, lake: Lake) -> str:
        try:
            return f"upper {lake.run().upper}"
        except TopicGap as gap:
            return str(gap).replace("\n", " / ")


def _data(text: str) -> tuple[int, int | None]:
    row, _, price = text.partition(":")
    return int(row), int(price) if price else None


def _count(text: str) -> tuple[int, int]:
    time, count = text.split(":")
    return int(time), int(count)


def call(*words: str) -> str:
    """All that a command prints, as a user sees it."""
    if words[0] == "state":
        text = CliRunner().invoke(app, ["status", "--json", *words[1:]]).stdout
        shown: dict[str, Any] = json.loads(text)["collections"][NAME]
        return str(shown["state"]) if shown["waits_for"] is None else f"{shown['state']} / {shown['waits_for']}"
    result = CliRunner().invoke(app, list(words))
    lines = [line.strip() for line in result.output.splitlines()]
    if isinstance(result.exception, TidelakeError):
        first, *others = str(result.exception).splitlines()
        lines += [f"error: {first}", *others]
    elif result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return " / ".join(line for line in lines if line)


CASES = list(read_cases())


@pytest.mark.parametrize("case", some_of_each_kind(CASES, every=None))
def test_a_script_gets_the_answers_written_in_it(case: Case, tmp_path: Path, spark: SparkSession) -> None:
    stage = Stage(tmp_path, spark)
    for number, (line, answer) in enumerate(case.steps, start=1):
        assert stage.do(line) == answer, f"step {number}: {line}"


def test_every_kind_of_decision_is_in_a_script_and_titles_are_unique() -> None:
    lines = [line for case in CASES for line, _ in case.steps]
    for kind in ("count", "discard", "gap", "quarantine", "withdraw", "list"):
        assert any(line.startswith(f"resolve {kind} ") for line in lines), kind
    assert len({case.title for case in CASES}) == len(CASES)
