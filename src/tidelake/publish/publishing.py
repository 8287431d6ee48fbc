"""Publishes a collection to a topic: states what the topic lacks, then lets the hold follow what the topic has.

Everything that is stated follows from the collection, the time from which it is published, and the columns in force at
each time. So any number of publishers may state the same facts, die at any moment, and state them again. See
docs/decisions/publishing.md.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tidelake.catalog.catalog import Catalog
from tidelake.errors import (
    ArgumentRefused,
    KeysInError,
    PublishedTopicBehind,
    PublishedTopicColumns,
    PublishedTopicContradicts,
    PublishedTopicNotEmpty,
    SinceError,
)
from tidelake.protocol.order import INT64_MAX
from tidelake.publish.distinct import Updates, distinct_rows
from tidelake.publish.evidence import Evidence, read_evidence, shards_text
from tidelake.publish.marked import ID_HEADER, SHARDS_HEADER
from tidelake.publish.messages import confluent_header, statements
from tidelake.publish.schema import column_names, record_schema_of_contents, with_new_columns
from tidelake.publish.target import Target
from tidelake.publish.updates import write_updates
from tidelake.read.asked import last_time, readable
from tidelake.read.batch_ends import whole_times
from tidelake.read.changes import changes
from tidelake.read.snapshot import snapshot
from tidelake.read.words import counted
from tidelake.schema.avro import cdcv2_schema
from tidelake.store import published_topics
from tidelake.store.commit import OpenTable
from tidelake.store.entry import Collection, Entry, PublishedTopic
from tidelake.store.failpoints import reach
from tidelake.store.layout import DIFF, TIME
from tidelake.store.state import CLOSED, UPPER

ROWS_MAX = 2_000_000
"""A range of times that has more stored rows than this is split where files end, and its parts are stated in turn."""


@dataclass(frozen=True)
class Terms:
    """A publisher's options.

    If `published_from`, `is_confluent` or `skip_errors` is given, it must agree with the first publisher's option.
    """

    published_from: int | None = None
    """The time of the initial contents; by default `since`, so that all readable times are published."""
    is_confluent: bool = False
    """Whether messages begin with the id of their CDCv2 schema."""
    register: Callable[[Any], int] | None = None
    """Registers a CDCv2 schema and returns its id; required if messages begin with an id."""
    skip_errors: bool = False
    """Whether keys in error are published as keys without a row."""
    shards: int | None = None
    """The number of shards, which may change at any time; by default, it stays the same, starting at 1."""
    shard: int | None = None
    """The only shard that this publisher states; by default, it states all of them."""
    accepts_cut: bool = False
    """Whether messages that nobody has read back may be missing; what was in them is stated again."""
    rows_max: int = ROWS_MAX


@dataclass
class PublishReport:
    """The result of one call."""

    topic: str
    published_from: int
    messages: int = 0
    updates: int = 0
    """Number of distinct updates at the stated times, including those of shards that this call did not state."""
    statements: int = 0
    """Number of progress statements."""
    frontier: int = 0
    """The topic states all times before this one. If the topic is closed, this is one more than the last time."""
    closed: bool = False
    cut: dict[int, int] = field(default_factory=dict)
    """By partition, the first remaining offset, if earlier ones are gone. New readers then cannot use this topic."""
    columns_from: dict[str, int] = field(default_factory=dict)
    """The columns that this call added, with the time from which the topic has them."""


def publish(
    spark: SparkSession, catalog: Catalog, name: str, target: Target, terms: Terms, report: PublishReport | None = None
) -> PublishReport:
    """State everything that is sealed and that the topic lacks.

    Args:
        spark: the session.
        catalog: the catalog of the store.
        name: the collection.
        target: the topic.
        terms: what the publisher asks for.
        report: receives what was stated, even if an error ends the call.

    Raises:
        ArgumentRefused: the terms are not those of the first publisher, or the shard does not exist.
        PublishedTopicError: the topic is not the one that was published to; see `evidence.read_evidence`.
        PublishedTopicBehind: the collection has forgotten what the topic lacks.
        PublishedTopicColumns: the topic cannot state a new column; earlier times were stated.
        KeysInError: there are keys in error at the next time; earlier times were stated.
        UnknownCollection, SinceError: as for reads.

    Cost: the changes that the topic lacks, read once; and the messages since the topic was last read back.
    """
    published = begin(catalog, name, target, terms)
    report = report if report is not None else PublishReport(target.name, published.published_from)
    publisher = _Publisher(spark, catalog, name, target, terms, published, report)
    try:
        publisher.run()
    finally:
        found = publisher.published
        report.frontier, report.closed = found.frontier, found.closed
        report.columns_from = _columns_since(published, found)
    return report


def begin(catalog: Catalog, name: str, target: Target, terms: Terms) -> PublishedTopic:
    """Return what the collection's entry says about a topic. If it says nothing yet, this publisher adds the topic.

    Raises:
        PublishedTopicNotEmpty: nobody publishes to the topic, but it has messages.
        RegistryUnreachable: the schema could not be registered.
        ArgumentRefused, SinceError, UnknownCollection, TopicMissing: as for `publish`.
    """
    entry = catalog.find(name).entry
    found = published_topics.topic_of(entry, target.source, target.name)
    if found is None:
        offsets = target.offsets()
        held = sum(end - first for first, end in offsets.values())
        if held:
            raise PublishedTopicNotEmpty(name, target.name, target.source, held)
        identity = target.identify(creates=True)
        record = record_schema_of_contents(entry)
        proposed = _proposal(target, identity, record, {part: end for part, (_, end) in offsets.items() if end}, terms)
        entry = catalog.update(name, lambda newest: published_topics.begin(newest, _filled(newest, proposed, terms)))
        reach("publish.after_begin")
        found = published_topics.topic_of(entry, target.source, target.name)
        assert found is not None
    _check_terms(found, terms)
    if terms.shards is not None and terms.shards != found.shards:
        known, shards = found, terms.shards
        entry = catalog.update(name, lambda newest: published_topics.reshard(newest, known, shards))
        reach("publish.after_reshard")
        found = published_topics.topic_of(entry, target.source, target.name) or found
    return found


def _proposal(
    target: Target, identity: str | None, record: dict[str, Any], offsets: dict[int, int], terms: Terms
) -> PublishedTopic:
    return PublishedTopic(
        source="files" if target.source == "files" else "kafka",
        topic=target.name,
        id=f"published-{secrets.token_hex(8)}",
        identity=identity,
        published_from=terms.published_from or 0,
        record_schema=record,
        encoding="confluent" if terms.is_confluent else "avro",
        schema_id=_registered(terms, record) if terms.is_confluent else None,
        shards=terms.shards or 1,
        skip_errors=terms.skip_errors,
        offsets=offsets,
    )


def _filled(entry: Entry, proposed: PublishedTopic, terms: Terms) -> PublishedTopic:
    """Return the proposal with the time from which to publish, which may depend on the newest entry."""
    if not entry.since:
        raise SinceError(entry.shown(terms.published_from) if terms.published_from else 0, (), entry.name)
    start = entry.since[0] if terms.published_from is None else terms.published_from
    return proposed.model_copy(update={"published_from": start})


def claimed_entry(
    newest: Entry, known: PublishedTopic, until: int, record_schema: dict[str, Any] | None, schema_id: int | None
) -> Entry | None:
    """Return the entry with a claim to the times before `until`; None if columns or versions have changed meanwhile.

    Args:
        newest: the newest entry. Only its columns have values at times before `until`.
        known: the topic, from an earlier entry.
        until: an upper that was read before the entry.
        record_schema: the schema of a new version, according to an earlier entry; None if no column was new.
        schema_id: with Confluent framing, the id of its CDCv2 schema.
    """
    last = published_topics.topic_now(newest, known).versions[-1].record_schema
    if with_new_columns(last, newest) != record_schema:
        return None
    return published_topics.claim(newest, known, until, record_schema, schema_id)


def _registered(terms: Terms, record_schema: dict[str, Any]) -> int:
    assert terms.register is not None, "Confluent framing needs a registry"
    return terms.register(cdcv2_schema(record_schema))


def _columns_since(before: PublishedTopic, published: PublishedTopic) -> dict[str, int]:
    """Return the columns that later versions added, with the time from which the topic has each of them."""
    known, found = column_names(before.versions[-1].record_schema), dict[str, int]()
    for version in published.versions[len(before.versions) :]:
        added = [name for name in column_names(version.record_schema) if name not in {*known, *found}]
        found |= dict.fromkeys(added, max(version.starts_at, published.published_from))
    return found


def _check_terms(found: PublishedTopic, terms: Terms) -> None:
    asked: dict[str, tuple[Any, Any]] = {
        "from": (terms.published_from, found.published_from),
        "encoding": ("confluent" if terms.is_confluent else None, found.encoding),
        "skip_errors": (terms.skip_errors or None, found.skip_errors),
    }
    for option, (value, committed) in asked.items():
        if value is not None and value != committed:
            rule = f"but '{found.topic}' was first published with {committed}"
            raise ArgumentRefused(option, value, rule, "leave it out, or publish to another topic")


class _Publisher:
    """One call of `publish`."""

    def __init__(
        self,
        spark: SparkSession,
        catalog: Catalog,
        name: str,
        target: Target,
        terms: Terms,
        published: PublishedTopic,
        report: PublishReport,
    ) -> None:
        self.spark, self.catalog, self.name, self.target, self.terms = spark, catalog, name, target, terms
        self.published, self.report = published, report
        self.version, _ = published.version_at(published.published_from)
        self.stated_until = 0

    def run(self) -> None:
        """State what the topic lacks, then read it back."""
        evidence = self.read_back()
        stated = False
        while True:
            shards = self.shards(evidence)
            start = evidence.frontier(shards)
            try:
                is_complete = evidence.is_closed(shards) or not self.state_from(start, shards)
            except SinceError as error:
                evidence = self.retried(start, shards, error)
                continue
            if is_complete:
                break
            stated = True
            evidence = self.moved(evidence, shards)
        if stated:
            self.read_back()

    def shards(self, evidence: Evidence) -> list[int]:
        """Return the shards to state, given the number of shards that the topic has now."""
        if self.terms.shard is None:
            return [*evidence.by_shard]
        if self.terms.shard not in evidence.by_shard:
            rule = f"but '{self.published.topic}' has {counted(self.published.shards, 'shard')}, numbered from 0"
            raise ArgumentRefused(
                "shard", self.terms.shard, rule, "give another number, or change the number of shards"
            )
        return [self.terms.shard]

    def read_back(self) -> Evidence:
        """Read what the topic states, and let the hold follow it."""
        read = self.published
        evidence = read_evidence(self.spark, self.name, read, self.target, self.terms.accepts_cut)
        self.refuse_future(evidence)  # before the hold follows
        if evidence.accepts_loss:  # statements after the cut may cover lost updates, so their times are stated again
            committed = INT64_MAX + 1 if read.closed else read.frontier
            evidence = replace(evidence, by_shard=dict.fromkeys(evidence.by_shard, committed))
        closed, frontier = evidence.is_closed(), evidence.frontier()
        offsets, until = evidence.offsets, self.end if closed else frontier
        entry = self.catalog.update(
            self.name, lambda newest: published_topics.follow(newest, read, until, closed, offsets)
        )
        reach("publish.after_follow")
        self.report.cut = dict(evidence.cut)
        found = published_topics.topic_of(entry, read.source, read.topic)
        assert found is not None
        self.published = found
        return evidence if found.shards == read.shards else self.read_back()

    def refuse_future(self, evidence: Evidence) -> None:
        """Refuse a topic with times that the collection has not sealed: it was published from a different state.

        Raises:
            PublishedTopicContradicts: the topic states such a time.
        """
        table = OpenTable(self.collection().paths.updates)
        upper = table.value(UPPER) or 0
        frontier = max(frontier for frontier in evidence.by_shard.values())
        if not table.value(CLOSED) and frontier > max(upper, self.published.published_from + 1):
            until = "that the stream is closed" if frontier > INT64_MAX else f"all times before {frontier}"
            problem = f"the topic states {until}, but the collection has sealed only the times before {upper}"
            raise PublishedTopicContradicts(self.name, self.published.topic, self.published.source, problem)

    @property
    def end(self) -> int:
        """The frontier of a topic that is closed: one more than the last time of the collection."""
        return min(OpenTable(self.collection().paths.updates).value(UPPER) or 0, INT64_MAX)

    def retried(self, start: int, shards: Sequence[int], error: SinceError) -> Evidence:
        """Read back again: meanwhile, other publishers may have stated what the collection has forgotten.

        Raises:
            PublishedTopicBehind: no publisher has stated it.
        """
        evidence = self.read_back()
        if evidence.frontier(shards) <= start:
            published = self.published
            raise PublishedTopicBehind(self.name, published.topic, published.source, start, error.since) from error
        return evidence

    def moved(self, evidence: Evidence, shards: Sequence[int]) -> Evidence:
        """Return the evidence after this publisher has stated times of its shards, without reading the topic back."""
        by_shard = dict(evidence.by_shard) | dict.fromkeys(shards, self.stated_until)
        return Evidence(by_shard, evidence.offsets, evidence.cut, evidence.since)

    def collection(self) -> Collection:
        """Return the collection as its handles have it now."""
        return self.catalog.find(self.name)

    @property
    def columns(self) -> Sequence[str]:
        """The columns of the version in force."""
        return column_names(self.version.record_schema)

    def claim(self, until: int) -> None:
        """Record that times before `until` may be stated; if the collection has new columns, first add a version.

        The entry is read after `until` was determined, so it has every column with a value at a time before `until`.
        If the last version has all columns of this entry, or gets them here, no version leaves out a value.

        Raises:
            PublishedTopicColumns: the topic cannot state the new columns.
            RegistryUnreachable: the new schema could not be registered, or the registry refuses it.
        """
        while not self.claims(until):
            pass  # try again: other columns were added, or another publisher has added a version
        reach("publish.after_claim")

    def claims(self, until: int) -> bool:
        """Attempt the claim once; return whether it was committed."""
        last = self.published.versions[-1].record_schema
        record = with_new_columns(last, self.collection().entry)
        schema_id = None if record is None else self.register(last, record)
        known, is_committed = self.published, False

        def change(newest: Entry) -> Entry:
            nonlocal is_committed
            claimed = claimed_entry(newest, known, until, record, schema_id)
            is_committed = claimed is not None
            return claimed or newest

        now = published_topics.topic_now(self.catalog.update(self.name, change), known)
        # A new number of shards is not adopted here: the evidence was read for the old one.
        newer = {"claimed": now.claimed, "later_versions": now.later_versions}
        self.published = known.model_copy(update=newer)
        return is_committed

    def register(self, last: dict[str, Any], record: dict[str, Any]) -> int:
        """Register the schema of a new version, and return its id."""
        problem = None
        if self.published.encoding != "confluent":
            problem = "messages in bare Avro do not say with which schema they were written"
        elif self.published.frontier > self.published.claimed:  # nobody knows which columns had values
            problem = "an earlier release has published without them"
        if problem is not None:
            names = tuple(name for name in column_names(record) if name not in column_names(last))
            raise PublishedTopicColumns(self.name, self.published.topic, self.published.source, names, problem)
        return _registered(self.terms, record)

    # --- one range of times

    def state_from(self, start: int, shards: Sequence[int]) -> bool:
        """State the next range of times; return whether there was any.

        Args:
            start: the first time that the topic lacks.
            shards: the shards to state.
        """
        collection = self.collection()
        table = OpenTable(collection.paths.updates)
        upper, closed = table.value(UPPER) or 0, bool(table.value(CLOSED))
        last = last_time(upper, closed)
        first = self.published.published_from
        if start <= first and first > last and not closed:
            return False
        at, until = max(start, first), INT64_MAX + 1 if closed else upper
        if self.published.claimed <= at and self.published.claimed < until:
            self.claim(until)
            collection = self.collection()  # read again: the claim may have added columns
        self.version, next_start = self.published.version_at(at)
        stop = self.published.claimed if next_start is None else min(next_start, self.published.claimed)
        if stop <= last:
            last, closed = stop - 1, False
        if start <= first:
            updates, through = self.initial(collection, table, last)
            self.write(updates, start, through, closed and through >= last, shards)
            return True
        after = start - 1
        if after >= last:
            if closed:
                self.write(None, start, after, True, shards)
            return closed
        through = whole_times(table.files(), after, last, self.terms.rows_max)
        updates, through = self.changes(collection, after, through)
        is_empty = not any(file.reach[0] <= through and file.reach[1] > after for file in table.files())
        self.write(None if is_empty else updates, start, through, closed and through >= last, shards)
        return True

    def initial(self, collection: Collection, table: OpenTable, last: int) -> tuple[Updates | None, int]:
        """Return the initial contents as updates at the time `published_from`, and the last time included.

        The updates are None if all rows are newer than `published_from`. If `published_from` is `since`, the changes
        after it are included.
        """
        at, files = self.published.published_from, table.files()
        if collection.readable_range(table)[0] == (at,) and last > at:
            return self.changes(collection, None, whole_times(files, at - 1, last, self.terms.rows_max))
        if not any(file.reach[0] <= at for file in files):
            return None, at
        found = snapshot(self.spark, collection, at, self.columns, skip_errors=self.published.skip_errors)
        return Updates(str(table.path), found.contents.withColumn(TIME, F.lit(at).cast("bigint"))), at

    def changes(self, collection: Collection, after: int | None, through: int) -> tuple[Updates, int]:
        """Return the changes after a time, and the last time included: `through`, or the time before a key in error.

        If `after` is None, the initial contents, at `since`, come first.
        """
        skips, first = self.published.skip_errors, self.published.published_from - 1 if after is None else after
        through = max(through, first + 1)
        found = self.distinct(collection, after, through)
        if found is not None:
            return found, through
        try:
            updates = changes(self.spark, collection, after, through, self.columns, skip_errors=skips).updates
        except KeysInError as error:
            if not first < error.as_of - 1 < through:
                raise
            through = error.as_of - 1
            updates = changes(self.spark, collection, after, through, self.columns, skip_errors=skips).updates
        return Updates(str(collection.paths.updates), updates), through

    def distinct(self, collection: Collection, after: int | None, through: int) -> Updates | None:
        """Return the stored rows if they already are the changes, otherwise None; arguments are as for `changes`."""
        table = OpenTable(collection.paths.updates)
        times = readable(collection, table)
        times.range(after, through)
        first = times.since if after is None else after + 1
        return distinct_rows(self.spark, collection, table, first, through, after is None)

    def write(
        self,
        updates: Updates | None,
        lower: int,
        through: int,
        closes: bool,
        shards: Sequence[int],
    ) -> None:
        """Write updates and, once they are durable, the progress that covers them."""
        record, header = self.version.record_schema, confluent_header(self.version.schema_id)
        of, own = self.published.shards, {ID_HEADER: self.published.id}
        partition = 0 if self.terms.shard is None else self.terms.shard
        counts: dict[int, int] = {}
        if updates is not None:
            rows = updates.rows.select(*(f"`{name}`" for name in self.columns), TIME, DIFF)
            chosen = replace(updates, rows=rows)
            written = write_updates(chosen, record, header, shards, of, self.target, own, partition)
            counts = written.counts
            self.report.messages += written.messages
            self.report.updates += sum(counts.values())
        reach("publish.after_updates")
        # The first statement also covers the times before the initial contents, at which there are no updates.
        upper = None if closes else through + 1
        values = statements(record, header, lower, upper, counts)
        self.target.write_few(values, own | {SHARDS_HEADER: shards_text(shards, of)}, partition)
        self.report.statements += len(values)
        self.stated_until = INT64_MAX + 1 if closes else through + 1
        reach("publish.after_progress")
