"""Creates, upgrades and fences the tables of a collection, except its handles."""

from __future__ import annotations

from tidelake.storage.location import Location
from tidelake.storage.notices import warn
from tidelake.store.bring_over import bring_over
from tidelake.store.commit import EPOCH, FLAGGED, OpenTable, create_table, is_table
from tidelake.store.entry import Collection
from tidelake.store.failpoints import reach
from tidelake.store.layout import (
    BINDINGS_SCHEMA,
    PROGRESS_SCHEMA,
    PROOFS_SCHEMA,
    QUARANTINE_SCHEMA,
    TRANSACTIONS_SCHEMA,
)
from tidelake.store.retry import ATTEMPTS_MAX, retry_commit


def create_tables(collection: Collection) -> None:
    """Create the tables of a collection that do not exist yet."""
    from tidelake.store.table_schema import (  # imported late: `status` reads catalogs without Spark
        late_schema,
        updates_schema,
    )

    paths, schema = collection.paths, collection.entry.record_schema
    create_table(paths.progress, PROGRESS_SCHEMA, {EPOCH: 0})
    create_table(paths.proofs, PROOFS_SCHEMA, {EPOCH: 0})
    create_table(paths.quarantine, QUARANTINE_SCHEMA, {EPOCH: 0})
    create_table(paths.late, late_schema(schema), {EPOCH: 0})
    if collection.entry.mints_times:
        create_table(paths.bindings, BINDINGS_SCHEMA, {EPOCH: 0})
    if collection.entry.counts_positions:
        create_table(paths.transactions, TRANSACTIONS_SCHEMA, {EPOCH: 0})
    create_table(
        paths.updates,
        updates_schema(schema, collection.entry.positioned),
        {EPOCH: 0, "upper": 0, "closed": 0, "since": 0, FLAGGED: 0},
    )


def upgrade_tables(collection: Collection) -> None:
    """Upgrade the tables of a collection to the newest format, before anything is committed to them.

    The catalog has already been upgraded, so no process of an earlier release creates further tables.
    """
    made, tables = collection.entry.tables_made, collection.tables
    upgraded = [table.name for table in tables if (made or is_table(table)) and bring_over(table)]
    reach("format.after_tables")
    if upgraded:
        fact = "tables were upgraded to a new format: earlier releases refuse them from now on"
        warn(fact, store=str(collection.paths.store.root), collection=collection.name, tables=upgraded)


def carry_epoch(collection: Collection) -> None:
    """Write the epoch of a collection to its tables, which fences every process that has an earlier epoch."""
    for table in collection.tables:
        raise_epoch(table, collection.entry.epoch)


def raise_epoch(path: Location, epoch: int) -> None:
    """Write an epoch to a table, unless the table already has this epoch or a later one."""

    def commit(table: OpenTable) -> None:
        if (table.value(EPOCH) or 0) < epoch:
            table.commit({EPOCH: epoch})

    # Epochs only rise: if even a stale state has this epoch, the table has it, and nothing is left to do. If a commit
    # is needed, one from a stale state conflicts, and is retried.
    retry_commit(OpenTable(path, may_be_stale=True), commit, f"{ATTEMPTS_MAX} attempts to fence failed")
