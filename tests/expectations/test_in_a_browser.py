"""The Data Docs in a browser that can only reach this machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from expectations.data_docs import Notes
from expectations.frame import result_frame
from expectations.judge import judge
from expectations.offline import list_results
from expectations.suite import build_suite
from tests.browser import CHROMIUM, browser
from tests.expectations.reports import STATUS, at, report, settings
from tests.report.stored import Stored
from tidelake.report.pages import write_report

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on PATH (Debian: apt-get install chromium)")


def test_the_pages_show_everything_and_load_nothing_remote(tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    notes = Notes(["time 3, sealed by decision: counted again"], {"announced_is_recounted": ["time 3: 3 are there"]})
    judge(result_frame(report(at(3, recounted=3)), STATUS, 1), build_suite(settings()), docs, notes)
    (result,) = list_results(docs)
    with browser(tmp_path / "profile") as page:
        page.open((docs / "validations.html").as_uri())
        page.wait_for_text("Each recounts a collection independently of its seals.")
        assert "9 of 10" in page.text()
        page.click("result")
        page.wait_for_text("announced_is_recounted: at every sealed time")
        shown = page.text()
        assert "sealed by decision: counted again" in shown
        assert shown.index("time 3: 3 are there") < shown.index("Evaluated Expectations")
        assert page.value("getComputedStyle(document.querySelector('.notes')).borderLeftStyle") == "solid"
        page.open((docs / "expectations" / f"{result.suite}.html").as_uri())
        page.wait_for_text("contents_never_fall")
        assert [address for address in page.asked if not address.startswith((docs.as_uri(), "data:"))] == []
        # The browser could not reach any other machine: it resolves no host names.
        page.open("https://example.org/")
        page.wait_for("location.href.startsWith('chrome-error:')")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_pages_of_the_report_show_their_charts_in_both_themes(tmp_path: Path, theme: str) -> None:
    stored = Stored(tmp_path)
    stored.seal(dict.fromkeys(range(40), 5), 40, hours_ago=2)
    stored.announce(40, 50, {40: 8, 41: 3})
    stored.arrive(40, 41, 41, 41)
    docs = tmp_path / "docs"
    written = write_report(docs, stored.facts(), ["prices"])
    with browser(tmp_path / "profile") as page:
        feature = {"name": "prefers-color-scheme", "value": theme}
        page.call("Emulation.setEmulatedMedia", features=[feature])
        page.open((docs / "index.html").as_uri(), width=390, height=844)
        page.wait_for_text("1 collection should be looked at soon.")
        page.click("prices")
        page.wait_for_text("Waiting at time 40: 8 announced, 1 stored")
        assert page.value("document.documentElement.scrollWidth <= window.innerWidth"), "too wide for a phone"
        colours = page.value(
            "[getComputedStyle(document.body).backgroundColor, "
            "getComputedStyle(document.querySelector('svg text')).fill]"
        )
        assert (
            colours
            == {
                "light": ["rgb(246, 247, 249)", "rgb(91, 102, 115)"],
                "dark": ["rgb(18, 22, 27)", "rgb(154, 166, 180)"],
            }[theme]
        )
        assert [address for address in page.asked if not address.startswith(docs.as_uri())] == []
        assert written.local.exists()
