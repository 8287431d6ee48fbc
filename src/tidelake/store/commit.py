"""Commits to the catalog and to the tables of collections: reads a table's log, and creates its next entry.

The logs of names and of published tables are written elsewhere; see `catalog.name_log` and `staged_rows`.

Every commit carries a random nonce and, as Delta application transactions, small values: the caller's (`upper`,
offsets, …) and `seq`, which rises by one with each commit. Of two commits from the same state, at most one can create
the entry of the next version: that is compare-and-append. An `OpenTable` is good for a single attempt: nothing is
rebased.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Schema
from deltalake.exceptions import DeltaError

from tidelake.errors import (
    CommitRefused,
    Conflict,
    DamagedLog,
    DamagedTable,
    Fenced,
    Indeterminate,
    NewerFormat,
    RunSwept,
    StoreUnreachable,
)
from tidelake.spark.engine_errors import engine_fact, is_panic
from tidelake.storage import blobs
from tidelake.storage.location import UNFINISHED, Location
from tidelake.storage.notices import warn, warn_of_waiting
from tidelake.store.acknowledged import (
    Markers,
    acknowledge_checkpoint,
    acknowledge_entry,
    digest_of,
    entry_marker,
    read_markers,
)
from tidelake.store.dead_notes import read_notes
from tidelake.store.entry_text import Stated, entry_of_files
from tidelake.store.failpoints import reach
from tidelake.store.files import DIGEST, HEADERS_DIGEST, ROWS_HASH, WHOLE_DIGEST, RunFile, check_file
from tidelake.store.followed import Followed, forget, known, newest, remember
from tidelake.store.format import FORMAT, FORMAT_VERSION, NEWEST_VERSION, REFUSED_PROPERTY, REFUSED_VALUE
from tidelake.store.layout import RUN, TIME, begun_at
from tidelake.store.log_copy import new_checkpoint, next_entry
from tidelake.store.log_state import LogState
from tidelake.store.table_log import (
    HINT,
    LOG,
    SEQ,
    Tip,
    acknowledge_newest_checkpoint,
    checkpoint_path,
    checkpoints,
    clean_up,
    entry_path,
    last_checkpoint,
    load_table,
    newest_version,
    nonce_of,
    read_entry,
    read_or_none,
    readable_checkpoint,
    seq_of,
    settle,
    state_at,
    stated_before,
    version_of,
)

EPOCH = "epoch"
SWEEP_FLOOR = "sweep_floor"
"""A run that began at a `seq` below this value and is not live may be deleted at any moment. No commit can add it."""

FLAGGED = "flagged"
"""Equal to `seq` if every commit since the table's creation came from a release that sets flags; see `may_have`.

