"""Notes about folders that are not in the newest version of a table; a note's age decides when its folders are deleted.

A file's age tells when it was written, not how long ago a version last named it: a process may sleep for days before
the commit that replaces a run, and a reader of the previous version needs that run for some time afterwards. So sweeps
note what they find, twice. The first note about a folder only announces it: a sweep may sleep before it writes the
note, and meanwhile the folder may be committed, pinned by a hold and replaced. A later sweep confirms that the newest
version does not name the folder. It does so in this order:

1. It reads the notes. From here on, every commit that removes an announced run renews it.
2. It reads the store's clock.
3. It opens the table, in whose newest version the folder is still missing.

The confirmation states the clock of step 2 and the `seq` of step 3. If the folder was committed after step 3, the
commit that replaced it renewed it after step 2. The renewal is visible no matter how late the confirmation is written,
and the folder is confirmed again. If the folder was replaced before step 3, no version at or after that `seq` names it.
So a sweep deletes a folder if it was confirmed long enough ago and has not changed since step 2. While a reader pins an
earlier `seq`, the folder stays, however old the confirmation is: that reader may still be reading it.

A sweep that has something to note writes one note for all folders and deletes the notes that it has read. For a folder
that was noted before, the new note repeats what was noted, so the number of notes does not grow. A note about a folder
is repeated until the folder is gone, even while a version names it: if a present folder has no note, it was never
announced.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidelake.storage import blobs
from tidelake.storage.location import Blob, Location
from tidelake.store.acknowledged import digest_of
from tidelake.store.failpoints import reach

DEAD = "_dead"
"""The folder of a table that holds the notes."""
_READS_MAX = 8
_Stated = tuple[float | None, int | None, float] | None
"""What a note says about a folder: `at_s`, `seq` and `clock_s`, or None if it announces the folder.

In the first note that confirms the folder, `at_s` is None, which stands for the time of that note."""


@dataclass(frozen=True)
class Note:
    """All confirmations about one folder, combined: the newest version does not name it."""

    at_s: float
    """When it was last confirmed, by the store's clock. The retention period begins here."""
    seq: int | None
    """The newest `seq` whose version is known not to name the folder; None if the table has no `seq`."""
    clock_s: float
    """The store's clock, as the newest confirmation read it in step 2 above."""

    def is_before(self, pinned_seq: int | None) -> bool:
        """Return whether no version at or after a pinned `seq` names the folder; true if nothing is pinned."""
        return pinned_seq is None or (self.seq is not None and self.seq <= pinned_seq)

    def has_changed(self, folder: Location) -> bool:
        """Return whether the folder was written to or renewed since `clock_s`.

        If so, it may have been in a version since. An object store states whole seconds, so a change in the same second
        counts.
        """
        return blobs.last_change_s(folder) >= self.clock_s


@dataclass(frozen=True)
class Notes:
    """All notes of a table, as they were read at one moment."""

    table: Location
    by_folder: Mapping[str, Note | None]
    """For each folder that was noted, what was confirmed; None if it was only announced."""
    written: Sequence[Location]
    """The blobs that hold the notes."""
    is_complete: bool
    """Whether all notes could be read."""


@dataclass(frozen=True)
class Beginning:
    """What a sweep reads before it opens the table."""

    notes: Notes
    clock_s: float
    """The store's clock after the notes were read; 0 if there are none."""


def begin_sweep(table: Location) -> Beginning:
    """Read the notes of a table, and then the store's clock. Open the table only afterwards.

    Cost: that of `read_notes`, and of the clock if there are notes.
    """
    notes = read_notes(table)
    return Beginning(notes, blobs.now_s(table) if notes.by_folder else 0.0)


