"""Sweeps: delete the folders of runs that are in no log, and files that a killed process left unfinished.

Needs no JVM. The age of a run is that of its note in `_dead/`, by the store's clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from tidelake.storage import blobs
from tidelake.storage.location import UNFINISHED, Blob, Listing, Location
from tidelake.store.acknowledged import ACKED
from tidelake.store.commit import SWEEP_FLOOR, OpenTable, maintain
from tidelake.store.dead_notes import begin_sweep, changed_since, long_dead, notes_of
from tidelake.store.failpoints import reach
from tidelake.store.files import discard_run
from tidelake.store.layout import RUN, Store, begun_at
from tidelake.store.retry import ATTEMPTS_MAX, retry_commit
from tidelake.store.table_log import LOG

RETENTION_S = 24 * 3600.0
"""How long readers may still use files that a commit has removed, counted from the sweep that confirms the removal."""


def nothing_pinned() -> None:
    """Return None: no hold pins a version. This is so for every table except `updates/`."""


@dataclass(frozen=True)
class DeadRun:
    """A run that is not in the newest version of a table."""

    name: str
    bytes: int
    noted_s: float | None
    """When a sweep confirmed that the run is dead, by the store's clock; None if no sweep has, or if the run's folder
    has changed since."""
    goes: bool
    """Whether a sweep would delete it now."""
    is_pinned: bool = False
    """Whether a live hold pins a version that may name it."""


def dead_runs(
    table: Location,
    retention_s: float = RETENTION_S,
    read_pin: Callable[[], int | None] = nothing_pinned,
    now_s: Callable[[Location], float] = blobs.now_s,
) -> list[DeadRun]:
    """Return the runs of a table that are in no log, and which of them a sweep would delete. Nothing is deleted.

    Args:
        table: the table's folder.
        retention_s: how long readers may use files after a commit has removed them.
        read_pin: as for `sweep`.
        now_s: reads the clock, given a folder of the store. The default writes a short-lived file to read the store's
            clock.

    Cost: the log is opened and the table's folder is listed. If there are dead runs, the notes and each dead run are
    listed, and the clock is read.
    """
    opened = OpenTable(table)
    dead = _dead_folders(opened, blobs.list_folder(table))
    if not dead:
        return []
    pinned_seq = read_pin()
    notes, horizon_s, found = notes_of(table), now_s(table) - retention_s, []
    for folder in dead:
        note = notes.get(folder)
        if note is not None and note.has_changed(table / folder):
            note = None
        run, size = folder.removeprefix(f"{RUN}="), sum(blob.size for blob in blobs.list_blobs(table / folder))
        is_old = note is not None and note.at_s < horizon_s and begun_at(run) <= opened.seq
        is_pinned = note is not None and not note.is_before(pinned_seq)
        found.append(DeadRun(run, size, None if note is None else note.at_s, is_old and not is_pinned, is_pinned))
    return found


def pinned_bytes(table: Location, pinned_seq: int) -> int:
    """Return the size of the runs that are not in the newest version of a table, but stay because of a pin.

    Runs that no sweep has confirmed to be dead are not counted: they stay in any case. Nothing is written.

    Args:
        table: the table's folder.
        pinned_seq: the first `seq` of the table that is pinned.

    Cost: the log is opened, the table's folder and the notes are listed, and so is each run that stays.
    """
    notes = notes_of(table)
    if not notes:
        return 0
    dead = _dead_folders(OpenTable(table), blobs.list_folder(table))
    noted = {folder: note for folder in dead if (note := notes.get(folder)) is not None}
    kept = [folder for folder, note in noted.items() if not note.is_before(pinned_seq)]
    return sum(blob.size for folder in kept for blob in blobs.list_blobs(table / folder))


def _dead_folders(table: OpenTable, listing: Listing) -> list[str]:
    """Return the names of the folders of runs that are not in the newest version of a table."""
    live = {f"{RUN}={file.run}" for file in table.files()}
    return [each.name for each in listing.folders if each.name.startswith(f"{RUN}=") and each.name not in live]


def sweep(
    table: Location, retention_s: float = RETENTION_S, read_pin: Callable[[], int | None] = nothing_pinned
) -> int:
    """Delete the runs that a sweep confirmed, more than the retention period ago, to be dead; return their number.

    Merges leave behind the runs that they replace, and killed processes leave those that they wrote. A reader may still
    need a run that was live when its read was planned. So such a run stays for `retention_s` after a sweep has
    confirmed that no log names it; if the reader's hold pins a `seq`, the run stays until the hold ends or pins a later
    one. The clock may be wrong, and a writer may be about to commit one of these runs; so the sweep floor is committed
    before any run is deleted.

    The table is opened first, and then the pin is read. A hold that is not seen then pins its `seq` later, and its
    reads are planned from the version opened here or from a later one. So they need no run that all of these versions
    lack.

    Args:
        table: the table's folder.
        retention_s: how long readers may use files after a commit has removed them.
        read_pin: reads the first `seq` of the table that a live hold pins now; None if none does.
    """
    beginning = begin_sweep(table)
    opened = OpenTable(table)
    # Read after the notes: a noted folder that is not in the listing is gone for good.
    listing = blobs.list_folder(table)
    dead, present = _dead_folders(opened, listing), {folder.name for folder in listing.folders}
    pinned_seq = read_pin() if dead else None
    old = long_dead(beginning, dead, present, retention_s, opened.seq, pinned_seq)
    given_up: list[str] = []
    if old:
        given_up, newest = _give_up(table, [name.removeprefix(f"{RUN}=") for name in old])
        # A version committed in the meantime may have named a run, and readers may still need the run. If so, the
        # commit that removed the run renewed its folder, which has therefore changed.
        if newest.seq != opened.seq:
            changed = changed_since(beginning.notes, old)
            given_up = [run for run in given_up if f"{RUN}={run}" not in changed]
    for run in given_up:
        discard_run(table, run)
        reach("sweep.after_folder")
    _delete_unfinished(table, listing, retention_s)
    return len(given_up)


def sweep_names(store: Store, names: Iterable[str], retention_s: float = RETENTION_S) -> None:
    """Delete unfinished files in the logs of names, and in the folder that records which names were ever bound.

    An object store has no such files: a killed process leaves a whole object, or nothing.

    Args:
        store: the store.
        names: the names that have logs.
        retention_s: the minimum age of the files to delete.
    """
    if not store.root.is_local:
        return
    logs = [store.log_of_name(name) for name in names]
    folders = [store.bound_names, *(log / below for log in logs for below in (LOG, ACKED))]
    delete_unfinished(
        (blob for folder in folders for blob in blobs.list_folder(folder).blobs),
        blobs.now_s(store.catalog) - retention_s,
    )


def delete_unfinished(left: Iterable[Blob], horizon_s: float) -> None:
    """Delete what a killed process was writing, if it last changed before `horizon_s`, by the store's clock."""
    for blob in left:
        if blob.location.name.startswith(UNFINISHED) and blob.changed_s < horizon_s:
            blobs.delete(blob.location)


