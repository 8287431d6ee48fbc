"""Tables with transactions: a capture of PostgreSQL and Debezium, and handwritten cases of all that can go wrong."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from jobs import ingest, seal
from tests.captures.bank import BANK, TOTAL
from tests.captures.bank_lake import MARKS as BANK_MARKS
from tests.captures.bank_lake import BankLake, captured, times_of_marks
from tests.lakes.lake import NAME
from tests.lakes.transaction_lake import EVENTS, MARKS, TransactionLake, begin, end, event, snapshot_row
from tests.sweeps import swept
from tidelake import open_lake
from tidelake.catalog import collection_tables
from tidelake.catalog.catalog import Catalog
from tidelake.decisions import Count, Discard, Offsets, Park, check_decision
from tidelake.errors import (
    ConfigurationError,
    DecisionRefused,
    EventBlocked,
    SnapshotBySignal,
    SnapshotTorn,
    SnapshotUnfinished,
    TransactionTopicDivided,
    TransactionWentBack,
)
from tidelake.ingest import ends, transactions
from tidelake.ingest.position import plan_next
from tidelake.read.changes import changes
from tidelake.read.explain import explain
from tidelake.read.status import read_status
from tidelake.store.commit import OpenTable
from tidelake.store.decision import AcceptGap, Decision
from tidelake.store.failpoints import on_reach
from tidelake.store.late_notes import LateNotes
from tidelake.store.layout import TRANSACTIONS_SCHEMA, Store
from tidelake.store.quarantine import quarantine_reasons
from tidelake.store.transactions import STATED, read_transactions
from tidelake.topic.open import open_topics

pytestmark = pytest.mark.spark


@pytest.fixture
def lake(tmp_path: Path, spark: SparkSession) -> TransactionLake:
    return TransactionLake(tmp_path, spark)


def decide(lake: TransactionLake, decision: Decision) -> None:
    checked = check_decision(lake.collection, lake.settings.collections[0], decision)
    Catalog(Store(lake.settings.store)).decide(lake.collection.name, checked)


def sentence(lake: TransactionLake) -> str:
    settings = lake.settings.collections[0]
    topics = open_topics(settings, lake.collection.entry.decisions)
    return read_status(lake.collection, topics, settings=settings).sentence


@contextmanager
def stated_by_ticks(lake: TransactionLake) -> Iterator[list[int | None]]:
    """After each tick, note the time before which everything is stated."""
    stated: list[int | None] = []

    def note(name: str) -> None:
        if name == "ingest.after_commit":
            stated.append(lake.table.value(STATED))

    on_reach(note)
    try:
        yield stated
    finally:
        on_reach(None)


@pytest.mark.parametrize("pieces", swept([1, 4], [1]))
def test_at_every_marker_the_tables_equal_the_database(tmp_path: Path, spark: SparkSession, pieces: int) -> None:
    """The topics arrive in pieces, and some topics long before others."""
    lake, rng, lines = BankLake(tmp_path, spark), Random(5), captured()
    places = [(topic, partition) for topic, partitions in lines.items() for partition in partitions]
    sent = dict.fromkeys(places, 0)
    marks = times_of_marks()
    for piece in range(pieces + 1):
        for topic, partition in places:
            every = lines[topic][partition]
            share = 1.0 if piece == pieces else min(1.0, (piece + rng.random() * 1.5) / pieces)
            until = max(sent[topic, partition], int(len(every) * share))
            lake.send({topic: {partition: every[sent[topic, partition] : until]}})
            sent[topic, partition] = until
        lake.run()
        newest = min(lake.upper(table) for table in BANK) - 1
        rows = {table: lake.rows(table, newest) for table in BANK} if newest > marks[0][0] else {}
        assert sum(row[2] for table in rows.values() for row in table) in (0, TOTAL)
        for time, expected in marks if piece == pieces else marks[:1]:
            if time <= newest:
                assert {table: lake.rows(table, time) for table in BANK} == expected
    newest_end = max(found.time for found in read_transactions(lake.collection("accounts")))
    assert {lake.upper(table) for table in BANK} == {newest_end + 1}
    validated = lake.validate()
    assert [report.mismatches for report in validated.values()] == [[], []]
    assert all(report.late.contradictions == report.late.untold == 0 for report in validated.values())
    lake.compact()
    assert {table: lake.rows(table) for table in BANK} == marks[-1][1] or newest_end > marks[-1][0]


@pytest.mark.sweep
def test_events_that_a_killed_connector_repeats_are_late_copies(tmp_path: Path, spark: SparkSession) -> None:
    lake, lines = BankLake(tmp_path, spark), captured()
    lake.send(lines)
    first = lake.run()
    before = {table: lake.rows(table) for table in BANK}
    assert sum(report.copies_cancelled for report in first.values()) > 0  # the capture itself contains repeated events
    again = {
        topic: {
            partition: [line.replace('{"offset":', f'{{"offset":{len(some)}', 1) for line in some]
            for partition, some in partitions.items()
        }
        for topic, partitions in lines.items()
        if topic != BANK_MARKS
    }
    for partitions in again.values():
        for partition, some in partitions.items():
            partitions[partition] = [
                f'{{"offset":{len(some) + number},{line.partition(",")[2]}' for number, line in enumerate(some)
            ]
    lake.send(again)
    ingested = lake.ingest()
    assert not ingested.errors
    assert all(result.updates_stored == 0 and result.updates_late > 0 for result in ingested.results.values())
    assert {table: lake.rows(table) for table in BANK} == before
    assert all(report.late.contradictions == 0 for report in lake.validate().values())


@pytest.mark.sweep
def test_a_table_is_sealed_at_the_commits_of_other_tables(lake: TransactionLake) -> None:
    lake.events(event("7", 1, None, (1, 10), 40), event("7", 2, None, (2, 20), 40))
    lake.marks({"status": "BEGIN", "id": "7:41"}, end("7", 50, 2), end("8", 60, 0, **{"public.other": 3}))
    assert lake.run().upper == 61
    assert (lake.pairs(49), lake.pairs(50), lake.pairs(60)) == ([], [(1, 10), (2, 20)], [(1, 10), (2, 20)])
    assert (
        explain(lake.collection, 50).facts[1].startswith("transaction 7, committed at 1970-01-01T00:00:01Z: 2 events")
    )
    unchanged = "sealed without updates: no transaction that ended there changed this table"
    assert [explain(lake.collection, time).facts[0] for time in (55, 60)] == [unchanged] * 2


@pytest.mark.sweep
def test_an_end_that_never_arrives_is_reported_and_its_transaction_can_be_parked(lake: TransactionLake) -> None:
    lake.events(event("7", 1, None, (1, 10), 40), event("8", 1, None, (2, 20), 50), event("9", 1, None, (3, 30), 60))
    lake.events(event("9", 2, None, (4, 40), 60), partition=1)
    lake.marks(end("7", 50, 1))
    assert lake.run().upper == 51
    # The END of transaction 8 is lost: the transaction may have committed at any position after 50.
    lake.marks(end("9", 70, 2))
    assert (lake.run().upper, lake.pairs()) == (51, [(1, 10)])
    waiting = "the event is waiting for the END of transaction 8"
    assert f"topic '{EVENTS}', partition 0, offset 1: {waiting}" in sentence(lake)
    with pytest.raises(DecisionRefused, match="is not waiting for the END of transaction 9"):
        decide(lake, Park(transaction="9", reason="lost"))
    decide(lake, Park(transaction="8", reason="lost in a restore"))
    assert (lake.run().upper, lake.pairs()) == (71, [(1, 10), (3, 30), (4, 40)])
    assert lake.quarantined() == [(1, "parked_transaction")]
    assert quarantine_reasons(lake.collection, explained=False) == {}


@pytest.mark.sweep
def test_times_are_sealed_while_a_table_is_behind_its_topic(lake: TransactionLake) -> None:
    """A tick reads two events and two ENDs. The END of transaction 60 is lost, which holds back what follows it."""
    lake.configure(messages_per_tick_max=2)
    commits = range(10, 90, 10)
    lake.events(*(event(str(at), 1, None, (at, 1), at - 10) for at in commits))
    lake.marks(*(end(str(at), at, 1) for at in commits if at != 60))
    with stated_by_ticks(lake) as stated:
        lake.ingest()
    assert stated == [11, 31, 51, 51]
    assert (lake.seal().upper, lake.pairs()) == (51, [(at, 1) for at in (10, 20, 30, 40, 50)])


@pytest.mark.sweep
def test_an_event_without_a_transaction_stops_only_its_partition(lake: TransactionLake) -> None:
    lake.events(event("7", 1, None, (1, 10), 40), event(None, 1, None, (2, 20), 50))
    lake.events(event("7", 2, None, (5, 50), 40), event("9", 1, None, (3, 30), 60), partition=1)
    lake.marks(end("7", 50, 2), end("9", 70, 1))
    with pytest.raises(EventBlocked, match=r"partition 0: the event at offset 1 belongs to no transaction"):
        lake.ingest()
    assert (lake.seal().upper, lake.pairs()) == (51, [(1, 10), (5, 50)])
    decide(lake, AcceptGap(offsets=Offsets(EVENTS, 0, 1, 2), reason="the switch was off"))
    assert (lake.run().upper, lake.pairs()) == (71, [(1, 10), (3, 30), (5, 50)])
    assert lake.quarantined() == [(1, "no_transaction")]


@pytest.mark.parametrize(
    "marks",
    swept([("incremental", "incremental"), ("first", "last_in_data_collection")], [("incremental", "incremental")]),
)
def test_the_rows_of_a_snapshot_by_signal_stop_their_partition_until_a_decision_leaves_them_out(
    lake: TransactionLake, marks: tuple[str, str]
) -> None:
    """The connector reads the rows later than their position says: one is from transaction 8, which commits later."""
    first, last = (
        event(None, 0, None, pair, 0, op="r", source={"snapshot": mark, "lsn": 55, "sequence": '["50","55"]'})
        for mark, pair in zip(marks, ((1, 10), (3, 30)), strict=True)
    )
    lake.events(event("7", 1, None, (1, 10), 40), first, last, event("8", 1, None, (3, 30), 50), first)
    lake.marks(end("7", 50, 1), end("8", 60, 1), end("9", 70, 0, **{"public.other": 1}))
    with pytest.raises(SnapshotBySignal, match="offset 1 is a row of a snapshot that a signal asked for") as raised:
        lake.ingest()
    assert f"--offsets {EVENTS}:0:1-5 " in str(raised.value.hint)
    assert (lake.seal().upper, lake.pairs()) == (51, [(1, 10)])
    assert "offset 1: the event is a row of a snapshot that a signal asked for" in sentence(lake)
    with pytest.raises(DecisionRefused, match="is not within a gap that now stops ingest"):
        decide(lake, AcceptGap(offsets=Offsets(EVENTS, 0, 1, 6), reason="too far"))
    decide(lake, AcceptGap(offsets=Offsets(EVENTS, 0, 1, 5), reason="nothing was missing"))
    assert (lake.run().upper, lake.pairs()) == (71, [(1, 10), (3, 30)])
    assert lake.quarantined() == [(1, "no_transaction"), (2, "no_transaction"), (4, "no_transaction")]
    assert quarantine_reasons(lake.collection, explained=False) == {}


def test_counts_that_are_not_met_name_the_transaction_and_the_missing_events(lake: TransactionLake) -> None:
    """A transformation filters out an event that the END counts."""
    lake.events(event("7", 1, None, (1, 10), 40), event("7", 3, None, (3, 30), 40))
    lake.marks(end("7", 50, 3))
    sealed = lake.run()
    assert (sealed.upper, sealed.waiting_for) == (50, [(50, 3, 2)])
    facts = " ".join(explain(lake.collection).facts)
    assert "of the 3 events of transaction 7 in this table, those with the numbers 2 (data_collection_order)" in facts
    assert "filtered out or rerouted" in facts
    decide(lake, Count(time=50, count=2, reason="the filter is on purpose"))
    assert (lake.run().upper, lake.pairs()) == (51, [(1, 10), (3, 30)])


def test_an_end_that_is_repeated_is_a_copy_and_one_that_contradicts_is_reported(lake: TransactionLake) -> None:
    lake.events(event("7", 1, None, (1, 10), 40))
    lake.marks(end("7", 50, 1), end("7", 50, 1))
    assert lake.run().upper == 51
    lake.marks(end("8", 60, 1), end("7", 50, 2), end("8", 60, 2))
    sealed = lake.run()
    assert [(type(error).__name__, error.time) for error in sealed.contradictions] == [("ConflictingCount", 60)]
    assert LateNotes(lake.collection).first(1)[0].fact.startswith("time 50 is stated to have 2 updates, but was sealed")
    assert sealed.upper == 60


@pytest.mark.parametrize("seals", swept([False, True], [True]), ids=["unsealed", "sealed"])
def test_an_end_that_counts_only_what_was_sent_again_is_no_contradiction(lake: TransactionLake, seals: bool) -> None:
    """The connector was killed after the END, and resumed before the last event, which is of another table."""
    lake.events(event("7", 1, None, (1, 10), 40), event("7", 2, None, (2, 20), 40))
    lake.marks(begin("7", 41), end("7", 50, 2, **{"public.other": 1}))
    if seals:
        assert lake.run().upper == 51
    lake.marks(begin("7", 41), end("7", 50, 0, **{"public.other": 1}))
    sealed = lake.run()
    assert (sealed.upper, sealed.contradictions, LateNotes(lake.collection).first(1)) == (51, [], [])
    lake.marks(end("7", 50, 0, **{"public.other": 1}))  # a connector would write a BEGIN before this END
    lake.run()
    assert LateNotes(lake.collection).first(1)[0].fact.startswith("time 50 is stated to have 0 updates")


@pytest.mark.parametrize(
    ("again", "counted", "contradiction"),
    [
        pytest.param([], 0, "OverCount", marks=pytest.mark.sweep),  # the connector sent both events, but not the END
        ([event("7", 1, None, (2, 20), 40)], 1, "EnvelopeBreach"),  # the second event has the number of the first
    ],
    ids=["before the END", "before the last event"],
)
def test_a_connector_that_resumed_within_a_transaction_is_noticed_and_the_time_waits(
    lake: TransactionLake, again: list[dict[str, Any]], counted: int, contradiction: str
) -> None:
    """After resuming, Debezium numbers events from 1 again, and its END counts only those."""
    lake.events(event("7", 1, None, (1, 10), 40))
    lake.events(*again or [event("7", 2, None, (2, 20), 40)], partition=1)
    lake.marks(begin("7", 41), begin("7", 41), end("7", 50, counted), begin("8", 51), end("8", 60, 0))
    sealed = lake.run()
    assert [(type(error).__name__, error.time) for error in sealed.contradictions] == [(contradiction, 50)]
    assert sealed.upper == 50


@pytest.mark.sweep
@pytest.mark.parametrize("messages_max", [1, 100], ids=["one message a tick", "one tick"])
def test_a_transaction_whose_first_change_was_not_sent_waits_for_a_decision(
    lake: TransactionLake, messages_max: int
) -> None:
    """The connector was restarted after the END at 50, and resumed within the transaction that was open then."""
    lake.configure(messages_per_tick_max=messages_max)
    lake.events(event("7", 1, None, (1, 10), 40), event("8", 1, None, (2, 20), 50), event("9", 1, None, (3, 30), 60))
    lake.marks(begin("7", 41), end("7", 50, 1), begin("8", 45), end("8", 60, 1), begin("9", 61), end("9", 70, 1))
    sealed = lake.run()
    assert [(type(error).__name__, error.time) for error in sealed.contradictions] == [("TransactionCut", 60)]
    assert (sealed.upper, lake.pairs()) == (60, [(1, 10)])
    fact = (
        "transaction 8 at time 60 lacks its first change, at log position 45: the first event that was sent, in topic "
        f"'{EVENTS}', partition 0, offset 1, is at log position 51"
    )
    assert fact in sentence(lake)
    assert f"it is held back: {fact}" in explain(lake.collection).facts
    assert lake.run().upper == 60  # the tick that read the event has noted the cut for later seals
    decide(lake, Count(time=60, count=1, reason="a new snapshot follows"))
    assert (lake.run().upper, lake.pairs()) == (71, [(1, 10), (2, 20), (3, 30)])
    assert lake.validate(full=True).mismatches == []


def test_all_tables_of_a_connector_wait_if_one_of_them_shows_that_a_transaction_is_cut(
    tmp_path: Path, spark: SparkSession
) -> None:
    """The change of the account was not sent. Only the wallet's event, which comes first now, shows that."""
    lake = BankLake(tmp_path, spark)

    def wallet(transaction: str, order: int, before: int) -> dict[str, Any]:
        row = {"id": order, "account": 1, "balance": 10}
        source = {"schema": "public", "table": "wallets"}
        return event(transaction, 1, None, (1, 1), before, source=source) | {"after": row}

    def sent(*values: dict[str, Any]) -> dict[int, list[str]]:
        return {0: [lake.line(place, value) for place, value in enumerate(values)]}

    first = end("7", 50, 0, **{"public.wallets": 1})
    second = end("8", 60, 0, **{"public.wallets": 1})
    marks = sent(begin("7", 41), first, begin("8", 45), second)
    lake.send({BANK_MARKS: marks, "shop.public.wallets": sent(wallet("7", 1, 40), wallet("8", 2, 50))})
    sealed = lake.run()
    assert [report.upper for report in sealed.values()] == [60, 60]
    kinds = [type(error).__name__ for report in sealed.values() for error in report.contradictions]
    assert kinds == ["TransactionCut", "TransactionCut"]
    settings, collection = lake.settings.collections[0], lake.collection("accounts")
    accepted = check_decision(collection, settings, Count(time=60, count=0, reason="the account is corrected"))
    Catalog(Store(lake.settings.store)).decide("accounts", accepted)
    assert [report.upper for report in lake.run().values()] == [61, 60]
    facts = " ".join(explain(lake.collection("accounts"), 60).facts)
    assert "transaction 8 at time 60 lacks its first change, at log position 45: the first event that was sent" in facts