A commit by an earlier release does not raise this value, and no later commit catches up: from then on, a flag that is
not set proves nothing."""

_CONFIGURATION = {
    "delta.logRetentionDuration": "interval 6 hours",
    "delta.deletedFileRetentionDuration": "interval 24 hours",
    # The first column is `_time`. Naming it in `dataSkippingStatsColumns` would be less safe: delta-rs has lost the
    # bounds of columns that follow a struct; see docs/decisions/statistics.md.
    "delta.dataSkippingNumIndexedCols": "1",
    "delta.checkpointInterval": "1000000",  # `maintain` writes checkpoints, after the commit
    REFUSED_PROPERTY: REFUSED_VALUE,
}
_CHECKPOINT_EVERY_COMMITS = 32
_RENEWED_UNASKED = 2
"""Renewing this many runs in an object store takes no more requests than reading the notes about them."""
_NO_HOOKS = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)


def create_table(
    path: Location,
    schema: pa.Schema,
    values: Mapping[str, int] | None = None,
    configuration: Mapping[str, str] | None = None,
) -> None:
    """Create an empty table, partitioned by `_run`, with `seq` 0 and these values, unless the table exists.

    `configuration` has the properties that differ from those of other tables.

    The first entry is written elsewhere, and then created in the log if the log has no entry yet. So exactly one of
    several processes succeeds. delta-rs would let each of them commit a version of its own.
    """
    if is_table(path):
        return
    log = path / LOG
    blobs.check_conditional_writes(path)
    blobs.make_folder(log)
    reach("table.after_folder")
    nonce = secrets.token_hex(16)
    stated = Stated(nonce, "", {FORMAT: FORMAT_VERSION, **(values or {}), SEQ: 0})
    with _folder_apart(path, nonce) as apart:
        DeltaTable.create(
            str(apart),
            schema=Schema.from_arrow(schema),
            partition_by=[RUN],
            configuration={**_CONFIGURATION, **(configuration or {})},
            commit_properties=stated.properties(),
            post_commithook_properties=_NO_HOOKS,
        )
        reach("table.after_entry")
        with suppress(FileExistsError):
            blobs.create(entry_path(path, 0), blobs.read(entry_path(apart, 0)))
    blobs.make_durable([entry_path(path, 0)])
    blobs.make_names_durable([log, path, *path.parents])
    reach("table.after_create", path.name)
    settle(path)


@contextmanager
def _folder_apart(path: Location, nonce: str) -> Iterator[Location]:
    """Yield a folder on a local disk for a table's first entry: on the store's own disk, if it has one."""
    if not path.is_local:
        with blobs.scratch_folder() as scratch:
            yield scratch
        return
    apart = path / f"{UNFINISHED}{nonce}"
    try:
        yield apart
    finally:
        with suppress(OSError):
            blobs.delete_folder(apart)  # a sweep deletes leftovers


def is_table(path: Location) -> bool:
    """Whether a table exists and was created completely; raises what `settle` raises."""
    return newest(path).tip.version >= 0


@dataclass(frozen=True)
class Committed:
    """A commit that is durable."""

    version: int
    seq: int
    nonce: str


class OpenTable:
    """A table as its log describes it now: its values, its live files, and one attempt at a commit."""

    def __init__(self, path: Location, *, may_be_stale: bool = False) -> None:
        """Read the log.

        Args:
            path: the table's folder.
            may_be_stale: whether the state may be the last one that this process has seen, which needs no request to an
                object store. A commit from a stale state conflicts.

        Raises:
            DamagedTable: Tidelake did not write the newest entry, `seq` does not rise by one, or state is missing.
            DamagedLog: an acknowledged entry is missing or has changed.
            NewerFormat: a later release of Tidelake wrote the table in a format that this release does not know.
        """
        self.path = path
        self._followed = known(path) if may_be_stale else newest(path)
        self._tip = self._followed.tip
        self._state = _state_of(path, self._followed)
        self._spent = False
        self.version = self._tip.version
        seq = self.value(SEQ)
        if seq is None:
            raise DamagedTable(str(path), f"version {self.version} carries no 'seq'")
        self.seq: int = seq
        self.format: int = self.value(FORMAT) or 0
        if self.format > NEWEST_VERSION:
            raise NewerFormat(str(path), self.format, NEWEST_VERSION)
        self._check_chain()
        retention = self._state.metadata["configuration"].get(REFUSED_PROPERTY)
        if retention not in (None, REFUSED_VALUE):
            raise DamagedTable(str(path), f"the property {REFUSED_PROPERTY} makes the table forget its state")
        if retention is None and self.format >= FORMAT_VERSION:
            raise DamagedTable(str(path), f"the property {REFUSED_PROPERTY}, which keeps earlier releases out, is gone")

    def at(self, version: int) -> OpenTable | None:
        """The table as it was at a given version, only for reading; None if the log no longer reaches back to it.

        Files of that version may have been deleted since.
        """
        earlier = state_at(self.path, version)
        if earlier is None:
            return None
        opened = copy(self)
        opened._state, opened._spent, opened.version, opened.seq = earlier, True, version, earlier.values.get(SEQ, 0)
        return opened

    def value(self, name: str) -> int | None:
        """The value of this name, or None if no commit has set it."""
        return self._state.values.get(name)

    def values(self, prefix: str, names: Iterable[str]) -> dict[str, int]:
        """The existing values of `prefix + name`, by name."""
        values = {name: self.value(prefix + name) for name in names}
        return {name: value for name, value in values.items() if value is not None}

    def names(self, prefix: str) -> list[str]:
        """The names of the values that begin with this prefix, without the prefix, sorted."""
        return sorted(name.removeprefix(prefix) for name in self._state.values if name.startswith(prefix))

    def may_have(self, flag: str) -> bool:
        """Return False if no commit has set a flag; True if one has, or if an earlier release may have left it out."""
        return self.value(FLAGGED) != self.seq or bool(self.value(flag))

    def files(self) -> list[RunFile]:
        """All live files, as their log entries describe them."""
        return [_run_file(path, action) for path, action in self._state.files.items()]

    @property
    def id(self) -> str:
        """The random id that the table got when it was created; no commit changes it."""
        return str(self._state.metadata["id"])

    def schema(self) -> pa.Schema:
        """The table's schema, `_run` included."""
        return pa.schema(Schema.from_json(json.dumps(self._state.metadata["schema"])).to_arrow())

    @property
    def is_checkpoint_due(self) -> bool:
        """Whether `maintain` would write a checkpoint after one more commit, unless another process writes it first."""
        return self.version + 1 - self._tip.checkpoint_version >= _CHECKPOINT_EVERY_COMMITS

    def commit(
        self,
        values: Mapping[str, int],
        adds: Sequence[RunFile] = (),
        removes: Sequence[str] = (),
        epoch: int | None = None,
    ) -> Committed:
        """Add files, remove runs and set values, all or nothing; return once the commit is durable.

        Args:
            values: what to set alongside `seq`; no value may be lower than the table's.
            adds: files in the table's folder, under `_run=<run>/`.
            removes: names of live runs that this commit removes.
            epoch: the writer's epoch, if the table has one.

        Raises:
            Conflict: another commit came first, or a run to remove is no longer live. Start over from fresh state.
            RunSwept: a file's run began below the sweep floor. Write it again, as a new run.
            Fenced: the table's epoch is no longer the writer's. Stop.
            Indeterminate: it is unknown whether this commit was written. Open the table again, then decide.
            CommitRefused: a value would fall, a file does not match the table or its description, or a run is both
                added and removed.
        """
        self._spend()
        self._check_format()
        self._check_epoch(epoch)
        self._check_values(values)
        self._check_runs(adds, removes)
        try:
            self._make_files_durable(adds)
        except (CommitRefused, DamagedTable, FileNotFoundError):
            OpenTable(self.path)._check_not_swept(adds)  # a sweep may have deleted them since this table was opened
            raise
        self._renew(removes)
        removed_runs = set(removes)
        removed = [file for file in self.files() if file.run in removed_runs] if removes else []
        return self._append(values, lambda stated: entry_of_files(stated, adds, removed))

    def add_columns(self, fields: Sequence[pa.Field], epoch: int | None = None) -> Committed:
        """Add nullable columns at the end, in a separate commit.

        Args:
            fields: the columns, all nullable and with new names.
            epoch: the writer's epoch, if the table has one.

        Raises:
            Conflict, Fenced, Indeterminate: as with `commit`.
        """
        self._spend()
        self._check_format()
        self._check_epoch(epoch)
        added = list(Schema.from_arrow(pa.schema(fields)).fields)

        def alter(table: DeltaTable, properties: CommitProperties) -> None:
            table.alter.add_columns(added, commit_properties=properties, post_commithook_properties=_NO_HOOKS)

        return self._append({}, lambda stated: self._entry_of(alter, stated))

    def raise_format(self) -> Committed:
        """State the newest format, and set the property that every earlier release refuses. Only for `bring_over`.

        Raises:
            Conflict, Indeterminate: as with `commit`.
        """
        self._spend()

        def alter(table: DeltaTable, properties: CommitProperties) -> None:
            table.alter.set_table_properties(
                {REFUSED_PROPERTY: REFUSED_VALUE},
                raise_if_not_exists=False,
                commit_properties=properties,
                post_commithook_properties=_NO_HOOKS,
            )

        return self._append({FORMAT: FORMAT_VERSION}, lambda stated: self._entry_of(alter, stated))

    def _spend(self) -> None:
        blobs.check_writable(self.path)
        if self._spent:
            raise CommitRefused("an open table is good for one commit", "open the table again")
        self._spent = True

    def _check_format(self) -> None:
        if self.format < FORMAT_VERSION:
            fact = f"{self.path} has the format of an earlier release, which may be writing to it"
            raise CommitRefused(fact, "open the collection for writing: that upgrades its tables")

    def _entry_of(self, alter: Callable[[DeltaTable, CommitProperties], None], stated: Stated) -> bytes:
        """Return the entry that delta-rs writes for a change to the schema or the properties."""
        try:
            return next_entry(self._tip, lambda table: alter(table, stated.properties()))
        except BaseException as error:  # nothing has been written yet
            if not isinstance(error, DeltaError) and not is_panic(error):
                raise
            raise CommitRefused(
                f"{self.path} cannot be changed: {engine_fact(error)}",
                "the table is unchanged; fix the cause and try again",
            ) from error

    def _append(self, values: Mapping[str, int], entry_of: Callable[[Stated], bytes]) -> Committed:
        """Append one entry, with the next `seq` and these values; return once the commit is durable."""
        if self.value(FLAGGED) == self.seq:
            values = {**values, FLAGGED: self.seq + 1}
        stated = Stated(secrets.token_hex(16), self._tip.digest or "", {**values, SEQ: self.seq + 1})
        reach("commit.before_call", self.path.name)
        text = entry_of(stated)
        try:
            self._put(text, stated.nonce)
        except BaseException:
            forget(self.path)  # the log may have an entry that was not acknowledged
            raise
        return Committed(self.version + 1, self.seq + 1, stated.nonce)

    def _put(self, text: bytes, nonce: str) -> None:
        """Put an entry into the log, and acknowledge it. In an object store, this takes three requests.

        Raises:
            Conflict, Indeterminate: as with `commit`.
            DamagedLog: the version was acknowledged before, but its entry was lost. The new entry was not acknowledged.
        """
        version, digest = self.version + 1, digest_of(text)
        if self.path.is_local:
            self._check_newest()
        self._create(text, nonce)
        reach("commit.after_call", self.path.name)
        blobs.make_names_durable([self.path / LOG])
        reach("commit.after_sync", self.path.name)
        try:
            if self._is_acknowledged(text, nonce):
                return
            acknowledge_entry(self.path, version, text)
        except StoreUnreachable as error:  # the next process to open the table acknowledges the entry
            raise Indeterminate(str(self.path), version, nonce, error.fact) from error
        reach("commit.after_marker", self.path.name)
        if self.path.is_local:
            # Another entry of this version may have been acknowledged meanwhile: `read_markers` then raises an error.
            # Or the log has moved on and was cleaned up: this marker came too late, and would make the entry look lost.
            newest_now = read_markers(self.path, version).newest
            if newest_now > version and read_or_none(entry_path(self.path, version)) is None:
                blobs.delete(entry_marker(self.path, version, digest))
        else:
            remember(self.path, self._followed.followed_by(version, digest, text))

    def _check_newest(self) -> None:
        """Check that the version at which this table was opened is still the newest acknowledged one.

        The log alone does not show this: later entries may be missing although they were acknowledged.

        Raises:
            Conflict: another commit came first.
            DamagedLog, DamagedTable: the version that was read is no longer acknowledged, or there is no table.
        """
        if self._markers_from_here().newest > self.version:
            raise Conflict(str(self.path), self.version + 1, "another commit was already acknowledged")

    def _markers_from_here(self) -> Markers:
        """Return the markers from the version at which this table was opened; raises what `_check_newest` raises."""
        for _ in range(2):  # one listing may miss a name
            markers = read_markers(self.path, self.version)
            if markers.newest >= self.version:
                return markers
        if not blobs.exists(entry_path(self.path, self.version)) and not read_markers(self.path).entries:
            raise DamagedTable(str(self.path), "there is no table")
        raise DamagedLog(str(self.path), f"version {self.version} was acknowledged, but its marker is gone")

    def _is_acknowledged(self, text: bytes, nonce: str) -> bool:
        """Return whether another process has acknowledged the newly created entry. If not, this entry is the newest.

        This process may have been suspended for a long time before or after it created the entry. In the meantime, the
        log may have moved on, and its entries and markers may have been cleaned up. See docs/decisions/commits.md.

        Raises:
            Conflict: the entry was created in place of one that had been cleaned up, or the log has another entry for
                the version that was read. The new entry is not part of the log.
            Indeterminate: later entries were cleaned up, or markers are missing, so it is unknown whether this entry
                was ever in the log.
            DamagedLog: the version was acknowledged before, but its entry was lost; or an older copy of the store,
                without the version that was read, was restored. The new entry is not part of the log.
            DamagedTable: the table was deleted.
        """
        version, digest = self.version + 1, digest_of(text)
        entry = entry_path(self.path, version)
        try:
            markers = self._markers_from_here()
        except DamagedLog as error:
            if self._was_restored_over(digest):
                _withdraw(entry, text)
                raise
            # Perhaps only the listings are wrong and another process has acknowledged the entry, so the entry stays.
            raise Indeterminate(str(self.path), version, nonce, error.fact) from error
        except DamagedTable:
            blobs.delete(entry)
            raise
        if markers.entries.get(self.version, self._tip.digest) != self._tip.digest:
            # An older copy of the store was restored, and then got another commit of the version that was read. Nobody
            # acknowledges an entry that states the SHA-256 of a different predecessor.
            _withdraw(entry, text)
            raise Conflict(str(self.path), version, f"version {self.version} is no longer the one that was read")
        stated = markers.entries.get(version)
        if stated == digest:
            return True
        if markers.newest > version:
            # The next entry, even one that came too late itself, states the SHA-256 of the entry that the log had here.
            # Read the next entry first, then this one. On a disk, cleanup deletes the oldest entries first: if the next
            # one is gone and this one is still there, this one was not in the log when the cleanup passed.
            following = stated_before(read_or_none(entry_path(self.path, version + 1)) or b"")
            if following == digest:
                return True
            is_there = _withdraw(entry, text)
            if following is not None or (is_there and self.path.is_local):
                raise Conflict(str(self.path), version, "other commits came first, and were cleaned up")
            raise Indeterminate(str(self.path), version, nonce, "later entries were cleaned up")
        if stated is not None:
            raise DamagedLog(str(self.path), f"version {version} was acknowledged before, but its entry was lost")
        if self.path.is_local and read_or_none(entry) != text:
            raise DamagedLog(str(self.path), f"the entry of version {version} is not the one that was written")
        return False

    def _was_restored_over(self, digest: str) -> bool:
        """Return whether the log no longer has the version at which this table was opened, but has earlier ones.

        If so, an older copy of the store was restored. Nobody would acknowledge the new entry, because the version
        before it is missing, and the new entry must not stay: with it, the log could not be opened. Listings may leave
        out names, so those that matter are looked up one by one.

        Args:
            digest: the SHA-256 of the new entry; if the entry was acknowledged, the answer is False.
        """
        markers = ((self.version, self._tip.digest or ""), (self.version + 1, digest))
        names = [entry_path(self.path, self.version), *(entry_marker(self.path, *marker) for marker in markers)]
        return not any(map(blobs.exists, names)) and 0 <= read_markers(self.path).newest < self.version

    def _create(self, text: bytes, nonce: str) -> None:
        """Create the next entry with durable bytes; return only if it was created."""
        version = self.version + 1
        try:
            blobs.create(entry_path(self.path, version), text)
        except (StoreUnreachable, OSError) as error:
            if isinstance(error, FileExistsError) and not self.path.is_local:
                raise Conflict(str(self.path), version, "another commit came first") from error
            # Only the log knows what happened: a network file system may repeat a call that has succeeded, and then
            # report that the file exists.
            self._settle(nonce, error)

    def _settle(self, nonce: str, error: Exception) -> None:
        """Find out from the log whether the entry was created despite the error; return only if it was.

        Before the log is read again, a warning says so, and for how long the outcome has been unknown.
        """
        version = self.version + 1
        fact = "another commit came first" if isinstance(error, FileExistsError) else engine_fact(error)
        begun_s = time.monotonic()
        for attempt, wait_s in enumerate((0.0, 0.05, 0.2, 1.0), start=1):
            if attempt > 1:
                warn_of_waiting(
                    self.path.root,
                    "it is unknown whether a commit was written; the table's log is read again",
                    table=str(self.path),
                    version=version,
                    attempt=attempt,
                    seconds=round(time.monotonic() - begun_s, 1),
                    reason=fact,
                )
            time.sleep(wait_s)
            entry = None
            with suppress(StoreUnreachable):
                entry = read_entry(self.path, version)
            if entry is not None:
                if nonce_of(entry) == nonce:
                    return
                raise Conflict(str(self.path), version, fact) from error
        raise Indeterminate(str(self.path), version, nonce, fact) from error

    def _check_chain(self) -> None:
        before, entry = self._tip.newest_entries()
        seq = seq_of(entry)
        if seq is None:
            operation = next(
                (action["commitInfo"].get("operation") for action in entry if "commitInfo" in action), "unknown"
            )
            raise DamagedTable(
                str(self.path),
                f"version {self.version} ({operation}) was committed by something else: its entry has no 'seq'",
            )
        expected = self.seq if before is None else (seq_of(before) or 0) + 1
        if seq != self.seq or seq != expected:
            raise DamagedTable(str(self.path), f"'seq' is {seq} at version {self.version}, but should be {expected}")
        if self._tip.digest is None:
            fact = f"version {self.version} was committed by an earlier release of Tidelake, which acknowledges nothing"
            raise DamagedTable(str(self.path), fact)

    def _check_epoch(self, epoch: int | None) -> None:
        current = self.value(EPOCH)
        if epoch is not None and current != epoch:
            raise Fenced(str(self.path), epoch, -1 if current is None else current)

    def _check_values(self, values: Mapping[str, int]) -> None:
        if SEQ in values:
            raise CommitRefused("'seq' is set by the commit itself", "leave it out")
        for name, value in values.items():
            if not isinstance(value, int) or not -(2**63) <= value < 2**63:
                raise CommitRefused(f"'{name}' is {value!r}, which is not an int64", "values are int64")
            current = self.value(name)
            if current is not None and value < current:
                fact = f"'{name}' would fall from {current} to {value} in {self.path}"
                raise CommitRefused(fact, "values may only rise")

    def _make_files_durable(self, files: Sequence[RunFile]) -> None:
        for file in files:
            check_file(self.path, file, self.schema())
            blobs.make_durable([self.path / file.path])
        blobs.make_names_durable({folder for file in files for folder in _folders_of(self.path, file)})

    def _check_not_swept(self, adds: Sequence[RunFile]) -> None:
        """Refuse runs that a sweep may delete.

        A clock decides when a sweep deletes a run; only the log decides whether the run may be added.
        """
        floor = self.value(SWEEP_FLOOR) or 0
        swept = sorted({file.run for file in adds if begun_at(file.run) < floor})
        if swept:
            fact = f"the run {swept[0]} began before a sweep (at seq {begun_at(swept[0])}; the floor is {floor})"
            raise RunSwept(str(self.path), self.version + 1, fact)

    def _renew(self, runs: Sequence[str]) -> None:
        """Give readers the retention period, starting now, to finish with the runs that this commit removes.

        This matters only for runs that a sweep announced before they were committed: a sweep that opened the table
        before then may write its confirmation even after this commit. A run that is announced later is confirmed only
        by a sweep that opens the table after this commit.
        """
        folders = [f"{RUN}={run}" for run in runs]
        if len(folders) > _RENEWED_UNASKED and not self.path.is_local:
            notes = read_notes(self.path)
            folders = [name for name in folders if name in notes.by_folder or not notes.is_complete]
        for name in folders:
            blobs.renew(self.path / name)

    def _check_runs(self, adds: Sequence[RunFile], removes: Sequence[str]) -> None:
        self._check_not_swept(adds)
        live = {file.run for file in self.files()} if removes else set()
        missing = sorted(set(removes) - live)
        if missing:
            raise Conflict(str(self.path), self.version + 1, f"the run {missing[0]} is no longer live")
        both = sorted({file.run for file in adds} & set(removes))
        if both:
            raise CommitRefused(f"the run {both[0]} is both added and removed in one commit", "use a fresh run name")


