"""The names under which a collection stores the offsets of a topic."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tidelake.errors import name_in_kafka
from tidelake.store.commit import OpenTable
from tidelake.store.decision import AcceptTopic, Decision
from tidelake.store.state import next_offsets, read_topics


@dataclass(frozen=True)
class StoredTopic:
    """A name under which a collection stores offsets: each acceptance of a recreated or truncated topic adds one.

    Args:
        name: the name, such as `orders` or `orders#1`.
        topic: the topic's name in the settings.
        starts: by partition, the first offset to read, if it is not 0.
        later: the acceptances that came after this name.
    """

    name: str
    topic: str
    starts: Mapping[int, int] = field(default_factory=dict)
    later: tuple[AcceptTopic, ...] = ()


def retired_topics(table: OpenTable, topics: Iterable[str]) -> dict[str, dict[int, int]]:
    """Return, by name, the next offsets of the topics that were once read but are no longer in the settings.

    A name under which a topic was accepted again, such as `orders#1`, is one of the topic's names.

    Args:
        table: the updates table.
        topics: the topics in the settings, each by its name, or by a name under which it was accepted again.
    """
    known = {name_in_kafka(name) for name in topics}
    retired = [name for name in read_topics(table) if name_in_kafka(name) not in known]
    return {name: next_offsets(table, name) for name in retired}


def stored_topics(asked: str, topics: Sequence[str], decisions: Sequence[Decision]) -> list[StoredTopic]:
    """Return the names under which a collection stores a topic's offsets, oldest first.

    The result is empty if the collection does not read the topic.

    Args:
        asked: the topic's name in the settings, which stands for all its names, or one of these names.
        topics: the topics that the collection reads.
        decisions: the collection's decisions.

    >>> again = AcceptTopic(topic="orders", reason="recreated", starts={0: 5})
    >>> [stored.name for stored in stored_topics("orders", ["orders"], [again])]
    ['orders', 'orders#1']
    >>> [stored.name for stored in stored_topics("orders#1", ["orders"], [again])]
    ['orders#1']
    """
    names: list[StoredTopic] = []
    for topic in topics:
        accepted = [decision for decision in decisions if isinstance(decision, AcceptTopic) and decision.topic == topic]
        for number in range(len(accepted) + 1):
            name, starts = (f"{topic}#{number}", accepted[number - 1].starts) if number else (topic, {})
            names.append(StoredTopic(name, topic, starts, tuple(accepted[number:])))
    return [stored for stored in names if stored.topic == asked] or [stored for stored in names if stored.name == asked]
