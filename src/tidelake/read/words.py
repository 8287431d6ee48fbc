"""Numbers and durations in sentences."""

from __future__ import annotations

from tidelake.errors import LARGE_DIFF


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """Return a number with its noun.

    >>> counted(1, "row"), counted(2_000, "key"), counted(2, "copy"), counted(2, "update is", "updates are")
    ('1 row', '2,000 keys', '2 copies', '2 updates are')
    """
    many = plural or (f"{noun[:-1]}ies" if noun.endswith("y") and noun[-2] not in "aeiou" else f"{noun}s")
    return f"{number:,} {noun if number == 1 else many}"


def duration(seconds: float) -> str:
    """Return a duration in the largest unit of which there are at least two; a single second is `1 s`.

    >>> duration(0.4), duration(90), duration(3 * 3600), duration(200_000)
    ('less than a second', '90 s', '3 h', '2 days')
    """
    if seconds < 1:
        return "less than a second"
    for unit, size in (("days", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{int(seconds // size):,} {unit}"
    return f"{int(seconds)} s"


def fact_of(detail: str) -> str:
    """Return the fact of a noted contradiction, without its kind. The fact names the time.

    >>> fact_of("conflicting_count: time 7 is announced with 2 updates and with 3")
    'time 7 is announced with 2 updates and with 3'
    >>> fact_of(f"envelope_breach: time 7 breaks the envelope: {LARGE_DIFF}")
    'time 7 breaks the envelope: a key is stated with a diff other than +1 and -1'
    """
    return detail.partition(": ")[2].replace(LARGE_DIFF, "a key is stated with a diff other than +1 and -1")
