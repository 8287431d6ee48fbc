"""A table's log as files: its entries, and which of them were acknowledged.

Before a commit is acknowledged, first its entry and then its marker is made durable (see `acknowledged`). A torn entry
without a marker was never acknowledged and is set aside; an entry or a checkpoint that differs from its marker is
damage. Entries stay until there are two later checkpoints, so a damaged checkpoint can be set aside without loss.
"""

from __future__ import annotations

import errno
import json
import re
import secrets
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from tidelake.errors import DamagedLog, DamagedTable, LakeReadOnly, StoreAccessDenied
from tidelake.spark.engine_errors import engine_fact, is_panic
from tidelake.storage import blobs
from tidelake.storage.location import Location
from tidelake.storage.notices import warn
from tidelake.store.acknowledged import (
    ACKED,
    Markers,
    acknowledge_checkpoint,
    acknowledge_entry,
    digest_of,
    entry_marker,
    forget_before,
    markers_named,
    read_markers,
)
from tidelake.store.failpoints import reach
from tidelake.store.log_state import LogState, checkpoint_state, entry_steps, parsed_entry

LOG = "_delta_log"
SEQ = "seq"
BEFORE = "before"
"""The field of an entry's `commitInfo` that states the SHA-256 of the entry before it; empty in the first entry."""
CROWDED_S = 10.0
"""The minimum age of entries that are deleted because there are many later ones. By then, processes that listed them
have read them, or will list the log again."""
RETENTION_S = 6 * 3600
"""How long other entries stay even if there are two later checkpoints: a reader may be about to read them."""

LAST = {"last": SEQ}
"""Each entry states how it ends. Nothing else reveals that it was cut off between two lines."""
HINT = "_last_checkpoint"
"""The blob that names the newest checkpoint."""
_READ_AT_ONCE = 8
_OF_A_VERSION = re.compile(r"[0-9]{20}\.")
_ENTRIES = re.compile(r"(?:\A|\0)([0-9]{20})\.json(?=\0|\Z)")
"""Finds the versions of all entries in a text in which null characters separate names."""
_CHECKPOINT = re.compile(r"[0-9]{20}\.checkpoint\.parquet")
_UNVERIFIED = re.compile(r"[0-9]{20}\.(crc|[0-9]{20}\.compacted\.json|checkpoint\..+\.(json|parquet))")
"""Checksums, compacted entries, and checkpoints in several parts: other engines write them; Tidelake never does."""

Entry = list[dict[str, dict[str, Any]]]


def read_entry(path: Location, version: int) -> Entry | None:
    """The actions of one log entry, or None if there is no such file.

    Raises:
        DamagedTable: the entry is torn.
    """
    text = _text_of(path, version)
    if text is None:
        return None
    try:
        return _parse(text)
    except ValueError as error:
        raise DamagedTable(str(path), f"the log entry of version {version} is torn") from error


def check_log(path: Location) -> int:
    """Check that `seq` rises by one per entry, and that each entry states the SHA-256 of the entry before it.

    Returns:
        The number of entries.

    Raises:
        DamagedTable: the error names the version where the chain breaks.
    """
    versions = _tail(path, _versions(path))
    seq_before: int | None = None
    digest: str | None = None
    for version in versions:
        text = _text_of(path, version)
        if text is None:  # a cleanup has just deleted it
            continue
        is_torn = not is_whole(text)
        if is_torn and version == versions[-1] and version > read_markers(path).newest and blobs.may_be_torn(path):
            break  # nobody has acknowledged it, and a reader that is not allowed to write leaves it in place
        entry = [] if is_torn else _parse(text)
        seq, before = seq_of(entry), before_of(entry)
        if seq is None:
            fact = "is torn" if is_torn else "has no 'seq'"
            raise DamagedTable(str(path), f"the entry of version {version} {fact}")
        if seq_before is not None and seq != seq_before + 1:
            raise DamagedTable(
                str(path), f"'seq' is {seq} at version {version}, but {seq_before} in the entry before it"
            )
        if digest is not None and before is not None and before != digest:
            raise DamagedTable(str(path), f"the entry of version {version} does not follow the one before it")
        seq_before, digest = seq, digest_of(text)
    return len(versions)


