"""Sentinel bytes after an Avro body, which prove that it was read exactly to its end.

Sixteen bytes are appended to the body. Its schema gets another field, `tail`, which must hold exactly these bytes: a
body that is too short runs out of bytes, and trailing bytes shift the sentinel. No proper prefix of the sentinel is
also a suffix, so any number of trailing bytes is detected.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F

SENTINEL = bytes.fromhex("8f1d0c63a95be24780f36e1bd2c4097a")


def with_sentinel(body: Column) -> Column:
    """Return the body with the sentinel after it."""
    return F.concat(body, F.lit(SENTINEL))


def message_schema(body: Any, sealed: bool = True) -> dict[str, Any]:
    """Return the schema of a record `message` with the body as `m` and, if `sealed`, the sentinel as `tail`.

    A record with one field is encoded exactly as that field. So `body` may be a union, which Spark cannot decode
    outside a record.
    """
    tail = {"name": "tail", "type": {"type": "fixed", "name": "tail", "size": len(SENTINEL)}}
    return {"type": "record", "name": "message", "fields": [{"name": "m", "type": body}, *([tail] if sealed else [])]}


def without_logical_types(kind: Any) -> Any:
    """Return the same Avro type without logical types, so that numbers and bytes stay as they are encoded."""
    if isinstance(kind, list):
        return [without_logical_types(branch) for branch in kind]
    if isinstance(kind, dict):
        rest = {name: value for name, value in kind.items() if name not in ("logicalType", "precision", "scale")}
        return {name: without_logical_types(value) if name != "symbols" else value for name, value in rest.items()}
    return kind
