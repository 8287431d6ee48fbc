"""Makes the Data Docs readable without the internet, and stops them from loading anything from it.

The pages of Great Expectations load their styles from remote servers, and the index loads its rows from there too. This
module removes those links, adds a small style sheet, and writes the index as a plain table.
"""

from __future__ import annotations

import html
import json
import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from expectations.data_docs import Notes, read_notes, results_folder

STYLE = "tidelake.css"
_REMOTE = re.compile(
    r"""<script[^>]*\ssrc=["']https?:[^>]*>\s*</script>|<link[^>]*\shref=["']https?:[^>]*>"""
    r"""|<img[^>]*\ssrc=["']https?:[^>]*>|<link[^>]*\srel=["']shortcut icon["'][^>]*>"""
)
"""Everything that pages load from remote servers, and their icon, whose address is invalid."""
_NO_ASSET = re.compile(r"Data asset: None<br>")
_CONTENTS = '<div class="container-fluid'
"""The start of a page's contents, below its navigation."""
_FOOTER = re.compile(r"<footer.*?</footer>", re.DOTALL)
_INDEX = """<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>Data Docs</title><link rel="stylesheet" href="static/styles/{style}"></head>
<body class="index">
<h1>Data Docs</h1>
<p>Full validations, newest first. Each recounts a collection independently of its seals.</p>
<table>
<thead>
<tr><th></th><th>Collection</th><th>Validated at (UTC)</th><th>Expectations met</th><th>Not met</th>
<th>Sealed by decision</th><th></th></tr>
</thead>
<tbody>
{rows}
</tbody>
</table>
</body>
</html>
"""
_ROW = (
    '<tr><td><i class="{icon}"></i></td><td><a href="expectations/{suite}.html">{suite}</a></td><td>{at}</td>'
    '<td>{met} of {evaluated}</td><td>{failed}</td><td>{decided}</td><td><a href="{page}">result</a></td></tr>'
)


@dataclass(frozen=True)
class Result:
    """One validation in the index."""

    suite: str
    at: str
    met: int
    evaluated: int
    failed: tuple[str, ...]
    """The checks that failed."""
    alarming: bool
    """Whether at least one of these failures is an error rather than a warning."""
    page: str
    decided: int
    """Number of times that were sealed by decision."""

    @property
    def icon(self) -> str:
        """The icon's class: a check mark, an exclamation mark or a cross."""
        if not self.failed:
            return "fa-check-circle"
        return "fa-times" if self.alarming else "fa-exclamation-triangle"


def make_readable_offline(data_docs: Path) -> None:
    """Rewrite every page that still has remote links, and rewrite the index."""
    styles = data_docs / "static" / "styles"
    styles.mkdir(parents=True, exist_ok=True)
    shutil.copy(Path(__file__).with_name(STYLE), styles / STYLE)
    for page in data_docs.glob("**/*.html"):
        text = page.read_text(encoding="utf-8")
        if STYLE not in text:
            link = os.path.relpath(styles / STYLE, page.parent)
            text = _FOOTER.sub("", _REMOTE.sub("", text))
            above, contents, below = _NO_ASSET.sub("", text).partition(_CONTENTS)
            text = above + _section(read_notes(data_docs, page)) + contents + below
            _write(page, text.replace("</head>", f'<link rel="stylesheet" href="{link}"></head>', 1))
    rows = [
        _ROW.format(
            icon=result.icon,
            suite=html.escape(result.suite),
            at=html.escape(result.at),
            met=result.met,
            evaluated=result.evaluated,
            failed=html.escape(", ".join(result.failed)),
            decided=f"{result.decided} {'time' if result.decided == 1 else 'times'}" if result.decided else "",
            page=html.escape(result.page),
        )
        for result in list_results(data_docs)
    ]
    _write(data_docs / "index.html", _INDEX.format(style=STYLE, rows="\n".join(rows)))


def _section(notes: Notes) -> str:
    """Return the section with the notes, at the top of a page; empty if there are none."""
    parts = {"Sealed by decision": notes.decided, **notes.evidence}
    lists = [
        f"<h2>{html.escape(title)}</h2><ul>{''.join(f'<li>{html.escape(line)}</li>' for line in lines)}</ul>"
        for title, lines in parts.items()
        if lines
    ]
    return f'<section class="notes">{"".join(lists)}</section>' if lists else ""


def list_results(data_docs: Path) -> list[Result]:
    """Return all stored results, newest first."""
    results = []
    root = results_folder(data_docs)
    # Folder names have microseconds; the time on the page has seconds.
    newest_first = sorted(root.glob("*/*/*/*.json"), key=lambda path: (path.parent.name, path), reverse=True)
    for path in newest_first:
        document = json.loads(path.read_text(encoding="utf-8"))
        statistics, relative = document["statistics"], path.relative_to(root)
        failed = [result["expectation_config"] for result in document["results"] if not result["success"]]
        results.append(
            Result(
                suite=relative.parts[0],
                at=_readable_time(relative.parts[2]),
                met=int(statistics["successful_expectations"]),
                evaluated=int(statistics["evaluated_expectations"]),
                failed=tuple(str(expectation["meta"]["check"]) for expectation in failed),
                alarming=any(expectation["severity"] != "warning" for expectation in failed),
                page=(Path("validations") / relative.with_suffix(".html")).as_posix(),
                decided=len(read_notes(data_docs, path).decided),
            )
        )
    return results


def _readable_time(folder: str) -> str:
    """Return the name of a folder as a readable time.

    >>> _readable_time("20261121T113400.150767Z")
    '2026-11-21 11:34:00'
    """
    match = re.match(r"(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)(\d\d)", folder)
    return folder if match is None else "{}-{}-{} {}:{}:{}".format(*match.groups())


def _write(path: Path, text: str) -> None:
    """Replace a page atomically: somebody may be reading it."""
    unfinished = path.with_name(f".{path.name}.unfinished")
    unfinished.write_text(text, encoding="utf-8")
    unfinished.replace(path)