def entry_that_added(path: Location, file: str) -> tuple[int, Entry] | None:
    """Find the entry that added a file, and its version; None if the log no longer has it.

    Cost: reads the log's entries backward from the newest until it finds that entry.
    """
    for version in reversed(_versions(path)):
        text = _text_of(path, version)
        if text is None or not is_whole(text):  # a cleanup has since deleted it, or it was never acknowledged
            continue
        entry = _parse(text)
        if any(unquote(action["add"]["path"]) == file for action in entry if "add" in action):
            return version, entry
    return None


def kept_entries(path: Location) -> Iterator[tuple[int, Entry]]:
    """Yield the acknowledged entries that the log still has, newest first, each with its version.

    Cost: reads each entry on demand.
    """
    for version in reversed(_tail(path, _versions(path))):
        text = _text_of(path, version)
        if text is None:  # a cleanup has since deleted it and all earlier ones
            return
        if is_whole(text):  # if not, it was never acknowledged
            yield version, _parse(text)


def first_entry_beyond(path: Location, name: str, value: int) -> tuple[int, Entry] | None:
    """Return the first entry that set an application transaction above a value, and its version.

    Returns:
        None if no entry did so, or if the log no longer shows which one was the first.
    """
    found = None
    for version, entry in kept_entries(path):
        stated = values_of(entry).get(name)
        if stated is not None and stated <= value:
            return found
        if stated is not None:
            found = version, entry
        if version == 0:
            return found
    return None


def committed_ms(entry: Entry) -> int:
    """Return the time when an entry was written, in milliseconds since 1970, by its writer's clock."""
    return int(next(action["commitInfo"]["timestamp"] for action in entry if "commitInfo" in action))


def values_of(entry: Entry) -> dict[str, int]:
    """The application transactions of an entry, by name."""
    return {str(action["txn"]["appId"]): int(action["txn"]["version"]) for action in entry if "txn" in action}


def entry_path(path: Location, version: int) -> Location:
    """The location of a version's log entry."""
    return path / LOG / f"{version:020d}.json"


def checkpoint_path(path: Location, version: int) -> Location:
    """The location of a version's checkpoint."""
    return path / LOG / f"{version:020d}.checkpoint.parquet"


def newest_version(path: Location) -> int:
    """The version in the name of the newest entry, which may be torn; -1 if the log is empty."""
    return max(_versions(path), default=-1)


def last_checkpoint(path: Location) -> int:
    """The version of the newest checkpoint, as the log's hint states it; -1 if no hint can be read."""
    try:
        return int(json.loads(blobs.read(path / LOG / HINT))["version"])
    except (LookupError, OSError, OverflowError, RecursionError, TypeError, ValueError):  # none, or it is damaged
        return -1


def checkpoints(path: Location) -> list[Location]:
    """The files of the checkpoints in the log, newest last."""
    return _matching(path, _CHECKPOINT, blobs.list_names(path / LOG))


def _matching(path: Location, pattern: re.Pattern[str], names: list[str]) -> list[Location]:
    return [path / LOG / name for name in sorted(filter(pattern.fullmatch, names))]


