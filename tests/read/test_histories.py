"""Random histories are followed, published, and read by both engines, while they grow and are merged.

A consumer that is killed and resumes receives the updates of every time exactly once, and all of them; the published
table equals the model after every tick, for delta-rs and for DuckDB; changes add up to the model; and DuckDB and Spark
give the same rows and the same errors.
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.lakes.histories import HISTORIES, History, random_history
from tests.lakes.published import check_shows
from tests.query.both_engines import check_all
from tests.read.change_laws import check_laws
from tests.read.followers import Follower, sweep_unpinned
from tests.sweeps import seeds
from tidelake.compact import compaction
from tidelake.errors import KeysInError
from tidelake.read import following, matching, published_files
from tidelake.read.current import Wanted, update_current
from tidelake.read.subscription import Subscription

pytestmark = pytest.mark.spark


def publish(spark: SparkSession, history: History, rng: Random, shown: int, skip_errors: bool) -> int:
    """Publish at the last time, perhaps at an earlier one first; return the time that the table shows, -1 if none."""
    later = [time for time in history.times if time > shown]
    for time in sorted(rng.sample(later[:-1], min(len(later[:-1]), rng.choice((0, 0, 1))))) + later[-1:]:
        wanted = Wanted(through=time, rebuild=rng.random() < 0.1, skip_errors=skip_errors)
        if history.has_errors(time) and not skip_errors:
            with pytest.raises(KeysInError):
                update_current(spark, history.collection, wanted)
            continue
        report = update_current(spark, history.collection, wanted)
        assert (report.unchanged_through or report.as_of) == time
        check_shows(history.collection, history.expected(time), history.text)
        shown = time
    return shown


def check_history(spark: SparkSession, history: History, rng: Random) -> None:
    """Feed a history to its end while following and publishing it, and then compare all ways to read it."""

    def begin(token: int | None) -> Subscription[Any]:
        engine, rows_max = rng.choice((spark, None)), rng.choice((1, 1_000_000))
        return history.followed.subscribe(engine, token, token is None, skip_errors=True, rows_max=rows_max)

    def merge() -> None:
        history.merge(follower.token)
        sweep_unpinned(history.collection.paths)

    follower, shown, skip_errors = Follower(begin, rng, history.text), -1, rng.random() < 0.8
    while history.more:
        history.tick()
        if history.last >= 0:
            follower.take(merge if rng.random() < 0.5 else lambda: None)
            shown = publish(spark, history, rng, shown, skip_errors)
    if history.last < 0:
        return
    follower.take_all()
    assert follower.token == history.last
    follower.check(history.known, history.expected)
    if times := history.times:
        check_laws(spark, history.collection, times, history.expected, rng, history.text, skip_errors=True)
        check_all(spark, history.collection, times, rng, history.few, history.where)


@pytest.mark.parametrize("kind", ["sum"])
def test_a_history_can_be_followed_published_and_read(tmp_path: Path, spark: SparkSession, kind: str) -> None:
    rng = Random(f"{kind}/every day")
    check_history(spark, random_history(tmp_path, spark, kind, rng, 5), rng)


@pytest.mark.sweep
@pytest.mark.parametrize("kind", HISTORIES)
@pytest.mark.parametrize("history", range(30))
@pytest.mark.parametrize("seed", seeds())
def test_histories_can_be_followed_published_and_read(
    tmp_path: Path, interpreted: SparkSession, monkeypatch: pytest.MonkeyPatch, seed: int, history: int, kind: str
) -> None:
    rng = Random(f"{kind}/{seed}/{history}")
    monkeypatch.setattr(compaction, "FAN_IN", rng.choice((2, 2, compaction.FAN_IN)))
    monkeypatch.setattr(following, "CHANGED_ROWS_FOLLOWED", rng.choice((2, 1_000)))
    monkeypatch.setattr(matching, "HELD_ROWS_MAX", rng.choice((0, 1_000)))
    monkeypatch.setattr(published_files, "SMALL_FILES_MAX", rng.choice((2, 4, 16)))
    check_history(interpreted, random_history(tmp_path, interpreted, kind, rng, 9), rng)
