"""Reads Prometheus's text format, as strictly as a test needs."""

from __future__ import annotations

import re

_LINE = re.compile(r'([a-z_:]+)(?:\{((?:[a-z_]+="(?:[^"\\\n]|\\["\\n])*",?)+)\})? ([-+0-9.e]+)')
_LABEL = re.compile(r'([a-z_]+)="((?:[^"\\]|\\.)*)"')
_ESCAPED = re.compile(r"\\(.)")


def exposed(text: str) -> dict[tuple[str, ...], float]:
    """The value of each series, by the name of its metric followed by the values of its labels in order.

    Fails unless each metric has its help and its type before its series, and no series occurs twice.
    """
    values: dict[tuple[str, ...], float] = {}
    declared: dict[str, set[str]] = {}
    assert text.endswith("\n")
    for line in text.splitlines():
        if line.startswith("# "):
            _, word, name, rest = line.split(" ", 3)
            assert word in {"HELP", "TYPE"} and rest, line
            declared.setdefault(name, set()).add(word)
            continue
        match = _LINE.fullmatch(line)
        assert match is not None, line
        name, labels, value = match.groups()
        assert declared.get(name) == {"HELP", "TYPE"}, line
        found = [
            _ESCAPED.sub(lambda at: {"n": "\n"}.get(at[1], at[1]), text) for _, text in _LABEL.findall(labels or "")
        ]
        series = (name, *found)
        assert series not in values, line
        values[series] = float(value)
    return values
