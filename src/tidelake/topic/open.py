"""Opens the topics that a collection reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tidelake.storage import blobs
from tidelake.topic.files import FileTopic
from tidelake.topic.topic import Topic

if TYPE_CHECKING:
    from tidelake.settings.collection import CollectionSettings
    from tidelake.store.decision import Decision


def open_topics(settings: CollectionSettings, decisions: Sequence[Decision] = ()) -> list[Topic]:
    """Return the topics that a collection reads, in the order of its settings.

    No file is read and no broker is contacted until a topic is used.

    Args:
        settings: the collection's settings.
        decisions: the collection's decisions, of which only those about topics matter.
    """
    if settings.kafka is not None:
        from tidelake.topic.cluster import KafkaCluster  # imported late: file topics do not need its library
        from tidelake.topic.kafka import KafkaTopic

        cluster = KafkaCluster(settings.kafka)
        return [KafkaTopic(cluster, name, decisions) for name in settings.topics]
    folder = blobs.root_of(settings.topics_folder)
    return [FileTopic(folder / name) for name in settings.topics]
