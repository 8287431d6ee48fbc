"""Generated topics of every family, read by the real jobs with random merges, agree with the in-memory model."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession

from tests.lakes.generated import FORMS, Tide
from tests.sweeps import seeds
from tidelake.store.state import CLOSED, UPPER

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("any_store")]

STREAMS_PER_SEED = 3


def check_stream(root: Path, spark: SparkSession, form: str, seed: str, size: tuple[int, int]) -> None:
    """Send a topic in pieces, run the jobs and perhaps a merge after each, and compare every answer."""
    rng = Random(f"{form}/{seed}")
    tide = Tide(root, spark, form, rng, size)
    pieces = rng.randint(2, 3)
    while tide.files:
        tide.arrive(rng.randint(1, 2 * len(tide.files) // pieces + 1))
        tide.lake.run()
        if rng.random() < 0.6:
            tide.lake.compact(full=rng.random() < 0.6)
        if tide.readable:
            tide.check(rng.choice(tide.readable))
    tide.lake.compact(full=rng.random() < 0.5)
    for as_of in tide.readable:
        tide.check(as_of)
    tide.check_refused_before_since()
    truth, table = tide.made.truth, tide.lake.table
    assert (table.value(UPPER), bool(table.value(CLOSED))) == (truth.upper, truth.closed)
    assert len(tide.lake.quarantined()) == truth.quarantined_messages
    assert not tide.lake.validate(full=True).damaged


@pytest.mark.parametrize("form", ["debezium with a key"])
def test_a_generated_stream_ends_up_equal_to_the_model(tmp_path: Path, spark: SparkSession, form: str) -> None:
    check_stream(tmp_path, spark, form, "every day", (14, 4))


@pytest.mark.sweep
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("stream", range(STREAMS_PER_SEED))
@pytest.mark.parametrize("seed", seeds())
def test_generated_streams_end_up_equal_to_the_model(
    tmp_path: Path, interpreted: SparkSession, seed: int, stream: int, form: str
) -> None:
    check_stream(tmp_path, interpreted, form, f"{seed}/{stream}", (36, 6))
