"""The pages of the report load nothing, run nothing, stay small, and show the worst first."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from html.parser import HTMLParser
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from tests.report.stored import NAME, Stored
from tidelake.report.facts import CheckResult, Facts, unreadable_facts
from tidelake.report.history import append_history, history_path, read_history, row_of
from tidelake.report.pages import render_collection, render_lake, write_lake_page, write_report

MEGABYTE = 1_000_000
EVIL = "<script>alert(1)</script>\x1b[31m\u202etxt\x00'\"&"


class Page(HTMLParser):
    """The parts of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.data: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_data(self, data: str) -> None:
        if self.tags[-1:] != ["style"]:
            self.data.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.data).split())


def check_harmless(text: str) -> Page:
    """Check that a page loads nothing, runs nothing, and links only to pages and JSON of the report."""
    page = Page(text)
    assert not {"script", "link", "img", "iframe", "object", "embed", "form", "base", "image", "use"} & set(page.tags)
    for tag, name, value in page.attributes:
        assert not name.startswith("on"), (tag, name)
        assert name != "src", tag
        if name in ("href", "xlink:href"):
            assert tag == "a" and re.fullmatch(r"(?:\.\./|collections/)?[a-z0-9_]+\.(?:html|json)", value), value
        elif not name.startswith("xmlns"):
            assert "//" not in value, (tag, name, value)
    assert "default-src 'none'" in text
    assert not re.search(r"url\((?!#)|@import", text)
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", text)
    return page


def whole(tmp_path: Path) -> Facts:
    """Facts with something in each section, all of it hostile."""
    stored = Stored(tmp_path, show_values=True, topics=(EVIL,))
    stored.seal({0: 2, 4: 1}, 5, hours_ago=30)
    stored.announce(5, 9, {5: 8, 7: 2})
    stored.arrive(5, 7)
    stored.refuse([EVIL.encode(), b"x" * (1 << 20), b"\xff\x00"], reason=EVIL, detail=EVIL)
    facts = stored.facts()
    facts.status["late"], facts.status["late_verdicts"] = 2, {"copy": 1, "contradiction": 1}
    facts.late_evidence = [EVIL]
    facts.contradictions = [{"time": 5, "detail": EVIL * 1000, "decided": False}]
    facts.sealed_by_decision, facts.sealed_by_decision_total = [{"time": 4, "announced": 1, "reason": EVIL}], 1
    facts.mismatches = [EVIL]
    facts.add_checks([CheckResult("rows_are_as_recorded", False, "alarm", EVIL, True, [EVIL])])
    return facts


def test_a_page_loads_nothing_and_runs_nothing_whatever_the_data_holds(tmp_path: Path) -> None:
    facts = whole(tmp_path)
    write_report(tmp_path / "docs", facts, [NAME])
    write_report(tmp_path / "docs", facts, [NAME])  # the second report has a history to draw
    text = (tmp_path / "docs" / "collections" / f"{NAME}.html").read_text(encoding="utf-8")
    page = check_harmless(text)
    assert text.count("<svg") == 4  # the tide is drawn twice: for wide windows, and for phones
    ids = re.findall(r' id="([^"]*)"', text)
    assert ids and len(ids) == len(set(ids))
    assert set(re.findall(r"url\(#([^)]*)\)", text)) <= set(ids)
    assert "<script>alert(1)</script>\\x1b[31m\\u202etxt\\x00'\"&" in page.text
    assert "(1,048,576 bytes)" in page.text
    assert len(text) < MEGABYTE
    lake = (tmp_path / "docs" / "index.html").read_text(encoding="utf-8")
    check_harmless(lake)
    document = (tmp_path / "docs" / "collections" / f"{NAME}.json").read_text(encoding="utf-8")
    assert len(document) < MEGABYTE and "\\u001b" not in document


def test_both_themes_exist_and_every_colour_of_a_chart_follows_them(tmp_path: Path) -> None:
    text = render_collection(whole(tmp_path))
    assert "prefers-color-scheme: dark" in text and 'name="viewport"' in text
    used = set(re.findall(r'<(?:path|text|line|rect)[^>]* (?:fill|stroke)="(#[0-9a-f]{3,6})"', text))
    assert used and all(f'svg [fill="{colour}"]' in text for colour in used)


def test_damage_comes_first(tmp_path: Path) -> None:
    facts = whole(tmp_path)
    facts.mark_unreadable("the file part-0.parquet is missing")
    for shown in (facts, unreadable_facts(Stored(tmp_path / "other").settings, "the file part-0.parquet is missing")):
        page = Page(render_collection(shown))
        assert shown.verdict == "Do not use this table: the file part-0.parquet is missing."
        before, after, _ = page.text.partition("Do not use this table")
        assert after and "Safe to use" not in page.text and len(before) < 200
        assert f"tidelake repair {NAME} --apply" in page.text


def test_a_hundred_thousand_open_times_fit_into_a_small_page(tmp_path: Path) -> None:
    stored = Stored(tmp_path)
    stored.announce(0, 200_000, dict.fromkeys(range(100000), 1))
    stored.arrive(*range(1, 100_000, 2))
    facts = stored.facts()
    write_report(tmp_path / "docs", facts, [NAME])
    folder = tmp_path / "docs" / "collections"
    text = (folder / f"{NAME}.html").read_text(encoding="utf-8")
    assert "The first incomplete times; 100,000 times are open in total." in Page(text).text
    assert "50,000" in text
    assert len(text) < MEGABYTE and (folder / f"{NAME}.json").stat().st_size < MEGABYTE


