"""Notes about folders that sweeps found in no version of a table; a note's age decides when its folders are deleted.

A file's age tells when it was written, not how long it has been in no version: a process may sleep for days before the
commit that replaces a run, and a reader of the previous version needs that run for some time afterwards. So a sweep
notes what it finds, and a later sweep deletes what was noted long enough ago, by the store's clock. If a folder was
written to or renewed after its note, it is noted again.

A sweep that has something to note writes one note for all folders and deletes those that it has read. For a folder that
was noted before, the new note repeats when, so the number of notes does not grow. A note about a folder is repeated
until the folder is gone, even while a version names it: that a folder has no note proves that it was never noted.

A note also states the `seq` at which each folder was in no version. A reader who has pinned an earlier `seq` may still
be reading the folder, however old the note is, so it stays.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidelake.storage import blobs
from tidelake.storage.location import Blob, Location
from tidelake.store.acknowledged import digest_of
from tidelake.store.failpoints import reach

DEAD = "_dead"
"""The folder of a table that holds the notes."""
_SEQ = re.compile(r"([0-9]{1,18})-")
_READS_MAX = 8


@dataclass(frozen=True)
class Note:
    """The notes about one folder, combined."""

    at_s: float
    """When it was last noted, by the store's clock."""
    seq: int | None = None
    """The newest `seq` whose version is known not to name the folder; None if an earlier release wrote its notes."""

    def is_before(self, pinned_seq: int | None) -> bool:
        """Whether no version at or after a pinned `seq` names the folder; true if nothing is pinned."""
        return pinned_seq is None or (self.seq is not None and self.seq <= pinned_seq)


@dataclass(frozen=True)
class Notes:
    """All notes of a table, as they were read at one moment."""

    table: Location
    by_folder: Mapping[str, Note]
    written: Sequence[Location]
    """The blobs that hold them."""
    is_complete: bool
    """Whether all of them could be read."""


def long_dead(
    notes: Notes,
    folders: Sequence[str],
    present: Collection[str],
    retention_s: float,
    seq: int | None = None,
    pinned_seq: int | None = None,
) -> list[str]:
    """Return the folders that were noted more than `retention_s` ago and have not changed since; note the others.

    Args:
        notes: the table's notes.
        folders: the names of all the table's folders that no version names now. A name with a `/` is a single file,
            which never changes.
        present: the names of all folders, listed after the notes were read. Notes about others are forgotten.
        retention_s: how long a reader may still need a folder after it was first noted.
        seq: the `seq` of the state in which no version names the folders, if the table has one.
        pinned_seq: the first `seq` that a reader has pinned. Folders stay if a version at or after it may name them.

    Cost: nothing if there are neither folders nor notes. If a folder was noted before, the store's clock is read; and
    each folder whose note is old enough is listed. If a folder is new, a note is written, and the others are deleted.
    """
    known, table = notes.by_folder, notes.table
    noted = [name for name in folders if name in known]
    horizon_s = blobs.now_s(table) - retention_s if noted else 0.0
    old = [name for name in noted if known[name].at_s < horizon_s]
    changed = [name for name in old if "/" not in name and blobs.last_change_s(table / name) > known[name].at_s]
    new = [name for name in folders if name not in known or name in changed]
    if pinned_seq is not None and seq is not None:  # a note of an earlier release states no `seq`
        new += [name for name in noted if name not in changed and known[name].seq is None]
    kept = {name: note for name, note in known.items() if name in present}
    if new or (kept and len(notes.written) > 1):
        _write(table, kept, new, seq)
        reach("sweep.after_note")
    if new or not kept or len(notes.written) > 1:
        blobs.delete_all(notes.written)
    return [name for name in old if name not in changed and known[name].is_before(pinned_seq)]


def read_notes(table: Location) -> Notes:
    """Read the notes of a table.

    Cost: one listing, and one request for each note: a single one, unless sweeps have just met or an earlier release
    has written notes.
    """
    for _ in range(_READS_MAX):
        by_folder: dict[str, Note] = {}
        listed = blobs.list_folder(table / DEAD, hidden=False).blobs
        read = [_read(blob) for blob in listed]
        for noted in read:
            for name, note in (noted or {}).items():
                before = by_folder.get(name, Note(0.0))
                # The newest `seq` counts: a run that was noted before its commit has been in a version since.
                by_folder[name] = Note(max(note.at_s, before.at_s), _newest(note.seq, before.seq))
        is_complete = None not in read
        if is_complete or all(blobs.exists(blob.location) for blob in listed):
            break
        # Another sweep has just deleted a note that it repeats in a new one, so they are listed again.
    return Notes(table, by_folder, [blob.location for blob in listed], is_complete)


def notes_of(table: Location) -> Mapping[str, Note]:
    """Return the notes about each folder. Nothing is written."""
    return read_notes(table).by_folder


def _newest(*known: int | None) -> int | None:
    return max((seq for seq in known if seq is not None), default=None)


def _write(table: Location, kept: Mapping[str, Note], new: Collection[str], seq: int | None) -> None:
    """Write a note that repeats others and adds folders, whose time is that of the blob.

    The name begins with the newest `seq`: earlier releases take it for the `seq` of all folders, and keep them longer.
    """
    noted: dict[str, list[float | int | None]] = {name: [note.at_s, note.seq] for name, note in kept.items()}
    noted |= {name: [None, _newest(seq, kept[name].seq if name in kept else None)] for name in new}
    newest = _newest(seq, *(note.seq for note in kept.values()))
    data = json.dumps(noted).encode()
    prefix = "" if newest is None else f"{newest}-"
    blobs.write(table / DEAD / f"{prefix}{secrets.token_hex(16)}-{digest_of(data)}.json", data)


def _read(blob: Blob) -> dict[str, Note] | None:
    """Read a note; None if it is damaged, or another sweep has just deleted it. What it noted is noted again."""
    try:
        data = blobs.read(blob.location)
        noted = json.loads(data)
        if isinstance(noted, dict):
            return _repeated(blob, data, noted)
        stated = _SEQ.match(blob.location.name)  # an earlier release wrote it
        return dict.fromkeys(noted, Note(blob.changed_s, None if stated is None else int(stated[1])))
    except (FileNotFoundError, ValueError, TypeError):
        return None


def _repeated(blob: Blob, data: bytes, noted: Mapping[str, Any]) -> dict[str, Note]:
    if not blob.location.name.endswith(f"-{digest_of(data)}.json"):
        raise ValueError("its times are not those that were written")
    # No time in a note is later than the note itself.
    return {
        name: Note(blob.changed_s if at_s is None else min(at_s, blob.changed_s), seq)
        for name, (at_s, seq) in noted.items()
    }
