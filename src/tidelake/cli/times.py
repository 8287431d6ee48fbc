"""Reads and shows times: numbers and, for reclocked collections, also ISO 8601."""

from __future__ import annotations

import re

from tidelake.errors import OptionRefused
from tidelake.protocol.iso_times import ISO_RULE, iso_of, parse_iso
from tidelake.protocol.order import INT64_MAX, INT64_MIN


def read_time(option: str, text: str, name: str, mints_times: bool) -> int:
    """Return the time that an option names.

    Args:
        option: the option, for the error.
        text: a whole number or, if times are minted, a time with its zone.
        name: the collection.
        mints_times: whether the collection's times are milliseconds since 1970.

    Raises:
        OptionRefused: it is no time, or an ISO time for a collection whose topic states times.
    """
    if re.fullmatch(r"[+-]?[0-9]{1,40}", text):
        if INT64_MIN <= int(text) <= INT64_MAX:
            return int(text)
        raise OptionRefused(f"{option} is {text}, which does not fit in 64 bits", "give a smaller number")
    try:
        time = parse_iso(text)
    except ValueError:
        kinds = f"a whole number, or {ISO_RULE}" if mints_times else "a whole number"
        raise OptionRefused(f"{option} is {text!r}, which is not a time of '{name}'", f"give {kinds}") from None
    if not mints_times:
        raise OptionRefused(
            f"{option} is {text!r}, but the topic of '{name}' states times as numbers without a unit",
            "give a whole number; only reclocked collections also accept ISO times",
        )
    return time


def with_iso(time: int) -> str:
    """Return a minted time, and the same time in UTC.

    >>> with_iso(1767225800000)
    '1767225800000 (2026-01-01T00:03:20.000Z)'
    """
    iso = iso_of(time)
    return str(time) if iso is None else f"{time} ({iso})"
