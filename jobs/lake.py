"""What every step is given: the settings, the one Spark session, and through both the collections of the store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidelake.configuration import Settings
    from tidelake.delta.catalog import Collection


class Lake(Protocol):
    """Settings that were checked, and a session that starts when it is first asked for."""

    @property
    def settings(self) -> Settings:
        """What `collections.yaml` says."""

    def session(self) -> SparkSession:
        """The one session of this process."""


def open_collection(lake: Lake, name: str) -> Collection:
    """The collection of this name, created where it is not there yet.

    Raises:
        ConfigurationError: the settings have no such collection, or the store has it with another family or schema; or
            it is not there yet, and neither is its topic.
        TopicUnreachable: it is not there yet, and the brokers of its topic cannot be asked; nothing was written.
    """
    from tidelake.delta.catalog import Catalog  # late: whoever only names a collection needs no Delta
    from tidelake.delta.layout import Store
    from tidelake.delta.new_topics import ask_for_new_topics

    catalog, settings = Catalog(Store(lake.settings.store)), lake.settings.collection(name)
    for error in ask_for_new_topics(catalog, lake.settings.only((name,))).values():
        raise error
    if not settings.record_schema:
        from tidelake.delta.message_schemas import with_schema

        settings = with_schema(lake.session(), catalog, settings)
    return catalog.open_or_create(settings)
