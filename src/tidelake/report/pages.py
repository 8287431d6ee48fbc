"""Renders the pages, and writes them with their JSON: one for each collection, and one for the lake.

A page is a single file without scripts, and its security policy forbids it to load anything. Every text on it passes
through `text.shown` and is then escaped.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog
from deltalake.exceptions import DeltaError
from pyarrow import ArrowException

from tidelake.read.words import counted, duration
from tidelake.report.facts import Facts, summary_of
from tidelake.report.files import replace_text
from tidelake.report.history import append_history, read_history, row_of
from tidelake.report.problems import ORDER, Level
from tidelake.report.text import moment, shown, shown_values

if TYPE_CHECKING:
    from jinja2 import Environment

log = structlog.get_logger("tidelake")

LAKE_PAGE, LAKE_JSON, COLLECTIONS = "index.html", "lake.json", "collections"
CHECKS_PAGE = "validations.html"
"""The index of the Data Docs, which other code writes."""
_SAID_MAX = 150
_WORDS = {"alarm": "Needs attention", "warning": "Look at this soon", "calm": "In order", "none": "No report yet"}
_MARKS = {"alarm": "✗", "warning": "!", "calm": "✓", "none": "–"}
_LATE_WORDS = {
    "copy": "copies",
    "contradiction": "contradicting what was published",
    "settled": "settled by decision",
    "untold": "about times that compaction has merged",
    "late": "not compared yet",
}


def write_report(data_docs: Path, facts: Facts, names: Sequence[str]) -> Path:
    """Write the page of a collection and its JSON, add a row to the history, and write the page of the lake again.

    Args:
        data_docs: the folder of the reports; it is created.
        facts: what the page shows.
        names: the names of all collections of the lake. All others are removed from the page of the lake.

    Returns:
        The page of the collection.

    Raises:
        OSError: the folder cannot be written to.
    """
    folder = data_docs / COLLECTIONS
    folder.mkdir(parents=True, exist_ok=True)
    page = folder / f"{facts.name}.html"
    history = _with_history(data_docs, facts)
    replace_text(folder / f"{facts.name}.json", json.dumps(facts.as_json(), indent=1))
    replace_text(page, render_collection(facts, history, (data_docs / CHECKS_PAGE).exists()))
    write_lake_page(data_docs, names, summary_of(facts))
    return page


def write_lake_page(data_docs: Path, names: Sequence[str], summary: dict[str, Any] | None = None) -> None:
    """Write the page of the lake from what is known, replacing what is known about one collection.

    Processes that write at the same time wait for each other.
    """
    data_docs.mkdir(parents=True, exist_ok=True)
    with _locked(data_docs / ".lock"):
        known = _read_lake(data_docs / LAKE_JSON)
        if summary is not None:
            known[summary["name"]] = shown_values(summary)
        summaries = [known.get(name, {"name": name, "level": "none", "at_ms": None}) for name in names]
        summaries.sort(key=lambda row: (ORDER.get(row["level"], len(ORDER)), row["name"]))
        replace_text(data_docs / LAKE_JSON, json.dumps({"collections": summaries}, indent=1))
        replace_text(data_docs / LAKE_PAGE, render_lake(summaries, (data_docs / CHECKS_PAGE).exists()))


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
    rows = [row | {"said": _said_shortly(row)} for row in summaries]
    level: Level = min((row["level"] for row in rows if row["level"] in ORDER), key=ORDER.__getitem__, default="calm")
    return (
        _environment()
        .get_template("lake.html.j2")
        .render(rows=rows, level=level, verdict=_lake_verdict(rows), has_checks_page=has_checks_page)
    )


def _said_shortly(row: dict[str, Any]) -> str:
    if row["level"] == "none":
        return "No report yet: a full validation writes it."
    return shown(row["problem"] or row["verdict"], _SAID_MAX)


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


def _with_history(data_docs: Path, facts: Facts) -> list[dict[str, Any]]:
    """Add a row to the history and return it; a history that cannot be used does not stop the report."""
    try:
        append_history(data_docs, shown_values(row_of(facts)))
        return read_history(data_docs, facts.name)
    except (DeltaError, ArrowException, OSError) as error:
        log.error("the history of validations cannot be used", collection=facts.name, reason=str(error).split("\n")[0])
        return []


def _read_lake(file: Path) -> dict[str, dict[str, Any]]:
    """Return what is known about each collection; nothing if the file is missing or was changed by hand."""
    try:
        rows = json.loads(file.read_text(encoding="utf-8"))["collections"]
        return {row["name"]: row for row in rows if row["level"] in ORDER}
    except FileNotFoundError:
        return {}
    except (ValueError, LookupError, TypeError) as error:
        log.warning("the page of the lake starts anew", file=str(file), reason=str(error))
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


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    with file.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
