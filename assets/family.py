"""The assets that all families share: the collection itself, and `current`, its contents as a plain table.

A collection is one asset with two steps: ingest appends, seal proves. Compaction is an operation of the jobs, not an
asset. The assets are not partitioned by ranges of times: bounds are not known in advance, and a sealed range never
reopens.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from dagster import (
    AssetExecutionContext,
    AssetsDefinition,
    AssetSpec,
    DataVersion,
    DependencyDefinition,
    FreshnessPolicy,
    GraphDefinition,
    InputMapping,
    MaterializeResult,
    NodeInvocation,
    OutputMapping,
    asset,
)

import tidelake
from assets.attributes import Attributes
from assets.metadata import Metadata, current_metadata, declared_metadata, published_metadata
from assets.names import Names
from assets.options import RunOptions
from assets.publishing import build_published
from assets.steps import build_ingest, build_seal, lake_of, opened, options_of, step_of, topic_inputs
from tidelake.settings.collection import CollectionSettings

_FRESH_WITHIN_MIN_S = 60


@dataclass(frozen=True)
class Family:
    """The texts that the UI shows for one family."""

    name: str
    statement: str
    """The meaning of a statement in a topic of this family."""
    refusal: str
    """Which statements are refused although they can be decoded."""


def build_assets(names: Names, settings: CollectionSettings, family: Family) -> list[AssetsDefinition]:
    """Build the assets of a collection: what is proven, its contents as a table, and the topic it is published to."""
    published = build_published(names, settings, _shared(settings, family))
    return [_collection(names, settings, family), _current(names, settings, family), *published]


def _shared(settings: CollectionSettings, family: Family) -> Attributes:
    return {
        "group_name": family.name,
        "kinds": {"spark", "deltalake"},
        "tags": {"tidelake/family": family.name},
        "owners": list(settings.owners),
        "code_version": _code_version(settings),
    }


def _code_version(settings: CollectionSettings) -> str:
    """Return the version of the code and of the settings that decide what the tables hold."""
    parts = (
        settings.framing,
        settings.envelope,
        settings.topics,
        settings.value_schema,
        settings.key,
        getattr(settings, "format", None),
        getattr(settings, "before", None),
        getattr(settings, "metadata", None),
    )
    return f"{tidelake.__version__}-{hashlib.sha256(repr(parts).encode()).hexdigest()[:8]}"


_PROVES = (
    "`seal` **proves**: it moves upper past every time that has all of its announced updates, and cancels copies. "
    "Everything before upper is definite: no later commit changes it."
)
_PROVES_NOTHING = (
    "Each tick of `ingest` mints a time, and one commit binds it to the offsets of the tick and moves upper; nothing "
    "is left for `seal` to prove. Everything before upper is definite: no later commit changes it."
)


def _collection(names: Names, settings: CollectionSettings, family: Family) -> AssetsDefinition:
    appends = (
        f"`ingest` **appends**: it reads `{settings.topic}` in bounded ticks, up to its end at the start of the run. "
        f"Each tick commits its rows and its offsets together. {family.statement} {family.refusal}"
    )
    proves = _PROVES_NOTHING if settings.mints_times else _PROVES
    ingest, seal = build_ingest(names, settings, appends), build_seal(names, settings, proves)
    inputs = topic_inputs(settings)
    key = names.collection(settings.name)
    steps = GraphDefinition(
        name=key.to_python_identifier(),
        node_defs=[ingest, seal],
        dependencies={
            NodeInvocation(ingest.name, alias="ingest"): {},
            NodeInvocation(seal.name, alias="seal"): {"ingested": DependencyDefinition("ingest", "ingested")},
        },
        input_mappings=[
            InputMapping(graph_input_name=name, mapped_node_name="ingest", mapped_node_input_name=name)
            for name in inputs
        ],
        output_mappings=[
            OutputMapping(graph_output_name="sealed", mapped_node_name="seal", mapped_node_output_name="sealed")
        ],
    )
    definition = AssetsDefinition.from_graph(
        steps,
        keys_by_input_name=dict(zip(inputs, names.topics(settings), strict=True)),
        keys_by_output_name={"sealed": key},
    )
    stated: Mapping[str, Any] = {
        **_shared(settings, family),
        "description": f"{appends}\n\n{proves}",
        "freshness_policy": _freshness(settings),
        "metadata": {
            "family": family.name,
            "envelope": settings.envelope,
            "topic": settings.topic,
            **declared_metadata(settings),
        },
    }

    def described(spec: AssetSpec) -> AssetSpec:
        return spec.replace_attributes(**stated) if spec.key == key else spec

    return definition.map_asset_specs(described)


def _freshness(settings: CollectionSettings) -> FreshnessPolicy:
    """Return the policy that fails if no seal has succeeded for `stalled_after_s`, or a minute if that is longer."""
    return FreshnessPolicy.time_window(
        fail_window=timedelta(seconds=max(settings.stalled_after_s, _FRESH_WITHIN_MIN_S))
    )


def _current(names: Names, settings: CollectionSettings, family: Family) -> AssetsDefinition:
    @asset(
        key=names.current(settings.name),
        deps=[names.collection(settings.name)],
        pool=names.pool(settings.name),
        required_resource_keys={names.resource, names.options},
        metadata={"family": family.name, "envelope": settings.envelope},
        description=(
            "The contents at upper as a plain Delta table that any engine can read. "
            + _copies_text(settings)
            + "The table does not change if upper has not moved or data below upper is damaged."
        ),
        output_required=False,
        **_shared(settings, family),
    )
    def current(context: AssetExecutionContext) -> Iterator[MaterializeResult[None]]:
        from jobs.current import update_collection

        options = options_of(context.op_execution_context, names)
        if not options.selects(settings.name):
            context.log.info("not selected by the options of this run")
            return
        lake = lake_of(context.op_execution_context, names)
        with step_of(context.op_execution_context, options), opened(lake, settings.name) as collection:
            wanted = lake.wanted_tables(options.rebuild, _publishes(context, names, options))[settings.name]
            published = update_collection(lake.session(), collection, wanted)
            metadata: Metadata = published_metadata(published)
            metadata |= current_metadata(collection, lake.settings_of(settings.name), published.rows)
        if published.as_of is None:
            yield MaterializeResult(metadata=metadata)
        else:
            metadata["as_of"] = published.as_of
            yield MaterializeResult(metadata=metadata, data_version=DataVersion(str(published.as_of)))

    return current


def _copies_text(settings: CollectionSettings) -> str:
    if settings.key:
        skips_errors = settings.current is not None and settings.current.skip_errors
        return f"Each key has one row. {'Keys in error are left out. ' if skips_errors else ''}"
    if settings.bag:
        return "A row appears once for each time that it occurs. "
    return "`_diff` says how many times a row occurs. "


def _publishes(context: AssetExecutionContext, names: Names, options: RunOptions) -> Callable[[str], bool]:
    """Return a function that says whether the run publishes a collection."""
    selected = context.run.asset_selection
    return lambda name: options.selects(name) and (selected is None or names.current(name) in selected)
