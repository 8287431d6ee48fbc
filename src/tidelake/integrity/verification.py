"""Verifies the files of a collection against what was committed, and restores whatever can be restored.

A log entry is restored from the copy in its marker, and a marker from its entry. The lost log of a name is recreated,
and so is the note that the name was bound; `ingest.restoration` recreates data files. Nothing else is changed, and
damaged bytes are set aside, never deleted. Readers verify only what they read; this module reads everything.
"""

from __future__ import annotations

import errno
import secrets
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from tidelake.catalog.name_log import NameLog
from tidelake.errors import DamagedFiles, DamagedLog, DamagedTable
from tidelake.integrity.lost_markers import has_lost_markers, mark_again, proven_log
from tidelake.integrity.lost_names import bind_again, owner_of
from tidelake.storage import blobs
from tidelake.storage.location import Location
from tidelake.storage.notices import warn
from tidelake.store.acknowledged import ACKED, digest_of, entry_marker, entry_markers
from tidelake.store.commit import OpenTable
from tidelake.store.entry import Collection
from tidelake.store.files import RunFile, check_whole, damage_named, open_parquet
from tidelake.store.followed import forget
from tidelake.store.format import DIVIDED
from tidelake.store.layout import RUN, Store
from tidelake.store.proof_log import notes_damaged_files, read_proof_log
from tidelake.store.table_log import (
    check_log,
    entry_path,
    entry_that_added,
    is_of_earlier_release,
    is_whole,
    last_checkpoint,
    read_or_none,
    stated_before,
)

UPDATES = "updates"
FROM_A_COPY = "restore it from a copy of the store, or rebuild the collection from its topic under a new name"
FROM_ITS_TOPIC = "is recreated from its topic, if that still has the messages"
_WRITERS = {"rest": "merge", "retention": "removal of old rows"}
"""What writes runs of these kinds in `updates/`. Every other kind, such as `seal`, is the name of its writer."""


@dataclass(frozen=True)
class Damage:
    """A file that differs from what was committed."""

    table: str
    """The folder of the file's table: `updates`, `proofs`, …, `catalog`, or `names/` and the folder of a name."""
    file: str
    """The file's path below that folder; empty if the damage is not in one file."""
    problem: str
    remedy: str
    """What `repair` does about it, or what a person can do."""
    is_restorable: bool = False
    """Whether `repair` restores the file; for a data file, whether `repair` can try."""
    lost: str = ""
    """What cannot be read until a data file is restored; empty for other files."""

    @property
    def is_in_data(self) -> bool:
        """Whether the damaged file holds rows, and is not part of the log."""
        return self.file.startswith(f"{RUN}=")


@dataclass(frozen=True)
class Share:
    """The files that are verified on one day, chosen by their names: within `days` days, each file is verified once.

    >>> file = RunFile("_run=a/part-0.parquet", "a", 1, 1, None, None)
    >>> [Share(day, 3).has(file) for day in range(6)], Share(5, 1).has(file)
    ([False, False, True, False, False, True], True)
    """

    day: int
    """Days since 1970."""
    days: int
    """Number of days, at least 1."""

    def has(self, file: RunFile) -> bool:
        """Return whether a file is verified on this day."""
        return int(digest_of(file.path.encode())[:8], 16) % self.days == self.day % self.days


@dataclass
class Verification:
    """What a verification read, and the damage that it found."""

    tables: int = 0
    files: int = 0
    bytes: int = 0
    """Total size of the files."""
    damages: list[Damage] = field(default_factory=list)


