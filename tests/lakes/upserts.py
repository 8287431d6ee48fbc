"""A reclocked upsert topic of prices, and its records."""

from __future__ import annotations

from typing import Any

ITEM = {
    "type": "record",
    "name": "item",
    "fields": [{"name": "id", "type": "long"}, {"name": "price", "type": ["null", "int"]}],
}


def item(key: int, price: int | None = None) -> dict[str, Any]:
    return {"key": {"id": key}, "value": {"id": key, "price": price}}


def gone(key: int) -> dict[str, Any]:
    return {"key": {"id": key}, "value": None}


def prices(rows: list[dict[str, Any]]) -> dict[int, int | None]:
    assert all(row["_diff"] == 1 for row in rows)
    return {row["id"]: row["price"] for row in rows}
