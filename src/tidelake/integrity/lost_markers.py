"""Recovers a log that has lost all of its markers: finds what its entries and checkpoints prove, and marks that again.

Without markers, nothing says that the newest entry belongs to the newest commit: the entries of later commits may be
lost. Nor does any entry state the SHA-256 of the newest one. So the log is refused, and is marked again only if a
person accepts this risk. Even then, everything before the newest entry must be proven: by the entries, each of which
states the SHA-256 of the one before it, and by checkpoints, which must agree with the entries or with each other.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidelake.errors import DamagedLog
from tidelake.storage import blobs
from tidelake.storage.location import Location
from tidelake.storage.notices import warn
from tidelake.store.acknowledged import acknowledge_checkpoint, acknowledge_entry, digest_of, entry_markers
from tidelake.store.layout import RUN, begun_at
from tidelake.store.log_state import LogState, entry_steps
from tidelake.store.table_log import (
    checkpoints,
    entry_path,
    is_whole,
    newest_version,
    read_entry,
    read_or_none,
    readable_checkpoint,
    seq_of,
    stated_before,
    version_of,
)

_UNMARKED = "no version is marked as acknowledged"


@dataclass(frozen=True)
class ProvenLog:
    """The proofs that the entries and checkpoints of a log give for each other."""

    entries: dict[int, bytes]
    """The entries of an unbroken tail of the log, by version. Each entry states the SHA-256 of the one before it."""
    checkpoints: dict[int, bytes]
    """The two checkpoints that the state is built on, by version; empty if the entries go back to the first commit."""

    @property
    def newest(self) -> int:
        """The version of the newest entry, which nothing proves."""
        return max(self.entries)


def has_lost_markers(table: Location) -> bool:
    """Return whether entries state that others came before them, although no version is marked as acknowledged."""
    if entry_markers(table):
        return False
    newest = newest_version(table)
    texts = (read_or_none(entry_path(table, version)) or b"" for version in range(newest, -1, -1))
    return any(stated_before(text) for text in texts)


def proven_log(table: Location) -> ProvenLog:
    """Return the part of a log that is proven without markers.

    Raises:
        DamagedLog: something before the newest entry is not proven, or a later commit is known to be lost.

    Cost: all entries and two checkpoints are read, and the table's folders are listed.
    """
    newest = newest_version(table)
    entries = _chained_entries(table, newest)
    _check_nothing_follows(table, newest)
    if min(entries) == 0:
        return ProvenLog(entries, {})
    return ProvenLog(entries, _agreeing_checkpoints(table, entries))


def mark_again(table: Location) -> ProvenLog:
    """Mark the proven entries and checkpoints, and the newest entry as it is.

    Raises:
        DamagedLog: as for `proven_log`; nothing was written.
    """
    proven = proven_log(table)
    for version, data in proven.checkpoints.items():
        acknowledge_checkpoint(table, version, digest_of(data))
    # The newest first: if this process dies, the marked entries are an unbroken tail, and opening the table marks more.
    for version in sorted(proven.entries, reverse=True):
        acknowledge_entry(table, version, proven.entries[version])
    warn("a log without markers was marked again", table=str(table), version=proven.newest)
    return proven


def _chained_entries(table: Location, newest: int) -> dict[int, bytes]:
    entries: dict[int, bytes] = {}
    for version in range(newest, -1, -1):
        text = read_or_none(entry_path(table, version))
        if text is None:  # a cleanup deleted it, or it is lost; `_agreeing_checkpoints` finds out whether it is needed
            break
        if not is_whole(text):
            raise DamagedLog(str(table), f"{_UNMARKED}, and the entry of version {version} is torn")
        if entries and stated_before(entries[version + 1]) != digest_of(text):
            fact = f"{_UNMARKED}, and version {version + 1} does not follow version {version}"
            raise DamagedLog(str(table), fact)
        entries[version] = text
        if stated_before(text) is None:  # an earlier release wrote it, and nothing proves what came before
            break
    return entries


def _check_nothing_follows(table: Location, newest: int) -> None:
    """Refuse a log if something is newer than its newest entry.

    Raises:
        DamagedLog: names what is newer.
    """
    seq = seq_of(read_entry(table, newest) or []) or 0
    names = [folder.name for folder in blobs.list_folder(table).folders]
    runs = [name for name in names if name.startswith(f"{RUN}=") and begun_at(name.removeprefix(f"{RUN}=")) > seq]
    later = [*runs, *(location.name for location in checkpoints(table) if version_of(location) > newest)]
    if later:
        fact = f"{_UNMARKED}, and {later[0]} is newer than version {newest}: commits are lost"
        raise DamagedLog(str(table), fact)


def _agreeing_checkpoints(table: Location, entries: dict[int, bytes]) -> dict[int, bytes]:
    """Return the newest two checkpoints that agree: the entries in between lead from the older to the newer one."""
    written = {version_of(location): blobs.read(location) for location in checkpoints(table)}
    for newer in sorted(written, reverse=True):
        stated = readable_checkpoint(written[newer])
        for older in sorted((version for version in written if version < newer), reverse=True):
            base = readable_checkpoint(written[older])
            if stated is None or base is None or not set(range(older + 1, newer + 1)) <= entries.keys():
                continue
            if _after(table, base, [entries[version] for version in range(older + 1, newer + 1)]) == stated:
                return {older: written[older], newer: written[newer]}
    fact = (
        f"{_UNMARKED}, the entries before version {min(entries)} are gone or not proven, and no two checkpoints agree"
    )
    raise DamagedLog(str(table), fact)


def _after(table: Location, state: LogState, entries: list[bytes]) -> LogState:
    for text in entries:
        try:
            state.apply(entry_steps(text))
        except ValueError as error:
            raise DamagedLog(str(table), f"an entry cannot be read: {error}") from error
    return state
