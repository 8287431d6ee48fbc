"""The positioned form in Delta agrees with the model, in DataFrames, snapshots and compaction."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.lakes.positioned_table import NAMES, Table, frame, random_statements
from tests.model.sources import Ticks, random_source
from tidelake.compact import compaction
from tidelake.errors import KeysInError
from tidelake.forms import key_errors
from tidelake.forms.positioned import Shape, keys_in_error, merged_rows, resolved_rows, unknown_values
from tidelake.model.positioned import Contents, PositionedStatement, contents, merged
from tidelake.read.snapshot import snapshot

pytestmark = pytest.mark.spark

SHAPE = Shape(("id", *NAMES), ("id",))


def statements_of(rows: DataFrame) -> set[PositionedStatement]:
    """Rows as statements."""
    return {
        PositionedStatement(
            row["id"],
            tuple(row[name] for name in NAMES) if row["_diff"] else (),
            tuple(row["_position"]),
            row["_time"],
            row["_diff"],
            frozenset(map(NAMES.index, row["_unavailable"] or ())),
            row["_error"],
        )
        for row in rows.collect()
    }


def contents_of(rows: DataFrame) -> Contents:
    """The contents that these rows resolve to."""
    result = Contents({}, {}, {})
    for statement in statements_of(resolved_rows(rows, SHAPE)):
        if statement.error is not None:
            result.errors[statement.key] = statement.error
            continue
        result.rows[statement.key] = statement.values
        if statement.unavailable:
            result.unknown[statement.key] = statement.unavailable
    return result


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.sweep) for seed in range(2, 8))])
def test_frames_agree_with_the_model(spark: SparkSession, seed: int) -> None:
    rng = Random(seed)
    statements = random_statements(rng)
    rows = frame(spark, statements).localCheckpoint()
    last = max(statement.time for statement in statements)
    through = rng.randint(last // 2, last)
    seen = [statement for statement in statements if statement.time <= through]
    expected = contents(seen, through)
    visible = rows.where(f"_time <= {through}")
    assert contents_of(visible) == expected
    assert {row["id"]: row["_error"] for row in keys_in_error(visible, SHAPE).collect()} == expected.errors
    unknown = {row["id"]: row["_unavailable"] for row in unknown_values(visible, SHAPE).collect()}
    assert unknown == {key: [NAMES[place] for place in sorted(places)] for key, places in expected.unknown.items()}
    for takes_all in (False, True):
        left = statements_of(merged_rows(rows, SHAPE, through, takes_all, 3))
        assert left == set(merged(statements, through, takes_all, 3))


@pytest.mark.sweep
@pytest.mark.parametrize("seed", range(30))
def test_random_histories_in_the_table_agree_with_the_model(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(compaction, "FAN_IN", 2)
    rng = Random(seed)
    table, statements, since = Table(tmp_path, spark), [], 0
    ticks = Ticks(rng, random_source(rng, 2, 14), 40)
    while not ticks.done:
        if not (read := list(dict.fromkeys(ticks.tick()))):
            continue
        statements += read
        table.tick(read)
        if rng.random() < 0.4:
            since = rng.randint(since, ticks.time)
            table.compact(since, full=rng.random() < 0.6)
            assert table.read(since) == contents(statements, since).rows
        # The keys in error can also be listed without a JVM, but only as of the newest time.
        named = [f'{{"id":"{key}"}}: {error}' for key, error in sorted(contents(statements, ticks.time).errors.items())]
        found = key_errors.keys_in_error(table.collection)
        assert (found.count, found.first, len(found.rows)) == (len(named), named, len(named))
    last = max(statement.time for statement in statements)
    for as_of in {since, rng.randint(since, last), last}:
        expected = contents(statements, as_of)
        assert table.read(as_of) == expected.rows, as_of
        if expected.errors:
            with pytest.raises(KeysInError, match="in error"):
                snapshot(spark, table.collection, as_of)


@pytest.mark.sweep
def test_storage_after_compaction_is_bounded_by_live_keys(tmp_path: Path, spark: SparkSession) -> None:
    table = Table(tmp_path, spark)
    for time in range(1, 5):
        table.tick([PositionedStatement(f"k{key}", (str(time), "b", "c"), (time, key), time) for key in range(10)])
    table.tick([PositionedStatement(f"k{key}", (None, None, None), (5, key), 5, -1) for key in range(4)])
    table.tick([PositionedStatement("k9", (None, "new", "c"), (6, 0), 6, 1, frozenset({0}))])
    before = table.read(6)
    table.compact(6, full=True)
    # Six live keys, the row that fills an unavailable column, and four deletes, kept because rows may be sent again.
    assert table.rows == 6 + 1 + 4
    assert table.read(6) == before
    assert before["k9"] == ("4", "new", "c")
    week = 7 * 24 * 3600 * 1000
    table.tick([PositionedStatement("k8", ("x", "y", "z"), (7, 0), week + 6)])
    table.compact(week + 6, full=True)
    assert table.rows == 6 + 1


def test_a_read_fails_because_of_keys_in_error_or_leaves_them_out_on_request(
    tmp_path: Path, spark: SparkSession
) -> None:
    table = Table(tmp_path, spark)
    table.tick([PositionedStatement("a", ("1", "1", "1"), (1,), 1), PositionedStatement("b", ("2", "2", "2"), (2,), 1)])
    table.tick([PositionedStatement("a", (None, None, None), (3,), 2, 1, error="c0 is no string")])
    with pytest.raises(KeysInError, match=r'1 key of \'people\' is in error: \{"id":"a"\}'):
        snapshot(spark, table.collection)
    assert table.read(2) == {"b": ("2", "2", "2")}
    assert set(table.read(1)) == {"a", "b"}
    table.tick([PositionedStatement("a", ("3", "3", "3"), (4,), 3)])
    assert snapshot(spark, table.collection).contents.count() == 2
