"""The steps of a collection: ingest, seal and compact. Each is one operation of a run, with its own log and errors."""

import time as clock
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from dagster import (
    DataVersion,
    Failure,
    In,
    MaterializeResult,
    MetadataValue,
    Nothing,
    OpDefinition,
    OpExecutionContext,
    Out,
    Output,
    RetryRequested,
    op,
)

from assets.metadata import Metadata, ingest_metadata, seal_metadata, status_metadata, updates_metadata
from assets.names import Names
from assets.options import RunOptions
from assets.story import events_sent_to
from assets.topics import observation, read_topic_states
from tidelake.errors import (
    ArgumentRefused,
    Conflict,
    Indeterminate,
    RegistryUnreachable,
    SourceError,
    TidelakeError,
    TopicUnreachable,
    hint_for_name,
)
from tidelake.settings.collection import CollectionSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidelake.read.current import Wanted
    from tidelake.settings.lake import Settings
    from tidelake.store.entry import Collection

WORTH_A_RETRY = (TopicUnreachable, RegistryUnreachable, Conflict, Indeterminate)
"""Transient errors: a retry may succeed. All others would recur, so a step that raises them is not retried."""
STOPPED = "ingest_stopped"
"""The metadata key of the reason why the last ingest stopped before the end of its topics."""
Numbers = dict[str, Any]


class Lake(Protocol):
    """The resource of all steps: the settings, the session, and the collections."""

    @property
    def settings(self) -> "Settings":
        """The valid settings in `collections.yaml` when the run began."""

    def session(self) -> "SparkSession":
        """Return the only session of this process."""

    def settings_of(self, name: str) -> CollectionSettings:
        """Return the settings of a collection.

        Raises:
            ConfigurationError: its block is invalid.
        """

    def wanted_tables(self, rebuild: bool, is_published: Callable[[str], bool]) -> "Mapping[str, Wanted]":
        """Return what to publish of each collection, and how; the first call chooses the times for the whole run."""

    def open(self, name: str) -> "Collection":
        """Check the settings of a collection against its topics and the store, and open or create the collection.

        Raises:
            TidelakeError: its block is invalid, or it cannot be opened.
        """


def lake_of(context: OpExecutionContext, names: Names) -> Lake:
    """Return the lake that a step works on."""
    lake: Lake = getattr(context.resources, names.resource)
    return lake


@contextmanager
def opened(lake: Lake, name: str) -> "Iterator[Collection]":
    """Open a collection for a step, and leave a head start for the next process when the step ends.

    Raises:
        TidelakeError: see `Lake.open`.
    """
    from tidelake.store.head_start import leave_head_start

    collection = lake.open(name)
    try:
        yield collection
    finally:
        leave_head_start(collection)


def options_of(context: OpExecutionContext, names: Names) -> RunOptions:
    """Return the options of the run.

    Raises:
        Failure: they name a collection that the lake does not have.
    """
    options: RunOptions = getattr(context.resources, names.options)
    known = lake_of(context, names).settings.names
    unknown = next((name for name in options.collections if name not in known), None)
    if unknown is not None:
        rule = "which is not a collection of this lake"
        raise failure_of(ArgumentRefused("collections", unknown, rule, hint_for_name(unknown, known)))
    return options


@contextmanager
def step_of(context: OpExecutionContext, options: RunOptions) -> Iterator[None]:
    """Send the events of a step to the run's log, and turn Tidelake's errors into a failure or a retry of the step."""
    try:
        with events_sent_to(context.log):
            yield
    except WORTH_A_RETRY as error:
        if context.retry_number >= options.retries:
            raise failure_of(error) from error
        wait_s = options.wait_s(context.retry_number)
        context.log.warning(f"retry in {wait_s:g} s: {error.fact}")
        raise RetryRequested(max_retries=options.retries, seconds_to_wait=wait_s) from error
    except TidelakeError as error:
        raise failure_of(error) from error


def failure_of(error: TidelakeError) -> Failure:
    """Return the failure of a step that is not retried."""
    return Failure(str(error), metadata={"error": MetadataValue.text(type(error).__name__)}, allow_retries=False)


def build_ingest(names: Names, settings: CollectionSettings, description: str) -> OpDefinition:
    """Build the step that reads the topics of a collection up to their ends."""
    inputs = topic_inputs(settings)

    @op(
        name=names.step(settings.name, "ingest"),
        description=description,
        ins={name: In(Nothing) for name in inputs},
        out={"ingested": Out(dict, is_required=False, io_manager_key=names.handover)},
        pool=names.pool(settings.name),
        required_resource_keys={names.resource, names.options},
    )
    def ingest(context: OpExecutionContext) -> Iterator[Output[Numbers]]:
        options = options_of(context, names)
        if not options.selects(settings.name):
            context.log.info("not selected by the options of this run")
            return
        with step_of(context, options):
            numbers = _ingest(context, names, settings.name)
        yield Output(numbers, "ingested")

    return ingest


def topic_inputs(settings: CollectionSettings) -> list[str]:
    """Return the names of the inputs that stand for a collection's topics, in order."""
    return [f"topic_{number}" for number in range(len(settings.topics))]