def verify_table(
    table: Location, deep: bool, found: Verification, share: Share | None = None, since: int | None = None
) -> None:
    """Verify a table's log and its live files.

    Args:
        table: the table's folder.
        deep: whether to read every page of every file, and to verify the checksums of pages and the SHA-256 of larger
            files.
        found: receives the counts and the damage.
        share: the files to verify; all other files are only checked for existence. None means all files.
        since: the first readable time, used to say which reads need a damaged file; None if it is not known.
    """
    found.tables += 1
    if not blobs.list_names(table):
        found.damages.append(Damage(table.name, "", "is missing", FROM_A_COPY))
        return
    log_damage = [damage for damage, _ in _damage_in_log(table)]
    found.damages += log_damage
    if log_damage:
        return  # without an intact log, it is unknown which files are live
    forget(table)  # files that this process has verified may have changed since
    try:
        files = OpenTable(table).files()
        check_log(table)
    except DamagedTable as error:
        found.damages.append(Damage(table.name, "", error.detail, FROM_A_COPY))
        return
    missing = missing_files(table, files)
    found.damages += [_damage_of(table, file, "is missing", since) for file in missing]
    for file in files:
        if file in missing or (share is not None and not share.has(file)):
            continue
        found.files += 1
        found.bytes += file.bytes
        try:
            _verify_file(table, file, deep)
        except DamagedTable as error:
            found.damages.append(_damage_of(table, file, error.detail, since))
        except OSError as error:
            if error.errno != errno.EIO:  # EIO: the disk cannot read these bytes; other errors are not about bytes
                raise
            found.damages.append(_damage_of(table, file, f"cannot be read: {error}", since))


def verify_name(store: Store, name: str, found: Verification) -> Location | None:
    """Verify the log of a name, and the note that the name was bound.

    Returns:
        The handles of the collection that has the name; None if no collection has it, or if the name's log is damaged.
    """
    path = store.log_of_name(name)
    damages = [damage for damage, _, _ in _damage_in_name(store, path)]
    found.damages += damages
    if any(damage.table != store.catalog.name for damage in damages) or not blobs.list_names(path):
        return None
    found.tables += 1
    forget(path)
    try:
        check_log(path)
        binding = NameLog.of(store, name).binding
    except DamagedTable as error:
        found.damages.append(Damage(path.below(store.root), "", error.detail, FROM_A_COPY))
        return None
    if binding is None or binding.id is None or binding.state == "creating":
        return None
    return store.collection(binding.id).handles


def repair_name(store: Store, name: str, accepts_newest_entry: bool = False) -> list[Damage]:
    """Restore the log of a name, and the note that the name was bound, as `repair_log` does; return what was restored.

    Args:
        store: the store.
        name: the name.
        accepts_newest_entry: whether a log that has lost all of its markers is marked again.
    """
    path = store.log_of_name(name)
    restored = _marked_again(path) if accepts_newest_entry else []
    for damage, folder, good in _damage_in_name(store, path):
        if not damage.is_restorable:
            continue
        if damage.file:
            _restore(folder, damage, good)
        elif (owner := owner_of(store, name)) is not None:
            bind_again(store, name, owner)
        else:  # another collection has taken the name in the meantime
            continue
        restored.append(damage)
    return restored


def _damage_in_name(store: Store, path: Location) -> Iterator[tuple[Damage, Location, bytes | None]]:
    """Yield each `Damage` in the log of a name, with the folder of its file and the bytes that restore it, if any."""
    bound, table = store.bound_names / path.name, path.below(store.root)
    note = read_or_none(bound)
    if not blobs.list_names(path):
        if note is not None:
            owner = owner_of(store, note.decode(errors="replace"))
            remedy = FROM_A_COPY if owner is None else f"is recreated: only the collection {owner} has this name"
            yield Damage(table, "", "is missing", remedy, owner is not None), path, None
        return
    is_damaged = False
    for damage, good in _damage_in_log(path):
        is_damaged = True
        yield replace(damage, table=table), path, good
    if is_damaged:
        return
    with suppress(DamagedTable):  # an unreadable catalog or binding is reported elsewhere
        binding = NameLog(store, path.name).binding
        may_lack_note = binding is None or binding.state == "creating" or not OpenTable(store.catalog).value(DIVIDED)
        if binding is not None and not may_lack_note and note != binding.name.encode():
            problem = "is missing" if note is None else "does not contain the name"
            file = bound.below(store.catalog)
            damage = Damage(store.catalog.name, file, problem, "is written again from the log of the name", True)
            yield damage, store.catalog, binding.name.encode()


def missing_files(table: Location, files: Sequence[RunFile]) -> list[RunFile]:
    """Return the files that do not exist; see `blobs.absent` for the cost."""
    absent = set(blobs.absent(table, [table / file.path for file in files]))
    return [file for file in files if table / file.path in absent]