def maintain(path: Location, entries_max: int | None = None) -> bool:
    """If there are enough new entries, write a checkpoint and clean up the log; return whether this was done.

    If the store does not answer, a later commit tries again: commits are durable without a checkpoint.

    Args:
        path: the table's folder.
        entries_max: how many entries are kept for the whole retention period; see `clean_up`.
    """
    try:
        return _maintain(path, entries_max)
    except StoreUnreachable as error:
        warn("a log was not cleaned up; a later commit tries again", table=str(path), reason=error.fact)
        return False


def _maintain(path: Location, entries_max: int | None) -> bool:
    if not path.is_local:
        return _maintain_elsewhere(path, entries_max)
    if newest_version(path) - last_checkpoint(path) < _CHECKPOINT_EVERY_COMMITS:
        return False  # decided by file names alone: opening the log costs as much as a commit
    table = _load_newest(path)
    version = table.version()
    table.create_checkpoint()
    reach("commit.after_checkpoint_write")
    # The checkpoint must be on disk before the entries that it covers are deleted.
    with suppress(FileNotFoundError):  # another process does not trust the checkpoint and has set it aside
        blobs.make_durable(blob for blob in checkpoints(path) if version_of(blob) == version)
        blobs.make_durable([path / LOG / "_last_checkpoint"])
    blobs.make_names_durable([path / LOG])
    reach("commit.after_checkpoint")
    acknowledge_newest_checkpoint(path)
    clean_up(path, entries_max)
    reach("commit.after_cleanup")
    return True


