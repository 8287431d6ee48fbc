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
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from expectations.data_docs import INDEX, Notes, read_notes, result_file, results_folder
from tidelake.report.files import replace_text
from tidelake.report.text import shown

STYLE = "tidelake.css"
LISTED_MAX = 1000
"""Maximum number of results in the index."""
_REMOTE = re.compile(
    r"""<script[^>]*\ssrc=["']https?:[^>]*>\s*</script>|<link[^>]*\shref=["']https?:[^>]*>"""
    r"""|<img[^>]*\ssrc=["']https?:[^>]*>|<link[^>]*\srel=["']shortcut icon["'][^>]*>"""
)
"""Everything that pages load from remote servers, and their icon, whose address is invalid."""
_SCRIPT = re.compile(r"""<script\b.*?</script>|(?<=\s)on[a-z]+=(?:"[^"]*"|'[^']*')""", re.DOTALL)
"""Scripts and event handlers, which the policy would refuse. Texts of the data are escaped, so they contain neither."""
_DARK = re.compile(r"@media \(prefers-color-scheme: dark\) \{.*?(?=</style>)", re.DOTALL)
"""The library's rules for a dark theme, the last in its styles: they load a picture, and suit only remote styles."""
_NO_ASSET = re.compile(r"Data asset: None<br>")
_CONTENTS = '<div class="container-fluid'
"""The start of a page's contents, below its navigation."""
_FOOTER = re.compile(r"<footer.*?</footer>", re.DOTALL)
_STATUS = re.compile(r'(Status:</span>\s*)<i class="[^"]*"[^>]*></i>\s*(?:Failed|Succeeded)')
"""The mark of a whole result. To the library, a result with an unmet warning has failed."""
_PERCENT = re.compile(r"<tr>\s*<td[^>]*><div[^>]*>Success Percent</div></td>.*?</tr>", re.DOTALL)
_CROSS = '<i class="fas fa-times text-danger" ></i>'
_EXCLAMATION = '<i class="fas fa-exclamation-triangle" ></i>'
_UNMET_WARNING = re.compile(re.escape(_CROSS) + r"((?:(?!<i |</tr>).)*? \(a warning\): )", re.DOTALL)
_POLICY = (
    '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
    "style-src 'self' file: 'unsafe-inline'; img-src 'self' file: data:; base-uri 'none'; form-action 'none'\">"
)
"""Forbids scripts, and everything that would be loaded from elsewhere."""
_INDEX = """<!doctype html>
<html lang="en">
<head>{policy}<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Data Docs</title><link rel="stylesheet" href="static/styles/{style}"></head>
<body class="index">
<p><a href="index.html">The lake</a></p>
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


def make_readable_offline(data_docs: Path, suite: str) -> None:
    """Rewrite the pages of a suite that still have remote links, and rewrite the index; the folder is on a disk."""
    styles = data_docs / "static" / "styles"
    styles.mkdir(parents=True, exist_ok=True)
    shutil.copy(Path(__file__).with_name(STYLE), styles / STYLE)
    pages = [data_docs / "expectations" / f"{suite}.html", *(data_docs / "validations" / suite).glob("**/*.html")]
    for page in pages:
        text = page.read_text(encoding="utf-8")
        if STYLE not in text:
            link = os.path.relpath(styles / STYLE, page.parent)
            for unwanted in (_REMOTE, _SCRIPT, _FOOTER, _DARK):
                text = unwanted.sub("", text)
            above, contents, below = _NO_ASSET.sub("", text).partition(_CONTENTS)
            text = above + _section(read_notes(data_docs, page)) + _by_severity(data_docs, page, contents + below)
            above, head, below = text.partition("</head>")
            style = f'<link rel="stylesheet" href="{link}">'
            replace_text(page, re.sub("<head>", f"<head>{_POLICY}", above, count=1) + style + head + below)
    replace_text(data_docs / INDEX, render_index(list_results(data_docs, LISTED_MAX)))


def render_index(results: Sequence[Result]) -> str:
    """Return the index of these results, in order."""
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
        for result in results
    ]
    return _INDEX.format(policy=_POLICY, style=STYLE, rows="\n".join(rows))


def _by_severity(data_docs: Path, page: Path, text: str) -> str:
    """Mark a result by the severity of its unmet expectations: a result with only warnings has not failed."""
    file = result_file(data_docs, page)
    if file is None:
        return text
    unmet = [result["expectation_config"] for result in _read(file)["results"] if not result["success"]]
    warnings = sum(expectation["severity"] == "warning" for expectation in unmet)
    errors = len(unmet) - warnings
    if errors:
        mark = f"{_CROSS} Failed: {_number(errors, 'error')}, {_number(warnings, 'warning')}"
    elif warnings:
        mark = f"{_EXCLAMATION} Passed, with {_number(warnings, 'warning')}"
    else:
        mark = '<i class="fas fa-check-circle text-success" ></i> Passed'
    rows = "".join(f"<tr><td>{name}</td><td>{count}</td></tr>" for name, count in _severities(errors, warnings))
    text = _PERCENT.sub(lambda _: rows, _STATUS.sub(lambda found: found[1] + mark, text))
    return _UNMET_WARNING.sub(lambda found: _EXCLAMATION + found[1], text)


def _severities(errors: int, warnings: int) -> tuple[tuple[str, int], ...]:
    return ("Unmet: errors", errors), ("Unmet: warnings", warnings)


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _read(file: Path) -> dict[str, Any]:
    return dict(json.loads(file.read_text(encoding="utf-8")))


def _section(notes: Notes) -> str:
    """Return the section with the notes, at the top of a page; empty if there are none."""
    first = "".join(f"<p>{html.escape(shown(line))}</p>" for line in notes.headline)
    numbers = "".join(
        f"<div><dt>{html.escape(name)}</dt><dd>{html.escape(value)}</dd></div>" for name, value in notes.numbers.items()
    )
    headline = f'<section class="headline">{first}<dl>{numbers}</dl></section>' if first or numbers else ""
    return headline + _reasons(notes)


def _reasons(notes: Notes) -> str:
    parts = {"Sealed by decision": notes.decided, **notes.evidence}
    lists = [
        f"<h2>{html.escape(title)}</h2><ul>{''.join(f'<li>{html.escape(shown(line))}</li>' for line in lines)}</ul>"
        for title, lines in parts.items()
        if lines
    ]
    return f'<section class="notes">{"".join(lists)}</section>' if lists else ""


def list_results(data_docs: Path, limit: int | None = None) -> list[Result]:
    """Return the stored results, newest first."""
    results = []
    root = results_folder(data_docs)
    # Folder names have microseconds; the time on the page has seconds.
    newest_first = sorted(root.glob("*/*/*/*.json"), key=lambda path: (path.parent.name, path), reverse=True)
    for path in newest_first[:limit]:
        document = _read(path)
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
