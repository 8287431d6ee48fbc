"""The assets that all families share: a collection is a group of four assets.

`<name>/ingest` appends, `<name>/seal` proves, `<name>/compact` forgets, `<name>/current` holds the contents at upper.
The assets are not partitioned by ranges of times: bounds are not known in advance, and a sealed range never reopens.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict

from dagster import (
    AssetCheckResult,
    AssetCheckSeverity,
    AssetCheckSpec,
    AssetKey,
    AssetsDefinition,
    Config,
    DataVersion,
    Failure,
    MaterializeResult,
    ResourceParam,
    asset,
)
from pydantic import Field

from assets.metadata import Metadata, current_metadata, frontier_metadata, listed, status_of, updates_metadata
from jobs.lake import Lake, open_collection
from tidelake.errors import SourceError, TidelakeError, TopicGap
from tidelake.settings.collection import CollectionSettings

if TYPE_CHECKING:
    from jobs.ingest import IngestReport
    from tidelake.seal.report import SealReport
    from tidelake.store.entry import Collection

TOPIC_COMPLETE = "topic_complete"
"""The check of `ingest` that fails if offsets are missing or a file of the topic cannot be read."""


@dataclass(frozen=True)
class Family:
    """The texts that the UI shows for one family."""

    name: str
    statement: str
    """What one statement in its topics means."""
    refusal: str
    """Which statements are refused although they can be decoded."""


def pool_of(name: str) -> str:
    """Return the concurrency pool of a collection: at most one run at a time works on the collection."""
    return f"collection_{name}"


def build_assets(settings: CollectionSettings, family: Family) -> list[AssetsDefinition]:
    """Build the four assets of a collection."""
    return [_ingest(settings, family), _seal(settings, family), _compact(settings), _current(settings)]


class _Common(TypedDict):
    """The arguments of `@asset` that all assets of a collection share."""

    key: AssetKey
    group_name: str
    pool: str
    kinds: set[str]
    tags: dict[str, str]
    metadata: dict[str, str]


def _common(settings: CollectionSettings, verb: str) -> _Common:
    return {
        "key": AssetKey([settings.name, verb]),
        "group_name": settings.name,
        "pool": pool_of(settings.name),
        "kinds": {"spark", "deltalake"},
        "tags": {"tidelake/family": settings.family},
        "metadata": {"family": settings.family, "envelope": settings.envelope, "topic": settings.topic},
    }


@contextmanager
def _shown_as_failure() -> Iterator[None]:
    """Fail the step with the text of Tidelake's own errors. The step is not retried, as the error would recur."""
    try:
        yield
    except TidelakeError as error:
        raise Failure(str(error), metadata={"error": type(error).__name__}, allow_retries=False) from error


def _ingest(settings: CollectionSettings, family: Family) -> AssetsDefinition:
    key = AssetKey([settings.name, "ingest"])

    @asset(
        **_common(settings, "ingest"),
        description=(
            f"**Appends.** Reads the topic `{settings.topic}` in bounded ticks, up to its end at the start of the "
            f"run. Each tick commits its rows and its offsets together. {family.statement} {family.refusal}"
        ),
        check_specs=[
            AssetCheckSpec(
                TOPIC_COMPLETE,
                asset=key,
                description="No offset is missing. If one is, ingest stops before it, and skips nothing.",
            )
        ],
    )
    def ingest(lake: ResourceParam[Lake]) -> Iterator[MaterializeResult[None]]:
        from jobs.ingest import IngestReport, drain

        stopped: SourceError | None = None
        ingested = IngestReport()
        with _shown_as_failure():
            collection = open_collection(lake.session(), lake.settings, settings.name)
            try:
                drain(lake.session(), collection, lake.settings.collection(settings.name), ingested)
            except SourceError as error:
                # A problem with the topic stops only ingest: seal continues with what was committed.
                stopped = error
            status = status_of(lake, collection)
            metadata = _ingest_metadata(ingested) | frontier_metadata(status, _upper_of(collection))
            metadata["quarantine_total"] = status.quarantine
            metadata["offsets"] = _offsets_of(collection, settings)
            metadata |= updates_metadata(collection, status.rows)
        yield MaterializeResult(metadata=metadata, check_results=[_topic_complete(ingested, stopped)])

    return ingest


