"""The catalog: from names to random ids, and for each collection its schema, since, capabilities, epoch and decisions.

One row of the catalog's table is one collection; a change replaces its run. All changes name the table's one `seq`,
so acquiring a capability and moving `since` can never both succeed from the same state.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
from pydantic import BaseModel, ConfigDict

from tidelake.antichain import Antichain
from tidelake.configuration import CollectionSettings
from tidelake.delta.columns import carry_columns
from tidelake.delta.commit import EPOCH, OpenTable, create_table, is_table, maintain
from tidelake.delta.entry_check import check_same, with_columns
from tidelake.delta.files import discard_run, read_rows, write_run
from tidelake.delta.layout import (
    BINDINGS_SCHEMA,
    PROGRESS_SCHEMA,
    PROOFS_SCHEMA,
    QUARANTINE_SCHEMA,
    RUN,
    CollectionPaths,
    Store,
    new_run,
)
from tidelake.delta.stops import reach
from tidelake.errors import Conflict, RuleBroken
from tidelake.settled import values_of

_SCHEMA = pa.schema([pa.field("name", pa.string()), pa.field("document", pa.string()), pa.field(RUN, pa.string())])
_ATTEMPTS_MAX = 64


class Capability(BaseModel):
    """The right to read a collection at every time at or after `since`; the critical one never expires."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    kind: Literal["critical", "read"]
    since: tuple[int, ...]


class Decision(BaseModel):
    """An operator's standing rule about one time of a collection, applied by every seal."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    time: int | None = None
    count: int | None = None
    """How many distinct updates the time has, whatever was announced."""
    discard: dict[str, Any] | None = None
    """One statement that has no effect: its data as lossless JSON in `data`, and its `diff`."""
    accept_gap: tuple[str, int, int, int] | None = None
    """Topic, partition, first and end of a range of offsets that nobody will bring back."""
    accept_topic: tuple[str, int, dict[int, int]] | None = None
    """A topic that is not what it was: its name, the identity of what to go on with (0 where it has none), and by
    partition where to begin, if not at the beginning. From then on it has another name in the collection's tables."""
    quarantined: tuple[str, int, int, int] | None = None
    """Topic, partition, first and end of a range of offsets whose quarantined messages somebody has seen to."""
    reason: str
    at_ms: int


class Entry(BaseModel):
    """What the catalog knows of one collection. Framing and envelope are fixed when it is created; columns stay."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    name: str
    framing: str
    envelope: str
    format: str = "avro"
    """Raw framing: what the bytes of keys and values are."""
    record_schema: dict[str, Any]
    value_schema: dict[str, Any] = {}
    """Raw framing: what the values of records are, of change events the row's; empty in entries of old."""
    added: tuple[str, ...] = ()
    """The columns that have appeared since the collection was made; settings need not name them."""
    key: tuple[str, ...] = ()
    """The columns that name a row, where there are any."""
    before: Literal["whole", "key"] = "whole"
    """Change events with a key: whether `before` is the whole row."""
    epoch: int = 0
    since: tuple[int, ...] = (0,)
    capabilities: tuple[Capability, ...]
    decisions: tuple[Decision, ...] = ()
    created_at_ms: int
    tables_made: bool = False
    """Whether all tables are there; from then on a missing one is damage, and never made anew."""

    @property
    def positioned(self) -> bool:
        """Whether rows have a position of their own beside their time; see `tidelake.positioned`."""
        return self.framing == "reclock" and self.envelope in {"upsert", "debezium"}

    @property
    def since_frontier(self) -> Antichain:
        """The read frontier as an antichain; empty means unreadable."""
        return Antichain(self.since)


@dataclass(frozen=True)
class Collection:
    """One collection of a store: its catalog entry and where its tables lie."""

    entry: Entry
    paths: CollectionPaths

    @property
    def name(self) -> str:
        """The name that people use."""
        return self.entry.name

    def carry_columns(self) -> OpenTable:
        """Open its table, with all the columns that the entry knows of: see `columns.carry_columns`."""
        return carry_columns(self.paths.updates, self.updates_schema(), self.entry.epoch)

    def updates_schema(self) -> pa.Schema:
        """What its table looks like, once it has all the columns that the entry knows of."""
        from tidelake.delta.types import updates_schema  # late: `status` reads catalogs without Spark

        return updates_schema(self.entry.record_schema, self.entry.positioned)


