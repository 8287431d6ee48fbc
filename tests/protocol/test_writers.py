"""Writers, then mangling, then the reader: the published updates are the original history."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tidelake.errors import FrontierRegression, InvalidUsage, SealedTime
from tidelake.protocol.antichain import Antichain
from tidelake.protocol.consolidation import Triple, consolidate
from tidelake.protocol.message import Message, Progress, Updates
from tidelake.protocol.order import Time
from tidelake.protocol.reader import Reader
from tidelake.protocol.writer import ShardGroup, ShardWriter, Writer

QUICK = settings(deadline=None, max_examples=300, suppress_health_check=list(HealthCheck))
END = 12


def random_updates(random: Random, pairs: bool) -> list[Triple]:
    def time() -> Time:
        return (random.randrange(4), random.randrange(3)) if pairs else random.randrange(END)

    return [(random.choice("abcdef"), time(), random.choice((-1, 1, 2))) for _ in range(random.randrange(40))]


def random_uppers(random: Random, pairs: bool) -> list[Antichain]:
    """Frontiers that never move backwards; the last is beyond all updates."""
    last = Antichain.of((4, 3) if pairs else END)
    uppers = [Antichain.of((0, 0) if pairs else 0)]
    for _ in range(random.randrange(5)):
        step = (random.randrange(4), random.randrange(3)) if pairs else random.randrange(END)
        other = Antichain([step, (step[0] + 1, 0), (0, step[1] + 1)] if isinstance(step, tuple) else [step])
        uppers.append(uppers[-1].join(other))
    if pairs:  # no update is at or after (4, 0) or (0, 3)
        last = Antichain([(4, 0), (0, 3)])
    return [*uppers[1:], uppers[-1].join(last)]


def start(pairs: bool) -> Antichain:
    return Antichain.of((0, 0) if pairs else 0)


def write_alone(random: Random, updates: list[Triple], pairs: bool, close: bool) -> list[Message]:
    writer = Writer(start(pairs), updates_per_message_max=random.randint(1, 5))
    writer.add(updates)
    messages = [message for upper in random_uppers(random, pairs) for message in writer.advance(upper)]
    return messages + (writer.close() if close else [])


def write_by_shards(random: Random, updates: list[Triple], pairs: bool, close: bool, shards: int) -> list[Message]:
    group, writers = ShardGroup(start(pairs), shards), [ShardWriter(start(pairs), 3) for _ in range(shards)]
    for update in updates:
        writers[ord(update[0]) % shards].add([update])
    todo = [(shard, [*random_uppers(random, pairs), *([Antichain()] if close else [])]) for shard in range(shards)]
    messages: list[Message] = []
    while todo:
        index = random.randrange(len(todo))
        shard, uppers = todo[index]
        written, counts = writers[shard].advance(uppers[0])
        messages += [*written, *group.report(shard, uppers[0], counts)]
        del uppers[0]
        if not uppers:
            del todo[index]
    return messages


def mangle(random: Random, messages: list[Message]) -> list[Message]:
    messages = messages + [random.choice(messages) for _ in range(len(messages) // 3)]
    random.shuffle(messages)
    return messages


@pytest.mark.parametrize("pairs", [False, True], ids=["integers", "pairs"])
@pytest.mark.parametrize("shards", [1, 2, 3, 4])
def test_a_history_survives_redundant_and_sharded_writers(shards: int, pairs: bool) -> None:
    @QUICK
    @given(st.integers(0, 2**64 - 1))
    def check(seed: int) -> None:
        random = Random(seed)
        updates, close = random_updates(random, pairs), random.random() < 0.5
        messages = write_by_shards(random, updates, pairs, close, shards)
        for _ in range(random.randrange(3)):
            messages += write_alone(random, updates, pairs, close)
        reader = Reader(start(pairs))
        published = []
        for message in mangle(random, messages):
            received = reader.receive(message)
            assert received.errors == []
            published += received.updates
        assert sorted(published) == sorted(consolidate(updates))
        assert reader.frontier.is_empty == close

    check()


def test_batches_are_no_bigger_than_requested_and_contain_each_update_once() -> None:
    writer = Writer(Antichain.of(0), updates_per_message_max=2)
    writer.add([("a", 1, 1), ("b", 1, 1), ("c", 1, 1), ("a", 1, 1), ("d", 1, 1), ("d", 1, -1)])
    *batches, progress = writer.advance(Antichain.of(2))
    assert [len(batch.batch) for batch in batches if isinstance(batch, Updates)] == [2, 1]
    assert progress == Progress([0], [2], [(1, 3)])


def test_a_writer_never_moves_backwards() -> None:
    writer = Writer(Antichain.of(0))
    writer.advance(Antichain.of(5))
    with pytest.raises(FrontierRegression):
        writer.advance(Antichain.of(4))
    with pytest.raises(SealedTime):
        writer.add([("a", 4, 1)])
    assert writer.advance(Antichain.of(5)) == []
    writer.close()
    assert writer.close() == []
    with pytest.raises(FrontierRegression):
        writer.advance(Antichain.of(9))
    with pytest.raises(SealedTime):
        writer.add([("a", 9, 1)])


def test_a_group_states_nothing_before_the_slowest_shard_has_moved() -> None:
    group = ShardGroup(Antichain.of(0), shards=3)
    assert group.report(0, Antichain.of(9), {1: 1, 8: 1}) == []
    assert group.report(1, Antichain(), {1: 1}) == []
    assert group.report(2, Antichain.of(4), {}) == [Progress([0], [4], [(1, 2)])]
    assert group.report(2, Antichain(), {8: 2}) == [Progress([4], [9], [(8, 3)])]
    assert group.report(0, Antichain(), {}) == [Progress([9], [])]
    with pytest.raises(FrontierRegression):
        group.report(0, Antichain.of(3), {})


def test_groups_and_batches_of_size_zero_are_refused() -> None:
    with pytest.raises(InvalidUsage):
        ShardGroup(Antichain.of(0), shards=0)
    with pytest.raises(InvalidUsage):
        Writer(Antichain.of(0), updates_per_message_max=0)