@pytest.mark.sweep
def test_a_cut_transaction_is_noticed_if_its_end_was_read_before_its_events(lake: TransactionLake) -> None:
    lake.events(event("7", 1, None, (1, 10), 40))
    lake.marks(begin("7", 41), end("7", 50, 1), begin("8", 50), end("8", 60, 2))
    assert lake.run().upper == 60
    lake.events(event("8", 1, None, (2, 20), 50), event("8", 2, None, (3, 30), 50))
    assert [type(error).__name__ for error in lake.run().contradictions] == ["TransactionCut"]
    lake.events(event("8", 1, None, (2, 20), 50))
    sealed = lake.run()
    assert ([type(error).__name__ for error in sealed.contradictions], sealed.upper) == (["TransactionCut"], 60)


@pytest.mark.sweep
def test_a_copy_that_is_numbered_from_1_does_not_cut_its_transaction(lake: TransactionLake) -> None:
    """Transaction 8 begins in another table. The connector was killed after sending it all, and resumed within it."""
    whole = event("8", 1, None, (2, 20), 50)
    whole["transaction"]["total_order"] = 2
    lake.events(event("7", 1, None, (1, 10), 40), whole)
    other = {"public.other": 1}
    lake.marks(begin("7", 41), end("7", 50, 1), begin("8", 45), end("8", 60, 1, **other), begin("9", 61))
    lake.marks(end("9", 70, 1, **other))
    lake.events(event("8", 1, None, (2, 20), 50))
    lake.ingest()
    lake.events(event("8", 1, None, (2, 20), 50))  # and once more, in a later tick
    assert (lake.run().upper, lake.pairs()) == (70, [(1, 10), (2, 20)])


