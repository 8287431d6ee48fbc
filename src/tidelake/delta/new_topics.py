"""Topics in Kafka that a new collection is to read: asked for before anything of the collection is written."""

from __future__ import annotations

from tidelake.configuration import Settings
from tidelake.delta.catalog import Catalog
from tidelake.delta.topic import open_topics
from tidelake.errors import ConfigurationError, RuleBroken, TopicUnreachable


def ask_for_new_topics(catalog: Catalog, settings: Settings) -> dict[str, TopicUnreachable]:
    """Refuse a collection that is not made yet and has a topic in Kafka that is not there.

    Returns:
        By collection, why its brokers could not be asked: it cannot be made now, which is no reason to stop others.

    Raises:
        ConfigurationError: a topic is not there, or the brokers cannot be asked with these settings.

    Cost: three requests for each topic in Kafka of a collection that is not made yet; none for others.
    """
    known = {one.name for one in catalog.entries()}
    unreachable = {}
    for one in settings.collections:
        if one.kafka is None or one.name in known:
            continue
        try:
            for topic in open_topics(one):
                topic.end_offsets()
        except RuleBroken as error:
            raise ConfigurationError(
                str(settings.file), f"collections.{one.name}.topic", error.problem, error.fix
            ) from error
        except TopicUnreachable as error:
            unreachable[one.name] = error
    return unreachable
