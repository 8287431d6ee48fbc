"""Renders the pages, and writes them with their JSON: one for each collection, and one for the lake.

A page is a single file without scripts, and its security policy does not let it load anything. Every text on it passes
through `text.shown` and is then escaped.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog
from deltalake.exceptions import DeltaError
from pyarrow import ArrowException

from tidelake.errors import StoreUnreadable
from tidelake.read.words import counted, duration
from tidelake.report.facts import Facts, summary_of
from tidelake.report.files import ReportPlace, media_type, replace_text, text_bytes
from tidelake.report.history import append_history, read_history, row_of
from tidelake.report.problems import ORDER, Level
from tidelake.report.text import moment, shown, shown_values
from tidelake.storage import blobs
from tidelake.storage.location import Location

if TYPE_CHECKING:
    from jinja2 import Environment

log = structlog.get_logger("tidelake")

LAKE_PAGE, LAKE_JSON, COLLECTIONS = "index.html", "lake.json", "collections"
CHECKS_PAGE = "validations.html"
"""The index of the Data Docs, which other code writes."""
_PAGE_ATTEMPTS_MAX = 16
"""Maximum number of times that the page of the lake is written while other processes keep changing what it shows."""
_SENTENCE_MAX = 150
_WORDS = {"alarm": "Needs attention", "warning": "Look at this soon", "calm": "In order", "none": "No report yet"}
_MARKS = {"alarm": "✗", "warning": "!", "calm": "✓", "none": "–"}
_LATE_WORDS = {
    "contradiction": "contradicting what was published",
    "settled": "settled by decision",
    "untold": "about times that compaction has merged",
    "late": "not compared yet",
}


def write_report(data_docs: ReportPlace, facts: Facts, names: Sequence[str]) -> Location:
    """Write the page of a collection and its JSON, add a row to the history, and write the page of the lake again.

    Args:
        data_docs: the folder of the reports, on a disk or in an object store; it is created.
        facts: what the page shows.
        names: the names of all collections of the lake. All other collections are removed from its page.

    Returns:
        The page of the collection.

    Raises:
        OSError, StoreUnreadable: the folder cannot be written to.
    """
    root = blobs.root_of(data_docs)
    page = root / COLLECTIONS / f"{facts.name}.html"
    blobs.make_folder(page.parent)
    history = _with_history(root, facts)
    replace_text(root / COLLECTIONS / f"{facts.name}.json", json.dumps(facts.as_json(), indent=1))
    replace_text(page, render_collection(facts, history, blobs.exists(root / CHECKS_PAGE)))
    write_lake_page(root, names, summary_of(facts))
    return page


def write_lake_page(data_docs: ReportPlace, names: Sequence[str], summary: dict[str, Any] | None = None) -> None:
    """Write the page of the lake from the known summaries and, if given, a new summary of one collection.

    Processes may write at the same time: no summary is lost, and the page shows all of them.
    """
    root = blobs.root_of(data_docs)
    file, page = root / LAKE_JSON, root / LAKE_PAGE
    summaries: list[dict[str, Any]] = []

    def change(present: bytes | None) -> bytes:
        known = _known_summaries(file, present)
        if summary is not None:
            known[summary["name"]] = shown_values(summary)
        summaries[:] = [known.get(name, {"name": name, "level": "none", "at_ms": None}) for name in names]
        summaries.sort(key=lambda row: (ORDER.get(row["level"], len(ORDER)), row["name"]))
        return text_bytes(json.dumps({"collections": summaries}, indent=1))

    for _ in range(_PAGE_ATTEMPTS_MAX):
        stamp = blobs.update(file, change, media_type(LAKE_JSON))
        replace_text(page, render_lake(summaries, blobs.exists(root / CHECKS_PAGE)))
        if blobs.stamp(file) == stamp:
            break


def render_collection(facts: Facts, history: Sequence[dict[str, Any]] = (), has_checks_page: bool = False) -> str:
    """Return the page of a collection.

    Args:
        facts: what it shows.
        history: rows of the history, oldest first.
        has_checks_page: whether there are Data Docs to link to.
    """
    from markupsafe import Markup

    from tidelake.report.charts import WIDE, draw_marks, draw_open, draw_tide

    upper = None if facts.closed else facts.upper
    moved = facts.tide.marks
    if moved and upper is not None:
        moved = [*moved, (facts.at_ms, upper)]
    since = [(row["at_ms"], row["since"]) for row in history if row["since"] is not None]
    return (
        _environment()
        .get_template("collection.html.j2")
        .render(
            facts=facts,
            tide_picture=Markup(draw_tide(facts.tide, facts.since, upper, facts.is_clock)),
            wide_tide_picture=Markup(draw_tide(facts.tide, facts.since, upper, facts.is_clock, WIDE)),
            marks_picture=Markup(draw_marks(moved, since, facts.is_clock)),
            open_picture=Markup(draw_open([row for row in history if row["pending"] is not None])),
            has_past=any(step.part == "past" for step in facts.tide.bins),
            has_checks_page=has_checks_page,
        )
    )


def render_lake(summaries: Sequence[dict[str, Any]], has_checks_page: bool = False) -> str:
    """Return the page of the lake; each line is at most a few hundred bytes long."""
    rows = [row | {"said": _short_sentence(row)} for row in summaries]
    level: Level = min((row["level"] for row in rows if row["level"] in ORDER), key=ORDER.__getitem__, default="calm")
    return (
        _environment()
        .get_template("lake.html.j2")
        .render(rows=rows, level=level, verdict=_lake_verdict(rows), has_checks_page=has_checks_page)
    )


def _short_sentence(row: dict[str, Any]) -> str:
    if row["level"] == "none":
        return "No report yet: a full validation writes it."
    return shown(row["problem"] or row["verdict"], _SENTENCE_MAX)


def _lake_verdict(rows: Sequence[dict[str, Any]]) -> str:
    levels = [row["level"] for row in rows]
    parts = [
        f"{counted(levels.count(level), 'collection')} {words}"
        for level, words in (
            ("alarm", "need attention now" if levels.count("alarm") != 1 else "needs attention now"),
            ("warning", "should be looked at soon"),
            ("calm", "are in order" if levels.count("calm") != 1 else "is in order"),
            ("none", "have no report yet" if levels.count("none") != 1 else "has no report yet"),
        )
        if level in levels
    ]
    return f"{'; '.join(parts)}." if parts else "There are no collections."


def _with_history(data_docs: Location, facts: Facts) -> list[dict[str, Any]]:
    """Add a row to the history, and return the newest rows; a history that cannot be used does not stop the report."""
    try:
        append_history(data_docs, shown_values(row_of(facts)))
        return read_history(data_docs, facts.name)
    except (DeltaError, ArrowException, OSError, StoreUnreadable) as error:
        log.error("the history of validations cannot be used", collection=facts.name, reason=str(error).split("\n")[0])
        return []


def _known_summaries(file: Location, present: bytes | None) -> dict[str, dict[str, Any]]:
    """Return the known summary of each collection; none if the file is missing or was changed by hand."""
    if present is None:
        return {}
    try:
        rows: list[Mapping[str, Any]] = json.loads(present)["collections"]
        return {row["name"]: dict(row) for row in rows if row["level"] in ORDER}
    except (ValueError, LookupError, TypeError) as error:
        log.warning("the page of the lake starts over", file=str(file), reason=str(error))
        return {}


@cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    def fit(value: Any) -> Any:
        return shown(value) if isinstance(value, str) and not isinstance(value, Markup) else value

    environment = Environment(
        loader=PackageLoader("tidelake.report"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=fit,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"moment": moment, "number": "{:,}".format, "duration": duration, "counted": counted}
    style = (Path(__file__).parent / "templates" / "report.css").read_text(encoding="utf-8")
    environment.globals |= {
        "style": Markup(style + _theme()),
        "words": _WORDS,
        "marks": _MARKS,
        "late_words": _LATE_WORDS,
    }
    return environment


def _theme() -> str:
    """Return the rules that turn the colours of charts into variables."""
    from tidelake.report.charts import THEMED

    return "".join(
        f'svg [{kind}="{colour}"] {{ {kind}: var(--{name}); }}\n'
        for name, colour in THEMED.items()
        for kind in ("fill", "stroke")
    )