def _maintain_elsewhere(path: Location, entries_max: int | None) -> bool:
    """Do what `maintain` does, in an object store.

    Cost: nothing if no checkpoint is due; else three requests, and those of the cleanup.
    """
    followed = known(path)
    tip = followed.tip
    if tip.digest is None or tip.version - tip.checkpoint_version < _CHECKPOINT_EVERY_COMMITS:
        return False
    data, hint = new_checkpoint(tip)
    if readable_checkpoint(data) != followed.state:
        warn("a checkpoint that differs from the log was not written", table=str(path), version=tip.version)
        return False
    try:
        blobs.create(checkpoint_path(path, tip.version), data)
    except FileExistsError:  # another process has just written one
        forget(path)
        return False
    reach("commit.after_checkpoint_write")
    blobs.write(path / LOG / HINT, hint)
    reach("commit.after_checkpoint")
    acknowledge_checkpoint(path, tip.version, digest_of(data))
    remember(path, Followed(Tip(tip.version, tip.digest, data, tip.entries[-1:], tip.version)))
    clean_up(path, entries_max)
    reach("commit.after_cleanup")
    return True


def _state_of(path: Location, followed: Followed) -> LogState:
    """Return the state of a table at the newest entry of its prepared log."""
    if followed.tip.version < 0:
        raise DamagedTable(str(path), "there is no table")
    try:
        state = followed.state
    except (ValueError, KeyError, TypeError, OSError, pa.ArrowException) as error:
        raise DamagedTable(str(path), f"its log cannot be read: {engine_fact(error)}") from error
    if not state.metadata:
        raise DamagedTable(str(path), "its log cannot be read: no entry states the schema")
    return state