@pytest.mark.parametrize("events", swept([1, 0], [1]), ids=["within", "before its END"])
def test_a_begin_that_is_repeated_before_its_end_proves_nothing(lake: TransactionLake, events: int) -> None:
    lake.events(event("7", 1, None, (1, 10), 40), *[event("8", 1, None, (2, 20), 50)] * events)
    lake.marks(begin("7", 41), end("7", 50, 1), begin("8", 45), begin("8", 45), end("8", 60, events))
    assert lake.run().upper == 61


def test_a_transaction_that_overlaps_another_one_is_whole_if_its_first_change_was_sent(lake: TransactionLake) -> None:
    early = {"lsn": 45, "sequence": '["50","45"]'}
    lake.events(event("7", 1, None, (1, 10), 40), event("8", 1, None, (2, 20), 50, source=early))
    lake.events(event("9", 2, None, (3, 30), 60))  # the event of total_order 1 is of another table
    lake.marks(begin("7", 41), end("7", 50, 1), begin("8", 45), end("8", 60, 1), begin("9", 55), end("9", 70, 1))
    assert lake.run().upper == 71


def test_an_overlapping_transaction_without_any_event_is_treated_as_lost(lake: TransactionLake) -> None:
    lake.events(event("7", 1, None, (1, 10), 40))
    lake.marks(begin("7", 41), end("7", 50, 1), begin("8", 51), end("8", 60, 0), begin("9", 55), end("9", 70, 0))
    sealed = lake.run()
    assert (sealed.upper, [type(error).__name__ for error in sealed.contradictions]) == (70, ["TransactionCut"])
    assert f"its END, in topic '{MARKS}', partition 0, offset 5, counts no event" in sentence(lake)
    decide(lake, Count(time=70, count=0, reason="it only locked rows"))
    assert lake.run().upper == 71


