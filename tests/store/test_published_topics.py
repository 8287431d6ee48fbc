"""A topic of an entry: the first publisher to commit determines it, and the hold follows the greatest frontier."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tidelake.errors import ArgumentRefused, PublishedTopicUnknown, SinceError
from tidelake.store.entry import Capability, Entry, PublishedTopic
from tidelake.store.published_topics import begin, claim, end, find_topic, follow, reshard, topic_of

ENTRY = Entry(
    id="7f",
    name="orders",
    framing="cdcv2",
    envelope="none",
    record_schema={},
    since=(3,),
    capabilities=(Capability(id="own", kind="critical", since=(3,)),),
    created_at_ms=0,
)


def topic(id: str = "a", published_from: int = 5, **more: int) -> PublishedTopic:
    identity = {"source": "files", "topic": "out", "id": id, "identity": "x"}
    return PublishedTopic(published_from=published_from, record_schema={}, **identity, **more)


def since_of(entry: Entry) -> tuple[int, ...]:
    return next(each.since for each in entry.capabilities if each.id == "a")


def test_a_later_publisher_does_not_change_the_topic() -> None:
    entry = begin(ENTRY, topic())
    assert begin(entry, topic("b", 7)) == entry
    assert (find_topic(entry, "files", "out").published_from, since_of(entry)) == (5, (5,))
    assert topic_of(entry, "kafka", "out") is None
    with pytest.raises(SinceError):
        begin(ENTRY, topic(published_from=2))


def test_two_readers_of_a_topic_may_commit_in_any_order() -> None:
    entry = begin(ENTRY, topic())
    reads = ((9, False, {0: 4, 1: 2}), (7, False, {0: 2, 1: 3}))
    ends = [follow(follow(entry, topic(), *first), topic(), *second) for first, second in (reads, reads[::-1])]
    assert ends[0] == ends[1]
    found = find_topic(ends[0], "files", "out")
    assert (found.frontier, found.offsets, since_of(ends[0])) == (9, {0: 4, 1: 3}, (8,))
    assert follow(ends[0], topic(), 4, False, {}) == ends[0]
    assert follow(entry, topic(), 6, False, {}).capabilities[-1].since == (5,), "the initial contents are held"


def test_a_topic_that_nobody_publishes_to_is_unknown() -> None:
    entry = begin(ENTRY, topic())
    assert end(entry, topic()) == ENTRY
    changes: list[Callable[[], Entry]] = [
        lambda: end(ENTRY, topic()),
        lambda: reshard(ENTRY, topic(), 2),
        lambda: follow(ENTRY, topic(), 9, False, {}),
        lambda: claim(ENTRY, topic(), 9),
    ]
    for change in changes:
        with pytest.raises(PublishedTopicUnknown, match="'orders' is not published to 'out'"):
            change()
    assert find_topic(reshard(entry, topic(), 4), "files", "out").shards == 4
    with pytest.raises(ArgumentRefused):
        reshard(entry, topic(), 0)


def test_an_entry_with_a_topic_is_read_as_it_was_written() -> None:
    entry = follow(begin(ENTRY, topic()), topic(), 9, True, {3: 5})
    assert Entry.model_validate_json(entry.model_dump_json()) == entry
    assert "published_topics" not in ENTRY.model_dump_json()
