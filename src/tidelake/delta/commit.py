"""The only room that commits: what a table's log says, and the one call that adds to it.

Every commit carries `seq` (one more each time) as a Delta application transaction, beside the other small values that
its caller keeps there (`upper`, offsets, …), and a random nonce. Two commits from one state both name `seq`, so at most
one of them succeeds: that is compare-and-append. An `OpenTable` is good for a single attempt, because delta-rs rebases
a stale append that names no common id, and does not check that versions rise.
"""

from __future__ import annotations

import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Schema, Transaction
from deltalake.transaction import AddAction

from tidelake.delta.engines import engine_fact
from tidelake.delta.files import RunFile, check_file, sync_folder, sync_path
from tidelake.delta.layout import RUN
from tidelake.delta.stops import reach
from tidelake.delta.table_log import (
    LAST,
    SEQ,
    entry_path,
    last_checkpoint,
    load_table,
    newest_version,
    nonce_of,
    read_entry,
    seq_of,
    set_torn_entry_aside,
)
from tidelake.errors import CommitRefused, Conflict, DamagedTable, Fenced, Indeterminate

EPOCH = "epoch"

_CONFIGURATION = {
    "delta.logRetentionDuration": "interval 6 hours",
    "delta.deletedFileRetentionDuration": "interval 24 hours",
    # The first column is `_time`. `dataSkippingStatsColumns` would lose all statistics where a column is a struct.
    "delta.dataSkippingNumIndexedCols": "1",
    "delta.checkpointInterval": "1000000",  # `maintain` makes checkpoints, outside of the commit call
}
_FORBIDDEN_PROPERTY = "delta.setTransactionRetentionDuration"
UNFINISHED = "_unfinished-"
"""What the folders in a table's folder begin with in which its first entry was written."""
_CHECKPOINT_EVERY_COMMITS = 32
_NO_HOOKS = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)


def create_table(path: Path, schema: pa.Schema, values: Mapping[str, int] | None = None) -> None:
    """Make an empty table partitioned by `_run` with `seq` 0 and these values; leave one that is there as it is.

    The first entry is written elsewhere and linked into the log: of several processes one makes it, and the others find
    that one's. delta-rs would let each of them commit a version of its own.
    """
    if is_table(path):
        return
    log = path / "_delta_log"
    log.mkdir(parents=True, exist_ok=True)
    reach("table.after_folder")
    nonce = secrets.token_hex(16)
    apart = path / f"{UNFINISHED}{nonce}"
    transactions = [*(Transaction(name, value) for name, value in (values or {}).items()), Transaction(SEQ, 0)]
    try:
        DeltaTable.create(
            str(apart),
            schema=Schema.from_arrow(schema),
            partition_by=[RUN],
            configuration=_CONFIGURATION,
            commit_properties=CommitProperties(app_transactions=transactions, custom_metadata={"nonce": nonce} | LAST),
            post_commithook_properties=_NO_HOOKS,
        )
        sync_path(entry_path(apart, 0))
        reach("table.after_entry")
        with suppress(FileExistsError):
            entry_path(path, 0).hardlink_to(entry_path(apart, 0))
    finally:
        shutil.rmtree(apart, ignore_errors=True)  # a sweep takes what is left of it
    sync_path(entry_path(path, 0))
    for folder in (path / "_delta_log", path, *list(path.parents)[:3]):
        sync_folder(folder)
    reach("table.after_create", path.name)


def is_table(path: Path) -> bool:
    """Whether there is a table whose making was finished."""
    set_torn_entry_aside(path)
    return bool(DeltaTable.is_deltatable(str(path)))


@dataclass(frozen=True)
class Committed:
    """A commit that is durable."""

    version: int
    seq: int
    nonce: str


