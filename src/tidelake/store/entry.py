"""A collection: its entry and the location of its tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field

from tidelake.protocol.antichain import Antichain
from tidelake.protocol.iso_times import MintedTime
from tidelake.settings.terms import envelope_terms, framing_terms
from tidelake.storage.location import Location
from tidelake.store.columns import carry_columns
from tidelake.store.commit import OpenTable
from tidelake.store.decision import StoredDecision
from tidelake.store.layout import CollectionPaths
from tidelake.store.state import CLOSED, SINCE, UPPER


class Sighting(BaseModel):
    """An observation of a lease: the beat, and the store's clock just after the beat was read."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    beat: int
    at_ms: int


class Hold(BaseModel):
    """A reader's side of a capability: who uses it, and when it ends."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    secret_hash: str
    """The SHA-256 of the holder's secret, in hexadecimal digits."""
    previous_hash: str | None = Field(default=None, exclude_if=lambda digits: digits is None)
    """The hash of the previous secret; None once a call was made with the current secret."""
    purpose: str = ""
    lease_ms: int
    """How long the capability lives after the holder's last call, by the store's clock."""
    acquired_at_ms: int
    renewed_at_ms: int
    """When the holder made its last call, by the holder's clock; for display. Only sightings decide whether the
    lease has ended."""
    beat: int = 0
    """Incremented by every call that the holder makes."""
    sighting: Sighting | None = Field(default=None, exclude_if=lambda sighting: sighting is None)
    """The first sighting of the beat, if there was one."""
    pinned_seq: int | None = Field(default=None, exclude_if=lambda seq: seq is None)
    """The first `seq` of `updates/` that its holder may be reading: sweeps keep the files from that version onwards."""


class Capability(BaseModel):
    """The right to read a collection at every time at or after `since`. The critical capability never expires."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    kind: Literal["critical", "read"]
    since: tuple[int, ...]
    hold: Hold | None = Field(default=None, exclude_if=lambda hold: hold is None)
    """Only a reader's capability has one. A `handles` table whose entry has a hold has the format
    `HANDLES_VERSION`."""


class Ended(BaseModel):
    """A reader's capability that is gone for good."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    how: Literal["dropped", "expired"]


class Renaming(BaseModel):
    """A new name that the collection is about to get; see `catalog.rename`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    to: str
    id: str
    """Random: tells two renamings to the same name apart."""


class EarlierName(BaseModel):
    """A name that the collection had before."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    until_ms: int
    """When the collection got its next name, by the clock of the process that renamed it; for display."""


class Dropped(BaseModel):
    """The end of a collection; the entry stays forever, so that its id is never mistaken for another collection's."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    at_ms: int
    """When it was dropped, by the clock of the process that did so; for display."""
    unheld_at_ms: int | None = None
    """When a process first found that nobody holds it, by the store's clock; from then on, its files age."""
    storage: Literal["kept", "going", "gone"] = "kept"
    """The state of its tables; `going` while they are being deleted."""


