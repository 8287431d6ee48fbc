"""The positioned form: compaction changes no answer at or after since, even if the source repeats itself."""

from __future__ import annotations

from random import Random

import pytest

from tests.model.sources import COLUMNS, Ticks, random_source
from tidelake.errors import SinceError, UpperError
from tidelake.model.positioned import PositionedCollection, PositionedStatement, contents


@pytest.mark.parametrize("seed", range(20))
def test_merges_at_random_moments_change_no_answer_at_or_after_since(seed: int) -> None:
    rng = Random(seed)
    for _ in range(100):
        resent_within = rng.choice([0, 4, 40])
        ticks = Ticks(rng, random_source(rng, rng.randint(1, 2), rng.randint(1, 12)), resent_within)
        stored, statements = PositionedCollection(resent_within), []
        while not ticks.done:
            run = ticks.tick()
            statements += run
            stored.tick(run)
            if rng.random() < 0.5:
                chosen = rng.sample(range(len(stored.runs)), rng.randint(0, len(stored.runs)))
                if rng.random() < 0.3:
                    chosen = list(range(len(stored.runs)))
                stored.merge(chosen, rng.randint(stored.since, max(stored.since, stored.upper)))
            for as_of in range(stored.since, stored.upper):
                assert stored.read(as_of) == contents(statements, as_of), (seed, as_of, statements)
        stored.merge(range(len(stored.runs)), stored.upper + resent_within)
        last = contents(statements, stored.upper)
        live = len(last.rows) + len(last.errors)
        deleted = len({statement.key for statement in statements if statement.time > stored.upper - 1 - resent_within})
        assert sum(map(len, stored.runs)) <= live * (1 + COLUMNS) + deleted + 1


def test_an_older_statement_of_a_key_never_wins_no_matter_in_which_tick_it_arrives() -> None:
    newer, older = PositionedStatement("k", ("new",), (9,), 1), PositionedStatement("k", ("old",), (4,), 2)
    assert contents([newer, older], 2).rows == {"k": ("new",)}
    assert contents([newer, older._replace(diff=-1)], 2).rows == {"k": ("new",)}


def test_a_delete_hides_a_value_as_long_as_the_value_may_be_sent_again() -> None:
    created = PositionedStatement("k", ("v",), (1,), 1)
    stored = PositionedCollection(resent_within=5)
    stored.tick([created])
    stored.tick([PositionedStatement("k", (None,), (2,), 2, -1)])
    stored.merge([0, 1], since=3)
    stored.tick([created._replace(time=6)])
    assert stored.read(6).rows == {}
    stored.tick([PositionedStatement("other", ("v",), (3,), 20)])
    stored.merge(range(len(stored.runs)), since=20)
    assert [statement.key for run in stored.runs for statement in run] == ["other"]


def test_a_barrier_erases_what_is_below_it_and_nothing_else() -> None:
    barrier = PositionedStatement(None, (), (5,), 3, 0)
    below, above = PositionedStatement("a", (1,), (4, 9), 1), PositionedStatement("b", (2,), (5, 0), 1)
    assert contents([below, above, barrier], 2).rows == {"a": (1,), "b": (2,)}
    assert contents([below, above, barrier], 3).rows == {"b": (2,)}
    assert contents([above, barrier, below._replace(time=9)], 9).rows == {"b": (2,)}


def test_an_unavailable_column_keeps_its_value_but_not_across_a_delete_a_barrier_or_an_error() -> None:
    whole = PositionedStatement("k", ("big", 1), (1,), 1)
    partial = PositionedStatement("k", (None, 2), (9,), 9, 1, frozenset({0}))
    assert contents([whole, partial], 9).rows == {"k": ("big", 2)}
    between = [
        PositionedStatement("k", (None, None), (5,), 5, -1),
        PositionedStatement(None, (), (5,), 5, 0),
        PositionedStatement("k", (None, None), (5,), 5, 1, error="no"),
    ]
    for statement in between:
        last = contents([whole, statement, partial], 9)
        assert (last.rows, last.unknown) == ({"k": (None, 2)}, {"k": frozenset({0})})


def test_a_good_value_or_a_delete_heals_a_key_in_error() -> None:
    bad = PositionedStatement("k", (None,), (2,), 2, 1, error="no")
    assert contents([PositionedStatement("k", (1,), (1,), 1), bad], 2) == ({}, {}, {"k": "no"})
    assert contents([bad, PositionedStatement("k", (3,), (3,), 3)], 3).rows == {"k": (3,)}
    assert contents([bad, PositionedStatement("k", (None,), (3,), 3, -1)], 3) == ({}, {}, {})


def test_reads_outside_since_and_upper_are_refused() -> None:
    stored = PositionedCollection()
    stored.tick([PositionedStatement("k", ("v",), (1,), 4)])
    stored.merge([0], since=3)
    with pytest.raises(SinceError):
        stored.read(2)
    with pytest.raises(UpperError):
        stored.read(5)
    assert stored.read(4).rows == {"k": ("v",)}
