"""The book's Python blocks run, page by page, and print the outputs below them."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
from pyspark.sql import SparkSession

from tests.docs.blocks import PROJECT, Block, blocks_of

BOOK = PROJECT / "docs" / "book"
CHAPTERS = sorted(set(BOOK.glob("*.md")) - {BOOK / "README.md"})
WITH_SPARK = [page for page in CHAPTERS if any(block.marker == "spark" for block in blocks_of(page))]
WITHOUT_SPARK = [page for page in CHAPTERS if page not in WITH_SPARK]


def name_of(page: Path) -> str:
    return page.stem


def pairs(page: Path) -> Iterator[tuple[Block, str]]:
    """Each Python block with the output below it, which may be empty."""
    code: Block | None = None
    for block in blocks_of(page):
        if block.language == "python":
            if code is not None:
                yield code, ""
            code = block
        elif block.language == "output":
            assert code is not None, f"{block}: there is no code above this output"
            yield code, block.text
            code = None
    if code is not None:
        yield code, ""


def run(page: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Run the blocks of a page in order, as if somebody typed them, and compare their outputs."""
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.chdir(folder)
    names: dict[str, object] = {"__name__": "book"}
    try:
        for block, expected in pairs(page):
            capsys.readouterr()
            exec(compile(block.text, str(block), "exec"), names)
            assert capsys.readouterr().out == expected, block
    finally:
        structlog.reset_defaults()


@pytest.mark.parametrize("page", WITHOUT_SPARK, ids=name_of)
def test_the_code_of_a_chapter_prints_what_the_chapter_says(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run(page, tmp_path, monkeypatch, capsys)


@pytest.mark.spark
@pytest.mark.parametrize("page", WITH_SPARK, ids=name_of)
def test_the_code_of_a_chapter_on_real_tables_prints_what_the_chapter_says(
    page: Path,
    tmp_path: Path,
    one_session: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run(page, tmp_path, monkeypatch, capsys)


def test_the_index_of_the_book_lists_every_chapter_and_each_chapter_says_how_it_is_checked() -> None:
    index = (BOOK / "README.md").read_text(encoding="utf-8")
    assert set(re.findall(r"\]\((\w+\.md)\)", index)) == {page.name for page in CHAPTERS}
    for page in CHAPTERS:
        parts = re.findall(r"^## (.+)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
        assert (parts[0], parts[-1]) == ("The question", "How it is checked, and where it is")


@pytest.mark.parametrize("page", CHAPTERS, ids=name_of)
def test_the_files_that_are_named_in_a_chapter_exist(page: Path) -> None:
    named = re.findall(r"`((?:src|tests)/[\w/*]+(?:\.py)?)`", page.read_text(encoding="utf-8"))
    assert named
    assert [name for name in named if not list(PROJECT.glob(name))] == []
