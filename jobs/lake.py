"""The lake that every step works on: its settings, its Spark session, and the collections of its store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidelake.errors import TopicUnreachable
    from tidelake.settings.lake import Settings
    from tidelake.store.entry import Collection

# Dagster imports this file to name collections. Imports inside the functions keep Delta out of that.


class Lake(Protocol):
    """Checked settings, and a session that starts when it is first used."""

    @property
    def settings(self) -> Settings:
        """The settings in `collections.yaml`."""

    def session(self) -> SparkSession:
        """The only session of this process."""


def check_lake(settings: Settings) -> tuple[frozenset[str], dict[str, TopicUnreachable]]:
    """Check all settings against the topics and the store.

    Returns:
        The names of the collections that the store has; and by collection that it does not have yet, why its brokers
        cannot be reached. Such a collection cannot be created now; others can.

    Raises:
        ConfigurationError: a setting is wrong; nothing was written.
    """
    from tidelake.ingest.new_topics import ask_for_new_topics
    from tidelake.settings.lake import check_topics
    from tidelake.store.catalog import Catalog
    from tidelake.store.layout import Store

    check_topics(settings)
    known = Catalog(Store(settings.store)).check(collection.spec() for collection in settings.collections)
    return known, ask_for_new_topics(known, settings)


def open_collection(
    spark: SparkSession, settings: Settings, name: str, known: frozenset[str] | None = None
) -> Collection:
    """Open a collection, and create it if it does not exist.

    Args:
        spark: the session, in case the schema has to be read from messages.
        settings: all settings.
        name: the name of the collection.
        known: the names of the collections that the store has, if `check_lake` has just checked them all.

    Raises:
        ConfigurationError: the settings have no such collection; the store has it with another family or schema; or
            neither it nor its topic exists.
        TopicUnreachable: it does not exist, and the brokers of its topic cannot be reached; nothing was written.
    """
    from tidelake.ingest.new_topics import ask_for_new_topics
    from tidelake.ingest.source_schemas import resolve_spec
    from tidelake.store.catalog import Catalog
    from tidelake.store.layout import Store

    catalog, collection = Catalog(Store(settings.store)), settings.collection(name)
    if known is None:
        known = catalog.check([collection.spec()])
        for error in ask_for_new_topics(known, settings.only((name,))).values():
            raise error
    return catalog.open_or_create(resolve_spec(spark, collection, name in known))
