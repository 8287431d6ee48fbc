"""The fenced blocks of a Markdown page; a comment above a block says how the block is treated.

`<!-- not run: REASON -->`        the block is only shown
`<!-- own process: REASON -->`    a shell of its own runs the block, not the test's process
`<!-- fails: TEXT -->`            the block must fail and print TEXT
`<!-- file: PATH -->`             the block is the content of that file
`<!-- settings: REMARK -->`       the block is a `collections.yaml`
`<!-- spark: REMARK -->`          the block needs the test's Spark session
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).parents[2]
PAGES = sorted(
    [PROJECT / "README.md", PROJECT / "CHANGELOG.md", PROJECT / "CONTRIBUTING.md", *(PROJECT / "docs").rglob("*.md")]
)
MARKERS = frozenset({"not run", "own process", "fails", "file", "settings", "spark"})

_MARKER = re.compile(r"<!-- ([a-z ]+): (.+) -->")


@dataclass(frozen=True)
class Block:
    """A fenced block; `line` is where its fence opens, and `marker` is empty if there is no comment above it."""

    page: Path
    line: int
    language: str
    text: str
    marker: str
    remark: str

    def __str__(self) -> str:
        """The page and line of the block, for the name of a test."""
        return f"{self.page.relative_to(PROJECT)}:{self.line}"

    def commands(self) -> list[str]:
        """The commands of a shell block, without comments and with continued lines joined."""
        joined = re.sub(r"\\\n\s*", "", self.text)
        return [line for line in joined.splitlines() if line.strip() and not line.startswith("#")]


def blocks_of(page: Path) -> Iterator[Block]:
    """The fenced blocks of a page, in order, except those that name no language."""
    lines = page.read_text(encoding="utf-8").splitlines()
    start: int | None = None
    for index, line in enumerate(lines):
        if not line.startswith("```"):
            continue
        if start is None:
            start = index
            continue
        language = lines[start].removeprefix("```")
        match = _MARKER.fullmatch(lines[start - 1]) if start else None
        marker, remark = match.groups() if match else ("", "")
        if language:
            yield Block(page, start + 1, language, "\n".join(lines[start + 1 : index]) + "\n", marker, remark)
        start = None
    assert start is None, f"{page}: the block that opens at line {start + 1} is never closed"


def all_blocks(*languages: str) -> list[Block]:
    """The blocks in these languages, from all pages."""
    return [block for page in PAGES for block in blocks_of(page) if block.language in languages]