@dataclass(frozen=True)
class Tip:
    """The newest entry of a prepared log (see `settle`), and the log up to this entry."""

    version: int
    digest: str | None
    """The entry's SHA-256; None if another engine or an earlier release wrote the entry to a log with markers."""
    checkpoint: bytes | None = None
    """The checkpoint at which the log begins, if any."""
    entries: tuple[bytes, ...] = ()
    """The entries after the checkpoint, perhaps preceded by the last entry that the checkpoint covers."""
    checkpoint_version: int = -1
    """The version of the checkpoint."""
    is_newest: bool = True
    """False if there are later entries, which this process could not acknowledge."""

    @property
    def size(self) -> int:
        """The number of bytes of the checkpoint and the entries."""
        return len(self.checkpoint or b"") + sum(map(len, self.entries))

    def followed_by(self, version: int, digest: str | None, text: bytes) -> Tip:
        """The tip of the log after one more entry."""
        return Tip(version, digest, self.checkpoint, (*self.entries, text), self.checkpoint_version, self.is_newest)

    def numbered(self) -> dict[int, bytes]:
        """The entries by version, in order."""
        return dict(enumerate(self.entries, start=self.version - len(self.entries) + 1))

    def newest_entries(self) -> tuple[Entry | None, Entry]:
        """The second-newest entry (None if `entries` lacks it) and the newest entry; both are cached."""
        before = parsed_entry(self.entries[-2]) if len(self.entries) > 1 else None
        return before, parsed_entry(self.entries[-1])

    def state(self) -> LogState:
        """The state of the table at this entry.

        Raises:
            ValueError, KeyError, TypeError, OSError, pa.ArrowException: the verified bytes are not a Delta log.
        """
        state = LogState() if self.checkpoint is None else checkpoint_state(self.checkpoint)
        # `entries` may include the last entry that the checkpoint covers: applying it again changes nothing.
        for text in self.entries:
            state.apply(entry_steps(text))
        return state


# --- opening ---------------------------------------------------------------------------------------------------------


def settle(path: Location, takes_over: bool = False, seen: Tip | None = None) -> Tip:
    """Prepare a log for use: verify what was acknowledged, and finish or set aside the rest.

    Args:
        path: the table's folder.
        takes_over: whether the log of an earlier release, which acknowledges nothing, gets markers. If not, such a log
            is read as it is.
        seen: an unverified copy of the log. Its checkpoint and its entries are not read again if markers name their
            SHA-256. With a copy, the markers and the log are listed together.

    Returns:
        The newest entry; version -1 if there is none.

    Raises:
        DamagedLog: an acknowledged entry is missing or has changed.

    Cost: the markers and the log are listed; the newest checkpoint and the entries past it are read once, or twice if
    the log looks damaged.
    """
    try:
        return _settle(path, takes_over, seen)
    except DamagedLog:  # perhaps this process only slept while two checkpoints were written and earlier entries deleted
        return _settle(path, takes_over)


def _settle(path: Location, takes_over: bool, seen: Tip | None = None) -> Tip:
    # Read the markers first: an entry exists before its marker.
    if seen is None:
        markers, names = read_markers(path), blobs.list_names(path / LOG)
    else:
        acked, names = blobs.list_names_in_turn(path, ACKED, LOG)
        markers = markers_named(path, acked)
    written = _matching(path, _CHECKPOINT, names)
    versions = _versions_in(names)
    # An entry exists before any checkpoint that covers it, and a marked checkpoint existed before the log was listed.
    of_checkpoint = version_of(written[-1]) if written else -1
    is_new = path.is_local and of_checkpoint not in markers.checkpoints
    if written and (is_new or of_checkpoint > max(versions, default=-1)):
        versions = _versions(path)
    newest = versions[-1] if versions else -1
    if markers.newest > newest:
        raise DamagedLog(str(path), f"version {markers.newest} was acknowledged, but its entry is missing")
    if not versions:
        return Tip(-1, None)
    # delta-rs would trust these files, although nothing has compared them with the entries.
    beyond = [location for location in written if version_of(location) > newest]
    for stray in (*beyond, *_matching(path, _UNVERIFIED, names)):
        _set_aside(path, stray)
    is_earlier = _is_of_earlier_release(path, markers, written, versions)
    if is_earlier:
        markers = Markers()  # an upgrade was interrupted, and the earlier release kept committing
    acknowledged = markers.newest  # computed once: the maximum over all markers
    marks = takes_over if is_earlier else bool(markers.entries)  # nothing is written to a log that lost its markers
    start, checkpoint = _verified_checkpoint(path, written, markers, versions, marks, seen)
    past = versions[bisect_right(versions, start) :]
    gap = next((version for version, due in zip(past, range(start + 1, newest + 1), strict=False) if version != due), 0)
    if gap and _versions(path) != versions:  # a listing may miss a name that was just added, and yet show a later one
        return settle(path, takes_over)
    if gap:
        raise DamagedLog(str(path), f"the entries before version {gap} are missing")
    # Read the newest acknowledged entry even if the checkpoint covers it: the next entry states its SHA-256.
    read = versions[bisect_left(versions, min(start, acknowledged)) :] or versions[-1:]
    tip = Tip(-1, None, checkpoint, checkpoint_version=start)
    tip = _verify_entries(path, markers, tip, read[: bisect_right(read, acknowledged)], seen)
    if not markers.entries:
        if is_earlier and takes_over:
            # Between the markers of an interrupted upgrade and new ones, there would be a gap.
            forget_before(path, start)
        return _take_over(path, tip, past or versions[-1:], takes_over)
    return _finish_entries(path, markers, tip, versions[bisect_right(versions, acknowledged) :])


