"""SQL over three tables of one source while ticks run: each answer is the source's contents at the stated time."""

from __future__ import annotations

import base64
import json
import threading
from collections import Counter
from pathlib import Path
from random import Random

import pytest
import yaml
from pyspark.sql import SparkSession

from jobs import compact, ingest, seal
from tests.lakes.lake import RECORD, progress, updates
from tests.lakes.places import store_settings
from tests.sweeps import seeds
from tidelake import open_lake
from tidelake.errors import CollectionLags
from tidelake.settings.lake import load_settings

pytestmark = pytest.mark.spark

FAMILIES = {"savings": "plain", "current": "upsert", "idle": "plain"}
ASKED = " union all ".join(
    f"select '{name}' as account, id, price, {'1::bigint' if family == 'upsert' else '_diff'} as times from {name}"
    for name, family in FAMILIES.items()
)
Row = tuple[str, int, int]


class Bank:
    """Three tables with a constant sum: amounts move between two of them; `idle` changes only at the first time."""

    def __init__(self, root: Path, rng: Random) -> None:
        self.root, self.rng, self.time = root, rng, 0
        self.amounts = {(name, key): 100 for name in FAMILIES for key in range(4)}
        self.history: list[Counter[Row]] = [Counter()]
        self.offsets = dict.fromkeys(FAMILIES, 0)
        blocks = {
            name: {"family": family, "topic": name, "schema": RECORD, "timeline": "bank", "keep": 50}
            | ({"key": "id"} if family == "upsert" else {})
            for name, family in FAMILIES.items()
        }
        for name in FAMILIES:
            (root / "topics" / name).mkdir(parents=True)
        document = {"topics": "topics", "data_docs": "docs", "collections": blocks, **store_settings(root)}
        self.file = root / "collections.yaml"
        self.file.write_text(yaml.safe_dump(document), encoding="utf-8")
        self.send({place: (None, amount) for place, amount in self.amounts.items()})

    def move(self) -> None:
        """Move an amount from one account to another, in one transaction."""
        places = [place for place in self.amounts if place[0] != "idle"]
        first, second = self.rng.sample(places, 2)
        amount = self.rng.randint(1, 50)
        changed: dict[tuple[str, int], tuple[int | None, int]] = {}
        for place, difference in ((first, -amount), (second, amount)):
            changed[place] = self.amounts[place], self.amounts[place] + difference
            self.amounts[place] += difference
        self.send(changed)

    def send(self, changed: dict[tuple[str, int], tuple[int | None, int]]) -> None:
        """Write the changes of one time to the topics, with the statement that the time is complete."""
        self.time += 1
        for name, family in FAMILIES.items():
            triples = []
            for (table, key), (old, new) in changed.items():
                if table == name:
                    triples.append(((key, new), self.time, 1))
                    if old is not None and family == "plain":
                        triples.append(((key, old), self.time, -1))
            lower = self.time if self.time > 1 else 0
            counts = {self.time: len(triples)} if triples else {}
            messages = [updates(*triples)] if triples else []
            self.append(name, [*messages, *messages, progress([lower], [self.time + 1], counts)])
        self.history.append(Counter((*place, amount) for place, amount in self.amounts.items()))

    def append(self, name: str, values: list[bytes]) -> None:
        with (self.root / "topics" / name / "0.jsonl").open("a", encoding="utf-8") as lines:
            for value in values:
                text = base64.b64encode(value).decode("ascii")
                lines.write(json.dumps({"offset": self.offsets[name], "value_b64": text, "timestamp_ms": 0}) + "\n")
                self.offsets[name] += 1


def check_bank(root: Path, spark: SparkSession, rng: Random, questions: int) -> None:
    """Run queries during ticks and merges, and compare each answer with the source at its time."""
    bank = Bank(root, rng)
    settings, ended, failed = load_settings(bank.file), threading.Event(), []

    def work() -> None:
        jobs = Random(rng.random())
        try:
            while not ended.is_set():
                for _ in range(jobs.randint(1, 3)):
                    bank.move()
                for job in (ingest, seal):
                    job.run(spark, settings)
                if jobs.random() < 0.3:
                    compact.run(spark, settings, True)
        except Exception as error:
            failed.append(error)

    for job in (ingest, seal):
        job.run(spark, settings)
    worker = threading.Thread(target=work)
    worker.start()
    lake, session, times = open_lake(bank.file, read_only=True), 0, set()
    try:
        for _ in range(questions):
            try:
                answer = lake.query(ASKED, not_before=session, wait_s=120)
            except CollectionLags as lags:
                raise AssertionError("an idle table must not hold the others back") from lags
            assert answer.time is not None
            assert answer.time >= session, "an answer went back in time"
            session = answer.time
            times.add(session)
            found = Counter({tuple(row.values())[:3]: row["times"] for row in answer.to_pylist()})
            assert found == bank.history[session], session
            (total,) = lake.query(f"select sum(price * times) as total from ({ASKED})", session).to_pylist()
            assert total["total"] == 100 * len(bank.amounts)
    finally:
        ended.set()
        worker.join()
    assert not failed, failed
    assert questions < 100 or len(times) > 3


def test_answers_equal_the_source_at_their_time_while_ticks_run(tmp_path: Path, spark: SparkSession) -> None:
    check_bank(tmp_path, spark, Random("every day"), 12)


@pytest.mark.sweep
@pytest.mark.parametrize("seed", seeds())
def test_two_hundred_answers_equal_the_source_at_their_time_while_ticks_run(
    tmp_path: Path, interpreted: SparkSession, seed: int
) -> None:
    check_bank(tmp_path, interpreted, Random(f"bank {seed}"), 200)
