"""Notes about folders that sweeps found in no version of a table; a note's age decides when its folders are deleted.

A file's age tells when it was written, not how long it has been in no version: a process may sleep for days before the
commit that replaces a run, and a reader of the previous version needs that run for some time afterwards. So a sweep
notes what it finds, and a later sweep deletes what was noted long enough ago, by the store's clock. If a folder was
written to or renewed after its note, it is noted again.

The name of a note states the `seq` at which its folders were in no version. A reader who has pinned an earlier `seq`
may still be reading them, however old the note is, so they stay.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tidelake.storage import blobs
from tidelake.storage.location import Blob, Location

DEAD = "_dead"
"""The folder of a table that holds the notes."""
_SEQ = re.compile(r"([0-9]{1,18})-")


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


def long_dead(
    table: Location, folders: Sequence[str], retention_s: float, seq: int | None = None, pinned_seq: int | None = None
) -> list[str]:
    """Return the folders that were noted more than `retention_s` ago and have not changed since; note the others.

    Args:
        table: the table's folder.
        folders: the names of all the table's folders that no version names now. A name with a `/` is a single file,
            which never changes.
        retention_s: how long a reader may still need a folder after it was first noted.
        seq: the `seq` of the state in which no version names the folders, if the table has one.
        pinned_seq: the first `seq` that a reader has pinned. Folders stay if a version at or after it may name them.

    Cost: nothing if there are no folders. Otherwise the notes are listed and read, and a note is written if a folder is
    new; the store's clock is read; and each folder whose note is old enough is listed.
    """
    if not folders:
        return []
    read = list(_read(table))
    notes = _latest(read)
    horizon_s = blobs.now_s(table) - retention_s
    old = [name for name in folders if name in notes and notes[name].at_s < horizon_s]
    changed = [name for name in old if "/" not in name and blobs.last_change_s(table / name) > notes[name].at_s]
    new = [name for name in folders if name not in notes or name in changed]
    if pinned_seq is not None and seq is not None:  # a note of an earlier release states no `seq`
        new += [name for name in folders if name not in new and notes[name].seq is None]
    if new:
        prefix = "" if seq is None else f"{seq}-"
        blobs.write(table / DEAD / f"{prefix}{secrets.token_hex(16)}.json", json.dumps(new).encode())
    for blob, names in read:
        if not names & set(folders):  # they were deleted
            blobs.delete(blob.location)
    return [name for name in old if name not in changed and notes[name].is_before(pinned_seq)]


def notes_of(table: Location) -> Mapping[str, Note]:
    """Return the notes about each folder. Nothing is written."""
    return _latest(_read(table))


def _latest(read: Iterable[tuple[Blob, set[str]]]) -> dict[str, Note]:
    notes: dict[str, Note] = {}
    for blob, names in read:
        stated = _SEQ.match(blob.location.name)
        for name in names:
            before = notes.get(name, Note(0.0))
            # The newest `seq` counts: a run that was noted before its commit has been in a version since.
            known = [seq for seq in (before.seq, None if stated is None else int(stated[1])) if seq is not None]
            notes[name] = Note(max(blob.changed_s, before.at_s), max(known, default=None))
    return notes


def _read(table: Location) -> Iterator[tuple[Blob, set[str]]]:
    for blob in blobs.list_folder(table / DEAD, hidden=False).blobs:
        try:
            yield blob, set(json.loads(blobs.read(blob.location)))
        except FileNotFoundError:  # another sweep has just deleted it
            continue
        except (ValueError, TypeError):  # it is damaged, so what it noted is noted again
            yield blob, set()