class Catalog:
    """The names of a store and what they stand for; every call reads the newest state."""

    def __init__(self, store: Store) -> None:
        """Open a store's catalog; nothing is written."""
        self.store = store

    def exists(self) -> bool:
        """Whether the store has a catalog yet; one whose making stopped half way is none."""
        return is_table(self.store.catalog)

    def entries(self) -> list[Entry]:
        """All collections, by name."""
        if not self.exists():
            return []
        return sorted(self._read(OpenTable(self.store.catalog)).values(), key=lambda entry: entry.name)

    def find(self, name: str) -> Collection:
        """The collection of this name.

        Raises:
            RuleBroken: there is none.
        """
        for entry in self.entries():
            if entry.name == name:
                return Collection(entry, self.store.collection(entry.id))
        raise RuleBroken(
            f"the store {self.store.root} has no collection '{name}'", "run its ingest once, or mend the name"
        )

    def check(self, settings: Iterable[CollectionSettings]) -> None:
        """Refuse settings that do not fit what the store holds, before anything is written.

        Raises:
            ConfigurationError: a collection is there with another envelope or schema; those are fixed.
        """
        known = {entry.name: entry for entry in self.entries()}
        for one in settings:
            if one.name in known:
                check_same(known[one.name], one)
                with_columns(known[one.name], one)

    def open_or_create(self, settings: CollectionSettings) -> Collection:
        """The collection that these settings describe, created with its tables where it is not there yet.

        Raises:
            ConfigurationError: it is there with another envelope or schema; those are fixed when it is created.
        """
        create_table(self.store.catalog, _SCHEMA)

        def create(entries: dict[str, Entry]) -> Entry:
            for entry in entries.values():
                if entry.name == settings.name:
                    check_same(entry, settings)
                    return with_columns(entry, settings)
            return Entry(
                id=secrets.token_hex(16),
                name=settings.name,
                framing=settings.framing,
                envelope=settings.envelope,
                format=settings.format,
                record_schema=settings.record_schema,
                value_schema=dict(values_of(settings).record) if settings.framing == "reclock" else {},
                key=settings.key,
                before=settings.before,
                capabilities=(Capability(id=f"critical-{secrets.token_hex(8)}", kind="critical", since=(0,)),),
                created_at_ms=int(time.time() * 1000),
            )

        entry = self._change(create)
        collection = Collection(entry, self.store.collection(entry.id))
        if not entry.tables_made:
            self._create_tables(collection)
            entry = self.update(entry.name, lambda one: one.model_copy(update={"tables_made": True}))
        if entry.epoch:
            self._carry_epoch(entry)
        opened = Collection(entry, collection.paths)
        if entry.added:
            reach("columns.after_catalog")
            opened.carry_columns()
        return opened

    def update(self, name: str, change: Callable[[Entry], Entry]) -> Entry:
        """Replace one collection's entry by `change(entry)`, from its newest state, and say what it is now.

        Raises:
            RuleBroken: there is no such collection, or the change would move since back.
        """

        def apply(entries: dict[str, Entry]) -> Entry:
            for entry in entries.values():
                if entry.name == name:
                    changed = change(entry)
                    if not entry.since_frontier.less_equal_frontier(changed.since_frontier):
                        raise RuleBroken(
                            f"since of '{name}' would go back from {entry.since} to {changed.since}", "since only rises"
                        )
                    return changed
            raise RuleBroken(f"the store has no collection '{name}'", "mend the name")

        return self._change(apply)

    def decide(self, name: str, decision: Decision) -> Entry:
        """Store a standing rule; of several counts for one time the newest stands, and is the only one kept."""

        def add(entry: Entry) -> Entry:
            kept = [one for one in entry.decisions if not _replaces(decision, one)]
            return entry.model_copy(update={"decisions": (*kept, decision)})

        return self.update(name, add)

    def withdraw(self, name: str, time: int) -> Entry:
        """Take back all decisions about a time; the caller sees to it that the time is not sealed."""
        return self._withdraw(name, lambda decision: decision.time == time)

    def withdraw_acknowledgement(self, name: str, quarantined: tuple[str, int, int, int]) -> Entry:
        """Take back that somebody has seen to these quarantined messages."""
        return self._withdraw(name, lambda decision: decision.quarantined == quarantined)

    def _withdraw(self, name: str, is_meant: Callable[[Decision], bool]) -> Entry:
        def keep_others(entry: Entry) -> Entry:
            kept = tuple(one for one in entry.decisions if not is_meant(one))
            return entry.model_copy(update={"decisions": kept})

        return self.update(name, keep_others)

    def fence(self, name: str) -> Entry:
        """Move the writer's epoch, so that every writer that began before can commit nothing more."""
        entry = self.update(name, lambda one: one.model_copy(update={"epoch": one.epoch + 1}))
        reach("catalog.after_epoch")
        self._carry_epoch(entry)
        return entry

    def _carry_epoch(self, entry: Entry) -> None:
        """Bring the entry's epoch into the tables that it fences; a stop in between is healed by the next opening."""
        paths = self.store.collection(entry.id)
        bindings = [paths.bindings] if entry.framing == "reclock" else []
        for path in (paths.updates, paths.progress, paths.proofs, paths.quarantine, paths.late, *bindings):
            _raise_epoch(path, entry.epoch)

    def _create_tables(self, collection: Collection) -> None:
        from tidelake.delta.types import late_schema, updates_schema  # late: `status` reads catalogs without Spark

        paths, schema = collection.paths, collection.entry.record_schema
        create_table(paths.progress, PROGRESS_SCHEMA, {EPOCH: 0})
        create_table(paths.proofs, PROOFS_SCHEMA, {EPOCH: 0})
        create_table(paths.quarantine, QUARANTINE_SCHEMA, {EPOCH: 0})
        create_table(paths.late, late_schema(schema), {EPOCH: 0})
        if collection.entry.framing == "reclock":
            create_table(paths.bindings, BINDINGS_SCHEMA, {EPOCH: 0})
        create_table(
            paths.updates,
            updates_schema(schema, collection.entry.positioned),
            {EPOCH: 0, "upper": 0, "closed": 0, "since": 0},
        )

    def _read(self, table: OpenTable) -> dict[str, Entry]:
        rows = read_rows(self.store.catalog, table.files(), _SCHEMA)
        return {
            run: Entry.model_validate_json(text)
            for run, text in zip(rows[RUN].to_pylist(), rows["document"].to_pylist(), strict=True)
        }

    def _change(self, change: Callable[[dict[str, Entry]], Entry]) -> Entry:
        for attempt in range(_ATTEMPTS_MAX):
            table = OpenTable(self.store.catalog)
            entries = self._read(table)
            entry = change(entries)
            if entry in entries.values():
                return entry
            run = new_run("entry")
            rows = pa.table({"name": [entry.name], "document": [entry.model_dump_json()]})
            added = write_run(self.store.catalog, run, rows)
            removes = [old_run for old_run, old in entries.items() if old.id == entry.id]
            try:
                table.commit({}, added, removes)
            except Conflict:
                discard_run(self.store.catalog, run)
                reach("catalog.after_conflict")
                time.sleep(min(0.002 * attempt, 0.1))
                continue
            reach("catalog.after_commit")
            maintain(self.store.catalog)
            return entry
        raise Conflict(str(self.store.catalog), -1, f"{_ATTEMPTS_MAX} attempts to change the catalog failed")


def _replaces(decision: Decision, earlier: Decision) -> bool:
    """Whether a decision says anew what an earlier one has said."""
    if decision.accept_topic is not None:
        return False  # a topic may have to be accepted time and again, and each time counts
    if decision.count is not None:
        return earlier.count is not None and earlier.time == decision.time
    return earlier.model_copy(update={"at_ms": decision.at_ms, "reason": decision.reason}) == decision


def _raise_epoch(path: Path, epoch: int) -> None:
    for _ in range(_ATTEMPTS_MAX):
        table = OpenTable(path)
        if (table.value(EPOCH) or 0) >= epoch:
            return
        try:
            table.commit({EPOCH: epoch})
        except Conflict:
            continue
        return
    raise Conflict(str(path), -1, f"{_ATTEMPTS_MAX} attempts to fence failed")
