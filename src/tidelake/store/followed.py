"""Follows the logs of object stores: a process that has verified a log asks only for later entries.

The name of a marker contains the SHA-256 of its entry. So one listing of the markers, starting at the newest verified
version, proves that this version is still the one that was verified, and shows every later version. Entries of later
versions are read and must follow the chain. If anything is wrong, the log is no longer followed: it is opened from
scratch, and `settle` says what is wrong. An entry without a marker is not noticed until a commit collides with it; then
the log is opened from scratch as well. A log on a disk is always opened from scratch: remembering it would not be
faster.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from functools import cached_property
from threading import Lock

from tidelake.storage.location import Location
from tidelake.store.acknowledged import Markers, digest_of, read_markers
from tidelake.store.log_state import LogState, entry_steps
from tidelake.store.table_log import Tip, entry_path, read_or_none, settle, stated_before

_KEPT_BYTES_MAX = 32 << 20
"""The maximum size of the logs that a process remembers. The least recently used logs are forgotten."""
_FOLLOWED_ENTRIES_MAX = 16
"""If a log has grown by more entries than this, opening it from scratch takes fewer requests, thanks to checkpoints."""


@dataclass(frozen=True)
class Followed:
    """A log, verified unless it is only suggested, and the state of its table. The state must not be changed."""

    tip: Tip

    @cached_property
    def state(self) -> LogState:
        """The state of the table; raises what `Tip.state` raises."""
        return self.tip.state()

    def followed_by(self, version: int, digest: str, text: bytes) -> Followed:
        """Return the log with one more entry.

        Raises:
            ValueError, KeyError, TypeError: the text is not a Delta entry.
        """
        longer = Followed(self.tip.followed_by(version, digest, text))
        if "state" in self.__dict__:
            state = self.state.copy()
            state.apply(entry_steps(text))
            longer.__dict__["state"] = state
        return longer


class _Kept:
    """The logs that this process remembers, by their folders."""

    def __init__(self) -> None:
        self._lock, self._logs, self._bytes = Lock(), OrderedDict[Location, Followed](), 0

    def get(self, path: Location) -> Followed | None:
        with self._lock:
            found = self._logs.get(path)
            if found is not None:
                self._logs.move_to_end(path)
            return found

    def put(self, path: Location, followed: Followed) -> None:
        with self._lock:
            self._drop(path)
            self._logs[path] = followed
            self._bytes += followed.tip.size
            while self._bytes > _KEPT_BYTES_MAX:
                self._drop(next(iter(self._logs)))

    def pop(self, path: Location) -> Followed | None:
        with self._lock:
            found = self._logs.get(path)
            self._drop(path)
            return found

    def drop(self, path: Location) -> None:
        with self._lock:
            self._drop(path)

    def clear(self) -> None:
        with self._lock:
            self._logs.clear()
            self._bytes = 0

    def _drop(self, path: Location) -> None:
        dropped = self._logs.pop(path, None)
        self._bytes -= 0 if dropped is None else dropped.tip.size


_kept = _Kept()
_suggested, _suggested_to_show = _Kept(), _Kept()
"""Suggested logs, which nobody has verified yet. If the markers prove a log in `_suggested_to_show`, it is followed
from its suggested version on. A log in `_suggested` is opened from scratch in any case; the suggestion only saves
requests."""


def newest(path: Location) -> Followed:
    """Return a log as it is now; version -1 if there is none.

    Raises:
        DamagedLog: an acknowledged entry is missing or has changed.

    Cost: what `settle` costs; if the log is followed, one listing, and a request for each new entry.
    """
    seen = _suggested.pop(path)
    followed = None if path.is_local else _caught_up(path)
    if followed is None:
        forget(path)
        followed = Followed(settle(path, seen=None if seen is None else seen.tip))
    remember(path, followed)
    return followed


def known(path: Location) -> Followed:
    """Return a log as this process last saw it; on a disk, or if it has never seen the log, as the log is now.

    Only for a caller that commits to the table, or that needs no newer state than this process has seen.
    """
    return (None if path.is_local else _kept.get(path)) or newest(path)


def refresh(path: Location) -> None:
    """Catch up with a log that other processes may have changed; does nothing on a disk."""
    if not path.is_local:
        newest(path)


def last_seen(path: Location) -> Followed | None:
    """Return a log as this process last verified it; None if it does not follow the log."""
    return _kept.get(path)


def is_followed(path: Location) -> bool:
    """Return whether this process follows a log, or has a suggestion for it."""
    return any(logs.get(path) is not None for logs in (_kept, _suggested, _suggested_to_show))


def suggest(path: Location, tip: Tip, *, follows: bool) -> None:
    """Suggest the contents of a log in an object store. Opening the log reads whatever the markers do not prove.

    Args:
        path: the table's folder.
        tip: the log, which nobody has verified.
        follows: whether the log is followed from this tip, with one listing, if the markers prove the tip. If not, it
            is opened from scratch, which also shows whether an entry is missing.
    """
    (_suggested_to_show if follows else _suggested).put(path, Followed(tip))


def remember(path: Location, followed: Followed) -> None:
    """Follow a log from now on, unless it is on a disk, or not acknowledged up to its end."""
    tip = followed.tip
    if not path.is_local and tip.version >= 0 and tip.digest is not None and tip.is_newest:
        _kept.put(path, followed)


def forget(path: Location) -> None:
    """Forget a log, so that it is opened from scratch the next time."""
    _kept.drop(path)


def forget_all() -> None:
    """Forget every log, so that each is opened from scratch the next time, as in a new process."""
    for logs in (_kept, _suggested, _suggested_to_show):
        logs.clear()


def _caught_up(path: Location) -> Followed | None:
    """Return a log up to its newest acknowledged entry; None if it must be opened from scratch."""
    verified, suggested = _kept.get(path), _suggested_to_show.pop(path)
    followed = verified or suggested
    if followed is None or (verified is None and not _has_no_gap(followed.tip)):
        return None
    tip = followed.tip
    markers = read_markers(path, tip.version if verified is not None else _first_of(tip))
    is_proven = markers.entries.get(tip.version) == tip.digest if verified is not None else _prove(markers, tip)
    return _continued(path, followed, markers) if is_proven else None


def _first_of(tip: Tip) -> int:
    """Return the first version that a log's state is made from."""
    return 0 if tip.checkpoint is None else tip.checkpoint_version


