"""What all families share: a collection is a group of assets, one for each verb and one for the contents.

`<name>/ingest` appends, `<name>/seal` proves, `<name>/compact` forgets, and `<name>/current` is the contents at upper.
Frontier ranges are no partitions: their bounds are not known in advance, and a sealed range is never opened again.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict

from dagster import (
    AssetCheckResult,
    AssetCheckSeverity,
    AssetCheckSpec,
    AssetExecutionContext,
    AssetKey,
    AssetsDefinition,
    DataVersion,
    Failure,
    Field,
    MaterializeResult,
    asset,
)

from assets.metadata import Metadata, current_metadata, frontier_metadata, listed, status_of, updates_metadata
from jobs.lake import Lake, open_collection
from tidelake.configuration import CollectionSettings
from tidelake.errors import CommitRefused, RegistryUnreachable, RuleBroken, TidelakeError, TopicGap, TopicUnreachable

if TYPE_CHECKING:
    from jobs.ingest import IngestReport
    from tidelake.delta.catalog import Collection
    from tidelake.delta.seal import SealReport

TOPIC_COMPLETE = "topic_complete"
"""The check of `ingest` that fails where offsets are missing, or a file of the topic cannot be read."""


@dataclass(frozen=True)
class Family:
    """What sets one family apart, in words that the UI shows."""

    name: str
    statement: str
    """What one statement of its topics means."""
    refusal: str
    """Which statements go to the quarantine although their bytes fit."""


def pool_of(name: str) -> str:
    """The concurrency pool of one collection: at most one run at a time works on it."""
    return f"collection_{name}"


def build_assets(settings: CollectionSettings, family: Family) -> list[AssetsDefinition]:
    """The four assets of one collection."""
    return [_ingest(settings, family), _seal(settings, family), _compact(settings), _current(settings)]


class _Common(TypedDict):
    """What Dagster is told of every asset of a collection."""

    key: AssetKey
    group_name: str
    pool: str
    kinds: set[str]
    tags: dict[str, str]
    required_resource_keys: set[str]
    metadata: dict[str, str]


def _common(settings: CollectionSettings, verb: str) -> _Common:
    return {
        "key": AssetKey([settings.name, verb]),
        "group_name": settings.name,
        "pool": pool_of(settings.name),
        "kinds": {"spark", "deltalake"},
        "tags": {"tidelake/family": settings.family},
        "required_resource_keys": {"lake"},
        "metadata": {"family": settings.family, "envelope": settings.envelope, "topic": settings.topic},
    }


@contextmanager
def _shown_as_failure() -> Iterator[None]:
    """An error of ours fails its step with its own text, once: a retry would meet the same."""
    try:
        yield
    except TidelakeError as error:
        raise Failure(str(error), metadata={"error": type(error).__name__}, allow_retries=False) from error


def _ingest(settings: CollectionSettings, family: Family) -> AssetsDefinition:
    key = AssetKey([settings.name, "ingest"])

    @asset(
        **_common(settings, "ingest"),
        description=(
            f"**Appends.** Reads the topic `{settings.topic}` in bounded ticks, up to the end that it has when the run "
            f"starts; each tick is one commit of its rows and its offsets. {family.statement} {family.refusal}"
        ),
        check_specs=[
            AssetCheckSpec(
                TOPIC_COMPLETE,
                asset=key,
                description="No offset is missing: what lies before a gap is in, nothing is skipped in silence.",
            )
        ],
    )
    def ingest(context: AssetExecutionContext) -> Iterator[MaterializeResult[None]]:
        from jobs.ingest import IngestReport, drain
        from jobs.job import Report

        lake: Lake = context.resources.lake
        stopped: TopicGap | RuleBroken | TopicUnreachable | RegistryUnreachable | None = None
        report = Report("ingest")
        with _shown_as_failure():
            collection = open_collection(lake, settings.name)
            try:
                drain(lake.session(), collection, lake.settings.collection(settings.name), report)
            except CommitRefused:  # a defect of ours, and no fault of the topic's
                raise
            except (TopicGap, RuleBroken, TopicUnreachable, RegistryUnreachable) as error:
                # What is wrong with a topic is the source's business: it stops this collection's reading, and nothing
                # else. What was committed before it is as good as ever, so seal goes on.
                stopped = error
            ingested = report.results.get(settings.name, IngestReport())
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


def _topic_complete(
    ingested: "IngestReport", stopped: TopicGap | RuleBroken | TopicUnreachable | RegistryUnreachable | None
) -> AssetCheckResult:
    gaps = ingested.gaps or ([stopped] if isinstance(stopped, TopicGap) else [])
    metadata: Metadata = {"gaps": len(gaps), "offsets_missing": sum(gap.to_offset - gap.from_offset for gap in gaps)}
    if gaps:
        metadata["where"] = listed([gap.fact() for gap in gaps])
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
    "**Proves.** Moves upper over every time whose announced updates are all there, and cancels copies. "
    "Everything before upper is definite: no later commit changes it."
)
_PROVES_NOTHING = (
    "There is nothing to prove apart: each tick of ingest mints a time, and one commit binds it to the offsets that it "
    "has read and moves upper. Everything before upper is definite: no later commit changes it."
)


def _seal(settings: CollectionSettings, family: Family) -> AssetsDefinition:
    @asset(
        **_common(settings, "seal"),
        deps=[AssetKey([settings.name, "ingest"])],
        description=_PROVES_NOTHING if settings.framing == "reclock" else _PROVES,
    )
    def seal(context: AssetExecutionContext) -> MaterializeResult[None]:
        from jobs.job import Report
        from jobs.seal import seal_one

        lake: Lake = context.resources.lake
        with _shown_as_failure():
            collection = open_collection(lake, settings.name)
            sealed = seal_one(lake.session(), collection, lake.settings.collection(settings.name), Report("seal"))
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
        metadata["sealed_by"] = "ingest: each of its ticks mints a time, and its binding to offsets is the proof"
    if sealed.decided_times:
        metadata["decided"] = listed([f"time {time}, sealed by decision: {why}" for time, why in sealed.decided_times])
    if sealed.contradictions:
        metadata["contradicted_by"] = listed([f"{one.kind}: {one.fact()}" for one in sealed.contradictions])
    if sealed.waiting_for:
        metadata["waiting_for"] = listed([_waiting(*one) for one in sealed.waiting_for])
    return metadata


def _waiting(time: int, announced: int | None, counted: int) -> str:
    if announced is None:
        return f"time {time}: no progress statement covers it yet; {counted} updates are here"
    return f"time {time}: {announced} updates are announced, {counted} are here"


def _compact(settings: CollectionSettings) -> AssetsDefinition:
    @asset(
        **_common(settings, "compact"),
        deps=[AssetKey([settings.name, "seal"])],
        config_schema={"full": Field(bool, default_value=False, description="Merge all that is sealed into one run.")},
        description=(
            "**Forgets.** Lets since follow the retention rule, then merges runs: within a budget in every tick, "
            "all that is sealed in the nightly job. No read at or after since changes."
        ),
    )
    def compact(context: AssetExecutionContext) -> MaterializeResult[None]:
        from jobs.compact import compact_one
        from tidelake.delta.catalog import Catalog
        from tidelake.delta.layout import Store

        lake: Lake = context.resources.lake
        full: bool = context.op_execution_context.op_config["full"]
        with _shown_as_failure():
            collection = open_collection(lake, settings.name)
            catalog = Catalog(Store(lake.settings.store))
            compacted = compact_one(lake.session(), catalog, collection, lake.settings.collection(settings.name), full)
            status = status_of(lake, collection)
        metadata: Metadata = {
            "full": full,
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
            "The contents at upper as a plain Delta table, for every engine. `_diff` says how often a row is there. "
            "Left as it is where upper has not moved, and wherever something below upper is damaged."
        ),
    )
    def current(context: AssetExecutionContext) -> MaterializeResult[None]:
        from jobs.current import rebuild_one
        from jobs.job import Report

        lake: Lake = context.resources.lake
        with _shown_as_failure():
            collection = open_collection(lake, settings.name)
            rebuilt = rebuild_one(
                lake.session(), collection, lake.settings.collection(settings.name), Report("current")
            )
            metadata: Metadata = {"rows": rebuilt.rows, "rebuilt": rebuilt.rebuilt}
            metadata |= current_metadata(collection, rebuilt.rows)
        if rebuilt.as_of is None:
            return MaterializeResult(metadata=metadata)
        return MaterializeResult(
            metadata=metadata | {"as_of": rebuilt.as_of}, data_version=DataVersion(str(rebuilt.as_of))
        )

    return current


def _upper_of(collection: "Collection") -> int:
    from tidelake.delta.commit import OpenTable
    from tidelake.delta.values import UPPER

    return OpenTable(collection.paths.updates).value(UPPER) or 0


def _offsets_of(collection: "Collection", settings: CollectionSettings) -> dict[str, int]:
    """The next offset of every partition, as the last commit has them; with its topic where there are several."""
    from tidelake.delta.bindings import known_offsets
    from tidelake.delta.commit import OpenTable
    from tidelake.delta.topic import open_topics

    topics = {one.name for one in open_topics(settings, collection.entry.decisions)}

    offsets = known_offsets(OpenTable(collection.paths.updates), topics)
    return {
        f"{topic}:{partition}" if len(topics) > 1 else str(partition): offset
        for (topic, partition), offset in sorted(offsets.items())
    }
