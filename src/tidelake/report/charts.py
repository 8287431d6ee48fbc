"""Charts as static SVG, which need neither scripts nor a server.

Altair describes a chart, and vl-convert draws it. The colours are those of the light theme; `report.css` maps each of
them to a variable, so that one picture fits both themes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tidelake.report.text import moment, time_text
from tidelake.report.tide import Tide

if TYPE_CHECKING:
    import altair

INK, MUTED, LINE = "#1d2733", "#5b6673", "#d9dee4"
SEA, PAST, SAND, MISSING = "#2a78d6", "#a9b8c9", "#c98500", "#b3261e"
"""The colours of times that are sealed, before since, or not sealed yet, and of what is missing."""
THEMED = {"ink": INK, "muted": MUTED, "line": LINE, "sea": SEA, "past": PAST, "sand": SAND, "missing": MISSING}
"""The variables of `report.css` that replace the colours."""

NARROW, WIDE = 560, 1010
"""Widths in pixels: of a chart that also fits a phone, and of a chart as wide as a page."""
_HEIGHT = 190
_BARS_MIN = 8
"""A chart has room for at least this many bars, so that a few bars are not drawn as wide blocks."""
_LABEL_WIDTH = 80
_SHORT_NUMBER = "format(datum.value, '~s')"
_FONT = "system-ui, sans-serif"
_CLIP = re.compile(r'(?<=id=")clip|(?<=url\(#)clip')
_SIZE = re.compile(r'^(<svg\b[^>]*?) width="[\d.]+" height="[\d.]+"')


def draw_tide(tide: Tide, since: int | None, upper: int | None, is_clock: bool, width: int = NARROW) -> str:
    """Draw the tide picture, in which each bar holds consecutive times.

    A bar below upper shows the counted updates, a bar at or after upper the stored rows. An outline around a bar shows
    the announced updates, if their number differs from the bar's, or if the times are not sealed. Returns an
    empty string if there is nothing to draw.

    Args:
        tide: the numbers.
        since: the mark; None if no time can be read.
        upper: the mark; None if the stream is closed.
        is_clock: whether times are milliseconds since 1970.
        width: the width of the picture, in pixels.
    """
    import altair

    if not tide.bins:
        return ""
    rows: list[dict[str, Any]] = [
        {
            "x": index,
            "announced": float(step.announced),
            "counted": float(step.counted),
            "part": step.part,
        }
        for index, step in enumerate(tide.bins)
    ]
    base = _chart(rows)
    ticks = _ticks(len(rows), width // _LABEL_WIDTH)
    labels = {index: _short(tide.bins[index].first, is_clock) for index in ticks}
    x = altair.X(
        "x:Q",
        title="time of the source; each bar holds consecutive times" if _is_binned(tide) else "time of the source",
        scale=altair.Scale(domain=[-0.7, max(len(rows), _BARS_MIN) - 0.3], nice=False),
        axis=altair.Axis(values=ticks, labelExpr=_labels(labels), grid=False, labelOverlap=True, labelFlush=True),
    )
    top = max(max(row["announced"], row["counted"]) for row in rows) or 1.0
    y = altair.Scale(domain=[0, top * 1.22], nice=False)
    axis = altair.Axis(tickCount=4, labelExpr=_SHORT_NUMBER, domain=False, ticks=False)
    size = min(26.0, max(3.0, 0.72 * width / max(len(rows), _BARS_MIN)))
    bars = base.mark_bar(size=size, cornerRadiusEnd=2).encode(
        x=x,
        y=altair.Y("counted:Q", title="updates", scale=y, axis=axis),
        color=altair.Color(
            "part:N",
            scale=altair.Scale(domain=["past", "sealed", "open"], range=[PAST, SEA, SAND]),
            legend=None,
        ),
    )
    outline = (
        base.transform_filter("datum.announced != datum.counted || datum.part == 'open'")
        .mark_bar(size=size + 2, fillOpacity=0, stroke=INK, strokeWidth=1.2, cornerRadiusEnd=2)
        .encode(x=x, y=altair.Y("announced:Q", scale=y))
    )
    layers: list[Any] = [bars, outline]
    parts = [step.part for step in tide.bins]
    past = parts.count("past")
    marks = []
    if since is not None:
        marks.append({"at": past - 0.5, "text": f"since {_short(since, is_clock)}", "side": "left", "up": top * 1.19})
    if upper is not None:
        beyond = len(parts) - parts.count("open")
        marks.append(
            {"at": beyond - 0.5, "text": f"upper {_short(upper, is_clock)}", "side": "right", "up": top * 1.08}
        )
    layers += _marks(marks, y, len(rows))
    chart = altair.layer(*layers).properties(width=width, height=_HEIGHT)
    return _svg(chart, "Updates by time, below upper and beyond it", f"tide-{width}")


def _marks(marks: Sequence[dict[str, Any]], y: altair.Scale, bars: int) -> list[Any]:
    import altair

    layers: list[Any] = []
    for mark in marks:
        # A label goes on the side where there is room for it.
        to_left = mark["at"] > 0.62 * max(bars, _BARS_MIN)
        layers.append(_chart([mark]).mark_rule(color=INK, strokeWidth=1.5, strokeDash=[4, 3]).encode(x="at:Q"))
        layers.append(
            _chart([mark])
            .mark_text(color=INK, align="right" if to_left else "left", dx=-6 if to_left else 6, fontWeight=600)
            .encode(x="at:Q", y=altair.Y("up:Q", scale=y), text="text:N")
        )
    return layers


def draw_marks(upper: Sequence[tuple[int, int]], since: Sequence[tuple[int, int]], is_clock: bool) -> str:
    """Draw how upper and since have moved over time, as steps.

    Returns an empty string if there are fewer than two points.

    Args:
        upper: points `(milliseconds since 1970, upper)`.
        since: the same for since.
        is_clock: whether times are milliseconds since 1970.
    """
    import altair

    if len(upper) < 2:
        return ""
    rows = [
        {"at": at, "time": float(time), "what": what}
        for what, points in (("upper", upper), ("since", since))
        for at, time in points
    ]
    kind = "T" if is_clock else "Q"
    axis = (
        altair.Axis(tickCount=4, domain=False, ticks=False)
        if is_clock
        else altair.Axis(tickCount=4, labelExpr=_SHORT_NUMBER, domain=False, ticks=False)
    )
    lines = (
        _chart(rows)
        .mark_line(interpolate="step-after", strokeWidth=2)
        .encode(
            x=altair.X("at:T", title="wall-clock time (UTC)", scale=altair.Scale(type="utc"), axis=_clock_axis()),
            y=altair.Y(
                f"time:{kind}",
                title="time of the source",
                scale=altair.Scale(type="utc", zero=False) if is_clock else altair.Scale(zero=False),
                axis=axis,
            ),
            color=altair.Color(
                "what:N",
                scale=altair.Scale(domain=["upper", "since"], range=[SEA, PAST]),
                legend=altair.Legend(title=None, orient="top", symbolType="stroke"),
            ),
        )
    )
    return _svg(lines.properties(width=NARROW, height=_HEIGHT - 30), "Upper and since over time", "marks")


def draw_open(rows: Sequence[dict[str, Any]]) -> str:
    """Draw how many announced updates had not arrived, and how many rows were not sealed, at each validation.

    Args:
        rows: rows of the history, oldest first: `at_ms`, `outstanding`, `pending`.
    """
    import altair

    if len(rows) < 2:
        return ""
    values = [
        {"at": row["at_ms"], "count": float(row[name]), "what": what}
        for name, what in (("pending", "stored, not sealed"), ("outstanding", "announced, not stored"))
        for row in rows
    ]
    lines = (
        _chart(values)
        .mark_line(interpolate="step-after", strokeWidth=2, point={"size": 18, "filled": True})
        .encode(
            x=altair.X("at:T", title="validation (UTC)", scale=altair.Scale(type="utc"), axis=_clock_axis()),
            y=altair.Y(
                "count:Q",
                title="updates",
                axis=altair.Axis(tickCount=4, labelExpr=_SHORT_NUMBER, tickMinStep=1, domain=False, ticks=False),
            ),
            color=altair.Color(
                "what:N",
                scale=altair.Scale(domain=["stored, not sealed", "announced, not stored"], range=[SAND, MISSING]),
                legend=altair.Legend(title=None, orient="top", symbolType="stroke"),
            ),
        )
    )
    return _svg(lines.properties(width=NARROW, height=_HEIGHT - 30), "Open updates at each validation", "open")


def _chart(rows: Sequence[dict[str, Any]]) -> altair.Chart:
    import altair

    return altair.Chart(altair.Data(values=list(rows)))  # type: ignore[no-untyped-call]


def _clock_axis() -> altair.Axis:
    import altair

    return altair.Axis(tickCount=5, grid=False, labelOverlap=True, labelFlush=True)


def _svg(chart: Any, name: str, key: str) -> str:
    """Draw a chart that fills the available width of its page.

    Args:
        chart: the chart.
        name: the chart's description for screen readers.
        key: the prefix of the ids in the SVG, which must be unique on a page with several charts.
    """
    import vl_convert

    # Vega would describe every bar in words; the page has the numbers, and names the picture once.
    chart = chart.configure(background="transparent", font=_FONT, padding=2, aria=False)
    chart = chart.configure_axis(
        labelColor=MUTED,
        titleColor=MUTED,
        gridColor=LINE,
        domainColor=LINE,
        tickColor=LINE,
        labelFontSize=13,
        titleFontSize=13,
        titleFontWeight="normal",
        titlePadding=6,
    )
    chart = chart.configure_legend(labelColor=MUTED, labelFontSize=13).configure_view(stroke=None)
    chart = chart.configure_text(fontSize=13)
    svg = vl_convert.vegalite_to_svg(chart.to_dict())
    return _SIZE.sub(rf'\1 role="img" aria-label="{name}"', _CLIP.sub(f"{key}-clip", svg), count=1)


def _is_binned(tide: Tide) -> bool:
    return any(step.times > 1 for step in tide.bins)


def _ticks(bars: int, most: int) -> list[int]:
    """Choose the bars that get a label.

    >>> _ticks(40, 7)
    [0, 6, 12, 18, 24, 30, 36]
    """
    step = max(1, -(-bars // most))
    return list(range(0, bars, step))


def _labels(labels: dict[int, str]) -> str:
    """Return the Vega expression that writes these labels; they hold digits, letters, colons, spaces and hyphens."""
    pairs = ", ".join(f"'{index}': '{text}'" for index, text in labels.items())
    return f"({{{pairs}}})[datum.value]"


def _short(time: int, is_clock: bool) -> str:
    """Write a time briefly: a minted time as a date and time without the year, any other unchanged.

    >>> _short(1_700_000_000_123, True), _short(999, False)
    ('11-14 22:13', '999')
    """
    if is_clock and time_text(time, True) != str(time):
        return moment(time)[5:16]
    return str(time)
