"""The pages of the documentation: every link has a target, every check is explained, and every index is complete."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from expectations.checks import HOLDS_END, MERGES_KEEP_CONTENTS, TOPIC_COMPLETE, UPDATES_ARRIVE
from expectations.suite import rules_of
from tests.docs.anchors import anchors_of
from tests.docs.blocks import MARKERS, PAGES, PROJECT, Block, all_blocks, blocks_of
from tests.expectations.reports import settings as settings_of

_PICTURE = re.compile(r"!\[([^\]]*)\]\(([^)\s]+)\)")
_LINK = re.compile(r"(?<!!)\[[^\]\n]*(?:\n[^\]\n]*)?\]\(([^)\s]+)\)")


def prose_of(page: Path) -> str:
    """A page without its fenced blocks and code spans."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"`[^`\n]*`(?!\])", "", text)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(PROJECT)))
def test_every_relative_link_has_a_target(page: Path) -> None:
    broken = []
    for target in _LINK.findall(prose_of(page)):
        if target.startswith(("http://", "https://")):
            continue
        name, _, anchor = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        if not file.exists() or (anchor and anchor not in anchors_of(file)):
            broken.append(target)
    assert not broken


def test_every_picture_is_used_is_small_and_has_alternative_text() -> None:
    shown = set()
    for page in PAGES:
        for words, target in _PICTURE.findall(page.read_text(encoding="utf-8")):
            file = (page.parent / target).resolve()
            assert words, target
            assert file.read_bytes().startswith(b"\x89PNG"), target
            assert file.stat().st_size < 250_000, target
            shown.add(file)
    assert shown == set((PROJECT / "docs" / "images").iterdir())


def test_every_check_is_explained_with_what_a_failure_does() -> None:
    text = (PROJECT / "docs" / "reports.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"^## Which check stops what$(.*?)^## ", text, flags=re.DOTALL | re.MULTILINE)
    explained = dict(re.findall(r"^\| `(\w+)`[^|]*\|[^|]*\| ([^|]*) \|$", text, flags=re.MULTILINE))
    rules = {
        rule.name: rule
        for family in ("plain", "append_only", "upsert", "debezium")
        for framing in ("cdcv2", "reclock")
        for rule in rules_of(settings_of(family, framing))
        if family != "plain" or framing == "cdcv2"
    }
    assert set(explained) == {*rules, TOPIC_COMPLETE, UPDATES_ARRIVE, HOLDS_END, MERGES_KEEP_CONTENTS}
    for name, rule in rules.items():
        assert explained[name].startswith("blocks") == rule.blocking, name
        assert ("warning" in explained[name]) == any(
            other.warning
            for family in ("plain", "upsert")
            for other in rules_of(settings_of(family))
            if other.name == name
        ), name


def test_every_decision_is_in_the_index() -> None:
    folder = PROJECT / "docs" / "decisions"
    links = _LINK.findall((folder / "README.md").read_text(encoding="utf-8"))
    assert {link for link in links if "/" not in link} == {page.name for page in folder.glob("*.md")} - {"README.md"}


def test_every_decision_has_the_same_parts() -> None:
    parts = ["Problem", "What success looks like", "Decision", "Alternatives"]
    for page in (PROJECT / "docs" / "decisions").glob("*.md"):
        if page.name != "README.md":
            assert re.findall(r"^## (.+)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE) == parts, page.name


def test_the_glossary_is_sorted_and_its_index_is_complete() -> None:
    text = (PROJECT / "docs" / "glossary.md").read_text(encoding="utf-8")
    words = [word.lower() for word in re.findall(r"^### (.+)$", text, flags=re.MULTILINE)]
    index = re.findall(r"\[([^\]]+)\]\(#", text.partition("### ")[0])
    assert words == sorted(words)
    assert index == words


def test_a_block_that_is_never_closed_is_named_by_the_line_of_its_fence(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Title\n\n```bash\nls\n", encoding="utf-8")
    with pytest.raises(AssertionError, match=r"page\.md: the block that opens at line 3 is never closed"):
        list(blocks_of(page))


@pytest.mark.parametrize("block", all_blocks("bash", "python", "yaml"), ids=str)
def test_a_block_that_is_not_run_says_why(block: Block) -> None:
    assert not block.marker or block.marker in MARKERS
    assert not block.marker or block.remark.strip()
