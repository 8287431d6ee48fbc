"""MkDocs hook: adds a page for each error, `reference/errors/NAME.md`, generated from the table of errors."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from mkdocs.structure.files import File

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

_SOURCES = str(Path(__file__).parents[2] / "src")
if _SOURCES not in sys.path:
    sys.path.insert(0, _SOURCES)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages."""
    from tidelake.runbook.page import pages

    for page in pages():
        files.append(File.generated(config, f"reference/errors/{page.slug}.md", content=page.as_markdown()))
    return files