def summary(name: str, level: str, **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "level": level,
        "verdict": "Safe to use up to time 999. 200,000 updates announced, 200,000 counted at 1,000 times.",
        "ahead": "",
        "problem": "",
        "lag_messages": 0,
        "pending": 0,
        "quarantine": 0,
        "at_ms": 1_700_000_000_000,
    } | more


def test_a_thousand_collections_are_one_small_page_sorted_by_urgency(tmp_path: Path) -> None:
    levels = ["alarm"] * 3 + ["warning"] * 10 + ["calm"] * 987
    Random(16).shuffle(levels)
    names = [f"collection_{number:04}" for number in range(1000)]
    problem = {
        "alarm": EVIL * 50,
        "warning": "24 messages could not be used, and no decision explains this.",
        "calm": "",
    }
    rows = [summary(name, level, problem=problem[level]) for name, level in zip(names, levels, strict=True)]
    (tmp_path / "lake.json").write_text(json.dumps({"collections": rows}), encoding="utf-8")
    write_lake_page(tmp_path, [*names, "new"])
    text = (tmp_path / "index.html").read_text(encoding="utf-8")
    page = check_harmless(text)
    assert len(text.encode()) < MEGABYTE
    assert (
        "3 collections need attention now; 10 collections should be looked at soon; 987 collections are in order; 1 "
        in (page.text)
    )
    shown = re.findall(r'<tr class="(\w+)">', text)
    assert shown == ["alarm"] * 3 + ["warning"] * 10 + ["calm"] * 987 + ["none"]


def test_the_page_of_the_lake_keeps_what_it_knows_and_forgets_other_names(tmp_path: Path) -> None:
    write_lake_page(tmp_path, ["a", "b"], summary("a", "calm"))
    write_lake_page(tmp_path, ["a", "b"], summary("b", "alarm", problem="held back"))
    known = json.loads((tmp_path / "lake.json").read_text(encoding="utf-8"))["collections"]
    assert [(row["name"], row["level"]) for row in known] == [("b", "alarm"), ("a", "calm")]
    write_lake_page(tmp_path, ["a", "c"])
    known = json.loads((tmp_path / "lake.json").read_text(encoding="utf-8"))["collections"]
    assert [(row["name"], row["level"]) for row in known] == [("a", "calm"), ("c", "none")]
    (tmp_path / "lake.json").write_text("[", encoding="utf-8")
    write_lake_page(tmp_path, ["a"], summary("a", "calm"))
    assert "1 collection is in order." in render_lake([summary("a", "calm")])


def test_the_history_has_a_row_for_each_validation_of_each_collection(tmp_path: Path) -> None:
    stored, docs = Stored(tmp_path), tmp_path / "docs"
    stored.announce(0, 9, {3: 2**63 - 1, 4: 2**63 - 1})
    for upper in (1, 2):
        stored.seal({upper - 1: 5}, upper)
        write_report(docs, stored.facts(), [NAME])
    write_report(docs, unreadable_facts(stored.settings.model_copy(update={"name": "other"}), "lost"), [NAME])
    rows = read_history(docs, NAME)
    assert [(row["upper"], int(row["counted"]), int(row["outstanding"])) for row in rows] == [
        (1, 5, 2 * (2**63 - 1)),
        (2, 10, 2 * (2**63 - 1)),
    ]
    table = DeltaTable(str(history_path(docs)))
    asked = "SELECT collection, count(*) AS validations FROM history GROUP BY collection ORDER BY collection"
    answer = pa.table(QueryBuilder().register("history", table).execute(asked).read_all())
    assert answer.to_pylist() == [
        {"collection": "other", "validations": 1},
        {"collection": NAME, "validations": 2},
    ]


def test_a_history_that_cannot_be_read_does_not_stop_the_report(tmp_path: Path) -> None:
    stored, docs = Stored(tmp_path), tmp_path / "docs"
    write_report(docs, stored.facts(), [NAME])
    for entry in (history_path(docs).local / "_delta_log").glob("*.json"):
        entry.write_text("{", encoding="utf-8")
    page = write_report(docs, stored.facts(), [NAME]).local
    assert "Nothing is sealed yet" in page.read_text(encoding="utf-8")


def test_many_files_of_the_history_are_merged(tmp_path: Path) -> None:
    stored, docs = Stored(tmp_path), tmp_path / "docs"
    facts = stored.facts()
    for _ in range(6):
        append_history(docs, row_of(facts), files_max=4)
    assert len(DeltaTable(str(history_path(docs))).file_uris()) == 2
    assert len(read_history(docs, NAME)) == 6


def append_together(docs: Path, rows: Iterable[dict[str, Any]], files_max: int) -> None:
    """Append each row in a thread of its own."""
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda row: append_history(docs, row, files_max), rows))


def test_writers_that_create_the_history_at_the_same_time_keep_each_row(tmp_path: Path) -> None:
    row = row_of(Stored(tmp_path).facts())
    for attempt in range(8):
        docs = tmp_path / f"docs{attempt}"
        append_together(docs, [row | {"at_ms": at_ms} for at_ms in range(4)], files_max=4)
        assert [found["at_ms"] for found in read_history(docs, NAME)] == list(range(4))


def test_writers_that_merge_files_at_the_same_time_keep_each_row_once(tmp_path: Path) -> None:
    docs, row = tmp_path / "docs", row_of(Stored(tmp_path).facts())
    append_history(docs, row | {"at_ms": 0})
    append_together(docs, (row | {"at_ms": at_ms} for at_ms in range(1, 25)), files_max=0)
    assert [found["at_ms"] for found in read_history(docs, NAME, limit=1000)] == list(range(25))
