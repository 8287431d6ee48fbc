"""Named places where a process may die: each line of the crash table has one, and tests end the process there."""

from __future__ import annotations

from collections.abc import Callable

STOP_POINTS: tuple[str, ...] = (
    "ingest.before_write",
    "ingest.after_write",
    "ingest.after_quarantine",
    "ingest.after_progress",
    "ingest.after_late",
    "ingest.after_commit",
    "seal.after_count",
    "seal.after_compensation_write",
    "seal.after_proofs",
    "seal.after_commit",
    "seal.after_prune",
    "compact.after_since",
    "compact.after_write",
    "compact.after_commit",
    "compact.after_sweep",
    "commit.before_call",
    "commit.after_call",
    "commit.after_sync",
    "commit.after_checkpoint",
    "table.after_create",
    "catalog.after_commit",
    "validate.after_record",
    "current.after_write",
)
"""Every place that `reach` is called with, in the order of a tick."""

_on_reach: Callable[[str], None] | None = None


def on_reach(hook: Callable[[str], None] | None) -> None:
    """Have `hook` called with the name of every stop point that is reached; None takes it away."""
    global _on_reach
    _on_reach = hook


def reach(name: str) -> None:
    """Tell the hook, if one is set, that this place is reached."""
    if _on_reach is not None:
        _on_reach(name)