def _load_newest(path: Location) -> DeltaTable:
    """Load a table at the newest entry of its prepared log."""
    while True:
        with suppress(Conflict):  # another process has committed in the meantime
            return _load_at(path, settle(path).version)


def _load_at(path: Location, version: int) -> DeltaTable:
    """Load a table, and check that it is at this version, the newest of its prepared log.

    Raises:
        Conflict: another commit came first.
        DamagedLog: delta-rs does not see an acknowledged version.
    """
    table = load_table(path)
    if table.version() > version:
        raise Conflict(str(path), version + 1, "another commit came first")
    if table.version() < version:
        fact = f"delta-rs reads it up to version {table.version()}, but version {version} was acknowledged"
        raise DamagedLog(str(path), fact)
    return table


def _run_file(path: str, action: dict[str, Any]) -> RunFile:
    """Describe a live file from its log entry."""
    statistics = action["statistics"] or {}
    low, high = (statistics.get(bound, {}).get(TIME) for bound in ("minValues", "maxValues"))
    return RunFile(
        path=path,
        run=action["partition"][RUN],
        rows=statistics.get("numRecords") or 0,
        bytes=action["size"],
        time_min=low,
        time_max=high,
        digest=statistics.get(DIGEST),
        whole_digest=statistics.get(WHOLE_DIGEST),
        headers_digest=statistics.get(HEADERS_DIGEST),
        rows_hash=statistics.get(ROWS_HASH),
    )


def _withdraw(entry: Location, text: bytes) -> bool:
    """Delete an entry if it still has the bytes that this writer put there; return whether it had."""
    is_there = read_or_none(entry) == text
    if is_there:
        blobs.delete(entry)
    return is_there


def _folders_of(table: Location, file: RunFile) -> list[Location]:
    """Return the folders from a file up to its table. Each holds one of the names in the file's path."""
    folders, folder = [table], (table / file.path).parent
    while folder != table:
        folders.append(folder)
        folder = folder.parent
    return folders
