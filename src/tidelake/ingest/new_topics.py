"""Checks the topics of new collections before anything is written."""

from __future__ import annotations

from collections.abc import Collection

from tidelake.errors import (
    ConfigurationError,
    FolderMissing,
    StoreUnreadable,
    TidelakeError,
    TopicMissing,
    TopicUnreachable,
)
from tidelake.settings.lake import Settings
from tidelake.topic.open import open_topics


def check_topics_of_new_collections(known: Collection[str], settings: Settings) -> dict[str, TidelakeError]:
    """Refuse a new collection if one of its topics does not exist.

    Args:
        known: the names of the collections that the store has.
        settings: all settings.

    Returns:
        The collections whose brokers or object store do not answer, with the reason. They cannot be created now, but
        the others can.

    Raises:
        ConfigurationError: a topic does not exist, or no client can be created from the settings.

    Cost: three requests for each Kafka topic of a new collection, and one for each topic in an object store.
    """
    unreachable: dict[str, TidelakeError] = {}
    for collection in settings.collections:
        if collection.name in known:
            continue
        key = "topic"
        try:
            for topic in open_topics(collection):
                key = collection.key_of(topic.name)
                topic.check_exists()
        except (TopicMissing, FolderMissing) as error:
            raise ConfigurationError(
                str(settings.file), f"collections.{collection.name}.{key}", error.fact, error.hint
            ) from error
        except (TopicUnreachable, StoreUnreadable) as error:
            unreachable[collection.name] = error
    return unreachable
