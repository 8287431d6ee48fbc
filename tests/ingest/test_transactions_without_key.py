"""Tables without a primary key, with transactions: rows add up, and copies are recognised by their events."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from tests.lakes.round_trip import publish_lake, published_messages
from tests.lakes.transaction_lake import Pair, TransactionLake, end, event, snapshot_row
from tests.query.both_engines import check_changes, check_diff, check_read
from tidelake import open_lake
from tidelake.catalog.catalog import Catalog
from tidelake.decisions import Count, Discard, check_decision
from tidelake.errors import SnapshotRepeated
from tidelake.protocol.message import Updates
from tidelake.read.changes import changes
from tidelake.read.current import update_current
from tidelake.read.explain import explain
from tidelake.store.decision import Decision
from tidelake.store.layout import Store
from tidelake.store.quarantine import quarantine_reasons, quarantine_rows

pytestmark = pytest.mark.spark


class RowLake(TransactionLake):
    """A table without a key."""

    def rule(self, decision: Decision) -> None:
        """Store a decision."""
        checked = check_decision(self.collection, self.settings.collections[0], decision)
        Catalog(Store(self.settings.store)).decide(self.collection.name, checked)

    def counts(self, as_of: int | None = None) -> dict[Pair, int]:
        """How many times each row occurs."""
        found: dict[Pair, int] = {}
        for row in self.rows(as_of):
            found[row["id"], row["price"]] = found.get((row["id"], row["price"]), 0) + row["_diff"]
        return found


@pytest.fixture
def lake(tmp_path: Path, spark: SparkSession) -> RowLake:
    return RowLake(tmp_path, spark, key=None)


def send_history(lake: RowLake, *more: dict[str, Any]) -> None:
    """A snapshot with two equal rows, and two transactions, of which the first is sent twice."""
    lake.events(snapshot_row((1, 10), 30, "first"), snapshot_row((1, 10), 30), snapshot_row((2, None), 30, "last"))
    first = [event("7", 1, (1, 10), (1, 11), 40), event("7", 2, None, (3, 30), 40), event("7", 3, None, (3, 30), 40)]
    first.append(event("7", 4, (2, None), (2, None), 40))
    lake.events(*first, *first, event("8", 1, (3, 30), None, 50), None, *more)
    lake.marks(end("7", 50, 4), end("8", 60, 1))


@pytest.mark.sweep
def test_rows_add_up_and_only_copies_of_events_are_cancelled(lake: RowLake) -> None:
    send_history(lake)
    sealed = lake.run()
    assert (sealed.upper, sealed.copies_cancelled) == (61, 4)
    assert lake.counts(30) == {(1, 10): 2, (2, None): 1}
    assert lake.counts(50) == {(1, 10): 1, (1, 11): 1, (2, None): 1, (3, 30): 2}
    assert lake.counts(60) == {(1, 10): 1, (1, 11): 1, (2, None): 1, (3, 30): 1}
    updates = changes(lake.spark, lake.collection, 49, 60).updates.collect()
    assert sorted((row["_time"], row["id"], row["_diff"]) for row in updates) == [
        (50, 1, -1),
        (50, 1, 1),
        (50, 3, 2),
        (60, 3, -1),
    ]
    check_engines(lake, range(30, 61))
    # A killed connector repeats one event of each transaction. Both are recognised as late copies, although another
    # event of the first transaction has an equal row.
    first = [event("7", 2, None, (3, 30), 40), event("8", 1, (3, 30), None, 50), event("9", 1, None, (4, 40), 60)]
    lake.events(*first)
    lake.marks(end("9", 70, 1))
    assert lake.run().upper == 71
    validated = lake.validate(full=True)
    assert (validated.mismatches, validated.late.copies, validated.late.contradictions) == ([], 2, 0)
    lake.configure(keep=5)
    lake.compact()
    expected = {(1, 10): 1, (1, 11): 1, (2, None): 1, (3, 30): 1}
    assert lake.counts(70) == expected | {(4, 40): 1} and lake.counts(66) == expected
    assert lake.validate(full=True).mismatches == []
    check_engines(lake, range(66, 71))


def test_other_engines_and_readers_get_each_row_as_often_as_it_occurs(lake: RowLake) -> None:
    send_history(lake)
    lake.run()
    lake.current()
    publish_lake(lake)
    lake.events(event("9", 1, (3, 30), (1, 11), 60), event("9", 2, (2, None), None, 60))
    lake.marks(end("9", 70, 2))
    lake.run()
    assert update_current(lake.spark, lake.collection).how == "followed"
    publish_lake(lake)
    expected = {(1, 10): 1, (1, 11): 2}
    collection = open_lake(lake.file).collection(lake.collection.name)
    published = collection.places().published
    assert published is not None
    table = DeltaTable(str(published.table)).to_pyarrow_table().to_pylist()
    assert {(row["id"], row["price"]): row["_diff"] for row in table} == expected
    with duckdb.connect() as connection:
        connection.execute(collection.view_sql("duckdb"))
        view = connection.table(f'"{collection.name}"').to_arrow_table().to_pylist()
    assert {(row["id"], row["price"]): row["_diff"] for row in view} == expected
    assert collection.rows().rows.count() == 2
    stated = {
        (update.data["id"], update.data["price"], update.time): update.diff
        for message in published_messages(lake)
        if isinstance(message, Updates)
        for update in message.batch
    }
    added: Counter[Pair] = Counter()
    for (id, price, _), diff in stated.items():
        added[id, price] += diff
    assert {pair: diff for pair, diff in added.items() if diff} == expected


def check_engines(lake: RowLake, times: range) -> None:
    """Check that DuckDB returns what Spark reads."""
    for time in (times[0], times[len(times) // 2], times[-1]):
        check_read(lake.spark, lake.collection, time)
    check_diff(lake.spark, lake.collection, times[0], times[-1], columns=["price"])
    check_changes(lake.spark, lake.collection, None, times[-1])


def test_an_event_without_the_row_before_it_is_reported_and_its_transaction_waits(lake: RowLake) -> None:
    without = event("9", 1, None, (1, 12), 60, op="u")
    truncate = event("9", 2, None, None, 60, op="t")
    send_history(lake, without, truncate)
    lake.marks(end("9", 70, 2))
    assert lake.run().upper == 70
    rows = quarantine_rows(lake.collection, ["topic", "partition", "offset", "reason", "detail", "times"])
    assert [(row["offset"], row["reason"]) for row in rows] == [(13, "no_row_before"), (14, "truncate_without_key")]
    assert "set REPLICA IDENTITY FULL" in rows[0]["detail"]
    assert [row["times"] for row in rows] == [[70], [70]]
    facts = explain(lake.collection, 70).facts
    assert any(fact.startswith("a quarantined message is about it: ") and "no_row_before" in fact for fact in facts)
    lake.rule(Count(time=70, count=0, reason="the rows were added again"))
    assert lake.run().upper == 71
    assert quarantine_reasons(lake.collection, explained=False) == {}


def test_another_snapshot_is_refused_and_may_be_left_out(lake: RowLake) -> None:
    send_history(lake)
    lake.run()
    lake.events(snapshot_row((1, 10), 70, "first"), snapshot_row((5, 50), 70, "last"), event("9", 1, None, (4, 40), 70))
    lake.marks(end("9", 80, 1))
    with pytest.raises(SnapshotRepeated, match=r"another snapshot, at 70, of a table without a key: its rows \(2\)"):
        lake.ingest()
    assert lake.seal().upper == 70
    lake.rule(Count(time=70, count=0, reason="the connector lost nothing"))
    assert lake.run().upper == 81
    assert lake.counts() == {(1, 10): 1, (1, 11): 1, (2, None): 1, (3, 30): 1, (4, 40): 1}


@pytest.mark.sweep
def test_one_of_two_contents_of_an_event_is_discarded_and_copies_are_cancelled(lake: RowLake) -> None:
    events = [event("7", 1, None, (1, 10), 40), event("7", 2, None, (2, 20), 40)]
    lake.events(*events, events[0], event("7", 2, None, (2, 21), 40))
    lake.marks(end("7", 50, 2))
    assert "repeated with different contents" in str(lake.run().contradictions[0])
    lake.rule(Discard(time=50, statement={"data": {"id": 2, "price": 20}, "diff": 1}, reason="it was a test"))
    assert lake.run().upper == 51
    assert lake.counts() == {(1, 10): 1, (2, 21): 1}
    assert lake.validate(full=True).mismatches == []
