"""Messages of CDCv2 topics of change events, and the schema of these topics."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tests.lakes.lake import encode

ROW: dict[str, Any] = {
    "type": "record",
    "name": "Value",
    "fields": [{"name": "id", "type": "long"}, {"name": "price", "type": ["null", "int"]}],
}


EVENT: dict[str, Any] = {
    "type": "record",
    "name": "Envelope",
    "fields": [
        {"name": "before", "type": ["null", ROW]},
        {"name": "after", "type": ["null", "Value"]},
        {"name": "op", "type": "string"},
    ],
}


def row(pair: Any) -> dict[str, Any] | None:
    return None if pair is None else {"id": pair[0], "price": pair[1]}


def events(*changes: tuple[Any, Any, int] | tuple[Any, Any, int, int], op: str = "") -> bytes:
    """An update message; a change is `(before, after, time)` or `(before, after, time, diff)`.

    A row is `(id, price)` or None.
    """
    batch = []
    for before, after, time, *diff in changes:
        kind = op or ("c" if before is None else "d" if after is None else "u")
        data = {"before": row(before), "after": row(after), "op": kind}
        batch.append({"data": data, "time": time, "diff": diff[0] if diff else 1})
    return encode(batch, EVENT)


def progress(lower: Iterable[int], upper: Iterable[int], counts: dict[int, int]) -> bytes:
    entries = [{"time": time, "count": count} for time, count in counts.items()]
    return encode({"lower": list(lower), "upper": list(upper), "counts": entries}, EVENT)