def is_of_earlier_release(path: Location) -> bool:
    """Whether an earlier release of Tidelake, which acknowledges nothing, wrote all of a table's log."""
    versions = _versions(path)
    try:
        markers = read_markers(path)
    except DamagedLog:  # an earlier release never causes contradictory markers, so this is other damage
        return False
    return bool(versions) and _is_of_earlier_release(path, markers, checkpoints(path), versions)


def _is_of_earlier_release(path: Location, markers: Markers, written: list[Location], versions: list[int]) -> bool:
    if markers.newest == versions[-1] and (not written or version_of(written[-1]) in markers.checkpoints):
        return False  # the ordinary case, in which the entries need not be read
    later = [_text_of(path, version) for version in versions if version > markers.newest]
    texts = [text for text in later if text is not None]  # the earlier release may be cleaning up
    if texts and not is_whole(texts[-1]):
        texts.pop()
    if markers.entries:  # markers are binding once a commit states the SHA-256 of its predecessor
        texts.append(read_or_none(entry_marker(path, markers.newest, markers.entries[markers.newest])) or b"")
    return bool(texts) and all(is_whole(text) and before_of(_parse(text)) is None for text in texts)


def _verify_entries(path: Location, markers: Markers, tip: Tip, versions: list[int], seen: Tip | None = None) -> Tip:
    """Compare acknowledged entries with their markers; return the tip of the log after these entries."""
    first = min(markers.entries, default=0)
    known = {} if seen is None else seen.numbered()
    known = {version: text for version, text in known.items() if markers.entries.get(version) == digest_of(text)}
    read = _texts_of(path, [version for version in versions if version not in known])
    texts = {version: known.get(version) or read.get(version) or b"" for version in versions}
    digests = {version: digest_of(text) for version, text in texts.items()}
    for version, digest in digests.items():
        stated = markers.entries.get(version)
        if stated is None and version < first:
            continue
        if stated is None and digest == stated_before(texts[version + 1]):
            with _unless_read_only():
                acknowledge_entry(path, version, texts[version])
                warn("a missing marker was written again", table=str(path), version=version)
        elif digest != stated:
            raise DamagedLog(str(path), f"the entry of version {version} is not the one that was acknowledged")
    _mark_earlier(path, {version: text for version, text in texts.items() if version < first})
    for version, digest in digests.items():
        tip = tip.followed_by(version, digest, texts[version])
    return tip


def _mark_earlier(path: Location, texts: dict[int, bytes]) -> None:
    """Mark entries older than all markers, newest first: the marked entries always form an unbroken tail of the log."""
    with _unless_read_only():
        for version in sorted(texts, reverse=True):
            acknowledge_entry(path, version, texts[version])


