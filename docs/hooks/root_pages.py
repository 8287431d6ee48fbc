"""MkDocs hook: adds the pages in the project's root to the site, and keeps pages from fetching external files.

A link in the sources is a path in the repository, so that it works wherever the sources are read.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING

from mkdocs.structure.files import File

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

PROJECT = Path(__file__).parents[2]
ROOT_PAGES = {"README.md": "index.md", "CHANGELOG.md": "changes.md", "CONTRIBUTING.md": "contributing.md"}
"""The pages of the site, by the name of their file in the root."""
ROOT_FILES = {"LICENSE": "license.txt"}
"""The other files of the site, by the name of their file in the root."""

_REPOSITORY_NAMES = {site: name for name, site in {**ROOT_PAGES, **ROOT_FILES}.items()}
_LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#|/)([^)\s#]+)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the files in the root."""
    for name, site in {**ROOT_PAGES, **ROOT_FILES}.items():
        files.append(File.generated(config, site, content=(PROJECT / name).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Rewrite links from paths in the repository to paths on the site."""
    uri = page.file.src_uri
    source = _REPOSITORY_NAMES.get(uri, f"docs/{uri}")

    def rewrite(found: re.Match[str]) -> str:
        return site_link(found.group(1), source, uri)

    return _LINK.sub(rewrite, markdown)


def on_post_build(config: MkDocsConfig, **_: object) -> None:
    """Let pages load the site's own `frame_worker.js` instead of a script from unpkg.com.

    Search needs it if the site is opened from a folder.
    """
    folder = Path(config.site_dir)
    for page in folder.rglob("*.html"):
        script = "../" * (len(page.relative_to(folder).parts) - 1) + "frame_worker.js"
        text = page.read_text(encoding="utf-8")
        page.write_text(text.replace("https://unpkg.com/iframe-worker/shim", script), encoding="utf-8")


def site_link(target: str, source: str, uri: str) -> str:
    """Return the link from the page `uri` to the target of a link in the file `source`.

    >>> site_link("../README.md", "docs/kafka.md", "kafka.md")
    'index.md'
    >>> site_link("docs/book/seal.md", "README.md", "index.md")
    'book/seal.md'
    """
    path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
    on_site = {**ROOT_PAGES, **ROOT_FILES}.get(path, path.removeprefix("docs/"))
    return posixpath.relpath(on_site, posixpath.dirname(uri) or ".")