def _ingest_metadata(ingested: "IngestReport") -> Metadata:
    metadata: Metadata = {
        "ticks": ingested.ticks,
        "messages": ingested.messages,
        "rows": ingested.updates_stored,
        "rows_read": ingested.updates_read,
        "copies_dropped": ingested.copies_dropped,
        "late_rows": ingested.updates_late,
        "quarantined": ingested.quarantined,
        "progress_statements": ingested.progress_statements,
        "null_records": ingested.null_records,
        "bytes": ingested.bytes_stored,
    }
    if ingested.values_in_error:
        metadata["values_in_error"] = ingested.values_in_error
    if ingested.partitions_added:
        metadata["partitions_added"] = listed(ingested.partitions_added)
    if ingested.reasons:
        metadata["quarantine_reasons"] = dict(ingested.reasons)
    return metadata


def _topic_complete(ingested: "IngestReport", stopped: SourceError | None) -> AssetCheckResult:
    gaps = ingested.gaps or ([stopped] if isinstance(stopped, TopicGap) else [])
    metadata: Metadata = {"gaps": len(gaps), "offsets_missing": sum(gap.to_offset - gap.from_offset for gap in gaps)}
    if gaps:
        metadata["where"] = listed([gap.fact for gap in gaps])
    if stopped is not None and not gaps:
        metadata["problem"] = str(stopped)
    return AssetCheckResult(
        passed=stopped is None,
        check_name=TOPIC_COMPLETE,
        severity=AssetCheckSeverity.ERROR,
        description=None if stopped is None else str(stopped),
        metadata=metadata,
    )


_PROVES = (
    "**Proves.** Moves upper past every time that has all of its announced updates, and cancels copies. "
    "Everything before upper is definite: no later commit changes it."
)
_PROVES_NOTHING = (
    "Nothing is left to prove: each tick of ingest mints a time, and one commit binds it to the offsets of the tick "
    "and moves upper. Everything before upper is definite: no later commit changes it."
)


def _seal(settings: CollectionSettings, family: Family) -> AssetsDefinition:
    @asset(
        **_common(settings, "seal"),
        deps=[AssetKey([settings.name, "ingest"])],
        description=_PROVES_NOTHING if settings.mints_times else _PROVES,
    )
    def seal(lake: ResourceParam[Lake]) -> MaterializeResult[None]:
        from jobs.seal import seal_collection

        with _shown_as_failure():
            collection = open_collection(lake.session(), lake.settings, settings.name)
            sealed = seal_collection(lake.session(), collection)
            status = status_of(lake, collection)
            metadata = _seal_metadata(sealed) | frontier_metadata(status, sealed.upper)
            metadata["quarantine_total"] = status.quarantine
            metadata |= updates_metadata(collection, status.rows - status.pending)
        version = f"{sealed.upper}, closed" if sealed.closed else str(sealed.upper)
        return MaterializeResult(metadata=metadata, data_version=DataVersion(version))

    return seal


def _seal_metadata(sealed: "SealReport") -> Metadata:
    metadata: Metadata = {
        "lower": sealed.lower,
        "times_sealed": sealed.times_sealed,
        "copies_cancelled": sealed.copies_cancelled,
        "sealed_by_decision": sealed.decided,
        "contradictions": len(sealed.contradictions),
        "files_opened": sealed.files_opened,
    }
    if sealed.sealed_by_ingest:
        metadata["sealed_by"] = "ingest: each tick mints a time, and its binding to offsets is the proof"
    if sealed.decided_times:
        metadata["decided"] = listed([f"time {time}, sealed by decision: {why}" for time, why in sealed.decided_times])
    if sealed.contradictions:
        metadata["contradicted_by"] = listed([f"{error.kind}: {error.fact}" for error in sealed.contradictions])
    if sealed.waiting_for:
        metadata["waiting_for"] = listed([_waiting_time(*waiting) for waiting in sealed.waiting_for])
    return metadata


