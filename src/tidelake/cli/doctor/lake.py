"""Checks a lake: its settings, its store, its topics, and the servers that it needs."""

from __future__ import annotations

import os
import tempfile
import time as clock
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from tidelake.cli.doctor.finding import Finding, Level, failed
from tidelake.cli.doctor.machine import disk_space
from tidelake.errors import TidelakeError, TopicUnreachable
from tidelake.read.words import counted

if TYPE_CHECKING:
    from tidelake.catalog.catalog import Catalog
    from tidelake.settings.collection import CollectionSettings
    from tidelake.settings.lake import Settings
    from tidelake.settings.object_store import ObjectStorePlace

_SKEW_WARN_S, _SKEW_FAIL_S = 2.0, 60.0
_WAIT_S_MAX = 10
"""Maximum time to wait for a server; jobs wait as long as the settings say."""


def lake_findings(config: Path) -> Iterator[Finding]:
    """Check the lake of a `collections.yaml`, even if some of its settings are wrong. No table is changed.

    Nothing is written except to check that the store and the reports can be written.

    Cost: the logs of each collection's tables, the list of each file topic's files, and a few requests to each server.
    """
    from tidelake.settings.lake import STORE_KEYS
    from tidelake.settings.problems import find_problems

    settings, problems = find_problems(config)
    for problem in problems:
        yield failed("settings", problem)
    if settings is None:
        return
    if not problems:
        names = "1 collection" if len(settings.collections) == 1 else f"{len(settings.collections)} collections"
        yield Finding("settings", "ok", f"{config}: {names}")
    if not any(problem.field.partition(".")[0] in STORE_KEYS for problem in problems):
        yield from _places(settings)
    yield from _servers(settings)
    yield from _collections(settings)


def _places(settings: Settings) -> Iterator[Finding]:
    """Check the store and the place of the reports."""
    from tidelake.settings.object_store import S3Settings

    places = (settings.store, settings.topics, settings.data_docs)
    if settings.object_stores.s3 != S3Settings() and all(isinstance(place, Path) for place in places):
        yield Finding("s3", "ok", "no folder of the lake is in S3; the `s3:` block is used only for URIs in commands")
    if isinstance(settings.store, Path):
        yield from _folder(settings.store)
    else:
        yield from _object_store(settings.store)
    if not isinstance(settings.data_docs, Path):
        yield _reports(settings.data_docs)


def _object_store(place: ObjectStorePlace) -> Iterator[Finding]:
    """Check an object store: whether it answers, can be written to, and supports conditional writes; and its clock.

    The object that tests conditional writes stays in the store; jobs create the same object.
    """
    from tidelake.storage import blobs

    root = blobs.remember(place)
    try:
        ahead_s = blobs.now_s(root) - clock.time()
        blobs.check_conditional_writes(root)
    except TidelakeError as error:
        yield failed("store", error)
        return
    yield Finding("store", "ok", f"{place} can be written to, and supports conditional writes")
    yield _clock(ahead_s)


def _reports(place: ObjectStorePlace) -> Finding:
    """Check whether the reports can be written: an object is written, read and deleted."""
    from tidelake.storage import blobs

    try:
        blobs.now_s(blobs.root_of(place))
    except TidelakeError as error:
        return failed("reports", error)
    return Finding("reports", "ok", f"{place} can be written to")


def _folder(store: Path) -> Iterator[Finding]:
    """Check the store's folder: this user's permission to write to it, the free space of its disk, and its clock."""
    nearest = next(above for above in (store, *store.absolute().parents) if above.exists())
    if not os.access(nearest, os.R_OK | os.W_OK | os.X_OK):
        fact = f"this user has no permission to read and write {nearest}"
        yield Finding("store", "fail", fact, "give the user permission, or run as the owner of the folder")
        return
    try:
        # The file has no name, or is removed at once, so that the store stays as it is.
        with tempfile.TemporaryFile(dir=nearest) as probe:
            probe.write(b"x")
            probe.flush()
            os.fsync(probe.fileno())
            ahead_s = os.fstat(probe.fileno()).st_mtime - clock.time()
    except OSError as error:
        fact = f"{nearest} cannot be written to: {(error.strerror or str(error)).lower()}"
        yield Finding("store", "fail", fact, "mount it for writing, or free some space")
        return
    yield Finding("store", "ok", f"{store}" if store.exists() else f"{store} will be created by the first job")
    yield disk_space("disk", store)
    yield _clock(ahead_s)