def _has_no_gap(tip: Tip) -> bool:
    """Return whether a log has every entry since its checkpoint or, if it has none, since its first version."""
    return min(tip.numbered()) <= _first_of(tip) + (tip.checkpoint is not None)


def _prove(markers: Markers, tip: Tip) -> bool:
    """Return whether markers name the SHA-256 of the checkpoint and of each entry of a suggested log."""
    stated = markers.checkpoints.get(tip.checkpoint_version, ())
    if tip.checkpoint is not None and digest_of(tip.checkpoint) not in stated:
        return False
    return all(markers.entries.get(version) == digest_of(text) for version, text in tip.numbered().items())


def _continued(path: Location, followed: Followed, markers: Markers) -> Followed | None:
    """Return a verified log with the later entries that markers name.

    Returns:
        None if there are too many such entries, or if an entry or its marker is missing or wrong.
    """
    start = followed.tip.version
    if markers.newest - start > _FOLLOWED_ENTRIES_MAX:
        return None
    for version in range(start + 1, markers.newest + 1):
        text, digest = read_or_none(entry_path(path, version)) or b"", markers.entries.get(version)
        if digest is None or digest_of(text) != digest or stated_before(text) != followed.tip.digest:
            return None
        try:
            followed = followed.followed_by(version, digest, text)
        except (ValueError, KeyError, TypeError):
            return None
    return followed
