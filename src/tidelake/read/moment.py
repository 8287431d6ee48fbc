"""Several collections at one time: finds a time that all of them have, and reads each AS OF it. Needs no JVM."""

from __future__ import annotations

import time as clock
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from tidelake.catalog.catalog import Catalog
from tidelake.errors import ArgumentRefused, CollectionForgot, CollectionLags, TimelinesDiffer
from tidelake.protocol.iso_times import MintedTime, iso_of
from tidelake.protocol.order import INT64_MAX
from tidelake.read.asked import is_number
from tidelake.read.torn import check_not_torn
from tidelake.settings.collection import CollectionSettings
from tidelake.store.commit import OpenTable, is_table
from tidelake.store.entry import Collection
from tidelake.store.holds import check_time, is_natural

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidelake.read.snapshot import Snapshot

WAIT_S_MAX = 366 * 86_400.0
AS_READ = (
    "AS OF this time, each collection has exactly the records that its ticks had read by then: this is repeatable, but "
    "not a transaction of the source"
)
"""The meaning of a time for reclocked collections."""
_AS_STATED = "the source states these times, so the collections show the same moment of the source"


@dataclass(frozen=True)
class Member:
    """A collection at the version that is read."""

    collection: Collection
    table: OpenTable
    since: tuple[int, ...]
    upper: int
    closed: bool

    @property
    def name(self) -> str:
        """The collection's name."""
        return self.collection.name

    def shown(self, time: int) -> int:
        """Return a time as errors show it; see `Entry.shown`."""
        return self.collection.entry.shown(time)

    @property
    def last(self) -> int:
        """Its last sealed time; if its stream is closed, the greatest possible time."""
        return INT64_MAX if self.closed else self.upper - 1


