"""PostgreSQL → Debezium → Kafka → Tidelake with transactions: at each marker, the tables are those of the database."""

from __future__ import annotations

import json
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.captures.bank import BANK, TOTAL, move_money
from tests.captures.bank_lake import bank_collection
from tests.captures.record import Services, capture_bank, note_bank, payload
from tests.captures.workload import Workload
from tests.crash.harness import Nursery
from tests.services.bank_reads import BankReads
from tests.services.pipeline import Pipeline
from tests.sweeps import seeds
from tidelake.catalog.catalog import Catalog
from tidelake.decisions import Count, check_decision
from tidelake.errors import TransactionCut
from tidelake.lake.answers import status_with_topics
from tidelake.read.snapshot import snapshot
from tidelake.store.commit import OpenTable
from tidelake.store.entry import Collection
from tidelake.store.layout import Store
from tidelake.store.transactions import asserted_times, read_transactions

pytestmark = [pytest.mark.services, pytest.mark.spark]

_READS = 20
"""The number of reads through Spark for each seed, once its jobs have ended."""
_READS_BETWEEN = 500
"""The number of reads for each seed while its jobs run and between them: 10,000 in 20 seeds."""
_OFFSET_SAVED_S, _STREAMS_S = 4.0, 2.0
"""How long the connector takes to save its last offset, and to start streaming after a restart."""
_RUNS = 8
"""Maximum number of runs of the jobs. A single run can miss a marker, because events and their END come separately."""


def miscounting_ends(marks: list[dict[str, Any]], events: list[dict[str, Any]], table: str) -> set[int]:
    """Return the commit positions of the ENDs that do not count all events of their transaction in a table.

    If Debezium is killed after it has saved an offset within a transaction, it resumes there, and numbers the
    remaining events from 1; the END counts only these.
    """
    places: dict[str, set[tuple[int, str]]] = {}
    for event in events:
        if event["transaction"] is not None:
            name = event["transaction"]["id"].partition(":")[0]
            places.setdefault(name, set()).add((event["source"]["lsn"], event["op"]))
    found = set()
    for mark in marks:
        if mark["status"] == "END":
            name, _, lsn = mark["id"].partition(":")
            counts = {part["data_collection"]: part["event_count"] for part in mark["data_collections"] or ()}
            if counts.get(f"public.{table}", 0) != len(places.get(name, ())):
                found.add(int(lsn))
    return found


def cut_ends(marks: list[dict[str, Any]], events: list[dict[str, Any]]) -> set[int]:
    """Return the commit positions of the transactions that lack their first change.

    The BEGIN of such a transaction has the position of the first change; all changes that were sent have later ones.
    """
    firsts: dict[str, int] = {}
    for event in events:
        if event["transaction"] is not None:
            name = event["transaction"]["id"].partition(":")[0]
            firsts[name] = min(event["source"]["lsn"], firsts.get(name, event["source"]["lsn"]))
    begins = {
        mark["id"].partition(":")[0]: int(mark["id"].partition(":")[2]) for mark in marks if mark["status"] == "BEGIN"
    }
    ends = [mark["id"].partition(":") for mark in marks if mark["status"] == "END"]
    return {int(lsn) for name, _, lsn in ends if name in begins and begins[name] < firsts.get(name, int(lsn))}


