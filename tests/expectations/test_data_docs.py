"""The Data Docs: every result has a page and an entry in the index, old pages go, and nothing remote is loaded."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from expectations.data_docs import Notes
from expectations.frame import result_frame
from expectations.judge import judge
from expectations.offline import list_results
from expectations.suite import build_suite
from tests.expectations.reports import STATUS, at, report, settings
from tidelake.report.pages import write_lake_page


def validate(folder: Path, name: str, recounted: int = 2, **more: Any) -> None:
    suite = build_suite(settings().model_copy(update={"name": name}))
    judge(result_frame(report(at(3, recounted=recounted)), STATUS, 1), suite, folder, **more)


def test_every_collection_stays_in_the_index_whichever_was_validated_last(tmp_path: Path) -> None:
    validate(tmp_path, "prices")
    validate(tmp_path, "visits", recounted=3)
    results = {result.suite: result for result in list_results(tmp_path)}
    assert {name: (result.met, result.failed, result.icon) for name, result in results.items()} == {
        "prices": (10, (), "fa-check-circle"),
        "visits": (9, ("announced_is_recounted",), "fa-times"),
    }
    index = (tmp_path / "validations.html").read_text(encoding="utf-8")
    for name, result in results.items():
        assert f'href="{result.page}"' in index
        page = (tmp_path / result.page).read_text(encoding="utf-8")
        assert "announced_is_recounted: at every sealed time" in page
        assert (tmp_path / "expectations" / f"{name}.html").is_file()


def test_pages_load_nothing_remote_and_link_only_to_existing_files(tmp_path: Path) -> None:
    write_lake_page(tmp_path, ["prices"])
    validate(tmp_path, "prices")
    pages = list(tmp_path.glob("**/*.html"))
    assert len(pages) == 4
    for page in pages:
        text = page.read_text(encoding="utf-8")
        assert "default-src 'none'" in text
        assert not re.search(r"""url\(\s*["']?https?:|@import""", text)
        loaded = re.findall(r'<(?:script|img)[^>]*\ssrc="([^"]*)"|<link[^>]*\shref="([^"]*)"', text)
        links = re.findall(r'<a[^>]*\shref="([^"#]*)"', text)
        for address in [*(src or href for src, href in loaded), *links]:
            if address and not (address in links and address.startswith("https://greatexpectations.io")):
                assert (page.parent / address).exists(), f"{page.name} requests {address}"


def test_a_page_shows_decisions_and_evidence(tmp_path: Path) -> None:
    notes = Notes(["time 3, sealed by decision: <b>"], {"announced_is_recounted": ["time 3: 1 & 2"]})
    frame = result_frame(report(at(3, recounted=3)), STATUS, 1)
    judge(frame, build_suite(settings()), tmp_path, notes)
    validate(tmp_path, "prices")  # this does not change the page of the first result
    newest, first = list_results(tmp_path)
    assert (newest.decided, first.decided) == (0, 1)
    text = (tmp_path / first.page).read_text(encoding="utf-8")
    assert "<li>time 3, sealed by decision: &lt;b&gt;</li>" in text
    assert "<h2>announced_is_recounted</h2><ul><li>time 3: 1 &amp; 2</li></ul>" in text
    assert 'class="notes"' not in (tmp_path / newest.page).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("times", "quarantine", "mark", "unmet"),
    [
        pytest.param(at(3), 0, "Passed", (0, 0), marks=pytest.mark.sweep),
        (at(3), 24, "Passed, with 1 warning", (0, 1)),
        (at(3, recounted=3), 24, "Failed: 1 error, 1 warning", (1, 1)),
        pytest.param(at(3, recounted=3), 0, "Failed: 1 error, 0 warnings", (1, 0), marks=pytest.mark.sweep),
    ],
)
def test_a_warning_does_not_fail_the_whole_result(
    tmp_path: Path, times: dict[str, Any], quarantine: int, mark: str, unmet: tuple[int, int]
) -> None:
    status = replace(STATUS, quarantine=24, quarantine_unexplained={"undecodable": quarantine})
    notes = Notes(
        headline=["Safe to use up to time 8. 2 updates announced, 2 counted at 1 time."], numbers={"since": "0"}
    )
    judge(result_frame(report(times), status, 1), build_suite(settings()), tmp_path, notes)
    (result,) = list_results(tmp_path)
    text = (tmp_path / result.page).read_text(encoding="utf-8")
    shown = " ".join(re.sub(r"<[^>]*>", " ", text).split())
    assert f"Status: {mark} Statistics" in shown
    assert f"Unmet: errors {unmet[0]} Unmet: warnings {unmet[1]}" in shown and "Success Percent" not in shown
    assert shown.index("Safe to use up to time 8.") < shown.index("since 0") < shown.index("Status:")
    # One mark for the whole result, and one for each unmet expectation.
    assert text.count('class="fas fa-times text-danger"') == unmet[0] + (unmet[0] > 0)
    assert text.count('class="fas fa-exclamation-triangle"') == unmet[1] + (unmet == (0, 1))


@pytest.mark.sweep
def test_results_of_the_same_second_are_listed_newest_first(tmp_path: Path) -> None:
    names = ["prices", "visits", "prices", "orders", "visits", "orders", "prices"]
    for name in names:
        validate(tmp_path, name)
    assert [result.suite for result in list_results(tmp_path)] == names[::-1]


def test_only_the_newest_results_are_kept(tmp_path: Path) -> None:
    for _ in range(3):
        validate(tmp_path, "prices", results_kept=2)
    results = list_results(tmp_path)
    assert len(results) == 2
    assert len(list(tmp_path.glob("validations/**/*.html"))) == 2
    assert all((tmp_path / result.page).is_file() for result in results)


@pytest.mark.parametrize("values_shown", [0, 5])
def test_values_and_descriptions_are_escaped_and_cut_and_values_are_hidden_unless_they_may_be_shown(
    tmp_path: Path, values_shown: int
) -> None:
    from great_expectations import ExpectationSuite
    from great_expectations.expectations.core.expect_column_values_to_be_in_set import ExpectColumnValuesToBeInSet
    from great_expectations.expectations.core.expect_column_values_to_not_be_null import ExpectColumnValuesToNotBeNull

    evil = "<script>alert(1)</script>\x1b[31m${x} $y"
    meta = {"check": "one"}
    more: dict[str, Any] = {"meta": {"check": "two"}, "description": f"two: {evil}"}
    suite = ExpectationSuite(
        name="prices-contents",
        expectations=[
            ExpectColumnValuesToBeInSet(column="shop", value_set=["<i>a</i>"], meta=meta),
            ExpectColumnValuesToNotBeNull(column="shop", **more),
        ],
    )
    frame = pd.DataFrame({"time": [0, 1, 2], "shop": [evil, "x" * (1 << 20), None]})
    verdicts = judge(frame, suite, tmp_path, values_shown=values_shown)
    assert [(verdict.check, verdict.failed) for verdict in verdicts] == [("one", 2), ("two", 1)]
    for page in tmp_path.glob("**/*.html"):
        text = page.read_text(encoding="utf-8")
        assert "<script>alert" not in text and "<i>a</i>" not in text and "\x1b" not in text
        assert len(text) < 100_000
    (result,) = list_results(tmp_path)
    shown = (tmp_path / result.page).read_text(encoding="utf-8")
    assert "two: &lt;script&gt;alert(1)&lt;/script&gt;" in shown
    assert ("(1,048,576 characters)" in shown) == (values_shown > 0)
