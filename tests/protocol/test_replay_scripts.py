"""The replay scripts: each case has a title and then, line by line, what goes in and what comes out.

`u` is a batch of updates, `p lower upper time:count...` a progress statement, `restart` a restart, `raw` the line that
follows the word, and `bytes` a line in hexadecimal; a line that begins like JSON stands for itself. After `=` comes the
frontier, then each published update after `+`, and the kind and time of each error after `!`. The answers are derived
from the protocol by hand.
"""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.protocol.scripts import CASES, Case
from tidelake.protocol.json_values import identity, parse, to_text
from tidelake.protocol.replay import replay_file


def expected_output(text: str) -> str:
    """The output that a step expects, as canonical text."""
    frontier, *marked = re.split(r" (?=[+!] )", text)
    updates = [parse(part[2:]) for part in marked if part.startswith("+ ")]
    errors = [part[2:].split(" ", 1) for part in marked if part.startswith("! ")]
    return identity([parse(frontier), updates, [[kind, parse(time)] for kind, time in errors]])


@pytest.mark.parametrize("case", CASES, ids=[case.title for case in CASES])
def test_a_script_gets_the_answers_written_in_it(case: Case) -> None:
    outputs = list(replay_file([line for line, _ in case.steps], "script"))
    assert len(outputs) == len(case.steps)
    for number, (output, (line, answer)) in enumerate(zip(outputs, case.steps, strict=True), start=1):
        assert (output["file"], output["line"]) == ("script", number)
        errors = [[error["kind"], error["time"]] for error in output["errors"]]
        found = identity([output["frontier"], output["updates"], errors])
        assert found == expected_output(answer), f"line {number}, {line!r}: {to_text(output)}, not {answer}"


def test_there_are_at_least_110_cases_and_their_titles_are_unique() -> None:
    assert len(CASES) >= 110
    assert len({case.title for case in CASES}) == len(CASES)


@pytest.mark.parametrize("case", CASES, ids=[case.title for case in CASES])
def test_a_restart_after_every_line_changes_no_output(case: Case) -> None:
    plain = [line for line, _ in case.steps]
    stopped = [part for line in plain for part in (line, b'{"restart":{"remark":1}}')]
    expected = [strip(output) for output in replay_file(plain, "script")]
    assert [strip(output) for output in replay_file(stopped, "script")][::2] == expected


def strip(output: dict[str, Any]) -> str:
    return identity([output["frontier"], output["updates"], output["errors"]])
