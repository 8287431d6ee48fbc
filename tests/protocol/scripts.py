"""Reads scripts of commands and answers, and turns those of `replay` into test cases."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

SCRIPTS = Path(__file__).parent.parent / "scripts"


def read_blocks(folder: str) -> Iterator[tuple[str, list[str]]]:
    """The title and lines of each case in the scripts of a folder.

    A file begins with `## ` and a sentence that says what it holds. A case begins with `# ` and its title.
    """
    for path in sorted((SCRIPTS / folder).glob("*.txt")):
        head, *blocks = re.split(r"\n\n+", path.read_text(encoding="utf-8").strip())
        for block in blocks if head.startswith("## ") else [head, *blocks]:
            title, *lines = block.split("\n")
            assert title.startswith("# "), f"{path.name}: a case without a title: {title}"
            yield f"{path.stem}: {title[2:]}", lines


class Case(NamedTuple):
    """One case of `replay`: a title, and what goes in and comes out."""

    title: str
    steps: list[tuple[bytes, str]]


def input_line(text: str) -> bytes:
    """The input line for one step of a script."""
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
    """Split JSON values that are separated by spaces or colons, and keep their text."""
    values, depth, quoted, start = [], 0, False, None
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
            values.append(text[start:position])
            start = None
    return values


def read_cases() -> Iterator[Case]:
    """The cases of `replay`."""
    for title, lines in read_blocks("replay"):
        assert len(lines) % 2 == 0, f"{title}: a line without its answer"
        steps = []
        for line, answer in zip(lines[::2], lines[1::2], strict=True):
            assert answer.startswith("= "), f"{title}: {answer}"
            steps.append((input_line(line), answer[2:]))
        yield Case(title, steps)


CASES = list(read_cases())
