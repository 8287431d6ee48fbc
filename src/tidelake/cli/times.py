"""Reads and shows times: numbers and, for reclocked collections, also ISO 8601."""

from __future__ import annotations

import re

import typer

from tidelake.errors import OptionRefused, show
from tidelake.protocol.iso_times import ISO_RULE, MintedTime, parse_iso
from tidelake.protocol.order import INT64_MAX

_DAY_S = 86_400.0
_NUMBER = re.compile(r"[+-]?[0-9]+")


def check_number(text: str | None) -> str | None:
    """Refuse a whole number that is not a time, before anything is opened.

    Raises:
        typer.BadParameter: it is negative, or it does not fit in 64 bits.
    """
    if text is not None and _NUMBER.fullmatch(text) and not _is_time(text):
        raise typer.BadParameter(f"{show(text)} is not in the range 0<=x<={INT64_MAX}.")
    return text


def _is_time(text: str) -> bool:
    return len(text) <= len(f"+{INT64_MAX}") and 0 <= int(text) <= INT64_MAX


def read_time(option: str, text: str, name: str | None, mints_times: bool) -> int:
    """Return the time that an option names.

    Args:
        option: the option, for the error.
        text: a whole number that `check_number` has accepted or, if times are minted, a time with its zone.
        name: the collection; None if the time is one of a query, which may be of any collection.
        mints_times: whether the times of the collection, or of any collection of the lake, are milliseconds since 1970.

    Raises:
        OptionRefused: it is not a time, or it is an ISO time for a collection whose topic states times.
    """
    if _NUMBER.fullmatch(text):
        return int(text)
    try:
        time = parse_iso(text)
    except ValueError:
        of = "" if name is None else f" of '{name}'"
        kinds = f"a whole number, or {ISO_RULE}" if mints_times else "a whole number"
        raise OptionRefused(f"{option} is {text!r}, which is not a time{of}", f"give {kinds}") from None
    if not mints_times:
        who = (
            "no collection of the lake is reclocked, so they state" if name is None else f"the topic of '{name}' states"
        )
        raise OptionRefused(
            f"{option} is {text!r}, but {who} times as numbers without a unit",
            "give a whole number; only reclocked collections also accept ISO times",
        )
    return time


def shown_time(time: int, mints_times: bool) -> str:
    """Return a time as text; a minted one is followed by the same time in UTC.

    >>> shown_time(1767225800000, mints_times=True)
    '1767225800000 (2026-01-01T00:03:20.000Z)'
    >>> shown_time(7, mints_times=False)
    '7'
    """
    return repr(MintedTime(time)) if mints_times else str(time)


def seconds_of(option: str, text: str, max_s: float = _DAY_S) -> float:
    """Return the seconds of a duration such as 90s, 4m, 1h or 7d.

    Raises:
        OptionRefused: it has another form, is 0, or is longer than `max_s`, which is a day unless it is given.

    >>> seconds_of("--linger", "4m"), seconds_of("--linger", "1.5h"), seconds_of("--lease", "7d", max_s=1e6)
    (240.0, 5400.0, 604800.0)
    """
    match = re.fullmatch(r"(\d{1,6}(?:\.\d{1,3})?)\s?(s|m|h|d)", text)
    if match is None:
        fact = f"{option} is {text!r}, which is not a number with one of the units s, m, h and d"
        raise OptionRefused(fact, "give one such as 90s, 4m or 1h")
    seconds = float(match[1]) * {"s": 1, "m": 60, "h": 3600, "d": _DAY_S}[match[2]]
    if not 0 < seconds <= max_s:
        raise OptionRefused(
            f"{option} is {text!r}, but must be more than 0 s and at most {max_s:,.0f} s",
            "give one such as 90s, 4m or 1h",
        )
    return seconds