class BankPipeline(Pipeline):
    """A pipeline whose tables are those of the bank, read with the framing `transactions`."""

    def __init__(self, root: Path, spark: SparkSession, nursery: Nursery, services: Services, name: str) -> None:
        self.root, self.spark, self.nursery, self.compiled = root, spark, nursery, False
        collections = {
            table: bank_collection(table, topic=f"{name}.public.{table}", transaction_topic=f"{name}.transaction")
            | {"source": "kafka", "messages_per_tick_max": 300}
            for table in BANK
        }
        self.configure(capture_bank(services, name), collections)

    def collection(self, table: str) -> Collection:
        """A table's collection."""
        return Catalog(Store(self.settings.store)).find(table)

    def rows_at(self, table: str, as_of: int) -> list[list[Any]]:
        """The contents of a table."""
        rows = snapshot(self.spark, self.collection(table), as_of).contents.collect()
        assert all(row["_diff"] == 1 for row in rows)
        return sorted(list(row)[:-1] for row in rows)

    def _situation(self) -> str:
        """What each table is waiting for, as `tidelake status` says. The topics are also saved, in `stuck`."""
        self.source.write(BANK, self.root / "stuck", (f"{self.source.name}.transaction",))
        lines = []
        for settings in self.settings.collections:
            status = status_with_topics(settings, self.collection(settings.name))
            assert status is not None
            waiting = "" if status.waiting is None else f"; {json.dumps(status.waiting.as_json())}"
            lines.append(f"{status.sentence}; messages unread: {status.lag_messages}{waiting}")
        return "\n".join(lines)

    def _stops_rightly(self, table: str, upper: int) -> bool:
        """Return whether a table stops at a transaction that Debezium has indeed miscounted or cut, and says so."""
        topics = f"{self.source.name}.transaction", self.source.topic(table)
        marks, events = (
            [
                payload(record.value)
                for records in self.source.services.broker.consume(topic).values()
                for _, record in records
                if record.value is not None
            ]
            for topic in topics
        )
        status = status_with_topics(self.settings.collections[BANK.index(table)], self.collection(table))
        assert status is not None
        details = [noted["detail"] for noted in status.contradictions if noted["time"] == upper]
        if any(detail.startswith(f"{TransactionCut.kind}:") for detail in details):
            return upper in cut_ends(marks, self._all_events())
        return upper in miscounting_ends(marks, events, table) and bool(details)

    def _all_events(self) -> list[dict[str, Any]]:
        """All change events of the connector."""
        found = []
        for table in (*BANK, "marks"):
            for records in self.source.services.broker.consume(self.source.topic(table)).values():
                found += [payload(record.value) for _, record in records if record.value is not None]
        return found

    def upper(self, table: str) -> int:
        """The first unsealed time of a table."""
        collection = self.collection(table)
        return collection.readable_range(OpenTable(collection.paths.updates))[1]

    def run_to_the_last_moment(self) -> tuple[dict[str | None, int], int | None]:
        """Run the jobs until the last marker is sealed in all tables, but at most `_RUNS` times.

        Returns:
            The time of each transaction, by its id; and the time of the last marker, None if its END was not read.
        """
        self.source.catch_up()
        for run in range(_RUNS):
            self.run_job("ingest", "seal", "validate")
            times = {transaction.id: transaction.time for transaction in read_transactions(self.collection(BANK[0]))}
            last = times.get(self.source.moments[-1]["transaction"])
            if last is not None and all(last < self.upper(table) for table in BANK):
                break
            time.sleep(run)
        return times, last

    def check_moments(self, rng: Random) -> None:
        """Compare the tables with the database at each marker, and read them together at other times."""
        times, last = self.run_to_the_last_moment()
        uppers = [self.upper(table) for table in BANK]
        if last is None or last >= min(uppers):
            for table, upper in zip(BANK, uppers, strict=True):
                if last is None or not (last < upper or self._stops_rightly(table, upper)):
                    raise AssertionError(f"after {_RUNS} runs, upper is {uppers} <= {last}:\n{self._situation()}")
        for moment in self.source.moments:
            at = times[moment["transaction"]]
            if at < min(uppers):
                assert {table: self.rows_at(table, at) for table in BANK} == moment["rows"], moment["mark"]
        first = max(asserted_times(self.collection(BANK[0]).carry_columns()))
        newest = [read_transactions(self.collection(table))[-1].time for table in BANK]
        for _ in range(_READS):
            at = rng.randint(first, min(*newest, *(upper - 1 for upper in uppers)))
            assert sum(row[2] for table in BANK for row in self.rows_at(table, at)) == TOTAL, at
        if last is None or last >= min(uppers):
            pytest.xfail(f"Debezium resumed within a transaction, or skipped changes: {self._situation()}")