def check_intact(collection: Collection) -> None:
    """Refuse to write to a collection if a file of `updates` is missing, or if a validation has noted damaged files.

    The last state of `updates` that this process has seen is new enough: `telemetry.steps` has just read it.

    Raises:
        DamagedFiles: names the first missing file, or says what the validation found.

    Cost: that of `missing_files`, and the logs of `updates` and `proofs`; files are opened only if damage was noted.
    """
    table = OpenTable(collection.paths.updates, may_be_stale=True)
    missing = missing_files(table.path, table.files())
    if missing:
        raise DamagedFiles(str(table.path), f"the file {missing[0].path} is missing")
    if notes_damaged_files(OpenTable(collection.paths.proofs)):
        raise DamagedFiles(str(table.path), read_proof_log(collection).damaged or "a validation found damaged files")


def is_from_ingest(file: RunFile) -> bool:
    """Return whether an ingest tick wrote a file of `updates`."""
    return file.run.startswith("ingest-")


def _damage_of(table: Location, file: RunFile, problem: str, since: int | None) -> Damage:
    lost = _lost_with(table, file, since)
    if table.name != UPDATES:
        return Damage(table.name, file.path, problem, FROM_A_COPY, lost=lost)
    if not is_from_ingest(file):
        kind = file.run.partition("-")[0]
        writer = _WRITERS.get(kind, kind)
        remedy = f"a {writer} wrote it, so it is not known which offsets of the topic would recreate it: {FROM_A_COPY}"
        return Damage(table.name, file.path, problem, remedy, lost=lost)
    if entry_that_added(table, file.path) is None:
        remedy = f"the log no longer says which offsets of the topic are in the file: {FROM_A_COPY}"
        return Damage(table.name, file.path, problem, remedy, lost=lost)
    return Damage(table.name, file.path, problem, FROM_ITS_TOPIC, True, lost)


def _lost_with(table: Location, file: RunFile, since: int | None) -> str:
    """Describe what cannot be read without a file."""
    rows = f"{file.rows:,} row{'s' * (file.rows != 1)}"
    low, high = file.time_min, file.time_max
    if table.name != UPDATES or low is None or high is None:
        return rows
    held = f"{rows} at time {low}" if low == high else f"{rows} at times {low} to {high}"
    if since is not None and since >= low:
        return f"{held}: every read needs them"
    return f"{held}: reads AS OF an earlier time do not need them"


def repair_log(table: Location, accepts_newest_entry: bool = False) -> list[Damage]:
    """Restore damaged log entries of a table from their markers, and markers from entries; return what was restored.

    Args:
        table: the table's folder.
        accepts_newest_entry: whether a log that has lost all of its markers is marked again, with its newest entry as
            it is. If commits after this entry are lost as well, nothing will show that.
    """
    restored = _marked_again(table) if accepts_newest_entry else []
    for damage, good in _damage_in_log(table):
        if damage.is_restorable:
            _restore(table, damage, good)
            restored.append(damage)
    return restored


def _marked_again(table: Location) -> list[Damage]:
    """If a log has lost all of its markers, mark it again, and return what was restored.

    All entries but the newest must be proven; if not, nothing is restored.
    """
    if not has_lost_markers(table):
        return []
    try:
        version = mark_again(table).newest
    except DamagedLog:  # `verify_table` says why
        return []
    remedy = f"is recreated from the entries; version {version} is taken as it is"
    return [Damage(table.name, ACKED, "is missing", remedy, True)]


def _restore(table: Location, damage: Damage, good: bytes | None) -> None:
    """Set a damaged file aside, and write the bytes that it should have, if they are known."""
    damaged = table / damage.file
    with suppress(FileNotFoundError):
        blobs.set_aside(damaged, damaged.parent / f".damaged-{damaged.name}-{secrets.token_hex(4)}")
    if good is not None:
        blobs.create(damaged, good)
    blobs.make_names_durable([damaged.parent])
    done = "set aside" if good is None else "restored"
    warn(f"a damaged file of a log was {done}", table=str(table), file=damage.file)