@pytest.mark.sweep
def test_if_a_publication_has_further_tables_a_begin_proves_nothing(tmp_path: Path, spark: SparkSession) -> None:
    lake = TransactionLake(tmp_path, spark)
    lake.events(event("7", 1, None, (1, 10), 40), event("8", 1, None, (2, 20), 50))
    lake.marks(begin("7", 41), end("7", 50, 1), begin("8", 45), end("8", 60, 1))
    assert lake.run().upper == 60
    lake.configure(captures_publication=False)
    assert lake.run().upper == 61  # the cut that was noted no longer matters
    lake.events(event("9", 1, None, (3, 30), 60))
    lake.marks(begin("9", 55), end("9", 70, 1))
    assert (lake.run().upper, lake.pairs()) == (71, [(1, 10), (2, 20), (3, 30)])


@pytest.mark.sweep
def test_a_table_of_an_earlier_release_gets_the_position_of_begins(
    lake: TransactionLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For transactions that the earlier release has read, the position of the BEGIN stays unknown."""
    earlier = pa.schema([field for field in TRANSACTIONS_SCHEMA if field.name != "begins_at"])
    for module in (collection_tables, ends):
        monkeypatch.setattr(module, "TRANSACTIONS_SCHEMA", earlier)
    lake.events(event("7", 1, None, (1, 10), 40))
    lake.marks(begin("7", 41), end("7", 50, 1), begin("8", 45), end("8", 60, 1))
    assert lake.run().upper == 60
    monkeypatch.undo()
    path = lake.collection.paths.transactions
    assert OpenTable(path).schema().names == earlier.names
    lake.events(event("8", 1, None, (2, 20), 50), event("9", 1, None, (3, 30), 60))
    lake.marks(begin("9", 55), end("9", 70, 1))
    assert (lake.run().upper, lake.pairs()) == (70, [(1, 10), (2, 20)])
    assert OpenTable(path).schema().names == TRANSACTIONS_SCHEMA.names
    assert [found.begins_at for found in read_transactions(lake.collection)] == [None, None, 55]


@pytest.mark.sweep
def test_an_event_that_is_repeated_with_other_contents_is_a_breach_until_one_is_discarded(
    lake: TransactionLake,
) -> None:
    lake.events(event("7", 1, None, (1, 10), 40), event("8", 1, None, (2, 20), 50), event("8", 2, (1, 10), None, 50))
    lake.events(event("7", 1, None, (1, 10), 40), event("8", 1, None, (2, 21), 50), event("8", 2, (3, 10), None, 50))
    lake.marks(end("7", 50, 1), end("8", 60, 2))
    sealed = lake.run()
    assert (sealed.upper, lake.pairs(), sealed.copies_cancelled) == (60, [(1, 10)], 1)
    assert "2 events were repeated with different contents" in str(sealed.contradictions[0])
    assert '{"data":{"id":2,"price":20},"diff":1}, {"data":{"id":2,"price":21},"diff":1}' in sentence(lake)
    with pytest.raises(
        DecisionRefused, match="an event has two different values, but a count does not say which one is right"
    ):
        decide(lake, Count(time=60, count=2, reason="unclear"))
    decide(lake, Discard(time=60, statement={"data": {"id": 2, "price": 20}, "diff": 1}, reason="it was a test"))
    assert "1 event was repeated with different contents" in str(lake.run().contradictions[0])
    decide(lake, Discard(time=60, statement={"data": {"id": 3, "price": None}, "diff": -1}, reason="it was a test"))
    assert (lake.run().upper, lake.pairs()) == (61, [(2, 21)])
    assert lake.validate(full=True).mismatches == []


def test_a_repeated_event_of_a_sealed_transaction_with_other_contents_is_a_contradiction(
    lake: TransactionLake,
) -> None:
    lake.events(event("7", 1, None, (1, 10), 40), event("7", 2, None, (2, 20), 40))
    lake.marks(end("7", 50, 2))
    lake.run()
    lake.events(event("7", 1, None, (1, 10), 40), event("7", 2, None, (2, 21), 40))
    lake.run()
    assert lake.validate().late.contradictions == 1
    (late,) = LateNotes(lake.collection).first(9)
    assert (late.time, late.data, late.decision) == (50, {"id": 2, "price": 21}, None)
    decide(lake, Discard(time=50, statement={"data": {"id": 2, "price": 21}, "diff": 1}, reason="it was a test"))
    assert LateNotes(lake.collection).first(9)[0].decision == "it was a test"
    assert (lake.run().upper, lake.pairs()) == (51, [(1, 10), (2, 20)])


@pytest.mark.sweep
def test_positions_that_go_back_are_an_error_and_the_events_before_them_stay(lake: TransactionLake) -> None:
    lake.events(event("7", 1, None, (1, 10), 40))
    lake.marks(end("7", 50, 1), end("2", 30, 0, **{"public.other": 1}), end("8", 60, 0))
    with pytest.raises(TransactionWentBack, match=r"offset 1: transaction 2 ends at 30, which is before 50"):
        lake.ingest()
    assert (lake.seal().upper, lake.pairs()) == (51, [(1, 10)])


def test_status_names_positions_that_went_back_and_no_other_transaction_can_be_parked(lake: TransactionLake) -> None:
    lake.events(event("7", 1, None, (1, 10), 40), event("8", 1, None, (2, 20), 50))
    lake.marks(end("7", 50, 1), end("2", 30, 0, **{"public.other": 1}), end("8", 60, 1))
    with pytest.raises(TransactionWentBack):
        lake.ingest()
    settings = lake.settings.collections[0]
    status = read_status(lake.collection, open_topics(settings), settings=settings)
    assert [gap.partition(": ")[2].partition(",")[0] for gap in status.topic_gaps] == ["transaction 2 ends at 30"]
    assert status.state == "log positions went back"
    with pytest.raises(DecisionRefused, match=r"END of transaction 8 may still arrive: .* transaction 2 ends at 30"):
        decide(lake, Park(transaction="8", reason="it waits"))
    decide(lake, Park(transaction="2", reason="its END came late"))
    assert (lake.run().upper, lake.pairs()) == (61, [(1, 10), (2, 20)])
    assert read_status(lake.collection, open_topics(settings), settings=settings).topic_gaps == []


@pytest.mark.sweep
def test_an_end_that_comes_after_its_transaction_was_parked_does_not_stop_ingest(lake: TransactionLake) -> None:
    lake.events(event("7", 1, None, (1, 10), 40), event("8", 1, None, (2, 20), 50))
    lake.marks(end("8", 60, 1))
    lake.ingest()
    decide(lake, Park(transaction="7", reason="lost"))
    assert (lake.run().upper, lake.pairs()) == (61, [(2, 20)])
    lake.events(event("7", 1, None, (1, 10), 40), event("9", 1, None, (3, 30), 60))
    lake.marks(end("7", 50, 1), end("9", 70, 1))
    assert (lake.run().upper, lake.pairs()) == (71, [(2, 20), (3, 30)])
    assert lake.quarantined() == [(0, "parked_transaction"), (2, "parked_transaction")]


@pytest.mark.sweep
def test_a_contradicting_end_is_named_by_its_offset(lake: TransactionLake) -> None:
    lake.events(event("7", 1, None, (1, 10), 40))
    lake.marks(end("7", 50, 1))
    assert lake.run().upper == 51
    lake.marks(end("7", 50, 2), end("8", 60, 0))
    lake.run()
    (note,) = LateNotes(lake.collection).first(9)
    assert (note.time, note.topic, note.offset) == (50, MARKS, 1)


def test_a_topic_of_transactions_with_two_partitions_is_refused(lake: TransactionLake) -> None:
    lake.marks(end("8", 60, 0), partition=1)  # the first partition is empty
    with pytest.raises(TransactionTopicDivided, match="has 2 partitions"):
        lake.ingest()
    lake.marks(end("7", 50, 0))
    with pytest.raises(TransactionTopicDivided, match="has 2 partitions"):
        lake.ingest()
    assert f"topic cannot be read: topic '{MARKS}' has 2 partitions" in sentence(lake)


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ({"connector": "mysql"}, "written by the connector 'mysql'"),
        ({"table": "b"}, r"events of the table 'public\.b'"),
    ],
)
def test_events_of_another_connector_or_table_are_refused(
    lake: TransactionLake, source: dict[str, str], why: str
) -> None:
    lake.events(event("7", 1, None, (1, 10), 40, source=source))
    lake.marks(end("7", 50, 1))
    with pytest.raises(ConfigurationError, match=why):
        lake.ingest()


def test_a_message_that_is_not_a_transaction_is_quarantined_and_the_rest_continues(lake: TransactionLake) -> None:
    lake.events(event("7", 1, None, (1, 10), 40))
    lake.marks({"status": "ROLLBACK", "id": "3:4"}, end("7", 50, 1))
    assert (lake.run().upper, lake.pairs()) == (51, [(1, 10)])
    assert lake.quarantined() == [(0, "malformed_transaction")]


@pytest.mark.sweep
def test_a_snapshot_is_asserted_complete_at_its_last_row_and_a_repeated_one_becomes_the_difference(
    lake: TransactionLake,
) -> None:
    lake.events(snapshot_row((1, 10), 30, "first"), snapshot_row((2, 20), 30))
    assert lake.run().upper == 0  # the snapshot's last row may be in the other partition
    lake.events(snapshot_row((3, 30), 30, "last_in_data_collection"), partition=1)
    assert (lake.run().upper, lake.pairs()) == (31, [(1, 10), (2, 20), (3, 30)])
    assert "the snapshot at 30 is asserted to be complete, not proven" in sentence(lake)
    assert any("asserted to be complete, not proven" in fact for fact in explain(lake.collection, 30).facts)
    lake.events(event("7", 1, (1, 10), (1, 11), 40))
    lake.marks(end("7", 50, 1))
    assert (lake.run().upper, lake.pairs()) == (51, [(1, 11), (2, 20), (3, 30)])
    # The connector has lost its offsets, and takes another snapshot, which a commit ends. Row 2 has been deleted.
    lake.events(snapshot_row((1, 11), 60), snapshot_row((3, 31), 60))
    assert lake.run().upper == 51
    lake.marks(end("9", 70, 0, **{"public.other": 1}))
    assert lake.run().upper == 71
    assert (lake.pairs(59), lake.pairs(60)) == ([(1, 11), (2, 20), (3, 30)], [(1, 11), (3, 31)])
    updates = changes(lake.spark, lake.collection, 59, 60).updates.collect()
    assert sorted((row["id"], row["price"], row["_diff"]) for row in updates) == [(2, 20, -1), (3, 30, -1), (3, 31, 1)]
    assert [report.mismatches for report in [lake.validate(full=True)]] == [[]]
    assert [found.kind for found in read_transactions(lake.collection)] == ["snapshot", "end", "snapshot", "end"]


def test_a_snapshot_whose_rows_come_while_a_tick_is_planned_is_complete_when_it_is_sealed(
    lake: TransactionLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The snapshot's last row is in another partition, and ingest reads it while other rows are still unread."""
    lake.configure(messages_per_tick_max=2)
    lake.events(snapshot_row((1, 10), 30, "first"))
    rest = [(id, 10 * id) for id in range(2, 6)]

    def plan(*args: Any) -> Any:
        if not stated:
            lake.events(*(snapshot_row(pair, 30) for pair in rest))
            lake.events(snapshot_row((9, 90), 30, "last"), partition=1)
        return plan_next(*args)

    monkeypatch.setattr(transactions, "plan_next", plan)
    with stated_by_ticks(lake) as stated:
        lake.ingest()
        assert stated == [0]
        lake.ingest()
    assert stated == [0, 0, 31]
    assert (lake.seal().upper, lake.pairs()) == (31, [(1, 10), *rest, (9, 90)])


@pytest.mark.parametrize("repeats", swept([False, True], [False]))
def test_a_snapshot_that_was_abandoned_is_never_shown(lake: TransactionLake, repeats: bool) -> None:
    """The connector is killed during its first snapshot and, if `repeats`, also during a repeated one."""
    lake.events(snapshot_row((1, 10), 30, "first"), snapshot_row((9, 90), 30))
    assert lake.run().upper == 0
    lake.events(snapshot_row((1, 10), 35, "first"), snapshot_row((2, 20), 35, "last"))
    assert lake.run().upper == 36
    assert (lake.pairs(30), lake.pairs(34), lake.pairs(35)) == ([], [], [(1, 10), (2, 20)])
    if not repeats:
        return
    lake.events(event("7", 1, (1, 10), (1, 11), 40))
    lake.marks(end("7", 50, 1))
    assert lake.run().upper == 51
    lake.events(snapshot_row((1, 12), 60, "first"), snapshot_row((8, 80), 60))
    assert lake.run().upper == 51
    lake.events(snapshot_row((1, 13), 70, "first"), snapshot_row((2, 20), 70, "last_in_data_collection"))
    lake.events(snapshot_row((7, 70), 60), partition=1)  # this partition was read late
    assert lake.run().upper == 71
    before = [(1, 11), (2, 20)]
    assert [lake.pairs(time) for time in (50, 60, 69, 70)] == [before, before, before, [(1, 13), (2, 20)]]
    assert [found.time for found in read_transactions(lake.collection)] == [35, 50, 70]
    assert [report.mismatches for report in [lake.validate(full=True)]] == [[]]
    lake.compact()
    assert lake.pairs() == [(1, 13), (2, 20)]


@pytest.mark.sweep
def test_a_snapshot_that_was_accepted_and_sealed_meanwhile_stays_in_the_table(lake: TransactionLake) -> None:
    """A tick finds that the snapshot was abandoned.

    Before the tick commits, a decision accepts the snapshot, and a seal follows.
    """
    lake.events(snapshot_row((1, 10), 30, "first"), snapshot_row((9, 90), 30))
    assert lake.run().upper == 0
    lake.events(snapshot_row((1, 10), 35, "first"), snapshot_row((2, 20), 35, "last"))

    def accept(name: str) -> None:
        if name == "ingest.after_late":
            on_reach(None)
            lake.decide(time=30, count=2)
            assert lake.seal().upper == 35

    on_reach(accept)
    try:
        lake.ingest()
    finally:
        on_reach(None)
    shown = [(1, 10), (9, 90)]
    assert lake.pairs(30) == shown
    assert (lake.run().upper, lake.pairs(30), lake.pairs(35)) == (36, shown, [(1, 10), (2, 20)])


def test_a_snapshot_without_its_last_row_is_ended_by_a_decision_but_not_by_a_commit(lake: TransactionLake) -> None:
    """The connector was killed during the snapshot; when it took another one, the table was empty."""
    lake.events(snapshot_row((1, 10), 30, "first"), snapshot_row((9, 90), 30), snapshot_row((8, 80), 30))
    lake.marks(end("7", 50, 0, **{"public.other": 1}))
    with pytest.raises(SnapshotUnfinished, match=r"the snapshot at 30 has no last row \(rows read: 3\)"):
        lake.ingest()
    assert lake.seal().upper == 30
    decide(lake, Count(time=30, count=0, reason="the table was emptied"))
    assert (lake.run().upper, lake.pairs(30), lake.pairs()) == (51, [], [])
    lake.events(event("8", 1, None, (5, 50), 50))
    lake.marks(end("8", 60, 1))
    assert (lake.run().upper, lake.pairs()) == (61, [(5, 50)])


def test_tables_are_not_read_together_at_a_snapshot_that_one_of_them_does_not_have(lake: TransactionLake) -> None:
    """The connector was killed after it had taken a snapshot of the first table. Its next snapshot has both tables."""
    block = lake.document["collections"][NAME]
    lake.document["collections"]["others"] = block | {"topic": "shop.public.others"}
    (lake.root / "topics" / "shop.public.others").mkdir()
    lake.settings = lake.written()
    other = snapshot_row((5, 50), 45, "last")
    other["source"]["table"] = "others"
    lake.events(snapshot_row((1, 10), 30, "last_in_data_collection"), snapshot_row((1, 11), 45, "last"))
    lake.put({"key": "{}", "value": other}, topic="shop.public.others")
    lake.marks(end("7", 50, 0, **{"public.third": 1}))
    for job in (ingest, seal):
        assert job.run(lake.spark, lake.settings).ok
    opened = open_lake(lake.file)
    with pytest.raises(SnapshotTorn, match="time 44 is after the snapshot at 30, which the connector abandoned"):
        opened.at(44)
    assert [opened.at(time).time for time in (29, 45, 50)] == [29, 45, 50]


@pytest.mark.sweep
def test_a_change_of_the_key_and_deletes_are_one_event_each(lake: TransactionLake) -> None:
    lake.events(event("7", 1, None, (1, 10), 40), event("7", 2, (1, 10), (2, 10), 40), event("7", 3, (2, 10), None, 40))
    lake.events(event("8", 1, None, (5, 50), 50), event("8", 2, (5, 50), (6, 50), 50), None)
    lake.marks(end("7", 50, 3), end("8", 60, 2))
    assert (lake.run().upper, lake.pairs(50), lake.pairs(60)) == (61, [], [(6, 50)])
    assert lake.validate(full=True).mismatches == []


def test_an_event_without_a_source_holds_back_all_times(lake: TransactionLake) -> None:
    lake.events(event("7", 1, None, (1, 10), 40), {"op": "c", "after": {"id": 3, "price": 4}})
    lake.events(event("7", 2, None, (2, 20), 40), partition=1)
    lake.marks(end("7", 50, 2))
    with pytest.raises(EventBlocked, match="offset 1 belongs to no transaction"):
        lake.ingest()
    assert lake.seal().upper == 0  # the event does not state which commit it follows
    with pytest.raises(DecisionRefused, match="is not waiting for the END of transaction 9") as refused:
        decide(lake, Park(transaction="9", reason="lost"))
    why = "the event belongs to no transaction"
    assert f"partition 0, offset 1: {why}" in refused.value.fix
    assert refused.value.fix.endswith(
        f"`tidelake resolve gap {lake.collection.name} --offsets {EVENTS}:0:1 --reason …`"
    )
    assert "None" not in refused.value.fix
    with pytest.raises(DecisionRefused, match=f"reads the topics '{EVENTS}' and '.+', not 'other'"):
        decide(lake, AcceptGap(offsets=Offsets("other", 0, 1, 2), reason="lost"))
    decide(lake, AcceptGap(offsets=Offsets(EVENTS, 0, 1, 2), reason="nobody knows who wrote it"))
    assert (lake.run().upper, lake.pairs()) == (51, [(1, 10), (2, 20)])


@pytest.mark.sweep
def test_an_unreadable_event_is_quarantined_and_its_transaction_waits(lake: TransactionLake) -> None:
    lake.events(event("7", 1, None, (1, 10), 40))
    lake.put({"key": "{}", "value": "{"}, topic=EVENTS)
    lake.marks(end("7", 50, 2))
    assert lake.run().upper == 50
    assert [offset for offset, _ in lake.quarantined()] == [1]
    assert "1 quarantined message may be about it" in " ".join(explain(lake.collection).facts)


@pytest.mark.parametrize(
    ("more", "field", "why"),
    [
        ({"transaction_topic": None}, "transaction_topic", "is missing"),
        ({"transaction_topic": EVENTS}, "transaction_topic", "is not the name of a single other topic"),
        ({"topic": [EVENTS, "b"]}, "topic", "has one topic"),
        ({"format": "avro"}, "format", "is neither 'json' nor Avro with a registry"),
        ({"envelope": "append_only", "key": None}, "framing", "belong to no transaction"),
        ({"transaction_topic": "marks"}, "table", "do not show it"),
        ({"idle_upper_s": 3}, "idle_upper_s", "is not allowed for the framing 'transactions'"),
        ({"position": ["source.pos"]}, "position", "is not allowed for the framing 'transactions'"),
    ],
)
def test_settings_that_do_not_fit_are_refused(
    tmp_path: Path, spark: SparkSession, more: dict[str, object], field: str, why: str
) -> None:
    with pytest.raises(ConfigurationError, match=f"{field}.*{why}"):
        TransactionLake(tmp_path, spark, **more)


def test_the_topic_of_transactions_is_opened_after_the_topic_of_events(lake: TransactionLake) -> None:
    assert [topic.name for topic in open_topics(lake.settings.collections[0])] == [EVENTS, MARKS]