@pytest.mark.sweep
def test_changes_that_a_restarted_connector_skips_hold_back_all_its_tables_until_a_new_snapshot(
    tmp_path: Path, spark: SparkSession, nursery: Nursery, services: Services
) -> None:
    """The last saved offset is that of an END, and the database's log continues with a change of an open transaction.

    Debezium resumes after this change. It then sends only the wallet's change, which is half of the transaction.
    """
    with BankPipeline(tmp_path, spark, nursery, services, "skipped") as made:
        database, connect = made.source.database, services.connect
        with services.postgres.connect(database) as one, services.postgres.connect(database) as other:
            one.autocommit = False
            one.execute("update accounts set balance = balance - 5 where id = 1")
            for _ in range(3):  # repeated: another process of the server may write a record in between
                other.execute("update wallets set balance = balance where id = 1")
                one.execute("update accounts set balance = balance - 5 where id = 1")
            time.sleep(_OFFSET_SAVED_S)
            connect.restart(kill=True)
            connect.wait_until_running(made.source.name)
            time.sleep(_STREAMS_S)
            one.execute("update wallets set balance = balance + 20 where id = 1")
            one.commit()
        note_bank(made.source)
        made.run_job("ingest", "seal", "validate")
        [cut] = {made.upper(table) for table in BANK}
        marks = [payload(r.value) for _, r in services.broker.consume(f"{made.source.name}.transaction")[0] if r.value]
        assert cut in cut_ends(marks, made._all_events())
        for table in BANK:
            status = status_with_topics(made.settings.collections[BANK.index(table)], made.collection(table))
            assert status is not None and "lacks its first change, at log position" in status.sentence
        assert sum(row[2] for table in BANK for row in made.rows_at(table, cut - 1)) == TOTAL
        for table, count in (("accounts", 0), ("wallets", 1)):
            decision = Count(time=cut, count=count, reason="a new snapshot corrects it")
            collection, settings = made.collection(table), made.settings.collections[BANK.index(table)]
            Catalog(Store(made.settings.store)).decide(table, check_decision(collection, settings, decision))
        made.source.forget_offsets()
        connect.resume(made.source.name)
        made.source.catch_up()
        note_bank(made.source)
        _, last = made.run_to_the_last_moment()
        assert {table: made.rows_at(table, last or 0) for table in BANK} == made.source.moments[-1]["rows"]


@pytest.mark.sweep
@pytest.mark.parametrize("seed", seeds())
def test_the_tables_equal_the_database_at_every_marker_whatever_is_killed(
    tmp_path: Path, spark: SparkSession, nursery: Nursery, services: Services, seed: int
) -> None:
    rng = Random(f"transactions {seed}")
    with BankPipeline(tmp_path, spark, nursery, services, f"bank{seed}") as made:
        reads = BankReads(made.file, rng)
        postgres, database, connect = services.postgres, made.source.database, services.connect
        with Workload(postgres, database, seed, sessions=4, pause_s=0.03, change=move_money) as work:
            for what in rng.choices(("kill", "nothing"), k=4):
                job = made.start_job("ingest", "seal", *(["compact"] if rng.random() < 0.3 else []))
                end = time.monotonic() + rng.random() * 3
                while time.monotonic() < end:
                    reads.read()
                if what == "kill":
                    connect.restart(kill=True)
                    connect.wait_until_running(made.source.name)
                if rng.random() < 0.5:
                    os.kill(job, signal.SIGKILL)
                with ThreadPoolExecutor(1) as pool:
                    waiting = pool.submit(nursery.wait, job)
                    while not waiting.done():
                        reads.read()
                    assert waiting.result() in (0, -9)
                with work.held():
                    note_bank(made.source)
            for _ in range(_RUNS):
                job = made.start_job("ingest", "seal", "compact")
                with ThreadPoolExecutor(1) as pool:
                    waiting = pool.submit(nursery.wait, job)
                    while not waiting.done():
                        reads.read()
                    assert waiting.result() == 0
                for _ in range(_READS_BETWEEN):
                    if reads.done < _READS_BETWEEN:
                        reads.read()
                if reads.done >= _READS_BETWEEN:
                    break
            assert reads.done >= _READS_BETWEEN
        made.check_moments(rng)