def _clock(ahead_s: float) -> Finding:
    """Report how far the store's clock is ahead of this machine's."""
    if abs(ahead_s) <= _SKEW_WARN_S:
        return Finding("clock", "ok", "this machine and the store agree on the time")
    behind = "behind" if ahead_s > 0 else "ahead of"
    fact = f"the clock of this machine is {abs(ahead_s):,.0f} s {behind} the store's"
    level: Level = "fail" if abs(ahead_s) > _SKEW_FAIL_S else "warn"
    return Finding("clock", level, fact, "synchronise both clocks, for example with chrony")


def _servers(settings: Settings) -> Iterator[Finding]:
    """Check the registry; the brokers are checked with the topics."""
    if settings.registry is None:
        return
    from tidelake.topic.schema_registry import SchemaRegistry

    configured_s = settings.registry.request_timeout_s
    impatient = settings.registry.model_copy(update={"request_timeout_s": min(configured_s, _WAIT_S_MAX)})
    try:
        subjects = SchemaRegistry(impatient).subjects()
    except TidelakeError as error:
        yield failed("registry", error)
    else:
        yield Finding("registry", "ok", f"{settings.registry.url} has {counted(len(subjects), 'subject')}")


def _collections(settings: Settings) -> Iterator[Finding]:
    """Check each collection: its topics, and whether its tables can be opened and match the settings."""
    from tidelake.catalog.catalog import Catalog
    from tidelake.store.layout import Store

    catalog = Catalog(Store(settings.store, read_only=True), settings.writer)
    yield from _orphans(catalog)
    known = catalog.lookup(collection.name for collection in settings.collections)
    unreachable: set[str] = set()
    for collection in settings.collections:
        yield from _topics(collection, unreachable)
        found = known.get(collection.name)
        if isinstance(found, TidelakeError):
            yield failed(f"collection {collection.name}", found)
        elif found is not None:
            yield _table(settings, collection, catalog)


def _orphans(catalog: Catalog) -> Iterator[Finding]:
    """Report collections that no name leads to."""
    try:
        orphans = catalog.orphans()
    except TidelakeError as error:
        yield failed("names", error)
        return
    if orphans:
        first = catalog.store.collections / orphans[0]
        fact = f"no name leads to {len(orphans)} of the store's collections, such as {first}"
        yield Finding("names", "fail", fact, "restore the folders `names` and `catalog` of the store from a copy")


def _topics(settings: CollectionSettings, unreachable: set[str]) -> Iterator[Finding]:
    """Check that the topics of a collection can be read; brokers that did not answer are asked only once."""
    from tidelake.topic.open import open_topics

    servers = ""
    if settings.kafka is not None:
        configured_s = settings.kafka.request_timeout_s
        impatient = settings.kafka.model_copy(update={"request_timeout_s": min(configured_s, _WAIT_S_MAX)})
        settings, servers = settings.model_copy(update={"kafka": impatient}), impatient.bootstrap_servers
    if servers in unreachable:
        return
    for topic in open_topics(settings):
        check = f"topic {topic.name}"
        try:
            ends = topic.end_offsets()
        except TopicUnreachable as error:
            unreachable.add(servers)
            yield failed(f"broker {servers}", error)
            return
        except TidelakeError as error:
            yield failed(check, error)
        except OSError as error:
            fact = f"cannot be read: {(error.strerror or str(error)).lower()}"
            yield Finding(check, "fail", fact, "give this user permission to read it")
        else:
            partitions = "1 partition" if len(ends) == 1 else f"{len(ends)} partitions"
            if any(ends.values()):
                yield Finding(check, "ok", f"{partitions}, {counted(sum(ends.values()), 'offset')}")
            else:
                yield Finding(check, "warn", "has no messages yet", "if that is unexpected, check the topic's name")


def _table(settings: Settings, collection: CollectionSettings, catalog: Catalog) -> Finding:
    """Check that the tables of a collection can be opened, and match the settings."""
    from tidelake.lake import Lake

    check = f"collection {collection.name}"
    try:
        catalog.check([collection.spec()])
        without_topics = collection.model_copy(update={"topics": (), "kafka": None})
        lake = Lake(settings.model_copy(update={"collections": (without_topics,)}), read_only=True)
        status = lake.collections()[0].status()
    except TidelakeError as error:
        return failed(check, error)
    if status is None:
        return Finding(check, "ok", "has never been ingested")
    if status.damaged:
        return Finding(check, "fail", f"is damaged: {status.damaged}", f"run `tidelake repair {collection.name}`")
    upper = "closed" if status.upper is None else str(status.upper)
    if status.times_ahead_s:
        fact = f"its last time is {status.times_ahead_s:,} s ahead of this machine's clock"
        return Finding(
            check, "warn", fact, "correct this machine's clock if it is wrong now; ingest continues in the meantime"
        )
    return Finding(check, "ok", f"can be opened; upper is {upper}")