def long_dead(
    beginning: Beginning,
    folders: Sequence[str],
    present: Collection[str],
    retention_s: float,
    seq: int | None = None,
    pinned_seq: int | None = None,
) -> list[str]:
    """Return the folders that can be deleted now, and note all others.

    A folder can be deleted if it was confirmed more than `retention_s` ago, has not changed since, and is not pinned.

    Args:
        beginning: what the sweep read before it opened the table.
        folders: the names of all the table's folders that the newest version does not name. A name with a `/` is a
            single file, which never changes.
        present: the names of all folders, listed after the notes were read. Notes about other folders are
            forgotten.
        retention_s: how long a reader may still need a folder after it was confirmed.
        seq: the `seq` at which the table was opened, if it has one.
        pinned_seq: the first `seq` that a reader has pinned. Folders stay if a version at or after it may name them.

    Cost: each folder that was confirmed long enough ago is listed. If a folder has to be announced or confirmed, or
    there are several notes, one note is written, and the earlier ones are deleted.
    """
    notes, horizon_s = beginning.notes, beginning.clock_s - retention_s
    known, table = notes.by_folder, notes.table
    old = {name: note for name in folders if (note := known.get(name)) is not None and note.at_s < horizon_s}
    changed = changed_since(notes, old)
    announced = [name for name in folders if name not in known]
    confirmed = [name for name in folders if name in known and known[name] is None] + changed
    kept = {name: note for name, note in known.items() if name in present}
    is_new = bool(announced or confirmed)
    if is_new or (kept and len(notes.written) > 1):
        noted: dict[str, _Stated] = {name: _stated(note) for name, note in kept.items()}
        noted |= dict.fromkeys(announced)
        noted |= dict.fromkeys(confirmed, (None, seq, beginning.clock_s))
        _write(table, noted, seq)
        reach("sweep.after_note")
    if is_new or not kept or len(notes.written) > 1:
        blobs.delete_all(notes.written)
    return [name for name, note in old.items() if name not in changed and note.is_before(pinned_seq)]


def changed_since(notes: Notes, folders: Iterable[str]) -> list[str]:
    """Return the folders that were confirmed and have changed since.

    Cost: each folder is listed.
    """
    confirmed = {name: note for name in folders if (note := notes.by_folder[name]) is not None}
    return [name for name, note in confirmed.items() if "/" not in name and note.has_changed(notes.table / name)]


def read_notes(table: Location) -> Notes:
    """Read the notes of a table.

    Cost: one listing, and one request for each note. There is at most one note, unless sweeps have just overlapped or
    an earlier release has written notes.
    """
    for _ in range(_READS_MAX):
        by_folder: dict[str, Note | None] = {}
        listed = blobs.list_folder(table / DEAD, hidden=False).blobs
        read = [_read(blob) for blob in listed]
        for noted in read:
            for name, note in (noted or {}).items():
                by_folder[name] = _newest_of(note, by_folder.get(name))
        is_complete = None not in read
        if is_complete or all(blobs.exists(blob.location) for blob in listed):
            break
        # Another sweep has just replaced a note with a new one that repeats it, so list the notes again.
    return Notes(table, by_folder, [blob.location for blob in listed], is_complete)


def notes_of(table: Location) -> Mapping[str, Note | None]:
    """Return the note about each folder; None if it was only announced. Nothing is written."""
    return read_notes(table).by_folder


def _newest_of(one: Note | None, other: Note | None) -> Note | None:
    """Combine two notes by taking the newest of each value.

    This is safe: the state with the greater `seq` was opened after both clocks had been read.
    """
    if one is None or other is None:
        return one or other
    return Note(max(one.at_s, other.at_s), _newest(one.seq, other.seq), max(one.clock_s, other.clock_s))


def _newest(*known: int | None) -> int | None:
    return max((seq for seq in known if seq is not None), default=None)


def _stated(note: Note | None) -> _Stated:
    return None if note is None else (note.at_s, note.seq, note.clock_s)


def _write(table: Location, noted: Mapping[str, _Stated], seq: int | None) -> None:
    """Write a note.

    The name begins with the newest `seq`: earlier releases take it for the `seq` of every folder in the note, and keep
    these folders longer.
    """
    newest = _newest(seq, *(stated[1] for stated in noted.values() if stated is not None))
    data = json.dumps(noted).encode()
    prefix = "" if newest is None else f"{newest}-"
    blobs.write(table / DEAD / f"{prefix}{secrets.token_hex(16)}-{digest_of(data)}.json", data)


def _read(blob: Blob) -> dict[str, Note | None] | None:
    """Read a note; None if it is damaged, or another sweep has just deleted it. Its folders are noted again."""
    try:
        data = blobs.read(blob.location)
        noted = json.loads(data)
        if isinstance(noted, list):  # an earlier release wrote it
            return dict.fromkeys(noted)
        if not blob.location.name.endswith(f"-{digest_of(data)}.json"):
            raise ValueError("its times are not those that were written")
        return {name: _note(stated, blob.changed_s) for name, stated in noted.items()}
    except (FileNotFoundError, ValueError, TypeError, AttributeError):
        return None


def _note(stated: list[Any] | None, written_s: float) -> Note | None:
    if stated is None or len(stated) == 2:  # two values are from an earlier release, which announced nothing
        return None
    at_s, seq, clock_s = stated
    # No time in a note is later than the note itself.
    return Note(written_s if at_s is None else min(at_s, written_s), seq, min(clock_s, written_s))
