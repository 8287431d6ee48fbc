"""The names of the values that make up a collection's state: Delta application transactions in its table's log."""

from __future__ import annotations

from tidelake.store.commit import OpenTable

UPPER = "upper"
"""The first time that is not sealed. If the stream is closed, one more than the last time with an update, but at least
what upper was before the stream was closed."""
CLOSED = "closed"
"""1 if the stream is closed: an empty upper was sealed."""
SINCE = "since"
"""The greatest `since` of any compaction."""
SEALED_AT_MS = "sealed_at_ms"
"""When upper last moved, in milliseconds since 1970."""
HAS_BARRIERS = "has_barriers"
"""Positioned form: 1 since the commit that stored the first barrier; before it, reads do not look for barriers."""
HAS_UNAVAILABLE = "has_unavailable"
"""Positioned form: 1 since the commit that stored the first row with an unavailable column."""
HAS_ERRORS = "has_errors"
"""Positioned form: 1 since the commit that stored the first row of a key in error."""

IDLE_LOWER = "idle_lower"
"""Reclocked: what upper was before the latest ticks without records. From there to `idle_upper`, the contents did
not change."""
IDLE_UPPER = "idle_upper"
"""Reclocked: the upper that the last tick without records set."""

HAS_QUARANTINE = "has_quarantine"
"""1 since the commit of the first tick that quarantined a message; see `OpenTable.may_have`."""
HAS_LATE = "has_late"
"""CDCv2: 1 since the commit of the first tick that set aside an update at a sealed time."""

LEFT_AT = "left_at"
"""Append-only: the last time at which retention removed rows from the contents; see `store.retention`."""
ROWS_LEFT = "rows_left"
"""Append-only: the number of rows that retention has removed."""
LENGTHS_INSUFFICIENT = "searches"
"""CDCv2: 1 after a tick whose messages were all good although their lengths did not prove it; see `decode.lengths`."""


def idle_lower(table: OpenTable) -> int | None:
    """Return the upper that was reached before the latest idle ticks; None if the newest tick was not idle.

    Since then, only upper has moved; the contents have not changed.

    Args:
        table: a version of `updates/`.
    """
    upper = table.value(UPPER) or 0
    return table.value(IDLE_LOWER) if upper and table.value(IDLE_UPPER) == upper else None


def kept_from_value(column: str) -> str:
    """Return the name of the value that holds the last cut-off of retention by a column, in milliseconds since 1970."""
    return f"kept_from/{column}"


def offset_value(topic: str, partition: int) -> str:
    """Return the name of the value that holds a partition's next offset."""
    return f"offset/{topic}/{partition}"


def partitions_value(topic: str) -> str:
    """Return the name of the value that is one more than the greatest partition that was read."""
    return f"partitions/{topic}"


def read_topics(table: OpenTable) -> list[str]:
    """Return the names of all topics that were ever read, according to a version of the updates table, sorted."""
    return table.names(partitions_value(""))


def topic_identity_value(topic: str) -> str:
    """Return the name of the value that holds the identity of the topic that was read."""
    return f"topic_identity/{topic}"


def next_offsets(table: OpenTable, topic: str) -> dict[int, int]:
    """Return the first unread offset of each partition, according to a version of the updates table."""
    partitions = range(table.value(partitions_value(topic)) or 0)
    offsets = table.values(f"offset/{topic}/", [str(partition) for partition in partitions])
    return {int(partition): offset for partition, offset in offsets.items()}
