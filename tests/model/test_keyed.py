"""The keyed form: compaction changes no answer at or after since, whenever it runs."""

from __future__ import annotations

from random import Random

import pytest

from tests.model.histories import random_statements
from tidelake.errors import SinceError, UpperError
from tidelake.model.keyed import KeyedCollection, KeyedStatement, breaches, contents


@pytest.mark.parametrize("seed", range(20))
def test_merges_at_random_moments_change_no_answer_at_or_after_since(seed: int) -> None:
    rng = Random(seed)
    for _ in range(100):
        times = rng.randint(1, 9)
        statements = random_statements(rng, times)
        assert not breaches(statements)
        stored = KeyedCollection()
        shuffled = [*statements, *rng.choices(statements, k=len(statements) // 3)] if statements else []
        rng.shuffle(shuffled)
        while shuffled:
            size = rng.randint(1, 4)
            stored.append(shuffled[:size])
            shuffled = shuffled[size:]
        stored.seal(times)
        for _ in range(rng.randint(1, 5)):
            since = rng.randint(stored.since, times + 1)
            size = rng.randint(0, len(stored.runs))
            stored.merge(rng.sample(range(len(stored.runs)), size), since)
            for as_of in range(min(stored.since, times), times):
                if as_of >= stored.since:
                    assert stored.read(as_of) == contents(statements, as_of), (seed, as_of, statements)
        stored.merge(range(len(stored.runs)), times)
        live = contents(statements, times - 1)
        assert sum(len(run) for run in stored.runs) == len(live)


def test_reads_outside_since_and_upper_are_refused() -> None:
    stored = KeyedCollection()
    stored.append([KeyedStatement("k", "v", 1, 1)])
    stored.seal(5)
    stored.merge([0], since=3)
    with pytest.raises(SinceError):
        stored.read(2)
    with pytest.raises(UpperError):
        stored.read(5)
    assert stored.read(3) == {"k": "v"}


def test_a_delete_hides_an_older_value_in_another_run_until_both_runs_are_merged() -> None:
    stored = KeyedCollection()
    stored.append([KeyedStatement("k", "v", 1, 1)])
    stored.append([KeyedStatement("k", "v", 2, -1)])
    stored.seal(4)
    stored.merge([1], since=3)
    assert stored.read(3) == {}
    stored.merge([0, 1], since=3)
    assert stored.runs == [[]]
