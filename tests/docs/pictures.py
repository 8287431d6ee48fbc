"""Takes the pictures of `docs/images` again: `python -m tests.docs.pictures`. With `--lake`, the lake is kept.

A lake is made, its jobs run as the schedules request them, and a browser opens Dagster's UI and the report. This does
not make `ticks.png`, the chart of the benchmarks. The path of the lake is shown as `/srv/shop`. Look at every picture
before you commit it: none may show another path of the machine.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from expectations.offline import list_results
from tests.browser import CHROMIUM, NO_CHROMIUM, Browser, browser
from tests.lakes.shop import CAPTURED, FAMILIES, Shop
from tests.orchestration.ui import DagsterUi, webserver

IMAGES = Path(__file__).parents[2] / "docs" / "images"
BYTES_MAX = 250_000
_UPDATES, _TICKS = 3_000, 8
_GROUPS = ("plain", "append_only", "upsert", "debezium")
_FACETS = ["checks", "kind-tag", "status"]
_PATH_HIDDEN = """(() => {
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) texts.currentNode.textContent = texts.currentNode.textContent.replace(%s, "/srv/shop");
})()"""
_SCROLL = """[...document.querySelectorAll("*")].filter((element) => element.innerText === "statements_read").pop()
  .scrollIntoView({block: "start"})"""
_NIGHTLY = '{ runsOrError(filter: {pipelineName: "nightly"}, limit: 1) { ... on Runs { results { runId } } } }'


class Pictures:
    """Takes pictures of a lake's UI and its report."""

    def __init__(self, page: Browser, ui: DagsterUi, docs: Path) -> None:
        self.page, self.ui, self.docs = page, ui, docs

    def lineage(self) -> None:
        """The topics, the collections, and their tables."""
        groups = ",".join(f"global@global:{group}" for group in ("topics", *_GROUPS))
        self.page.open(self.ui.address)
        self.page.wait_for_text("Lineage")
        self.page.value(f"localStorage.setItem('asset-node-facets', JSON.stringify({json.dumps(_FACETS)}))")
        self.page.open(f"{self.ui.address}/asset-groups?expanded={groups}", 1600, 1330)
        self.page.wait_for_text("Materialized")

    def plots(self) -> None:
        """The plots of a collection."""
        self.page.open(f"{self.ui.address}/assets/shop/orders", 1500, 980)
        self.page.click("Plots")
        self.page.wait_for("document.querySelectorAll('canvas').length > 8")
        self.page.value(_SCROLL)

    def check(self) -> None:
        """A failed check with its reason."""
        self.page.open(
            f"{self.ui.address}/assets/shop/orders?view=checks&checkDetail=nothing_is_contradicted", 1400, 900
        )
        self.page.wait_for_text("Evaluation result")

    def run(self) -> None:
        """A run of the nightly job."""
        (run,) = self.ui.ask(_NIGHTLY)["runsOrError"]["results"]
        self.page.open(f"{self.ui.address}/runs/{run['runId']}", 1400, 900)
        self.page.wait_for_text("RUN_SUCCESS")

    def lake(self) -> None:
        """The page of the lake."""
        self.page.open((self.docs / "index.html").as_uri(), 1200, 520)

    def report(self) -> None:
        """The page of a collection."""
        self.page.open((self.docs / "collections" / "orders.html").as_uri(), 1200, 1300)

    def report_dark(self) -> None:
        """The page of a collection in the dark theme."""
        self.page.prefer("dark")
        self.report()

    def data_docs(self) -> None:
        """The index of the Data Docs."""
        self.page.open((self.docs / "validations.html").as_uri(), 1300, 420)

    def result(self) -> None:
        """One result of the Data Docs."""
        newest = next(result for result in list_results(self.docs) if result.suite == "orders")
        self.page.open((self.docs / newest.page).as_uri(), 1300, 1000)

    def take(self, name: str, folder: Path) -> None:
        """Take the picture `name`, in the light theme unless the method that shows the page chooses the dark one."""
        self.page.prefer("light")
        show: Callable[[], None] = getattr(self, name)
        show()
        self.page.settle()
        self.page.value(_PATH_HIDDEN % json.dumps(str(self.docs.parent)))
        file = folder / f"{name.replace('_', '-')}.png"
        self.page.picture(file)
        size = file.stat().st_size
        print(f"{size:>9,} bytes  {file}{'  TOO LARGE' if size > BYTES_MAX else ''}")


NAMES = ("lineage", "plots", "check", "run", "lake", "report", "report_dark", "data_docs", "result")


def main() -> int:
    """Make the lake, unless it exists, and take the pictures."""
    parser = argparse.ArgumentParser(description="Takes the pictures of the documentation.")
    parser.add_argument("--lake", type=Path, help="an empty folder for the lake, or one from an earlier call")
    parser.add_argument("--out", type=Path, default=IMAGES, help="the folder of the pictures")
    parser.add_argument("--only", nargs="+", choices=NAMES, default=NAMES, help="only these pictures")
    chosen = parser.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    if CHROMIUM is None:
        print(f"error: {NO_CHROMIUM}", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(chosen.lake or temporary).absolute()
        lake = folder / "shop"
        is_new = not lake.exists()
        shop = Shop(lake, folder / "home", _UPDATES, (*FAMILIES, CAPTURED))
        if is_new:
            shop.open(_TICKS)
        log, profile = Path(temporary) / "webserver.log", Path(temporary) / "profile"
        with webserver(shop.environment(), log) as ui, browser(profile) as page:
            pictures = Pictures(page, ui, shop.docs)
            for name in chosen.only:
                pictures.take(name, chosen.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
