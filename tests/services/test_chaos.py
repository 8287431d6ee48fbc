"""Two minutes of chaos: a hundred thousand events while services are killed and messages are sent again."""

from __future__ import annotations

import os
import signal
import time
from functools import partial
from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession

from tests.captures.record import Services
from tests.captures.workload import TABLES, Workload, change_many
from tests.crash.harness import Nursery, has_ended
from tests.services.pipeline import Pipeline
from tests.sweeps import seeds

pytestmark = [pytest.mark.services, pytest.mark.spark, pytest.mark.sweep]

EVENTS = 100_000
CHAOS_S = 120.0
_TIMEOUT_S = 900.0
"""The time limit of a run, which is enough even on a slow machine."""
_RESENT_MAX = 3_000
"""The maximum number of records that are sent again at once."""
_PAUSE_S = 6.0
"""The longest pause between two mishaps."""


class Chaos:
    """A pipeline, and the mishaps that a seed chooses for it while jobs keep reading."""

    def __init__(self, made: Pipeline, seed: int) -> None:
        self.made, self.rng = made, Random(f"chaos {seed}")
        self.mishaps: list[str] = []
        self.job: int | None = None
        self.jobs = self.killed = self.sent_again = 0

    def next_mishap(self) -> str:
        """Cause the next mishap, and return its name; each happens once in a round."""
        self.mishaps = self.mishaps or self.rng.sample(sorted(_MISHAPS), len(_MISHAPS))
        mishap = self.mishaps.pop()
        self.keep_reading()
        time.sleep(self.rng.random() * _PAUSE_S)
        _MISHAPS[mishap](self)
        services = self.made.source.services
        services.connect.wait_until_running(self.made.source.name)
        return mishap

    def keep_reading(self) -> None:
        """Start a job if none is running."""
        if self.job is not None and has_ended(self.job):
            self.end_job()
        if self.job is None:
            self.jobs += 1
            self.job = self.made.start_job("ingest", *(["compact"] if self.rng.random() < 0.3 else []))

    def end_job(self, *, kill: bool = False) -> None:
        """Wait for the job's end, or kill it."""
        if self.job is not None:
            if kill:
                os.kill(self.job, signal.SIGKILL)
            self.killed += self.made.nursery.wait(self.job) == -signal.SIGKILL
            self.job = None

    def kill_job(self) -> None:
        """End the job as a power cut would."""
        self.end_job(kill=True)

    def kill_broker(self) -> None:
        """End the broker as a power cut would, and restart it with its data."""
        self.made.source.services.broker.restart(kill=True)

    def kill_connector(self) -> None:
        """End the worker and its connector as a power cut would; the connector saves its offsets once a second."""
        self.made.source.services.connect.restart(kill=True)

    def restart_worker(self) -> None:
        """Restart the worker, because after the death of a broker, hanging tasks keep names that new tasks need.

        A new task asks for the name of each of its two sets of metrics up to twelve times, every five seconds, before
        it reads further.
        """
        self.kill_connector()
        self.made.source.services.connect.wait_until_running(self.made.source.name)

    def forget(self) -> None:
        """Make the connector lose its offsets, so that it takes a snapshot and repeats what it has sent."""
        self.made.source.forget_offsets()
        self.made.source.services.connect.resume(self.made.source.name)

    def send_again(self) -> None:
        """Append consecutive records of a topic once more, in order."""
        broker, topic = self.made.source.services.broker, self.made.source.topic(self.rng.choice(TABLES))
        partition, (_, end) = self.rng.choice(sorted(broker.ends(topic).items()))
        start = max(0, end - self.rng.randint(1, 2 * _RESENT_MAX))
        records = [record for _, record in broker.consume(topic, {partition: start})[partition]]
        repeated = records[: self.rng.randint(1, _RESENT_MAX)]
        broker.produce(topic, repeated)
        self.sent_again += len(repeated)


_MISHAPS = {
    "the broker was killed": Chaos.kill_broker,
    "the connector was killed": Chaos.kill_connector,
    "the connector lost its place": Chaos.forget,
    "records were sent again": Chaos.send_again,
    "the job was killed": Chaos.kill_job,
}


@pytest.mark.parametrize("seed", seeds())
def test_two_minutes_of_chaos_end_in_equal_tables(
    tmp_path: Path, spark: SparkSession, nursery: Nursery, services: Services, seed: int
) -> None:
    with Pipeline(tmp_path, spark, nursery, services, f"chaos{seed}", 20_000, compiled=True) as made:
        chaos, started = Chaos(made, seed), time.monotonic()
        say = partial(_say, seed, started)
        limits = {"events_max": EVENTS, "events_per_s_max": EVENTS / CHAOS_S}
        with Workload(services.postgres, made.source.database, seed, 6, 0.02, change=change_many, **limits) as work:
            while time.monotonic() - started < CHAOS_S or work.events < EVENTS:
                assert time.monotonic() - started < _TIMEOUT_S, f"only {work.events} events"
                say(f"{chaos.next_mishap()}; {work.events:,} events so far")
            chaos.kill_job()
        chaos.restart_worker()
        made.check()
        say(
            f"caught up, and equal; {chaos.sent_again:,} records sent again, {chaos.killed} of {chaos.jobs} jobs killed"
        )
        made.run_job("compact", "validate")
        made.check_tables()
        say("merged, counted again, and equal")


def _say(seed: int, started: float, what: str) -> None:
    print(f"chaos, seed {seed}, {time.monotonic() - started:.0f} s: {what}", flush=True)
