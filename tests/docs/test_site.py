"""The site builds without a warning, and loads nothing from the internet."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.docs.blocks import PROJECT
from tests.docs.hooks import root_pages

_FETCHED = re.compile(
    r"""<(?:script|link|img|iframe|source)\b[^>]*?(?:src|href)=["'](?:https?:)?//|@import|url\(["']?(?:https?:)?//"""
)
"""Elements that a browser fetches unasked; a link that a person may follow does not count."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=PROJECT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.sweep
def test_every_page_is_there_and_the_front_page_is_the_readme(site: Path) -> None:
    pages = {path.relative_to(PROJECT / "docs").with_suffix("") for path in (PROJECT / "docs").rglob("*.md")}
    built = {path.relative_to(site).with_suffix("") for path in site.rglob("*.html")}
    assert {path.with_name("index") if path.name == "README" else path for path in pages} <= built
    assert "Change-data topics become definite Delta tables." in (site / "index.html").read_text(encoding="utf-8")


def test_the_guides_come_first() -> None:
    nav = yaml.safe_load((PROJECT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]
    assert [name for entry in nav for name in entry][:2] == ["Tidelake", "Guides"]
    links = re.findall(r"\]\(([^)]+)\)", (PROJECT / "README.md").read_text(encoding="utf-8"))
    guides = {f"docs/guides/{page.name}" for page in (PROJECT / "docs" / "guides").glob("*.md")}
    assert set(links[: len(guides)]) == guides


@pytest.mark.sweep
def test_the_reference_is_filled_in(site: Path) -> None:
    assert "messages_per_tick_max" in (site / "reference" / "configuration.html").read_text(encoding="utf-8")
    assert "tidelake resolve gap" in (site / "reference" / "commands.html").read_text(encoding="utf-8")
    assert "ConfigurationError" in (site / "reference" / "python.html").read_text(encoding="utf-8")


@pytest.mark.sweep
def test_a_page_requests_nothing_from_the_internet(site: Path) -> None:
    for path in (*site.rglob("*.html"), *site.rglob("*.css")):
        assert not _FETCHED.search(path.read_text(encoding="utf-8")), path.relative_to(site)


@pytest.mark.sweep
def test_the_site_has_a_light_and_a_dark_scheme(site: Path) -> None:
    assert {"default", "slate"} <= set(
        re.findall(r'data-md-color-scheme="(\w+)"', (site / "index.html").read_text(encoding="utf-8"))
    )


def test_a_link_in_the_repository_becomes_a_link_on_the_site() -> None:
    assert root_pages.site_link("../../README.md", "docs/guides/upsert.md", "guides/upsert.md") == "../index.md"
    assert root_pages.site_link("docs/book/seal.md", "README.md", "index.md") == "book/seal.md"
    assert root_pages.site_link("LICENSE", "README.md", "index.md") == "license.txt"
    assert root_pages.site_link("../kafka.md", "docs/guides/upsert.md", "guides/upsert.md") == "../kafka.md"
