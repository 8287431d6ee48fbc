"""Milliseconds since 1970, as ISO 8601 text: the times of reclocked collections, and wall-clock times."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ISO = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d{1,9})?)?(Z|[+-]\d\d:?\d\d)", re.IGNORECASE)
ISO_RULE = "a time with its zone, such as 2026-11-23T10:00:00Z or 2026-11-23T11:00+01:00"


def parse_iso(text: str) -> int:
    """Return the milliseconds since 1970 of a time with a zone; fractions of a millisecond are truncated.

    Raises:
        ValueError: it is not a time with a zone.

    >>> parse_iso("1970-01-01T00:00:01.5Z"), parse_iso("1970-01-01 01:00+01:00"), parse_iso("1969-12-31T23:59:59.9999Z")
    (1500, 0, -1)
    """
    if not _ISO.fullmatch(text):
        raise ValueError(f"{text!r} is not {ISO_RULE}")
    fraction = re.search(r"\.(\d+)", text)
    digits = (fraction[1] if fraction else "").ljust(6, "0")[:6]
    plain = text if fraction is None else text.replace(fraction[0], f".{digits}")
    return (datetime.fromisoformat(plain.upper()) - _EPOCH) // timedelta(milliseconds=1)


def iso_of(time_ms: int) -> str | None:
    """Return a time as text in UTC; None if it is not in the years 1 to 9999.

    >>> iso_of(1767225800000), iso_of(2**62)
    ('2026-01-01T00:03:20.000Z', None)
    """
    try:
        return (_EPOCH + timedelta(milliseconds=time_ms)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except OverflowError:
        return None


class MintedTime(int):
    """A minted time as errors show it: the number, and the same time in UTC.

    >>> MintedTime(1767225800000), MintedTime(2**62)
    (1767225800000 (2026-01-01T00:03:20.000Z), 4611686018427387904)
    """

    def __repr__(self) -> str:
        iso = iso_of(int(self))
        return str(int(self)) if iso is None else f"{int(self)} ({iso})"


def iso_to_the_second(at_ms: int) -> str:
    """Return a wall-clock time as text in UTC, truncated to the second.

    >>> iso_to_the_second(1_700_000_000_123)
    '2023-11-14T22:13:20Z'
    """
    return datetime.fromtimestamp(at_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
