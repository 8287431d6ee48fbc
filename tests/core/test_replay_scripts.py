"""The replay scripts: each case is a title, and line by line what goes in and what comes out.

`u` is a batch of updates, `p lower upper time:count...` a statement, `restart` a restart, `raw` a line as it is,
`bytes` a line in hexadecimal; a line that begins like JSON stands for itself. After `=` comes the frontier, then each
published update after `+` and each error, kind and time, after `!`. All of it is worked out by hand from the protocol.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tidelake.json_values import identity, parse, to_text
from tidelake.replay import replay_file

SCRIPTS = Path(__file__).parent.parent / "scripts" / "replay"


class Case(NamedTuple):
    title: str
    steps: list[tuple[bytes, str]]


def input_line(text: str) -> bytes:
    """The line that a step of a script feeds in."""
    word, _, rest = text.partition(" ")
    if word == "u":
        return b'{"updates":[' + ",".join(split_values(rest)).encode() + b"]}"
    if word == "p":
        lower, upper, *counts = split_values(rest)
        pairs = [f"[{time},{count}]" for time, count in zip(counts[::2], counts[1::2], strict=True)]
        return f'{{"progress":{{"lower":{lower},"upper":{upper},"counts":[{",".join(pairs)}]}}}}'.encode()
    if word == "restart":
        return b'{"restart":{}}'
    if word == "bytes":
        return bytes.fromhex(rest)
    return (rest if word == "raw" else text).encode()


def split_values(text: str) -> list[str]:
    """JSON values that stand in a row, apart by spaces or colons outside of them, as they are written."""
    found, depth, quoted, start = [], 0, False, None
    for position, character in enumerate(text + " "):
        if start is None and character not in " :":
            start = position
        if start is None:
            continue
        if character == '"' and text[position - 1 : position] != "\\":
            quoted = not quoted
        if quoted:
            continue
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(character, 0)
        if depth == 0 and character in " :":
            found.append(text[start:position])
            start = None
    return found


def expected_output(text: str) -> str:
    """The output that a step asks for, as one canonical text."""
    frontier, *marked = re.split(r" (?=[+!] )", text)
    updates = [parse(part[2:]) for part in marked if part.startswith("+ ")]
    errors = [part[2:].split(" ", 1) for part in marked if part.startswith("! ")]
    return identity([parse(frontier), updates, [[kind, parse(time)] for kind, time in errors]])


def read_cases() -> Iterator[Case]:
    for path in sorted(SCRIPTS.glob("*.txt")):
        for block in re.split(r"\n\n+", path.read_text(encoding="utf-8").strip()):
            title, *lines = block.split("\n")
            assert title.startswith("# "), f"{path.name}: a case without a title: {title}"
            assert len(lines) % 2 == 0, f"{path.name}: {title}: a line without its answer"
            steps = []
            for line, answer in zip(lines[::2], lines[1::2], strict=True):
                assert answer.startswith("= "), f"{path.name}: {title}: {answer}"
                steps.append((input_line(line), answer[2:]))
            yield Case(f"{path.stem}: {title[2:]}", steps)


CASES = list(read_cases())


@pytest.mark.parametrize("case", CASES, ids=[case.title for case in CASES])
def test_a_script_replays_as_it_is_written(case):
    outputs = list(replay_file([line for line, _ in case.steps], "script"))
    assert len(outputs) == len(case.steps)
    for number, (output, (line, answer)) in enumerate(zip(outputs, case.steps, strict=True), start=1):
        assert (output["file"], output["line"]) == ("script", number)
        errors = [[error["kind"], error["time"]] for error in output["errors"]]
        found = identity([output["frontier"], output["updates"], errors])
        assert found == expected_output(answer), f"line {number}, {line!r}: {to_text(output)}, not {answer}"


def test_there_are_more_than_a_hundred_scripts_and_no_title_is_there_twice():
    assert len(CASES) >= 110
    assert len({case.title for case in CASES}) == len(CASES)


@pytest.mark.parametrize("case", CASES, ids=[case.title for case in CASES])
def test_a_restart_after_every_line_changes_no_output(case):
    plain = [line for line, _ in case.steps]
    stopped = [part for line in plain for part in (line, b'{"restart":{"remark":1}}')]
    expected = [strip(output) for output in replay_file(plain, "script")]
    assert [strip(output) for output in replay_file(stopped, "script")][::2] == expected


def strip(output: dict[str, Any]) -> str:
    return identity([output["frontier"], output["updates"], output["errors"]])