def _ingest(context: OpExecutionContext, names: Names, name: str) -> Numbers:
    from jobs.ingest import IngestReport, drain

    lake, options = lake_of(context, names), options_of(context, names)
    settings = lake.settings_of(name)
    ingested, stopped = IngestReport(), None
    with opened(lake, name) as collection:
        started = clock.monotonic()
        try:
            waiting = sum(state.unread for state in read_topic_states(settings, collection))
            context.log.info(f"{waiting:,} unread messages in {settings.topic}")
            drain(lake.session(), collection, settings, ingested, _run_ms(context))
        except SourceError as error:
            if isinstance(error, WORTH_A_RETRY) and context.retry_number < options.retries:
                raise
            stopped = error  # a problem with the topic stops only ingest: seal continues with the committed rows
            context.log.error(f"ingest stopped: {error}")
        numbers = ingest_metadata(ingested, clock.monotonic() - started)
        if stopped is not None:
            numbers[STOPPED] = str(stopped)
        numbers["offsets"] = _offsets_of(collection, settings)
        return numbers | _observe(context, names, settings, collection)


def _run_ms(context: OpExecutionContext) -> int | None:
    """Return the run's start in milliseconds since 1970, or None if Dagster has not recorded it.

    It is the time to mint for collections that share a timeline.
    """
    record = context.instance.get_run_record_by_id(context.run_id)
    return None if record is None or record.start_time is None else int(record.start_time * 1000)


def _observe(
    context: OpExecutionContext, names: Names, settings: CollectionSettings, collection: "Collection"
) -> Numbers:
    """Observe the topics after ingest, and return the lag as metadata; empty if a topic cannot be read."""
    try:
        states = read_topic_states(settings, collection)
    except SourceError as error:
        context.log.warning(f"the lag is unknown: {error.fact}")
        return {}
    for key, state in zip(names.topics(settings), states, strict=True):
        context.log_event(observation(key, state, lag_s=None if state.unread else 0.0))
    return {"lag_messages": sum(state.unread for state in states)}


def _offsets_of(collection: "Collection", settings: CollectionSettings) -> dict[str, int]:
    """Return the next offset of each partition as of the last commit. With several topics, each key names its topic."""
    from tidelake.store.bindings import known_offsets
    from tidelake.store.commit import OpenTable
    from tidelake.topic.open import open_topics

    topics = {topic.name for topic in open_topics(settings, collection.entry.decisions)}
    offsets = known_offsets(OpenTable(collection.paths.updates), topics)
    return {
        f"{topic}:{partition}" if len(topics) > 1 else str(partition): offset
        for (topic, partition), offset in sorted(offsets.items())
    }


def build_seal(names: Names, settings: CollectionSettings, description: str) -> OpDefinition:
    """Build the step that proves what ingest has stored; its output is the collection's asset."""

    @op(
        name=names.step(settings.name, "seal"),
        description=description,
        ins={"ingested": In(dict)},
        out={"sealed": Out(Nothing, is_required=False)},
        pool=names.pool(settings.name),
        required_resource_keys={names.resource, names.options},
    )
    def seal(context: OpExecutionContext, ingested: dict[str, Any]) -> Iterator[MaterializeResult[None]]:
        with step_of(context, options_of(context, names)):
            numbers, version = _seal(context, names, settings.name)
        yield MaterializeResult(
            asset_key=names.collection(settings.name), metadata=ingested | numbers, data_version=DataVersion(version)
        )

    return seal


def _seal(context: OpExecutionContext, names: Names, name: str) -> tuple[Metadata, str]:
    """Seal a collection; return the metadata and the version of its data."""
    from jobs.seal import seal_collection
    from tidelake.read.status import read_status

    lake = lake_of(context, names)
    settings = lake.settings_of(name)
    with opened(lake, name) as collection:
        started = clock.monotonic()
        sealed = seal_collection(lake.session(), collection, settings)
        numbers = seal_metadata(sealed, clock.monotonic() - started)
        status = read_status(collection, (), settings.stalled_after_s, counts_waiting=False)
        numbers |= status_metadata(collection, settings, status, sealed.upper)
        numbers |= updates_metadata(collection, settings, sealed.upper)
    return numbers, f"{sealed.upper}, closed" if sealed.closed else str(sealed.upper)


def compact_now(context: OpExecutionContext, names: Names, name: str, full: bool) -> Metadata:
    """Move `since` according to the retention rule, and merge runs; return the numbers of the compaction.

    Raises:
        TidelakeError: merging is not allowed, or another process has committed.
    """
    from jobs.compact import compact_collection
    from tidelake.catalog.catalog import Catalog
    from tidelake.read.status import read_status
    from tidelake.store.layout import Store

    lake = lake_of(context, names)
    settings = lake.settings_of(name)
    with opened(lake, name) as collection:
        started = clock.monotonic()
        catalog = Catalog(Store(lake.settings.store), lake.settings.writer)
        compacted = compact_collection(lake.session(), catalog, collection, settings, full)
        status = read_status(collection, (), settings.stalled_after_s, counts_waiting=False)
    return {
        "merges": compacted.merges,
        "runs": compacted.runs_after,
        "runs_before": compacted.runs_before,
        "statements_read": compacted.rows_before,
        "statements_written": compacted.rows_after,
        "bytes_written": compacted.bytes_written,
        "folders_removed": compacted.folders_removed,
        "bytes_live": status.bytes,
        "stored_statements": status.rows,
        "compact_all_s" if full else "compact_s": round(clock.monotonic() - started, 3),
    }
