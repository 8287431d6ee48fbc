"""The collections that every step works on, opened after the settings were checked against topics and store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidelake.catalog.catalog import Catalog
    from tidelake.errors import TidelakeError
    from tidelake.settings.lake import Settings
    from tidelake.store.entry import Collection

# Dagster imports this module only to list collections. Imports inside functions avoid importing Delta for that.


@dataclass(frozen=True)
class CheckedLake:
    """Settings that fit the topics and the store, and what the check found."""

    settings: Settings
    catalog: Catalog
    known: frozenset[str]
    """The names of the collections that the store has."""
    unreachable: dict[str, TidelakeError]
    """The new collections that cannot be created now, by name, each with the error of its brokers or object store."""

    def open(self, spark: SparkSession, name: str) -> Collection:
        """Open a collection, and create it if it does not exist.

        Args:
            spark: the session, in case the schema has to be read from messages.
            name: the name of the collection.

        Raises:
            ConfigurationError: the settings have no such collection.
            TopicUnreachable, StoreUnreadable: the collection does not exist, and its topic cannot be reached; nothing
                was written.
            WriterFenced: the collection was given to another writer; nothing was written.
        """
        from tidelake.ingest.source_schemas import resolve_spec

        if name in self.unreachable:
            raise self.unreachable[name]
        spec = resolve_spec(spark, self.settings.collection(name), name in self.known)
        # With several collections, the check may have been long ago.
        return self.catalog.open_or_create(spec, just_checked=len(self.settings.collections) == 1)


def check_lake(settings: Settings) -> CheckedLake:
    """Check all settings against the topics and the store.

    Raises:
        CollectionRenamed: a collection was renamed, and the settings lack its new name; nothing was written.
        ConfigurationError: a setting is wrong, the store has a collection of the same name but another family or
            schema, or neither a collection nor its topic exists; nothing was written.
    """
    from tidelake.catalog.catalog import Catalog
    from tidelake.ingest.new_topics import check_topics_of_new_collections
    from tidelake.settings.lake import check_topics
    from tidelake.store.head_start import use_head_start
    from tidelake.store.layout import Store

    check_topics(settings)
    store = Store(settings.store)
    for collection in settings.collections:
        use_head_start(store, collection.name)
    catalog = Catalog(store, settings.writer)
    known = catalog.check((collection.spec() for collection in settings.collections), settings.names)
    return CheckedLake(settings, catalog, known, check_topics_of_new_collections(known, settings))


def open_collection(spark: SparkSession, settings: Settings, name: str) -> Collection:
    """Check the settings of one collection and open it; raises the errors of `check_lake` and `CheckedLake.open`."""
    return check_lake(settings.only((name,))).open(spark, name)
