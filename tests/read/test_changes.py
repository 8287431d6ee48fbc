"""`changes` is the consolidated updates of a range of times, in every form; see `change_laws` for the laws."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession

from tests.lakes.generated import FORMS, Tide, text_of
from tests.lakes.positioned_table import NAMES, Table
from tests.model.sources import Ticks, random_source
from tests.read.change_laws import check_laws
from tests.sweeps import seeds
from tidelake.compact import compaction
from tidelake.errors import KeysInError
from tidelake.model.positioned import contents
from tidelake.read.changes import changes

pytestmark = pytest.mark.spark


def check_stream(root: Path, spark: SparkSession, form: str, seed: str, size: tuple[int, int]) -> None:
    """Let a topic arrive in pieces with random merges, and check the laws."""
    rng = Random(f"{form}/{seed}")
    tide = Tide(root, spark, form, rng, size, ("all", 3))
    while tide.files:
        tide.arrive(rng.randint(1, len(tide.files)))
        tide.lake.run()
        if rng.random() < 0.6:
            tide.lake.compact(full=rng.random() < 0.6)
    if tide.readable:
        check_laws(spark, tide.lake.collection, tide.readable, tide.expected, rng, text_of)


@pytest.mark.parametrize("form", FORMS)
def test_changes_of_a_generated_stream_add_up_to_the_model(tmp_path: Path, spark: SparkSession, form: str) -> None:
    check_stream(tmp_path, spark, form, "every day", (24, 5))


@pytest.mark.sweep
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("stream", range(3))
@pytest.mark.parametrize("seed", seeds())
def test_changes_of_generated_streams_add_up_to_the_model(
    tmp_path: Path, interpreted: SparkSession, seed: int, stream: int, form: str
) -> None:
    check_stream(tmp_path, interpreted, form, f"{seed}/{stream}", (36, 6))


def check_source(root: Path, spark: SparkSession, seed: str, length: int) -> None:
    """Read a random source of positioned statements with random merges, and check the laws."""
    rng = Random(seed)
    table, statements, since = Table(root, spark), [], 0
    ticks = Ticks(rng, random_source(rng, 2, length), 40)
    while not ticks.done:
        if not (read := list(dict.fromkeys(ticks.tick()))):
            continue
        statements += read
        table.tick(read)
        if rng.random() < 0.3:
            since = rng.randint(since, (since + ticks.time) // 2)
            table.compact(since, full=rng.random() < 0.6)
    last = max(statement.time for statement in statements)

    def expected(as_of: int) -> dict[str, int]:
        rows = contents(statements, as_of).rows
        return {repr({"id": key, **dict(zip(NAMES, values, strict=True))}): 1 for key, values in rows.items()}

    times = range(since, last + 1)
    check_laws(spark, table.collection, times, expected, rng, repr, skip_errors=True)
    after = rng.choice(times)
    failed = [time for time in range(after, last + 1) if contents(statements, time).errors]
    if failed:
        with pytest.raises(KeysInError) as refused:
            changes(spark, table.collection, after, last)
        assert refused.value.as_of == failed[0]
        assert refused.value.count == len(contents(statements, failed[0]).errors)
    else:
        changes(spark, table.collection, after, last)


@pytest.mark.parametrize("seed", [1, 2])
def test_changes_of_a_random_source_add_up_to_the_model(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(compaction, "FAN_IN", 2)
    check_source(tmp_path, spark, f"every day {seed}", 10)


@pytest.mark.sweep
@pytest.mark.parametrize("source", range(10))
@pytest.mark.parametrize("seed", seeds())
def test_changes_of_random_sources_add_up_to_the_model(
    tmp_path: Path, interpreted: SparkSession, monkeypatch: pytest.MonkeyPatch, seed: int, source: int
) -> None:
    monkeypatch.setattr(compaction, "FAN_IN", 2)
    check_source(tmp_path, interpreted, f"{seed}/{source}", 16)
