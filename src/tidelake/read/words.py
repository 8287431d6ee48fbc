"""Numbers in sentences."""

from __future__ import annotations


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """Return a number with its noun.

    >>> counted(1, "row"), counted(2_000, "key"), counted(2, "copy"), counted(2, "update is", "updates are")
    ('1 row', '2,000 keys', '2 copies', '2 updates are')
    """
    many = plural or (f"{noun[:-1]}ies" if noun.endswith("y") and noun[-2] not in "aeiou" else f"{noun}s")
    return f"{number:,} {noun if number == 1 else many}"


def fact_of(detail: str) -> str:
    """Return what a noted contradiction says, without its kind. The fact names the time.

    >>> fact_of("conflicting_count: time 7 is announced with 2 updates and with 3")
    'time 7 is announced with 2 updates and with 3'
    """
    return detail.partition(": ")[2]
