"""The topics of a lake as observable assets: how far they reach, and what is unread.

They are observed by every tick, by a sensor, and by the *Observe* button in the UI. An observation reads only offsets
and logs, so it needs no JVM, and it is cheap enough that one run observes all topics. They have to be observable
assets: only for these does Dagster compare the newest observation with the version that a collection was made from.
With any other kind of asset, it would show every collection as outdated.
"""

import hashlib
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dagster import (
    AssetExecutionContext,
    AssetKey,
    AssetObservation,
    AssetsDefinition,
    AssetSpec,
    BetaWarning,
    DataVersion,
    ObserveResult,
    multi_observable_source_asset,
)

from assets.names import Names
from tidelake.settings.collection import CollectionSettings
from tidelake.settings.lake import Settings

if TYPE_CHECKING:
    from tidelake.errors import TidelakeError, TopicGap
    from tidelake.store.entry import Collection

TOPICS_GROUP = "topics"
_DATA_VERSION_CHARACTERS_MAX = 100
_POSTGRESQL = "postgresql"


@dataclass(frozen=True)
class TopicState:
    """How far a topic reaches, and how much of it a collection has not read."""

    name: str
    ends: Mapping[int, int]
    """The offset that the next message will have, by partition."""
    unread: int = 0
    """Number of offsets that the collection has not read."""
    gaps: Sequence["TopicGap"] = field(default_factory=tuple)
    """The missing offsets that stop the collection's ingest."""

    @property
    def version(self) -> str:
        """The version of the topic's data: the end offsets as text, or a hash of that text if it is long."""
        text = ",".join(f"{partition}:{end}" for partition, end in sorted(self.ends.items()))
        return text if len(text) <= _DATA_VERSION_CHARACTERS_MAX else hashlib.sha256(text.encode()).hexdigest()


def build_topics(names: Names, collections: Iterable[CollectionSettings]) -> list[AssetsDefinition]:
    """Build the assets of all topics, all observed in one step; return an empty list if no topic is read."""
    specs = topic_specs(names, collections)
    if not specs:
        return []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BetaWarning)  # Dagster's version is pinned
        observed_together = multi_observable_source_asset(
            specs=specs,
            name=f"{names.lake}__topics",
            description="Observes each topic: how far it reaches, and how much is unread.",
            can_subset=True,
            required_resource_keys={names.resource},
        )

    def observe(context: AssetExecutionContext) -> Iterator[ObserveResult]:
        from tidelake.errors import TidelakeError

        lake: Settings = getattr(context.resources, names.resource).settings
        selected = set(context.selected_asset_keys)
        readers = tuple(each.name for each in lake.collections if not selected.isdisjoint(names.topics(each)))
        if not readers:
            return
        settings = lake.only(readers)
        found = read_lake_states(settings)
        seen: dict[AssetKey, TopicState] = {}
        for collection in settings.collections:
            states = found[collection.name]
            if isinstance(states, TidelakeError):
                context.log.warning(f"{collection.name}: {states.fact}")
                continue
            for key, state in zip(names.topics(collection), states, strict=True):
                if key not in seen or seen[key].unread < state.unread:  # the collection furthest behind
                    seen[key] = state
        for key in selected:
            if key in seen:
                event = observation(key, seen[key])
                yield ObserveResult(asset_key=key, metadata=event.metadata, data_version=DataVersion(seen[key].version))

    definition: AssetsDefinition = observed_together(observe)
    return [definition]


def topic_specs(names: Names, collections: Iterable[CollectionSettings]) -> list[AssetSpec]:
    """Return an asset for each topic that a collection reads; a topic with several readers is one asset."""
    specs: dict[AssetKey, AssetSpec] = {}
    for settings in collections:
        for topic in settings.topics:
            key = names.topic(settings.source, topic)
            spec = specs.get(key)
            kinds = _kinds(settings)
            specs[key] = AssetSpec(
                key,
                group_name=TOPICS_GROUP,
                description=_description(settings, topic),
                kinds=kinds if spec is None else kinds | spec.kinds,
                metadata={"source": settings.source, "topic": topic},
            )
    return list(specs.values())


def _description(settings: CollectionSettings, topic: str) -> str:
    if settings.kafka is not None:
        return f"The topic `{topic}` in Kafka at `{settings.kafka.bootstrap_servers}`. Tidelake only reads it."
    return f"The message folder `{topic}`. Tidelake only reads it."


def _kinds(settings: CollectionSettings) -> set[str]:
    kinds = {settings.source, getattr(settings, "format", "avro")}
    is_postgresql = settings.mints_times and settings.terms.of_changes and not getattr(settings, "position", ())
    return kinds | {_POSTGRESQL} if is_postgresql else kinds


def read_topic_states(settings: CollectionSettings, stored: "Collection | None") -> list[TopicState]:
    """Return how far the topics of a collection reach, and how much is unread.

    Args:
        settings: the collection's settings.
        stored: the collection; None if it does not exist yet, in which case everything is unread.

    Raises:
        TidelakeError: a topic cannot be read.
    """
    from tidelake.ingest.position import unread
    from tidelake.store.commit import OpenTable
    from tidelake.topic.open import open_topics

    states = []
    for topic in open_topics(settings, stored.entry.decisions if stored else ()):
        ends = topic.end_offsets()
        if stored is None:
            states.append(TopicState(topic.name, ends, sum(ends.values())))
        else:
            count, gaps = unread(topic, OpenTable(stored.paths.updates), stored, ends)
            states.append(TopicState(topic.name, ends, count, gaps))
    return states


def read_lake_states(settings: Settings) -> "dict[str, list[TopicState] | TidelakeError]":
    """Return the states of each collection's topics, whether or not the collection exists yet.

    If they cannot be read, the error takes their place.
    """
    from tidelake.catalog.catalog import Catalog
    from tidelake.errors import TidelakeError
    from tidelake.store.layout import Store

    try:
        stored = Catalog(Store(settings.store)).lookup(collection.name for collection in settings.collections)
    except TidelakeError as error:
        return dict.fromkeys((collection.name for collection in settings.collections), error)
    states: dict[str, list[TopicState] | TidelakeError] = {}
    for collection in settings.collections:
        found = stored[collection.name]
        try:
            states[collection.name] = (
                found if isinstance(found, TidelakeError) else read_topic_states(collection, found)
            )
        except TidelakeError as error:
            states[collection.name] = error
    return states


def observation(key: AssetKey, state: TopicState, lag_s: float | None = None) -> AssetObservation:
    """Return the state of a topic as an event of its asset.

    Args:
        key: the key of the topic.
        state: its state.
        lag_s: how long there have been unread messages, in seconds, if known.
    """
    metadata: dict[str, Any] = {"end_offsets_sum": sum(state.ends.values()), "lag_messages": state.unread}
    if lag_s is not None:
        metadata["lag_s"] = round(lag_s, 1)
    metadata["end_offsets"] = {str(partition): end for partition, end in sorted(state.ends.items())}
    return AssetObservation(key, metadata=metadata, tags={"dagster/data_version": state.version})