def _finish_entries(path: Location, markers: Markers, tip: Tip, versions: list[int]) -> Tip:
    """Acknowledge whole entries whose writers died before they could do so, and set a torn entry aside.

    Args:
        path: the table's folder.
        markers: its markers.
        tip: the newest acknowledged entry.
        versions: the later versions.
    """
    for index, version in enumerate(versions):
        text = _text_of(path, version)
        if text is None or not is_whole(text):
            if version != versions[-1]:
                raise DamagedLog(str(path), f"the entry of version {version} is torn, but later entries follow")
            with _unless_read_only():
                _set_torn_entry_aside(path, version)
                return settle(path)
            return replace(tip, is_newest=False)
        before = before_of(_parse(text))
        if before is None:  # another engine or an earlier release wrote it; `OpenTable` reports this
            for number in versions[index:]:
                tip = tip.followed_by(number, None, _text_of(path, number) or b"")
            return tip
        if before != tip.digest:
            raise DamagedLog(str(path), f"version {version} does not follow the acknowledged version before it")
        digest = None
        with _unless_read_only():
            digest = _finish(path, version, text)
        if digest is None:  # a reader that cannot acknowledge an entry stops at the newest marker
            return replace(tip, is_newest=False)
        tip = tip.followed_by(version, digest, text)
    return tip


def _take_over(path: Location, tip: Tip, versions: list[int], marks: bool) -> Tip:
    """Accept a log without markers as it is: an earlier release wrote it, or the table was just created.

    Args:
        path: the table's folder.
        tip: the tip so far: version -1, with the checkpoint if there is one.
        versions: the versions past the checkpoint; if there are none, the newest version.
        marks: whether the log of an earlier release gets markers.
    """
    read = {version: _text_of(path, version) for version in versions}
    gone = {version for version, text in read.items() if text is None}
    if not gone <= set(_versions(path)):  # the earlier release is cleaning up
        return settle(path, marks)
    texts = {version: text or b"" for version, text in read.items()}
    if any(stated_before(text) for text in texts.values()):
        if read_markers(path).entries:  # another process has just created or upgraded the table
            return settle(path, marks)
        raise DamagedLog(str(path), "no version is marked as acknowledged")
    newest = versions[-1]
    if not is_whole(texts[newest]):
        with _unless_read_only():
            _set_torn_entry_aside(path, newest)
            return settle(path, marks)
        del texts[newest]
        if not texts:  # a table whose creation was interrupted
            return replace(tip, is_newest=False)
        newest, tip = max(texts), replace(tip, is_newest=False)
    torn = next((version for version, text in texts.items() if not is_whole(text)), None)
    if torn is not None:
        raise DamagedLog(str(path), f"the entry of version {torn} is torn, but later entries follow")
    if marks or before_of(_parse(texts[newest])) is not None:
        with _unless_read_only():
            _finish(path, newest, texts[newest])
        _mark_earlier(path, {version: text for version, text in texts.items() if version < newest})
    for version, text in texts.items():
        tip = tip.followed_by(version, digest_of(text), text)
    return tip


@contextmanager
def _unless_read_only() -> Iterator[None]:
    """Skip the rest of the block if this process is not allowed to write to the store: it then only reads."""
    try:
        yield
    except LakeReadOnly:
        return
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise
    except StoreAccessDenied as error:
        if error.access not in ("write", "delete"):
            raise


def _finish(path: Location, version: int, text: bytes) -> str:
    """Make a whole entry durable and acknowledge it, because its writer did not; return its SHA-256."""
    blobs.make_durable([entry_path(path, version)])
    blobs.make_names_durable([path / LOG])
    return acknowledge_entry(path, version, text)