def _waiting_time(time: int, announced: int | None, counted: int) -> str:
    if announced is None:
        return f"time {time}: no progress statement covers it yet; {counted} updates have arrived"
    return f"time {time}: {announced} updates are announced, {counted} have arrived"


class CompactConfig(Config):
    """Configuration of the asset `compact`."""

    full: bool = Field(default=False, description="Merge all sealed rows into one run.")


def _compact(settings: CollectionSettings) -> AssetsDefinition:
    @asset(
        **_common(settings, "compact"),
        deps=[AssetKey([settings.name, "seal"])],
        description=(
            "**Forgets.** Moves `since` by the retention rule, then merges runs: within a budget in every tick, "
            "and all sealed rows in the nightly job. Reads at or after `since` give the same results as before."
        ),
    )
    def compact(config: CompactConfig, lake: ResourceParam[Lake]) -> MaterializeResult[None]:
        from jobs.compact import compact_collection
        from tidelake.store.catalog import Catalog
        from tidelake.store.layout import Store

        with _shown_as_failure():
            collection = open_collection(lake.session(), lake.settings, settings.name)
            catalog = Catalog(Store(lake.settings.store))
            compacted = compact_collection(
                lake.session(), catalog, collection, lake.settings.collection(settings.name), config.full
            )
            status = status_of(lake, collection)
        metadata: Metadata = {
            "full": config.full,
            "merges": compacted.merges,
            "runs": compacted.runs_after,
            "runs_before": compacted.runs_before,
            "rows_read": compacted.rows_before,
            "rows_written": compacted.rows_after,
            "bytes_written": compacted.bytes_written,
            "folders_removed": compacted.folders_removed,
            "bytes_live": status.bytes,
            "dagster/row_count": status.rows,
        }
        if status.since is not None:
            metadata["since"] = status.since
        return MaterializeResult(metadata=metadata)

    return compact


def _current(settings: CollectionSettings) -> AssetsDefinition:
    @asset(
        **_common(settings, "current"),
        deps=[AssetKey([settings.name, "seal"])],
        description=(
            "The contents at upper as a plain Delta table, for every engine. "
            + ("Each key has one row. " if settings.key else "`_diff` says how often a row occurs. ")
            + "The table does not change if upper has not moved or data below upper is damaged."
        ),
    )
    def current(lake: ResourceParam[Lake]) -> MaterializeResult[None]:
        from jobs.current import rebuild_collection

        with _shown_as_failure():
            collection = open_collection(lake.session(), lake.settings, settings.name)
            rebuilt = rebuild_collection(lake.session(), collection)
            metadata: Metadata = {
                "rows": rebuilt.rows,
                "contents_rows": rebuilt.contents_rows,
                "rebuilt": rebuilt.rebuilt,
            }
            metadata |= current_metadata(collection, rebuilt.rows)
        if rebuilt.as_of is None:
            return MaterializeResult(metadata=metadata)
        return MaterializeResult(
            metadata=metadata | {"as_of": rebuilt.as_of}, data_version=DataVersion(str(rebuilt.as_of))
        )

    return current


def _upper_of(collection: "Collection") -> int:
    from tidelake.store.commit import OpenTable
    from tidelake.store.state import UPPER

    return OpenTable(collection.paths.updates).value(UPPER) or 0


def _offsets_of(collection: "Collection", settings: CollectionSettings) -> dict[str, int]:
    """Return the next offset of each partition as of the last commit. Among several topics, names include the topic."""
    from tidelake.store.bindings import known_offsets
    from tidelake.store.commit import OpenTable
    from tidelake.topic.open import open_topics

    topics = {topic.name for topic in open_topics(settings, collection.entry.decisions)}
    offsets = known_offsets(OpenTable(collection.paths.updates), topics)
    return {
        f"{topic}:{partition}" if len(topics) > 1 else str(partition): offset
        for (topic, partition), offset in sorted(offsets.items())
    }
