"""A collection: its entry and the location of its tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field

from tidelake.protocol.antichain import Antichain
from tidelake.settings.terms import envelope_terms, framing_terms
from tidelake.storage.location import Location
from tidelake.store.columns import carry_columns
from tidelake.store.commit import OpenTable
from tidelake.store.decision import StoredDecision
from tidelake.store.layout import CollectionPaths
from tidelake.store.state import CLOSED, SINCE, UPPER


class Capability(BaseModel):
    """The right to read a collection at every time at or after `since`. The critical capability never expires."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    kind: Literal["critical", "read"]
    since: tuple[int, ...]


class Entry(BaseModel):
    """A collection as its handles store it. Framing and envelope never change; columns are only added."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    name: str
    framing: str
    envelope: str
    format: str = "avro"
    """Reclocked: the format of keys and values."""
    record_schema: dict[str, Any]
    value_schema: dict[str, Any] = {}
    """Reclocked: the schema of the values; for change events, of the row. Empty in old entries."""
    added: tuple[str, ...] = ()
    """The columns added since the collection was created; settings do not have to name them."""
    key: tuple[str, ...] = ()
    """The columns that identify a row; empty if there is no key."""
    before: Literal["whole", "key"] = "whole"
    """Change events with a key: whether `before` has the whole row, or only the key."""
    epoch: int = 0
    writer: str | None = Field(default=None, exclude_if=lambda name: name is None)
    """The only writer that may commit; None allows any. None is not stored: earlier releases do not know the field."""
    since: tuple[int, ...] = (0,)
    capabilities: tuple[Capability, ...]
    decisions: tuple[StoredDecision, ...] = ()
    created_at_ms: int
    tables_made: bool = False
    """Whether all tables were created. From then on a missing table is damage and is never recreated."""
    tables_format: int = Field(default=0, exclude_if=lambda number: number == 0)
    """Each table has at least this format; see `store.format`. 0 is not stored: earlier releases did not store it."""

    @property
    def positioned(self) -> bool:
        """Whether rows have a position as well as a time; see `tidelake.model.positioned`."""
        return self.mints_times and envelope_terms(self.envelope).key != "refused"

    @property
    def mints_times(self) -> bool:
        """Whether ingest mints and seals times; `bindings` has the offsets of each time."""
        return framing_terms(self.framing).mints_times

    @property
    def since_frontier(self) -> Antichain:
        """`since` as an antichain; empty means unreadable."""
        return Antichain(self.since)


@dataclass(frozen=True)
class Collection:
    """A collection of a store: its entry and the location of its tables."""

    entry: Entry
    paths: CollectionPaths

    @property
    def name(self) -> str:
        """The name in the settings and on the command line."""
        return self.entry.name

    @property
    def tables(self) -> tuple[Location, ...]:
        """The tables that commits go to: all but `handles`, which has the entry, and `current`."""
        paths = self.paths
        tables = (paths.updates, paths.progress, paths.proofs, paths.quarantine, paths.late)
        return (*tables, paths.bindings) if self.entry.mints_times else tables

    def carry_columns(self) -> OpenTable:
        """Open the updates table with all columns of the entry; see `columns.carry_columns`."""
        return carry_columns(self.paths.updates, self.updates_schema(), self.entry.epoch)

    def readable_range(self, table: OpenTable) -> tuple[tuple[int, ...], int, bool]:
        """Return `since` (empty if unreadable), upper and whether the stream is closed, at a version of `updates/`."""
        since = self.entry.since
        if since:
            since = (max(since[0], table.value(SINCE) or 0),)
        return since, table.value(UPPER) or 0, bool(table.value(CLOSED))

    def updates_schema(self) -> pa.Schema:
        """Return the schema of the updates table with all columns of the entry."""
        from tidelake.store.table_schema import updates_schema  # imported late: `status` reads catalogs without Spark

        return updates_schema(self.entry.record_schema, self.entry.positioned)