def _set_torn_entry_aside(path: Location, version: int) -> None:
    """Move a torn newest entry, which was never acknowledged, to another name.

    Raises:
        DamagedLog: a store of this kind never tears an entry, so something else has changed it.
    """
    if not blobs.may_be_torn(entry_path(path, version)):
        raise DamagedLog(str(path), f"the entry of version {version} is not the one that was written")
    entry, aside = entry_path(path, version), path / LOG / f".torn-{version:020d}-{secrets.token_hex(4)}"
    try:
        blobs.set_aside(entry, aside)
    except FileNotFoundError:  # another process moved it
        return
    moved = read_or_none(aside) or b""
    if is_whole(moved):
        # Between our check and our move, another process moved the torn entry and committed a good one. Put it back.
        try:
            blobs.create(entry, moved)
        except FileExistsError as error:
            raise DamagedTable(
                str(path), f"version {version} was committed twice; the first entry is in {aside.name}"
            ) from error
        blobs.delete(aside)
    else:
        reach("table.after_torn_entry")
        warn("a torn log entry was set aside", table=str(path), version=version, kept_as=aside.name)
    blobs.make_names_durable([path / LOG])


def is_whole(text: bytes) -> bool:
    """Whether a log entry consists of whole JSON lines up to its stated end. Other engines' entries state no end."""
    try:
        lines = _parse(text)
    except ValueError:
        return False
    if not lines or not all(isinstance(line, dict) and isinstance(line.get("commitInfo", {}), dict) for line in lines):
        return False
    last, end = lines[0].get("commitInfo", {}).get("last"), lines[-1].get("txn")
    return last is None or (isinstance(end, dict) and end.get("appId") == last)


# --- checkpoints -----------------------------------------------------------------------------------------------------


def _verified_checkpoint(
    path: Location,
    written: list[Location],
    markers: Markers,
    versions: list[int],
    marks: bool = True,
    seen: Tip | None = None,
) -> tuple[int, bytes | None]:
    """Return the version and the bytes of the newest checkpoint that can be trusted; set aside those that cannot.

    Without such a checkpoint, the version is -1.

    Args:
        path: the table's folder.
        written: the checkpoints in its log.
        markers: its markers.
        versions: the versions of the entries in its log.
        marks: whether a checkpoint that can be trusted gets a marker.
        seen: an unverified copy of the log; its checkpoint is not read again if a marker names its SHA-256.
    """
    known = None if seen is None or seen.checkpoint is None else seen.checkpoint
    known_digest = None if known is None else digest_of(known)
    for location in reversed(written):
        version = version_of(location)
        if version > versions[-1]:  # another process has just written it
            continue
        data = known if known_digest in markers.checkpoints.get(version, ()) else read_or_none(location)
        if data is None:  # another process has just set it aside
            continue
        if digest_of(data) in markers.checkpoints.get(version, ()):
            return version, data
        expected = _expected_state(path, version, markers, versions)
        if version not in markers.checkpoints and (stated := readable_checkpoint(data)) is not None:
            predates_markers = expected is None and not markers.entries
            if predates_markers or stated == expected:
                if marks:
                    with _unless_read_only():
                        acknowledge_checkpoint(path, version, digest_of(data))
                return version, data
        if expected is None:
            fact = f"the checkpoint of version {version} is damaged, and entries that it covers are gone"
            raise DamagedLog(str(path), fact)
        for blob in (path / LOG / HINT, location):
            _set_aside(path, blob)
    return -1, None


def acknowledge_newest_checkpoint(path: Location) -> None:
    """Acknowledge the checkpoint that was just written if it agrees with the entries; otherwise set it aside."""
    markers, written = read_markers(path), checkpoints(path)
    _verified_checkpoint(path, written, markers, _versions(path))