class OpenTable:
    """One table as its log stands now: its values and live files, and the right to one attempt at a commit."""

    def __init__(self, path: Path) -> None:
        """Read the log.

        Raises:
            DamagedTable: the newest entry is not one of ours, `seq` does not rise by one, or state is missing.
        """
        self.path = path
        set_torn_entry_aside(path)
        self._table = load_table(path)
        self._spent = False
        self._values: dict[str, int | None] = {}
        self.version: int = self._table.version()
        entry = entry_path(path, self.version)
        if entry.exists():  # what another process linked but did not sync must not be built on
            sync_path(entry)
        seq = self._table.transaction_version(SEQ)
        if seq is None:
            raise DamagedTable(str(path), f"version {self.version} carries no 'seq'")
        self.seq: int = seq
        self._check_chain()
        configuration = self._table.metadata().configuration
        if _FORBIDDEN_PROPERTY in configuration:
            raise DamagedTable(str(path), f"the property {_FORBIDDEN_PROPERTY} forgets the table's state")

    def value(self, name: str) -> int | None:
        """The application transaction of this name, or None where no commit has named it."""
        if name not in self._values:
            self._values[name] = self._table.transaction_version(name)
        return self._values[name]

    def values(self, prefix: str, names: Iterable[str]) -> dict[str, int]:
        """The values of `prefix + name` for each of the names that has one, by name."""
        found = {name: self.value(prefix + name) for name in names}
        return {name: value for name, value in found.items() if value is not None}

    def files(self) -> list[RunFile]:
        """Every live file, with what its log entry states of it."""
        actions = pa.table(self._table.get_add_actions(flatten=True))
        columns = {name: actions[name].to_pylist() for name in actions.column_names}
        nothing: list[None] = [None] * actions.num_rows
        return [
            RunFile(path=path, run=run, rows=rows or 0, bytes=size, time_min=low, time_max=high)
            for path, run, rows, size, low, high in zip(
                columns["path"],
                columns[f"partition.{RUN}"],
                columns.get("num_records", nothing),
                columns["size_bytes"],
                columns.get("min._time", nothing),
                columns.get("max._time", nothing),
                strict=True,
            )
        ]

    def schema(self) -> pa.Schema:
        """The table's schema, `_run` included."""
        return pa.schema(self._table.schema().to_arrow())

    def commit(
        self,
        values: Mapping[str, int],
        adds: Sequence[RunFile] = (),
        removes: Sequence[str] = (),
        epoch: int | None = None,
    ) -> Committed:
        """Add files, swap runs out and move values, all or nothing; return when it is durable.

        Args:
            values: what to set beside `seq`; none may be below what the table has.
            adds: files that lie in the table's folder under `_run=<run>/`.
            removes: names of live runs that this commit takes out.
            epoch: the writer's epoch, where the table is fenced by one.

        Raises:
            Conflict: another commit came first; nothing of this one is there. Start over from fresh state.
            Fenced: the table's epoch is not the writer's any more. Stop.
            Indeterminate: it cannot be said whether this commit is there. Open the table again, then decide.
            CommitRefused: a value would fall, a file does not fit, or a run to remove is not live.
        """
        self._spend()
        self._check_epoch(epoch)
        self._check_values(values)
        self._check_runs(adds, removes)
        for file in adds:
            check_file(self.path, file, self.schema())
            sync_path(self.path / file.path)
        for folder in {folder for file in adds for folder in _folders_of(self.path, file)}:
            sync_folder(folder)
        for run in removes:
            os.utime(self.path / f"{RUN}={run}")  # whoever still reads it has the retention from here
        now_ms = int(time.time() * 1000)

        def call(properties: CommitProperties) -> None:
            self._table.create_write_transaction(
                [AddAction(f.path, f.bytes, {RUN: f.run}, now_ms, True, f.statistics()) for f in adds],
                mode="overwrite" if removes else "append",
                schema=self._table.schema(),
                partition_by=[RUN],
                partition_filters=[(RUN, "in", list(removes))] if removes else None,
                commit_properties=properties,
                post_commithook_properties=_NO_HOOKS,
            )

        return self._call(call, values)

    def add_columns(self, fields: Sequence[pa.Field], epoch: int | None = None) -> Committed:
        """Add columns at the end, in which all rows are null so far; a commit of their own, as durable as any.

        Args:
            fields: names that the table does not have, all of which may be null.
            epoch: the writer's epoch, where the table is fenced by one.

        Raises:
            Conflict, Fenced, Indeterminate: as with `commit`.
        """
        self._spend()
        self._check_epoch(epoch)
        added = list(Schema.from_arrow(pa.schema(fields)).fields)

        def call(properties: CommitProperties) -> None:
            self._table.alter.add_columns(added, commit_properties=properties, post_commithook_properties=_NO_HOOKS)

        return self._call(call, {})

    def _spend(self) -> None:
        if self._spent:
            raise CommitRefused("an open table is good for one commit", "open the table again")
        self._spent = True

    def _call(self, call: Callable[[CommitProperties], None], values: Mapping[str, int]) -> Committed:
        """Make one call that commits, with the next `seq` and these values; return when it is durable."""
        nonce = secrets.token_hex(16)
        transactions = [*(Transaction(name, value) for name, value in values.items()), Transaction(SEQ, self.seq + 1)]
        reach("commit.before_call", self.path.name)
        try:
            call(
                CommitProperties(
                    custom_metadata={"nonce": nonce} | LAST, max_commit_retries=0, app_transactions=transactions
                )
            )
        except Exception as error:  # whatever was raised, only the log knows what happened
            self._settle(nonce, error)
        reach("commit.after_call", self.path.name)
        sync_path(entry_path(self.path, self.version + 1))
        sync_folder(self.path / "_delta_log")
        reach("commit.after_sync", self.path.name)
        return Committed(self.version + 1, self.seq + 1, nonce)

    def _settle(self, nonce: str, error: Exception) -> None:
        """Find out from the log whether a commit call that raised has committed; return only if it has."""
        version = self.version + 1
        for wait_s in (0.0, 0.05, 0.2, 1.0):
            time.sleep(wait_s)
            entry = read_entry(self.path, version)
            if entry is not None:
                if nonce_of(entry) == nonce:
                    return
                raise Conflict(str(self.path), version, engine_fact(error)) from error
        raise Indeterminate(str(self.path), version, nonce, engine_fact(error)) from error

    def _check_chain(self) -> None:
        entry = read_entry(self.path, self.version)
        if entry is None:
            return
        seq = seq_of(entry)
        if seq is None:
            operation = next((one["commitInfo"].get("operation") for one in entry if "commitInfo" in one), "unknown")
            raise DamagedTable(
                str(self.path),
                f"version {self.version} ({operation}) was committed by something else: it names no 'seq'",
            )
        before = read_entry(self.path, self.version - 1) if self.version > 0 else None
        expected = self.seq if before is None else (seq_of(before) or 0) + 1
        if seq != self.seq or seq != expected:
            raise DamagedTable(str(self.path), f"'seq' is {seq} at version {self.version} where {expected} was to come")

    def _check_epoch(self, epoch: int | None) -> None:
        found = self.value(EPOCH)
        if epoch is not None and found != epoch:
            raise Fenced(str(self.path), epoch, -1 if found is None else found)

    def _check_values(self, values: Mapping[str, int]) -> None:
        if SEQ in values:
            raise CommitRefused("'seq' is the commit's own value", "leave it out")
        for name, value in values.items():
            found = self.value(name)
            if found is not None and value < found:
                raise CommitRefused(f"'{name}' would fall from {found} to {value} in {self.path}", "values only rise")

    def _check_runs(self, adds: Sequence[RunFile], removes: Sequence[str]) -> None:
        # delta-rs takes an overwrite with empty filters, or with one that matches nothing, as "remove everything".
        live = {file.run for file in self.files()} if removes else set()
        missing = sorted(set(removes) - live)
        if missing:
            raise Conflict(str(self.path), self.version, f"the run {missing[0]} is no longer live")
        both = sorted({file.run for file in adds} & set(removes))
        if both:
            raise CommitRefused(f"the run {both[0]} is added and removed in one commit", "use a fresh run name")


def maintain(path: Path) -> bool:
    """Write a checkpoint and clean the log up behind it when enough entries have gathered; say whether it did."""
    if newest_version(path) - last_checkpoint(path) < _CHECKPOINT_EVERY_COMMITS:
        return False  # told by names alone: to open the log would cost as much as the commit that was before
    table = load_table(path)
    version = table.version()
    table.create_checkpoint()
    reach("commit.after_checkpoint_write")
    # The entries behind it go now, so it has to be on disk before.
    for checkpoint in (path / "_delta_log").glob(f"{version:020d}.checkpoint*.parquet"):
        sync_path(checkpoint)
    sync_path(path / "_delta_log" / "_last_checkpoint")
    sync_folder(path / "_delta_log")
    reach("commit.after_checkpoint")
    table.cleanup_metadata()
    reach("commit.after_cleanup")
    return True


def _folders_of(table: Path, file: RunFile) -> list[Path]:
    """Every folder from a file up to its table: each holds a name on the file's path."""
    folders, folder = [table], (table / file.path).parent
    while folder != table:
        folders.append(folder)
        folder = folder.parent
    return folders
