"""The positioned form: compaction at any moment changes no answer at or after since, whatever a source states again."""

from __future__ import annotations

from random import Random

import pytest

from tidelake.errors import SinceError, UpperError
from tidelake.positioned import PositionedCollection, Statement, contents

COLUMNS = 3
KEYS = "wxyz"


def random_source(rng: Random, partitions: int, length: int) -> list[list[Statement]]:
    """By partition what a source states, in its order; the times are those of ticks and still to come.

    A key stays in its partition. Barriers are of both kinds: a truncate, which stands alone, and a snapshot's end,
    which stands below the rows that the snapshot states.
    """
    logs: list[list[Statement]] = [[] for _ in range(partitions)]
    for place in range(1, length + 1):
        choice = rng.random()
        if choice < 0.05:
            logs[0].append(Statement(None, (), (place,), 0, 0))
        elif choice < 0.1:
            for key in rng.sample(KEYS, rng.randint(0, len(KEYS))):
                logs[KEYS.index(key) % partitions].append(_value(rng, key, (place, 0)))
            logs[-1].append(Statement(None, (), (place,), 0, 0))
        else:
            key = rng.choice(KEYS)
            log = logs[KEYS.index(key) % partitions]
            if choice < 0.3:
                log.append(Statement(key, (None,) * COLUMNS, (place, 1), 0, -1))
            elif choice < 0.4:
                log.append(Statement(key, (None,) * COLUMNS, (place, 1), 0, 1, error="not a number"))
            else:
                log.append(_value(rng, key, (place, 1)))
    return logs


def _value(rng: Random, key: str, position: tuple[int, ...]) -> Statement:
    gone = frozenset(place for place in range(COLUMNS) if rng.random() < 0.3)
    values = tuple(None if place in gone else rng.choice("abc") for place in range(COLUMNS))
    return Statement(key, values, position, 0, 1, gone)


class Ticks:
    """Ticks that read random parts of a source's partitions, each in its order, and now and then some of it again."""

    def __init__(self, rng: Random, logs: list[list[Statement]], resent_within: int) -> None:
        self.rng, self.logs, self.resent_within = rng, logs, resent_within
        self.time = 0
        self.next = [0] * len(logs)
        self.first_read: list[list[int]] = [[] for _ in logs]

    @property
    def done(self) -> bool:
        """Everything was read."""
        return all(place == len(log) for place, log in zip(self.next, self.logs, strict=True))

    def tick(self) -> list[Statement]:
        """Read on; at a later time each."""
        self.time += self.rng.randint(1, 3)
        read: list[Statement] = []
        for partition, log in enumerate(self.logs):
            again = [
                place
                for place, time in enumerate(self.first_read[partition][: self.next[partition]])
                if self.time - time <= self.resent_within
            ]
            if again and self.rng.random() < 0.3:
                self.next[partition] = self.rng.choice(again)
            # What is sent again is read to where it was before: the promise is about every single statement.
            end = max(self.next[partition] + self.rng.randint(0, 3), len(self.first_read[partition]))
            end = min(end, len(log))
            read += [one._replace(time=self.time) for one in log[self.next[partition] : end]]
            self.first_read[partition] += [self.time] * (end - len(self.first_read[partition]))
            self.next[partition] = end
        return read


@pytest.mark.parametrize("seed", range(20))
def test_merges_at_random_moments_change_no_answer_at_or_after_since(seed: int) -> None:
    rng = Random(seed)
    for _ in range(100):
        resent_within = rng.choice([0, 4, 40])
        ticks = Ticks(rng, random_source(rng, rng.randint(1, 2), rng.randint(1, 12)), resent_within)
        stored, stated = PositionedCollection(resent_within), []
        while not ticks.done:
            run = ticks.tick()
            stated += run
            stored.tick(run)
            if rng.random() < 0.5:
                chosen = rng.sample(range(len(stored.runs)), rng.randint(0, len(stored.runs)))
                if rng.random() < 0.3:
                    chosen = list(range(len(stored.runs)))
                stored.merge(chosen, rng.randint(stored.since, max(stored.since, stored.upper)))
            for as_of in range(stored.since, stored.upper):
                assert stored.read(as_of) == contents(stated, as_of), (seed, as_of, stated)
        stored.merge(range(len(stored.runs)), stored.upper + resent_within)
        found = contents(stated, stored.upper)
        live = len(found.rows) + len(found.errors)
        deleted = len({one.key for one in stated if one.time > stored.upper - 1 - resent_within})
        assert sum(map(len, stored.runs)) <= live * (1 + COLUMNS) + deleted + 1


def test_an_older_statement_of_a_key_never_wins_in_whatever_tick_it_comes() -> None:
    newer, older = Statement("k", ("new",), (9,), 1), Statement("k", ("old",), (4,), 2)
    assert contents([newer, older], 2).rows == {"k": ("new",)}
    assert contents([newer, older._replace(diff=-1)], 2).rows == {"k": ("new",)}


def test_a_delete_hides_what_may_come_again_until_it_cannot() -> None:
    created = Statement("k", ("v",), (1,), 1)
    stored = PositionedCollection(resent_within=5)
    stored.tick([created])
    stored.tick([Statement("k", (None,), (2,), 2, -1)])
    stored.merge([0, 1], since=3)
    stored.tick([created._replace(time=6)])
    assert stored.read(6).rows == {}
    stored.tick([Statement("other", ("v",), (3,), 20)])
    stored.merge(range(len(stored.runs)), since=20)
    assert [one.key for run in stored.runs for one in run] == ["other"]


def test_a_barrier_erases_what_is_below_it_and_nothing_else() -> None:
    barrier = Statement(None, (), (5,), 3, 0)
    below, beside = Statement("a", (1,), (4, 9), 1), Statement("b", (2,), (5, 0), 1)
    assert contents([below, beside, barrier], 2).rows == {"a": (1,), "b": (2,)}
    assert contents([below, beside, barrier], 3).rows == {"b": (2,)}
    assert contents([beside, barrier, below._replace(time=9)], 9).rows == {"b": (2,)}


def test_an_unavailable_column_keeps_its_value_but_not_across_a_delete_a_barrier_or_an_error() -> None:
    whole = Statement("k", ("big", 1), (1,), 1)
    partial = Statement("k", (None, 2), (9,), 9, 1, frozenset({0}))
    assert contents([whole, partial], 9).rows == {"k": ("big", 2)}
    between = [
        Statement("k", (None, None), (5,), 5, -1),
        Statement(None, (), (5,), 5, 0),
        Statement("k", (None, None), (5,), 5, 1, error="no"),
    ]
    for one in between:
        found = contents([whole, one, partial], 9)
        assert (found.rows, found.unknown) == ({"k": (None, 2)}, {"k": frozenset({0})})


def test_a_good_value_or_a_delete_heals_a_key_in_error() -> None:
    bad = Statement("k", (None,), (2,), 2, 1, error="no")
    assert contents([Statement("k", (1,), (1,), 1), bad], 2) == ({}, {}, {"k": "no"})
    assert contents([bad, Statement("k", (3,), (3,), 3)], 3).rows == {"k": (3,)}
    assert contents([bad, Statement("k", (None,), (3,), 3, -1)], 3) == ({}, {}, {})


def test_reads_outside_of_since_and_upper_are_refused() -> None:
    stored = PositionedCollection()
    stored.tick([Statement("k", ("v",), (1,), 4)])
    stored.merge([0], since=3)
    with pytest.raises(SinceError):
        stored.read(2)
    with pytest.raises(UpperError):
        stored.read(5)
    assert stored.read(4).rows == {"k": ("v",)}
