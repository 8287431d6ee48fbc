"""Makes stored results safe for pages: Great Expectations puts texts into pages without escaping or cutting them."""

from __future__ import annotations

import html
import json
from pathlib import Path
from typing import Any

from tidelake.report.text import shown

_VALUES = ("observed_value", "details", "partial_unexpected_list", "partial_unexpected_counts")
"""The parts of a result that may hold values of the data."""
_HIDDEN = "hidden"


def make_harmless(file: Path, hides_values: bool) -> None:
    """Escape and cut the texts of a stored result or suite, before pages are made from it.

    Args:
        file: the JSON file; a result has `results`, a suite has `expectations`.
        hides_values: whether values of the data are left out. Numbers that were computed from them are kept.
    """
    document = json.loads(file.read_text(encoding="utf-8"))
    for part in ("results", "expectations"):
        if part in document:
            document[part] = [_harmless(_without_values(entry) if hides_values else entry) for entry in document[part]]
    file.write_text(json.dumps(document), encoding="utf-8")


def _without_values(entry: dict[str, Any]) -> dict[str, Any]:
    """Leave out values of the data; missing parts are not added."""
    result = entry.get("result") or {}
    hidden: dict[str, Any] = {name: _HIDDEN for name in _VALUES if isinstance(result.get(name), str | dict)}
    hidden |= {name: [] for name in _VALUES if isinstance(result.get(name), list)}
    return entry | {"result": result | hidden} if hidden else entry


def _harmless(value: Any) -> Any:
    """Escape and cut every text outside of conditions.

    >>> _harmless({"a": ["<b>", 1]})
    {'a': ['&lt;b&gt;', 1]}
    """
    if isinstance(value, str):
        return html.escape(shown(value), quote=False)
    if isinstance(value, dict):
        return {
            # The library reads the operators of a condition, such as `<`, when it makes a page.
            _harmless(name): inner if name == "row_condition" and isinstance(inner, dict) else _harmless(inner)
            for name, inner in value.items()
        }
    return [_harmless(inner) for inner in value] if isinstance(value, list) else value