def _damage_in_log(table: Location) -> Iterator[tuple[Damage, bytes | None]]:
    """Yield each damaged entry and marker, with its intact bytes; None if they are lost, or if it is only set aside."""
    if is_of_earlier_release(table):
        return  # nothing was acknowledged; markers of an interrupted upgrade mean nothing
    if has_lost_markers(table):
        yield _lost_markers(table), None
        return
    markers = entry_markers(table)
    for version, digests in sorted(markers.items()):
        entry, text = entry_path(table, version), read_or_none(entry_path(table, version))
        copies = {digest: read_or_none(entry_marker(table, version, digest)) for digest in digests}
        if None in (text, *copies.values()) and version not in entry_markers(table):
            continue  # a cleanup has just deleted it
        if text is None and version < last_checkpoint(table) and _is_forgotten(table, version + 1, markers):
            continue  # the writer of the marker was suspended until the log had forgotten this version
        good = digest_of(text) if text is not None and digest_of(text) in digests else None
        if good is None:
            fitting = [digest for digest, copy in copies.items() if _fits(table, markers, version, digest, copy)]
            sound = [digest for digest, copy in copies.items() if copy is not None and digest_of(copy) == digest]
            strays = [digest for digest in sound if digest not in fitting and text is None]
            if len(fitting) == 1:
                good = fitting[0]
            if good is not None or len(strays) < len(digests):
                problem = "is missing" if text is None else "is not the one that was acknowledged"
                remedy = FROM_A_COPY if good is None else f"is restored from its copy in {ACKED}"
                damage = Damage(table.name, entry.below(table), problem, remedy, good is not None)
                yield damage, None if good is None else copies[good]
        for digest in digests - {good} if good is not None else set(strays):
            marker = entry_marker(table, version, digest).below(table)
            yield Damage(table.name, marker, "marks no commit of this table", "is set aside", True), None
        if good is not None and text is not None and digest_of(text) == good and copies[good] != text:
            marker = entry_marker(table, version, good).below(table)
            yield (
                Damage(table.name, marker, "is not a copy of the entry", "is rewritten from the entry", True),
                text,
            )

    for version in range(min(markers, default=0), max(markers, default=0)):
        text = None if version in markers else read_or_none(entry_path(table, version))
        if text is not None and digest_of(text) == _stated_after(table, version) and _is_unmarked(table, version):
            marker = entry_marker(table, version, digest_of(text)).below(table)
            yield Damage(table.name, marker, "is missing", "is written again from the entry", True), text


def _lost_markers(table: Location) -> Damage:
    """Describe a log without markers: whether it can be marked again, and what that could lose."""
    try:
        version = proven_log(table).newest
    except DamagedLog as error:
        return Damage(table.name, ACKED, f"is missing: {error.detail}", FROM_A_COPY)
    remedy = (
        f"restore it from a copy of the store; or `tidelake repair --accept-newest-entry --apply` takes version "
        f"{version} as it is, and gives up any later commit"
    )
    return Damage(table.name, ACKED, "is missing", remedy)


def _is_forgotten(table: Location, version: int, markers: dict[int, set[str]]) -> bool:
    """Return whether a log has neither the entry of a version nor its marker."""
    return version not in markers and read_or_none(entry_path(table, version)) is None


def _stated_after(table: Location, version: int) -> str | None:
    """Return the SHA-256 of a version's entry, as stated by the next entry."""
    return stated_before(read_or_none(entry_path(table, version + 1)) or b"")


def _is_unmarked(table: Location, version: int) -> bool:
    """Return whether a version lacks its marker, although no cleanup has deleted it: an older version still has one."""
    markers = entry_markers(table)
    return version not in markers and min(markers, default=version) < version


def _fits(table: Location, markers: dict[int, set[str]], version: int, digest: str, copy: bytes | None) -> bool:
    """Return whether the copy in a marker is the entry of this version: it fits between its neighbours."""
    if copy is None or digest_of(copy) != digest or not is_whole(copy):
        return False
    before, after = markers.get(version - 1), read_or_none(entry_path(table, version + 1))
    follows = before is None or stated_before(copy) in {*before, None}
    is_followed = after is None or stated_before(after) in {digest, None}
    return follows and is_followed


def _verify_file(table: Location, file: RunFile, deep: bool) -> None:
    with damage_named(table, file), open_parquet(table, file) as parquet:
        rows = parquet.metadata.num_rows
        if rows != file.rows:
            fact = f"the file {file.path} has {rows} row{'s' * (rows != 1)}, but {file.rows} were committed"
            raise DamagedTable(str(table), fact)
        if deep:
            check_whole(table, [file])
            for group in range(parquet.num_row_groups):
                parquet.read_row_group(group)