def clean_up(path: Location, entries_max: int | None = None) -> None:
    """Delete entries, markers and checkpoints that are old enough and are followed by two acknowledged checkpoints.

    Args:
        path: the table's folder.
        entries_max: how many entries are kept for the whole retention period; earlier ones are kept only for seconds,
            so that a log with many commits stays short. None means all.
    """
    acknowledged = sorted(read_markers(path).checkpoints)
    on_disk = {version_of(location) for location in checkpoints(path)}
    limits = [version for version in acknowledged if version in on_disk][-2:]
    if len(limits) < 2:
        return
    log = path / LOG
    now_s, first_kept = blobs.now_s(log), 0 if entries_max is None else newest_version(path) - entries_max
    listed = [blob for blob in blobs.list_folder(log, hidden=False).blobs if _OF_A_VERSION.match(blob.location.name)]
    old = [blob for blob in listed if version_of(blob.location) < limits[0]]
    # Oldest first, up to the first that is too young: there must be no gap.
    ages = {blob.location: RETENTION_S if version_of(blob.location) >= first_kept else CROWDED_S for blob in old}
    # An entry that came too late is deleted at once: it is before a gap, and would otherwise stop the deletion.
    entries = _tail(path, _versions_in([blob.location.name for blob in listed]))
    first = entries[0] if entries else 0
    young = (
        blob.location
        for blob in old
        if version_of(blob.location) >= first and blob.changed_s >= now_s - ages[blob.location]
    )
    limit = min(map(version_of, young), default=limits[0])
    forget_before(path, limit)  # first: an old entry without a marker is not damage, but a marker without an entry is
    blobs.delete_all(blob.location for blob in old if version_of(blob.location) < limit)


def _expected_state(path: Location, version: int, markers: Markers, versions: list[int]) -> LogState | None:
    """The state that a checkpoint of this version must hold, from the previous marked checkpoint and later entries.

    None if one of these entries is gone.
    """
    state, start = LogState(), -1
    for location in reversed(checkpoints(path)):
        if version_of(location) < version:
            data = blobs.read(location)
            if digest_of(data) in markers.checkpoints.get(version_of(location), ()):
                state, start = checkpoint_state(data), version_of(location)
                break
    if not set(range(start + 1, version + 1)) <= set(versions):
        return None
    for number in range(start + 1, version + 1):
        text = _text_of(path, number)
        if text is None:  # an earlier release is cleaning up
            return None
        if markers.entries.get(number, digest_of(text)) != digest_of(text):
            raise DamagedLog(str(path), f"the entry of version {number} is not the one that was acknowledged")
        if not is_whole(text):
            raise DamagedLog(str(path), f"the entry of version {number} is torn")
        try:
            state.apply(entry_steps(text))
        except ValueError as error:
            raise DamagedLog(str(path), f"the entry of version {number} cannot be read: {error}") from error
    return state


def readable_checkpoint(data: bytes) -> LogState | None:
    """Return the state that a checkpoint holds; None if it cannot be read."""
    try:
        return checkpoint_state(data)
    except (ValueError, KeyError, TypeError, OSError, pa.ArrowException):  # it cannot be read, so it says nothing
        return None


def _set_aside(path: Location, blob: Location) -> bool:
    """Move a log file that cannot be trusted to another name; return whether this call moved it.

    Such a file is a checkpoint, the hint that names the newest checkpoint, or a file that only other engines write.
    """
    moved = False
    with suppress(FileNotFoundError), _unless_read_only():  # absent, or another process moved it
        blobs.set_aside(blob, path / LOG / f".torn-{blob.name}-{secrets.token_hex(4)}")
        moved = True
    if not moved:
        return False
    warn("a log file that cannot be trusted was set aside", table=str(path), name=blob.name)
    reach("table.after_torn_checkpoint")
    blobs.make_names_durable([path / LOG])
    return True


def state_at(path: Location, version: int) -> LogState | None:
    """The state of a prepared log at a given version; None if the log no longer reaches back to that version."""
    try:
        return _expected_state(path, version, read_markers(path), _versions(path))
    except FileNotFoundError:  # a checkpoint was deleted meanwhile
        return None