def _delete_unfinished(table: Location, listing: Listing, retention_s: float) -> None:
    """Delete what a killed process was writing. In an object store, only the table's own folder can have leftovers."""
    log = (LOG, ACKED) if table.is_local else ()
    left = [*listing.blobs, *(blob for name in log for blob in blobs.list_folder(table / name).blobs)]
    files = [blob for blob in left if blob.location.name.startswith(UNFINISHED)]
    folders = [folder for folder in listing.folders if folder.name.startswith(UNFINISHED)]
    if not files and not folders:
        return
    horizon_s = blobs.now_s(table) - retention_s
    delete_unfinished(files, horizon_s)
    for folder in folders:
        if blobs.last_change_s(folder) < horizon_s:
            blobs.delete_folder(folder)


def _give_up(table: Location, runs: Sequence[str]) -> tuple[list[str], OpenTable]:
    """Raise the sweep floor above these runs.

    Returns:
        The runs that no log names and no later commit can name, and the state that shows this.
    """

    def raise_floor(opened: OpenTable) -> tuple[list[str], OpenTable]:
        live = {file.run for file in opened.files()}
        # If the table has not reached a run's `seq`, the store was restored from an older copy. The run stays for now.
        dead = [run for run in runs if run not in live and begun_at(run) <= opened.seq]
        floor = max((begun_at(run) + 1 for run in dead), default=0)
        if floor > (opened.value(SWEEP_FLOOR) or 0):
            opened.commit({SWEEP_FLOOR: floor})  # builds on the very state whose live runs are known
            reach("sweep.after_floor")
            maintain(table)
        return dead, opened

    return retry_commit(table, raise_floor, f"{ATTEMPTS_MAX} attempts to raise the sweep floor failed")
