"""Parses ISO dates and timestamps of any year into Avro's counts: days and microseconds since 1970."""

from __future__ import annotations

import re
from datetime import date

_DAY = r"([+-]?\d{4,7})-(\d\d)-(\d\d)"
_DATE = re.compile(_DAY, re.ASCII)
_TIMESTAMP = re.compile(_DAY + r"[T ](\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,6}))?)?(?:Z|([+-])(\d\d):?(\d\d))", re.ASCII)
_CYCLE_YEARS, _CYCLE_DAYS = 400, 146_097  # the calendar repeats after 400 years
_EPOCH = date(1970, 1, 1).toordinal()


def days_of_text(text: str) -> int | None:
    """Parse an ISO date.

    Returns:
        Days since 1970; None if the text is not a date.

    >>> days_of_text("1970-02-01"), days_of_text("+12026-01-01"), days_of_text("2026-02-30")
    (31, 3672879, None)
    """
    match = _DATE.fullmatch(text)
    return None if match is None else _days_of(*match.groups())


def micros_of_text(text: str) -> int | None:
    """Parse an ISO timestamp with its zone.

    Returns:
        Microseconds since 1970; None if the text is not a timestamp, or has no zone.

    >>> micros_of_text("1970-01-01T01:00:00.5+01:00"), micros_of_text("1970-01-01T00:00:00")
    (500000, None)
    """
    match = _TIMESTAMP.fullmatch(text)
    if match is None:
        return None
    year, month, day, hour, minute, second, fraction, sign, zone_hours, zone_minutes = match.groups()
    days = _days_of(year, month, day)
    hours, minutes, seconds, ahead = int(hour), int(minute), int(second or 0), int(zone_hours or 0)
    if days is None or hours > 23 or minutes > 59 or seconds > 59 or ahead > 18 or int(zone_minutes or 0) > 59:
        return None
    ahead_s = (ahead * 60 + int(zone_minutes or 0)) * (-60 if sign == "-" else 60)
    total_s = days * 86_400 + hours * 3600 + minutes * 60 + seconds - ahead_s
    return total_s * 1_000_000 + int((fraction or "0").ljust(6, "0"))


def millis_of_text(text: str) -> int | None:
    """Parse an ISO timestamp of whole milliseconds; None for any other text.

    >>> millis_of_text("1970-01-01T00:00:01.25Z"), millis_of_text("1970-01-01T00:00:00.0001Z")
    (1250, None)
    """
    micros = micros_of_text(text)
    return None if micros is None or micros % 1000 else micros // 1000


def _days_of(year: str, month: str, day: str) -> int | None:
    cycles, rest = divmod(int(year), _CYCLE_YEARS)  # Python's calendar ends in 9999
    try:
        ordinal = date(2000 + rest, int(month), int(day)).toordinal()
    except ValueError:
        return None
    return ordinal - _EPOCH + (cycles - 2000 // _CYCLE_YEARS) * _CYCLE_DAYS