@dataclass(frozen=True)
class Moment:
    """Collections of one timeline at one time: every read of them is AS OF this time, from the same versions.

    Files that are merged after the moment was chosen stay readable for a day, as for any other read.
    """

    time: int
    """The time. In a session, pass it as `not_before` to the next call: no answer then goes back in time."""
    timeline: str
    facts: tuple[str, ...]
    """Why this time was chosen, and what it means, in sentences."""
    members: tuple[Member, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the collections."""
        return tuple(member.name for member in self.members)

    def member(self, name: str) -> Member:
        """Return a collection of the moment by its name.

        Raises:
            ArgumentRefused: the moment does not have it.
        """
        for member in self.members:
            if member.name == name:
                return member
        raise ArgumentRefused("name", name, "which is not a collection of this moment", f"it has {self.names}")

    def snapshot(
        self,
        spark: SparkSession,
        name: str,
        columns: Sequence[str] = (),
        where: str | None = None,
        skip_errors: bool = False,
    ) -> Snapshot:
        """Read the contents of a collection AS OF the time; see `LakeCollection.snapshot`.

        Raises:
            ArgumentRefused: the moment does not have the collection.
            KeysInError, UnknownColumn, PredicateRefused: as for `LakeCollection.snapshot`.
        """
        from tidelake.read.snapshot import snapshot

        member = self.member(name)
        return snapshot(spark, member.collection, self.time, columns, where, skip_errors, member.table)

    def as_json(self) -> dict[str, Any]:
        """Return the moment as JSON values; a closed collection has the upper None."""
        iso = iso_of(self.time) if any(member.collection.entry.mints_times for member in self.members) else None
        return {
            "time": self.time,
            **({} if iso is None else {"time_iso": iso}),
            "timeline": self.timeline,
            "facts": list(self.facts),
            "collections": {
                member.name: {"since": list(member.since), "upper": None if member.closed else member.upper}
                for member in self.members
            },
        }


def moment(
    catalog: Catalog,
    settings: Sequence[CollectionSettings],
    time: int | Literal["latest"],
    not_before: int | None = None,
    wait_s: float = 0.0,
    poll_s: float = 0.5,
    argument: str = "time",
) -> Moment:
    """Choose a time that all of these collections have; see `Lake.at` for more about the arguments, and for the errors.

    Args:
        catalog: the catalog.
        settings: the collections.
        time: the time.
        not_before: a time that the session has read.
        wait_s: how long to wait, in seconds.
        poll_s: how long to wait between two looks, in seconds.
        argument: what the caller calls the time, for errors.

    Cost: the handles and the log of each collection, read again at each poll while the call waits.
    """
    timeline = timeline_of(settings)
    if time != "latest" and not is_natural(time):
        rule = f"but must be an integer between 0 and {INT64_MAX}, or 'latest'"
        raise ArgumentRefused(argument, time, rule, "give a time of the collections, or leave it out")
    if not_before is not None:
        check_time("not_before", not_before)
    if not_before is not None and time != "latest" and time < not_before:
        shown = MintedTime if settings[0].mints_times else int
        rule = f"but must not be before `not_before`, {shown(not_before)!r}, which this session has read"
        raise ArgumentRefused(argument, shown(time), rule, "ask for a later time, or leave out `not_before`")
    if not (is_number(wait_s) and 0 <= wait_s <= WAIT_S_MAX):
        raise ArgumentRefused("wait_s", wait_s, "but must be between 0 and 31622400", "give a number of seconds")
    end_s = clock.monotonic() + wait_s
    while True:
        try:
            members = tuple(_member(catalog.find(each.name), time, not_before) for each in settings)
            chosen = _latest(members, not_before or 0) if time == "latest" else _given(members, time)
        except CollectionLags:
            left_s = end_s - clock.monotonic()
            if left_s <= 0:
                raise
            clock.sleep(min(poll_s, left_s))
            continue
        check_not_torn({member.name: (member.collection, member.table) for member in members}, chosen)
        return Moment(chosen, timeline, _facts(members, time, chosen, not_before), members)


def timeline_of(settings: Sequence[CollectionSettings]) -> str:
    """Return the timeline that all of these collections are on.

    Raises:
        ArgumentRefused: there is no collection.
        TimelinesDiffer: two of them are on different timelines.
    """
    if not settings:
        raise ArgumentRefused("names", (), "but must name a collection", "give the names of collections")
    first = settings[0]
    for other in settings[1:]:
        if other.timeline_name != first.timeline_name:
            raise TimelinesDiffer(first.name, first.timeline_name, other.name, other.timeline_name)
    return first.timeline_name


def _member(collection: Collection, time: int | Literal["latest"], not_before: int | None) -> Member:
    """Open the updates table of a collection.

    Raises:
        CollectionLags: another process is creating the collection, which has no time yet.
    """
    if not collection.entry.tables_made and not is_table(collection.paths.updates):
        needed = max(not_before or 0, 0 if time == "latest" else time)
        shown = collection.entry.shown
        raise CollectionLags(collection.name, shown(needed), shown(0), [], None)
    table = OpenTable(collection.paths.updates)
    return Member(collection, table, *collection.readable_range(table))


def _latest(members: Sequence[Member], not_before: int) -> int:
    """Return the latest time that all have, if it is neither before any `since` nor before `not_before`.

    Raises:
        CollectionLags: there is no such time yet.
        CollectionForgot: a collection is unreadable.
    """
    for member in members:
        if not member.since:
            raise CollectionForgot(member.name, member.shown(not_before) if not_before else 0, ())
    latest = min(member.last for member in members)
    needed = max(not_before, *(member.since[0] for member in members))
    if latest == INT64_MAX:  # all streams are closed: nothing changes after the last of all their updates
        latest = max(needed, *(member.upper - 1 for member in members))
    if latest < needed:
        raise _lag(members, needed)
    return latest


def _given(members: Sequence[Member], time: int) -> int:
    for member in members:
        if not member.since or time < member.since[0]:
            raise CollectionForgot(member.name, member.shown(time), map(member.shown, member.since))
    if any(member.last < time for member in members):
        raise _lag(members, time)
    return time


def _lag(members: Sequence[Member], time: int) -> CollectionLags:
    """Return the error that names the collection that is farthest behind a time."""
    behind = sorted((member for member in members if member.last < time), key=lambda member: member.upper)
    most, others = behind[0], [member.name for member in behind[1:]]
    youngest = max(members, key=lambda member: member.since)
    forgotten_by = youngest.name if most.last < youngest.since[0] else None
    return CollectionLags(most.name, most.shown(time), most.shown(most.upper), others, forgotten_by)


def _facts(
    members: Sequence[Member], asked: int | Literal["latest"], time: int, not_before: int | None
) -> tuple[str, ...]:
    facts = []
    names, have = ", ".join(member.name for member in members), "have" if len(members) > 1 else "has"
    if asked == "latest":
        first = min(members, key=lambda member: member.last)
        of = f"that is sealed in all of {names}" if len(members) > 1 else f"that is sealed in {names}"
        limit = "every stream is closed" if first.closed else f"the upper of {first.name} is {first.upper}"
        facts.append(f"the latest time {of}: {limit}")
        if not_before is not None:
            facts.append(f"not before {not_before}, which this session has read")
    else:
        facts.append(f"the requested time; {names} {have} it")
    if any(member.collection.entry.mints_times for member in members):
        facts.append(AS_READ)
    elif len(members) > 1:
        facts.append(_AS_STATED)
    return tuple(facts)