class PublishedVersion(BaseModel):
    """The columns that a published topic has from some time onwards."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    starts_at: int
    """Updates at or after this time, and before that of the next version, are written with `record_schema`."""
    record_schema: dict[str, Any]
    """The schema of `data`: the columns of the previous version, and new ones, which are nullable."""
    schema_id: int | None = None
    """With Confluent framing, the id of the CDCv2 schema."""


class PublishedTopic(BaseModel):
    """A topic that the collection is published to; see docs/decisions/publishing.md."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    source: Literal["files", "kafka"]
    topic: str
    """Its name, or the path or URI of its folder."""
    id: str
    """Random. Each message carries it, so a message of another writer is detected. It is also the id of the hold."""
    identity: str | None
    """Identifies the topic if its name can be reused; None if the cluster gives topics no identity."""
    published_from: int
    """The topic states the contents AS OF this time, and every later change."""
    record_schema: dict[str, Any]
    """The schema of `data` in the first version."""
    encoding: Literal["avro", "confluent"] = "avro"
    schema_id: int | None = None
    """With Confluent framing, the id of the CDCv2 schema of the first version."""
    later_versions: tuple[PublishedVersion, ...] = Field(default=(), exclude_if=lambda versions: not versions)
    """The versions with columns that were added later, in the order in which they were committed."""
    claimed: int = 0
    """Times before this may already have been stated, with the versions known now. A new version starts at this time or
    after it."""
    shards: int = 1
    """The number of shards now: data whose hash is `i` modulo this number is stated by shard `i`."""
    skip_errors: bool = False
    """Whether the topic leaves out a key in error until its error is cleared; if not, publishing stops at such a
    key."""
    frontier: int = 0
    """The topic, as read back, states all times before this one. If it is closed, this is one more than the last
    time."""
    closed: bool = False
    """Whether the topic states that the stream is closed."""
    offsets: dict[int, int] = {}
    """By partition, where the next reading begins: no earlier progress statement reaches beyond the frontier."""

    @property
    def last_stated(self) -> int:
        """The time from which the next changes are read; the topic's hold keeps it readable."""
        return max(self.published_from, self.frontier - 1)

    @property
    def versions(self) -> tuple[PublishedVersion, ...]:
        """All versions. If two start at the same time, the one committed later is in force."""
        first = PublishedVersion(starts_at=0, record_schema=self.record_schema, schema_id=self.schema_id)
        return (first, *self.later_versions)

    def version_at(self, time: int) -> tuple[PublishedVersion, int | None]:
        """Return the version in force at a time, and the time at which the next one starts; None if there is none."""
        starts = [version.starts_at for version in self.versions if version.starts_at > time]
        return self.versions[-1 - len(starts)], min(starts, default=None)


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
    """The columns added since the collection was created; settings with `evolution: additive` may leave them out."""
    key: tuple[str, ...] = ()
    """The columns that identify a row; empty if there is no key."""
    before: Literal["whole", "key"] = "whole"
    """Change events with a key: whether `before` has the whole row, or only the key."""
    epoch: int = 0
    writer: str | None = Field(default=None, exclude_if=lambda name: name is None)
    """The only writer that may commit; None allows any. None is not stored: earlier releases do not know the field."""
    since: tuple[int, ...] = (0,)
    capabilities: tuple[Capability, ...]
    ended: tuple[Ended, ...] = Field(default=(), exclude_if=lambda ended: not ended)
    """The capabilities that ended most recently, oldest first; see `holds.ENDED_MAX`."""
    decisions: tuple[StoredDecision, ...] = ()
    created_at_ms: int
    tables_made: bool = False
    """Whether all tables were created. From then on a missing table is damage and is never recreated."""
    earlier_names: tuple[EarlierName, ...] = Field(default=(), exclude_if=lambda names: not names)
    """The most recent of its earlier names, oldest first; see `rename.EARLIER_NAMES_MAX`."""
    renaming: Renaming | None = Field(default=None, exclude_if=lambda renaming: renaming is None)
    """The name that it is about to get; until it does, it keeps its present name."""
    dropped: Dropped | None = Field(default=None, exclude_if=lambda dropped: dropped is None)
    """Set if it was dropped: it can no longer be read, and its name is free."""
    published_topics: tuple[PublishedTopic, ...] = Field(default=(), exclude_if=lambda topics: not topics)
    """The topics that it is published to as CDCv2."""
    tables_format: int = Field(default=0, exclude_if=lambda number: number == 0)
    """Each table has at least this format; see `store.format`. 0 is not stored: earlier releases did not store it."""

    @property
    def is_held(self) -> bool:
        """Whether a reader has a capability."""
        return any(capability.kind == "read" for capability in self.capabilities)

    def has_name(self, name: str) -> bool:
        """Return whether the collection has this name now; a dropped collection has no name."""
        return self.name == name and self.dropped is None

    @property
    def positioned(self) -> bool:
        """Whether rows have a position as well as a time; see `tidelake.model.positioned`."""
        return not framing_terms(self.framing).identifies_by_data and envelope_terms(self.envelope).key != "refused"

    @property
    def counts_positions(self) -> bool:
        """Whether statements are identified by their positions; if so, `transactions/` states how many there are."""
        return framing_terms(self.framing).counts_positions

    @property
    def statement_schema(self) -> dict[str, Any]:
        """The schema of a statement that a person enters. A statement that deletes a key has only the key."""
        if not (self.counts_positions and self.key):
            return self.record_schema
        from tidelake.schema.columns import nullable_beside  # imported late, as in `updates_schema`

        return nullable_beside(self.record_schema, self.key)

    @property
    def mints_times(self) -> bool:
        """Whether ingest mints and seals times; `bindings` has the offsets of each time."""
        return framing_terms(self.framing).mints_times

    def shown(self, time: int) -> int:
        """Return a time as errors show it: a minted one together with the same time in UTC."""
        return MintedTime(time) if self.mints_times else time

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
        """Its tables, except `current`, and except the handles, which store the entry itself."""
        paths = self.paths
        tables = [paths.updates, paths.progress, paths.proofs, paths.quarantine, paths.late]
        tables += [paths.bindings] if self.entry.mints_times else []
        return (*tables, paths.transactions) if self.entry.counts_positions else tuple(tables)

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
