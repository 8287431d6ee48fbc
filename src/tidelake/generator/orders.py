"""The records of generated topics: orders of a shop, with every kind of column that is easy to get wrong."""

from __future__ import annotations

from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa

from tidelake.store.table_schema import data_fields

RECORD_SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "customer", "type": "string"},
        {"name": "price", "type": ["null", "int"]},
        {"name": "note", "type": ["null", "string", "long"]},
        {"name": "tags", "type": {"type": "array", "items": ["null", "string"]}},
        {
            "name": "shipping",
            "type": [
                "null",
                {
                    "type": "record",
                    "name": "address",
                    "fields": [{"name": "city", "type": "string"}, {"name": "postcode", "type": ["null", "string"]}],
                },
            ],
        },
        {"name": "placed_at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "amount", "type": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}},
    ],
}

ARROW_SCHEMA = pa.schema(data_fields(RECORD_SCHEMA))
"""The columns of these records in a table."""

_FIRST_PLACED_AT_MS = 1_704_067_200_000  # the beginning of 2024
_MS_BETWEEN_ORDERS = 1_000
_CUSTOMERS = (
    "Ada",
    "Zoë",
    "李雷",
    "Мария",
    "",
    "O'Brien",
    "naïve 🐟",
    "Šárka",
    "e\u0301mile",
    "émile",
    "Ünal",
)
_CITIES = ("Århus", "Lagos", "東京", "São Paulo", "", "Tromsø")
_TAGS = ("gift", "", None, "größer", "rush", "返品", "a\nb", '"quoted"')
_NOTES = ("", "call first", "ring twice — 2×", "null", "日曜日", "\\n")


def random_order(random: Random, order_id: int, number: int) -> dict[str, Any]:
    """Create an order in the form of `AvroCodec`; callers never repeat a `number`, so no two orders are equal."""
    draw = random.random
    kind = draw()
    note: Any = None
    if kind < 0.3:
        note = {"string": _NOTES[int(draw() * len(_NOTES))]}
    elif kind < 0.5:
        note = {"long": int(draw() * 2**40) - 2**39}
    shipping = None
    if kind > 0.4:
        postcode = None if draw() < 0.3 else f"{int(draw() * 100_000):05d}"
        shipping = {"city": _CITIES[int(draw() * len(_CITIES))], "postcode": postcode}
    return {
        "id": order_id,
        "customer": _CUSTOMERS[int(draw() * len(_CUSTOMERS))],
        "price": None if draw() < 0.1 else int(draw() * 100_000) - 1_000,
        "note": note,
        "tags": [_TAGS[int(draw() * len(_TAGS))] for _ in range(int(draw() * 4))],
        "shipping": shipping,
        "placed_at": _FIRST_PLACED_AT_MS + number * _MS_BETWEEN_ORDERS + int(draw() * _MS_BETWEEN_ORDERS),
        "amount": decimal_bytes(int(draw() * 10_000_000) - 500_000),
    }


def decimal_bytes(unscaled: int) -> bytes:
    """Return a number in big-endian two's complement, with as few bytes as possible.

    >>> decimal_bytes(127).hex(), decimal_bytes(128).hex(), decimal_bytes(-128).hex()
    ('7f', '0080', '80')
    """
    length = (unscaled + (unscaled < 0)).bit_length() // 8 + 1
    return unscaled.to_bytes(length, "big", signed=True)


def orders_table(orders: list[dict[str, Any]]) -> pa.Table:
    """Return orders as a table."""

    def column(name: str) -> pa.Array:
        kind = ARROW_SCHEMA.field(name).type
        if name == "placed_at":
            return pa.array([order[name] * 1_000 for order in orders], pa.int64()).cast(kind)
        if name == "amount":
            cents = (int.from_bytes(order[name], "big", signed=True) for order in orders)
            return pa.array([Decimal(unscaled).scaleb(-2) for unscaled in cents], kind)
        return pa.array([order[name] for order in orders], kind)

    return pa.table([column(name) for name in ARROW_SCHEMA.names], schema=ARROW_SCHEMA)
