"""The names that a lake's definitions have in Dagster; all of them begin with, or contain, the name of the lake."""

from __future__ import annotations

from dataclasses import dataclass

from dagster import AssetKey

from tidelake.settings.collection import CollectionSettings


@dataclass(frozen=True)
class Names:
    """The names of one lake, so that several lakes can share an instance, and even a code location."""

    lake: str

    def collection(self, name: str) -> AssetKey:
        """Return the key of a collection's own asset, which stands for what is proven about its topics."""
        return AssetKey([self.lake, name])

    def current(self, name: str) -> AssetKey:
        """Return the key of the contents at upper, as a plain table."""
        return AssetKey([self.lake, name, "current"])

    def published(self, name: str) -> AssetKey:
        """Return the key of the topic that a collection is published to."""
        return AssetKey([self.lake, name, "published"])

    def topic(self, source: str, topic: str) -> AssetKey:
        """Return the key of a topic. It has four parts, so it never equals the key of a collection or its table."""
        return AssetKey([self.lake, "topics", source, topic])

    def topics(self, settings: CollectionSettings) -> list[AssetKey]:
        """Return the keys of the topics of a collection, in the order of the settings."""
        return [self.topic(settings.source, topic) for topic in settings.topics]

    def step(self, name: str, verb: str) -> str:
        """Return the unique name of a step's definition; the UI shows the verb alone, below the collection."""
        return f"{self.lake}__{name}__{verb}"

    def pool(self, name: str) -> str:
        """Return the concurrency pool of a collection: at most one run at a time works on the collection."""
        return f"{self.lake}/{name}"

    @property
    def resource(self) -> str:
        """The key of the resource that opens collections."""
        return f"lake_{self.lake}"

    @property
    def options(self) -> str:
        """The key of the resource with the options of a run."""
        return f"run_{self.lake}"

    @property
    def handover(self) -> str:
        """The key of the resource that hands the numbers of one step to the next."""
        return f"handover_{self.lake}"
