"""The names under which a table's log keeps its collection's small state, as Delta application transactions."""

from __future__ import annotations

UPPER = "upper"
"""The first time that is not sealed; where the stream is closed, one more than the last time with an update."""
CLOSED = "closed"
"""1 where an empty upper was sealed: nothing more will ever come."""
SINCE = "since"
"""The greatest since that a compaction has moved times up to."""
SEALED_AT_MS = "sealed_at_ms"
"""When upper last moved, in milliseconds since 1970."""
HAS_BARRIERS = "has_barriers"
"""Positioned form: 1 from the commit on that stored the first barrier; reads look for none before."""
HAS_UNAVAILABLE = "has_unavailable"
"""Positioned form: 1 from the commit on that stored the first row with an unavailable column."""
HAS_ERRORS = "has_errors"
"""Positioned form: 1 from the commit on that stored the first row of a key in error."""

SEARCHES = "searches"
"""CDCv2: 1 from the commit on behind a tick of good messages whose lengths did not show it; see `lengths`."""


def offset_value(topic: str, partition: int) -> str:
    """The name under which a table keeps the next offset of a partition."""
    return f"offset/{topic}/{partition}"


def partitions_value(topic: str) -> str:
    """The name under which a table keeps one more than the greatest partition it has read."""
    return f"partitions/{topic}"


def topic_identity_value(topic: str) -> str:
    """The name under which a table keeps which topic of this name it has read."""
    return f"topic_identity/{topic}"
