"""The anchors of a page, which links can refer to."""

from __future__ import annotations

import re
from pathlib import Path

from tests.docs.hooks import reference


def anchors_of(page: Path) -> set[str]:
    """The anchors of a page's headings."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.+)$", reference.fill(text), flags=re.MULTILINE)
    explicit = set(re.findall(r"{ #([\w-]+) }", "\n".join(headings)))
    return explicit | {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