def load_table(path: Location, version: int | None = None) -> DeltaTable:
    """Read a prepared log with delta-rs, by default up to its newest entry.

    Raises:
        DamagedTable: there is no table, or delta-rs cannot read its log.
    """
    try:
        return blobs.answered(
            path, lambda: DeltaTable(str(path), version=version, storage_options=blobs.delta_options(path))
        )
    except BaseException as error:
        if isinstance(error, OSError) and not path.is_local:
            raise blobs.engine_error(path, error) from error
        if not isinstance(error, DeltaError) and not is_panic(error):
            raise
        if version is None and _set_aside(path, path / LOG / HINT):  # everything except the hint is verified
            return load_table(path)
        if isinstance(error, TableNotFoundError):
            raise DamagedTable(str(path), "there is no table") from error
        raise DamagedTable(str(path), f"its log cannot be read: {engine_fact(error)}") from error


# --- what entries say ------------------------------------------------------------------------------------------------


def seq_of(entry: Entry) -> int | None:
    """The `seq` of an entry; None if it states none."""
    for action in entry:
        transaction = action.get("txn")
        if transaction is not None and transaction.get("appId") == SEQ:
            return int(str(transaction["version"]))
    return None


def nonce_of(entry: Entry) -> str | None:
    """The nonce of an entry; None if it states none."""
    return _commit_field(entry, "nonce")


def before_of(entry: Entry) -> str | None:
    """The SHA-256 that an entry states for the entry before it.

    None if it states none, as in entries written before format 2.
    """
    return _commit_field(entry, BEFORE)


def version_of(location: Location) -> int:
    """The version in the name of an entry or a checkpoint."""
    return int(location.name[:20])


def _commit_field(entry: Entry, name: str) -> str | None:
    for action in entry:
        if "commitInfo" in action:
            value = action["commitInfo"].get(name)
            return None if value is None else str(value)
    return None


def _versions(path: Location) -> list[int]:
    return _versions_in(blobs.list_names(path / LOG))


def _versions_in(names: list[str]) -> list[int]:
    # A single search over all names takes a quarter of the time of one search per name.
    return sorted(map(int, _ENTRIES.findall("\0".join(names))))


def _tail(path: Location, versions: list[int]) -> list[int]:
    """Return the versions, except unacknowledged ones before a gap: their entries came too late.

    The writer of such an entry was suspended until the log had forgotten the version, and was killed before it deleted
    the entry.
    """
    gaps = [place for place in range(1, len(versions)) if versions[place] != versions[place - 1] + 1]
    if not gaps:
        return versions
    first_marked = min(read_markers(path).entries, default=0)
    return versions[max((place for place in gaps if versions[place - 1] < first_marked), default=0) :]


def _text_of(path: Location, version: int) -> bytes | None:
    return read_or_none(entry_path(path, version))


def _texts_of(path: Location, versions: list[int]) -> dict[int, bytes | None]:
    """Return the bytes of entries, None for those that are absent; unless on a local disk, several are read at once."""
    if path.is_local or len(versions) < 2:
        return {version: _text_of(path, version) for version in versions}
    with ThreadPoolExecutor(_READ_AT_ONCE) as threads:
        return dict(zip(versions, threads.map(lambda version: _text_of(path, version), versions), strict=True))


def read_or_none(location: Location) -> bytes | None:
    """Return the bytes of a blob: empty if a directory is in its place, None if it is absent."""
    try:
        return blobs.read(location)
    except FileNotFoundError:
        return None
    except IsADirectoryError:
        return b""


def stated_before(text: bytes) -> str | None:
    """Return the SHA-256 that an entry states for the entry before it; None if it states none, or is not whole."""
    return before_of(_parse(text)) if is_whole(text) else None


def _parse(text: bytes) -> Entry:
    """The actions of an entry.

    Raises:
        ValueError: it is not JSON lines.
    """
    try:  # strings may contain other line separators
        return [json.loads(line) for line in text.split(b"\n") if line.strip()]
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
