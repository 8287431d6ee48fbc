"""Schemas as Kafka Connect's JSON converter writes them."""

from __future__ import annotations

from typing import Any

OPTIONAL = {"type": "string", "optional": True}


def connect_row(**columns: Any) -> dict[str, Any]:
    """The schema that the converter writes in front of a row."""
    fields = [{"field": name, **kind} for name, kind in columns.items()]
    return {"type": "struct", "fields": fields, "optional": True, "name": "shop.Value"}
