"""Durations as settings write them: `90s`, `12h`, `7d`."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

_DURATION = re.compile(r"([1-9][0-9]{0,5}) ?(s|m|h|d)")
_UNITS_S = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


def duration_of(text: Any) -> timedelta | None:
    """Return the duration that a value of the settings states; None if it states none.

    >>> duration_of("12h"), duration_of("7 d"), duration_of("1w"), duration_of(7)
    (datetime.timedelta(seconds=43200), datetime.timedelta(days=7), None, None)
    """
    match = _DURATION.fullmatch(text) if isinstance(text, str) else None
    return None if match is None else timedelta(seconds=int(match[1]) * _UNITS_S[match[2]])
