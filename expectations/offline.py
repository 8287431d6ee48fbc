"""Makes the Data Docs readable without the internet, and keeps them from asking for anything in it.

The pages that Great Expectations writes take their looks, and the index all of its rows, from servers elsewhere. Here
those links go, a small style sheet comes in their place, and the index is written as a plain table.
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
"""What pages ask for elsewhere; and their icon, whose address is wrong."""
_NO_ASSET = re.compile(r"Data asset: None<br>")
_CONTENTS = '<div class="container-fluid'
"""Where the contents of a page begin, below its navigation."""
_FOOTER = re.compile(r"<footer.*?</footer>", re.DOTALL)
_INDEX = """<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>Data Docs</title><link rel="stylesheet" href="static/styles/{style}"></head>
<body class="index">
<h1>Data Docs</h1>
<p>Full validations, the newest first: every collection recounted independently of its seals.</p>
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
    """One validation as the index lists it."""

    suite: str
    at: str
    met: int
    evaluated: int
    failed: tuple[str, ...]
    """The checks that failed."""
    alarming: bool
    """Whether one of them is more than a warning."""
    page: str
    decided: int
    """How many times of the collection were sealed by decision."""

    @property
    def icon(self) -> str:
        """The style sheet's name for a tick, a mark, or a cross."""
        if not self.failed:
            return "fa-check-circle"
        return "fa-times" if self.alarming else "fa-exclamation-triangle"


def make_readable_offline(data_docs: Path) -> None:
    """Rewrite every page that still has remote links, and write the index anew."""
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
            icon=one.icon,
            suite=html.escape(one.suite),
            at=html.escape(one.at),
            met=one.met,
            evaluated=one.evaluated,
            failed=html.escape(", ".join(one.failed)),
            decided=f"{one.decided} {'time' if one.decided == 1 else 'times'}" if one.decided else "",
            page=html.escape(one.page),
        )
        for one in list_results(data_docs)
    ]
    _write(data_docs / "index.html", _INDEX.format(style=STYLE, rows="\n".join(rows)))


def _section(notes: Notes) -> str:
    """Notes as the first thing on a page; nothing where there are none."""
    parts = {"Sealed by decision": notes.decided, **notes.evidence}
    lists = [
        f"<h2>{html.escape(title)}</h2><ul>{''.join(f'<li>{html.escape(line)}</li>' for line in lines)}</ul>"
        for title, lines in parts.items()
        if lines
    ]
    return f'<section class="notes">{"".join(lists)}</section>' if lists else ""


def list_results(data_docs: Path) -> list[Result]:
    """Every result that is kept, the newest first."""
    found = []
    root = results_folder(data_docs)
    # By the name of its folder, which tells more of the time than the second that is shown.
    newest_first = sorted(root.glob("*/*/*/*.json"), key=lambda path: (path.parent.name, path), reverse=True)
    for path in newest_first:
        document = json.loads(path.read_text(encoding="utf-8"))
        statistics, relative = document["statistics"], path.relative_to(root)
        failed = [one["expectation_config"] for one in document["results"] if not one["success"]]
        found.append(
            Result(
                suite=relative.parts[0],
                at=_readable_time(relative.parts[2]),
                met=int(statistics["successful_expectations"]),
                evaluated=int(statistics["evaluated_expectations"]),
                failed=tuple(str(one["meta"]["check"]) for one in failed),
                alarming=any(one["severity"] != "warning" for one in failed),
                page=(Path("validations") / relative.with_suffix(".html")).as_posix(),
                decided=len(read_notes(data_docs, path).decided),
            )
        )
    return found


def _readable_time(folder: str) -> str:
    """A folder's name like `20261121T113400.150767Z`, for a person.

    >>> _readable_time("20261121T113400.150767Z")
    '2026-11-21 11:34:00'
    """
    match = re.match(r"(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)(\d\d)", folder)
    return folder if match is None else "{}-{}-{} {}:{}:{}".format(*match.groups())


def _write(path: Path, text: str) -> None:
    """Replace a page at once: somebody may be reading it."""
    unfinished = path.with_name(f".{path.name}.unfinished")
    unfinished.write_text(text, encoding="utf-8")
    unfinished.replace(path)
