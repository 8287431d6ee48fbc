"""Dagster's UI and the report in a browser, after scheduled runs: nothing is broken; no other server is contacted."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.browser import CHROMIUM, NO_CHROMIUM, Browser, browser
from tests.lakes.shop import Shop
from tests.orchestration.ui import DagsterUi, webserver
from tests.sweeps import swept

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason=NO_CHROMIUM),
    pytest.mark.spark,
    pytest.mark.slow,
]
THEMES = pytest.mark.parametrize("theme", swept(["light", "dark"], ["light"]))
PHONE = (390, 844)


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Shop:
    folder = tmp_path_factory.mktemp("seen")
    shop = Shop(folder / "shop", folder / "home", updates=60)
    shop.open(ticks=3)
    return shop


@pytest.fixture(scope="module")
def ui(shop: Shop) -> Iterator[DagsterUi]:
    with webserver(shop.environment(), shop.home / "webserver.log") as running:
        yield running


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("browser") / "profile") as page:
        yield page


@pytest.fixture
def page(chromium: Browser) -> Browser:
    """A page of its own for each test, in one browser."""
    chromium.start_over()
    return chromium


def asked_elsewhere(page: Browser, *places: str) -> list[str]:
    """The addresses that a page has requested, except those that begin with these places."""
    return [address for address in page.asked if not address.startswith((*places, "data:", "blob:"))]


def check_whole(page: Browser, ui: DagsterUi) -> None:
    """Check that a page of the UI has loaded everything, from the local server alone."""
    assert page.problems == []
    assert asked_elsewhere(page, ui.address) == []


@THEMES
def test_the_lineage_begins_with_the_topics(page: Browser, ui: DagsterUi, theme: str) -> None:
    page.prefer(theme)
    page.open(f"{ui.address}/assets/shop/orders?view=lineage&lineageScope=neighbors")
    for name, state in (("orders", "Observed"), ("orders", "Materialized"), ("current", "Materialized")):
        shown = f"text => text.trim().startsWith('{name}') && text.includes('{state}')"
        page.wait_for(f"[...document.querySelectorAll('foreignObject')].map(node => node.textContent).some({shown})")
    check_whole(page, ui)


def test_a_collection_is_in_sync_with_its_topic_after_a_tick(ui: DagsterUi) -> None:
    nodes = ui.ask("{ assetNodes { assetKey { path } staleStatus staleCauses { reason } } }")["assetNodes"]
    assert len(nodes) == 6
    assert {node["staleStatus"] for node in nodes} == {"FRESH"}, nodes


@THEMES
def test_the_numbers_of_a_collection_are_plotted_over_its_runs(page: Browser, ui: DagsterUi, theme: str) -> None:
    page.prefer(theme)
    page.open(f"{ui.address}/assets/shop/orders")
    page.click("Plots")
    page.wait_for("document.querySelectorAll('canvas').length > 8")
    page.settle()
    empty = "c => !c.getContext('2d').getImageData(0, 0, c.width, c.height).data.some(channel => channel)"
    assert page.value(f"[...document.querySelectorAll('canvas')].filter({empty}).length") == 0
    shown = page.text().splitlines()
    for name in ("upper", "upper_age_s", "lag_messages", "lag_source_time", "statements_per_s", "ingest_s", "seal_s"):
        assert name in shown
    check_whole(page, ui)


@THEMES
@pytest.mark.parametrize(
    ("check", "expected"),
    [
        ("announced_is_recounted", ["Succeeded"]),
        ("quarantine_is_explained", ["Failed", "1 message: "]),
        ("nothing_is_contradicted", ["Failed", "time 25 is announced with "]),
    ],
)
def test_a_check_shows_its_result_and_its_reason(
    page: Browser, ui: DagsterUi, theme: str, check: str, expected: list[str]
) -> None:
    page.prefer(theme)
    page.open(f"{ui.address}/assets/shop/orders?view=checks&checkDetail={check}")
    for text in ("Evaluation result", *expected):
        page.wait_for_text(text)
    check_whole(page, ui)


@THEMES
def test_no_page_of_the_report_is_broken_or_makes_requests(page: Browser, shop: Shop, theme: str) -> None:
    page.prefer(theme)
    own = {shop.docs / "index.html", *(shop.docs / "collections").glob("*.html")}
    pages = sorted(shop.docs.rglob("*.html"))
    assert own < set(pages)
    for file in pages:
        page.open(file.as_uri())
        page.settle(still_s=0)
        assert page.broken() == [], file.name
        if file in own:
            page.resize(*PHONE)
            assert page.broken() == [], f"{file.name} on a phone"
    assert asked_elsewhere(page, shop.docs.as_uri()) == []
    # The browser could not reach any other machine: it resolves no host names.
    page.open("https://example.org/")
    page.wait_for("location.href.startsWith('chrome-error:')")


def test_the_report_begins_with_the_decision_that_is_needed(page: Browser, shop: Shop) -> None:
    page.open((shop.docs / "index.html").as_uri())
    page.wait_for_text("1 collection needs attention now; 1 collection is in order.")
    page.click("orders")
    page.wait_for_text("Time 25 is held back: time 25 is announced with ")
    assert "Safe to use up to time 24." in page.text()
    assert "tidelake resolve count orders --time 25" in page.text()
