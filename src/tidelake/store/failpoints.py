"""Failpoints: named places in the code at which tests kill the process."""

from __future__ import annotations

from collections.abc import Callable

TABLES: tuple[str, ...] = ("handles", "progress", "proofs", "quarantine", "late", "updates")
"""The folders of a collection's tables in the order of their creation."""

FAILPOINTS: tuple[str, ...] = (
    "table.after_folder",
    "table.after_entry",
    "table.after_create.catalog",
    *(f"table.after_create.{table}" for table in TABLES),
    "table.after_torn_entry",
    "table.after_torn_checkpoint",
    *(f"commit.before_call.{table}" for table in TABLES),
    *(f"commit.after_call.{table}" for table in TABLES),
    *(f"commit.after_sync.{table}" for table in TABLES),
    *(f"commit.after_marker.{table}" for table in TABLES),
    "commit.after_checkpoint_write",
    "commit.after_checkpoint",
    "commit.after_cleanup",
    "append.after_conflict",
    "names.after_entry",
    "names.after_marker",
    "names.after_bound",
    "catalog.after_name",
    "catalog.after_handles",
    "catalog.after_conflict",
    "catalog.after_commit",
    "catalog.after_epoch",
    "ingest.before_write",
    "ingest.after_write",
    "ingest.after_quarantine",
    "ingest.after_progress",
    "ingest.after_late",
    "ingest.after_conflict",
    "ingest.after_overtaken_late",
    "ingest.after_overtaken_write",
    "ingest.after_lost_offsets",
    "ingest.after_commit",
    "seal.after_count",
    "seal.after_compensation_write",
    "seal.after_proofs",
    "seal.after_blocked",
    "seal.after_conflict",
    "seal.after_overtaken",
    "seal.after_claiming_less",
    "seal.after_commit",
    "seal.after_prune",
    "validate.after_record",
    "validate.after_evidence",
    "validate.after_late",
    "compact.after_since",
    "compact.after_merged_write",
    "compact.after_write",
    "compact.after_conflict",
    "compact.after_lost_runs",
    "compact.after_commit",
    "tidy.after_write",
    "tidy.after_commit",
    "sweep.after_note",
    "sweep.after_floor",
    "sweep.after_folder",
    "compact.after_sweep",
    "current.after_catalog",
    "current.after_changes",
    "current.after_scan",
    "current.before_write",
    "current.after_files",
    "current.after_entry",
    "current.after_write",
    "current.after_checkpoint",
)
"""All failpoints except those below: tables and commits first, then the steps of a schedule in order."""

RAW_FAILPOINTS: tuple[str, ...] = (
    "table.after_create.bindings",
    "raw.before_write",
    "raw.after_write",
    "raw.after_quarantine",
    "commit.before_call.bindings",
    "commit.after_call.bindings",
    "commit.after_sync.bindings",
    "commit.after_marker.bindings",
    "raw.after_binding",
    "raw.after_conflict",
    "raw.after_lost_time",
    "raw.after_lost_offsets",
    "raw.after_commit",
)
"""Only reclocked collections reach these: they have the table `bindings` as well, and their ticks take other steps."""

TRANSACTION_FAILPOINTS: tuple[str, ...] = (
    "table.after_create.transactions",
    "commit.before_call.transactions",
    "commit.after_call.transactions",
    "commit.after_sync.transactions",
    "commit.after_marker.transactions",
)
"""Only collections with transactions reach these: they have the table `transactions` as well."""

RETENTION_FAILPOINTS: tuple[str, ...] = (
    "retention.after_write",
    "retention.after_binding",
    "retention.after_note",
    "retention.after_conflict",
    "retention.after_commit",
)
"""Only collections with `keep_rows` reach these; the second and the last two only if reclocked."""

EVOLUTION_FAILPOINTS: tuple[str, ...] = ("columns.after_catalog", "columns.after_commit")
"""Only collections that get a new column reach these."""

LIFE_FAILPOINTS: tuple[str, ...] = (
    "rename.after_intent",
    "rename.after_name",
    "rename.after_handles",
    "drop.after_handles",
    "drop.after_epoch",
    "drop.after_note",
    "gc.before_folders",
    "gc.after_folder",
    "gc.after_folders",
    "gc.after_publication",
)
"""Only renaming, dropping and garbage collection reach these."""

PUBLISH_FAILPOINTS: tuple[str, ...] = (
    "publish.after_begin",
    "publish.after_reshard",
    "publish.after_claim",
    "publish.after_follow",
    "publish.after_updates",
    "publish.after_progress",
)
"""Only publishers reach these."""

BRING_OVER_FAILPOINTS: tuple[str, ...] = (
    "commit.before_call.catalog",
    "commit.after_call.catalog",
    "commit.after_sync.catalog",
    "commit.after_marker.catalog",
    "format.after_catalog",
    "divide.after_format",
    "divide.after_handles",
    "divide.after_name",
    "divide.after_copies",
    "divide.after_commit",
    "format.after_markers",
    "format.after_commit",
    "format.after_tables",
)
"""Only stores of an earlier format reach these, once."""

_on_reach: Callable[[str], None] | None = None


def on_reach(hook: Callable[[str], None] | None) -> None:
    """Call `hook` with the name of each failpoint that is reached; None removes the hook."""
    global _on_reach
    _on_reach = hook


def reach(name: str, table: str = "") -> None:
    """Call the hook, if there is one; `table` is the last part of the failpoint's name, if that includes a table."""
    if _on_reach is not None:
        _on_reach(f"{name}.{table}" if table else name)
