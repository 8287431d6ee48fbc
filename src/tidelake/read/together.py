"""Chooses the times that published tables show: collections that share a timeline show the same time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tidelake.catalog.catalog import Catalog
from tidelake.errors import CollectionForgot, CollectionLags, TidelakeError, UnknownCollection
from tidelake.read.moment import moment
from tidelake.settings.collection import WALL_CLOCK, CollectionSettings
from tidelake.storage.notices import warn
from tidelake.store.commit import OpenTable
from tidelake.store.state import CLOSED, UPPER

if TYPE_CHECKING:
    from tidelake.settings.lake import Settings

Chosen = tuple[int, tuple[str, ...]]
"""A time, and the names of the collections that are published together at this time."""


def times_to_publish(
    settings: Settings, catalog: Catalog, is_published: Callable[[str], bool]
) -> dict[str, Chosen | TidelakeError]:
    """Choose a time for each collection that shares its timeline, and name the collections published at that time.

    Collections share a timeline if the settings name the same one for them, or if they are tables of one database.
    Collections that have sealed nothing yet are left out, and no collection waits for one that cannot be read.
    Reclocked collections that name no timeline share none here, because an idle collection would hold back the rest.

    Args:
        settings: the settings, or a selection of their collections.
        catalog: the catalog of the store.
        is_published: whether the job publishes a collection.

    Returns:
        For each collection that is to be published at a common time: the greatest time that all have, and the names of
        those that the job publishes. If there is no common time, because one has forgotten times that another has not
        sealed yet, a warning says so, and each is published separately. If no time can be chosen for another reason,
        such as tables torn between two snapshots, the result is the error, which stops this timeline only. For a
        collection that cannot be read, the result is the error, too: even if the collection can be read again a moment
        later, it must not be published at a time of its own.

    Cost: for each collection of a shared timeline, the log and the handles.
    """
    groups: defaultdict[str, list[CollectionSettings]] = defaultdict(list)
    for collection in settings.all_collections or settings.collections:
        if collection.timeline_name != WALL_CLOCK:
            groups[collection.timeline_name].append(collection)
    chosen: dict[str, Chosen | TidelakeError] = {}
    for timeline, members in groups.items():
        if len(members) < 2 or not any(is_published(member.name) for member in members):
            continue
        ready = []
        for member in members:
            try:
                if _has_sealed(catalog, member.name):
                    ready.append(member)
            except TidelakeError as error:
                fact = "published tables of a timeline do not wait for a collection"
                warn(fact, collection=member.name, reason=error.fact)
                chosen[member.name] = error
        if len(ready) > 1:
            try:
                chosen |= _common_time(catalog, timeline, ready, is_published)
            except TidelakeError as error:
                chosen |= {member.name: error for member in ready}
    return chosen


def _common_time(
    catalog: Catalog, timeline: str, ready: Sequence[CollectionSettings], is_published: Callable[[str], bool]
) -> dict[str, Chosen]:
    try:
        found = moment(catalog, ready, "latest")
    except (CollectionLags, CollectionForgot) as error:
        warn("published tables of one timeline show different times", timeline=timeline, reason=error.fact)
        return {}
    together = tuple(sorted(member.name for member in ready if is_published(member.name)))
    return dict.fromkeys(together, (found.time, together if len(together) > 1 else ()))


def _has_sealed(catalog: Catalog, name: str) -> bool:
    try:
        table = OpenTable(catalog.find(name).paths.updates)
    except UnknownCollection:
        return False
    return bool(table.value(UPPER) or table.value(CLOSED))
