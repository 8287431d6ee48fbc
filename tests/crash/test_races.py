"""Racing processes leave a single chain that contains each of their commits exactly once."""

from __future__ import annotations

import multiprocessing
import time
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.crash.harness import Nursery, check_acknowledged, check_steps, said, state_of
from tests.crash.lives import KEEP
from tests.crash.pieces import pieces_of
from tests.crash.racers import make_tables, race, rows_of
from tests.crash.scenes import CYCLE
from tests.lakes.lake import Lake
from tests.lakes.places import Stores, store_root
from tests.services.faulty_proxy import RandomFaults, faulty_proxy
from tests.services.object_store import ObjectStore
from tests.sweeps import seeds
from tidelake.storage import blobs
from tidelake.store.commit import OpenTable
from tidelake.store.table_log import check_log, read_entry


def check_race(folder: Path, seed: int, workers: int, operations: int, endpoint: str | None = None) -> None:
    began_s = time.monotonic()
    done = race(folder, seed, workers, operations, endpoint)
    print(f"{operations} commits of {workers} processes in {time.monotonic() - began_s:.0f} s; met: {dict(done.met)}")
    assert len(done.acknowledged) == operations
    assert check_log(done.table) == operations + 1, "seq rises by one with each commit"
    table = OpenTable(done.table)
    assert (table.seq, table.version) == (operations, operations)
    nonces: dict[int, set[str]] = {}
    for version in range(1, operations + 1):
        entry = read_entry(done.table, version)
        assert entry is not None, version
        nonces[version] = {str(line["commitInfo"]["nonce"]) for line in entry if "commitInfo" in line}
    assert {commit["version"]: {commit["nonce"]} for commit in done.acknowledged} == nonces
    assert rows_of(done.table) == Counter(dict.fromkeys(done.rows, 1))
    assert table.value("upper") == len(done.rows)
    by_worker = Counter(worker for _, worker in done.rows)
    assert {worker: table.value(f"worker/{worker}") for worker in by_worker} == by_worker


def test_two_racing_processes_lose_and_duplicate_nothing(any_store: Path, store_kind: str) -> None:
    check_race(any_store, seed=0, workers=2, operations=60 if store_kind == "file" else 16)


@pytest.mark.services
@pytest.mark.parametrize(
    ("seed", "workers", "operations"),
    [(0, 2, 12), *(pytest.param(seed, 8, 1000, marks=pytest.mark.sweep) for seed in seeds())],
)
def test_no_commit_is_lost_or_duplicated_if_requests_fail_at_random(
    tmp_path: Path,
    stores_by_kind: dict[str, Stores],
    object_store: ObjectStore,
    seed: int,
    workers: int,
    operations: int,
) -> None:
    stores_by_kind["s3"].hold(tmp_path)
    with faulty_proxy(object_store.endpoint) as proxy:
        proxy.at_random = RandomFaults(seed)
        check_race(tmp_path, seed, workers, operations, proxy.endpoint)
        print(f"{sum(proxy.requests.values())} requests; failures: {dict(proxy.met)}")
    assert proxy.met


@pytest.mark.sweep
def test_processes_that_race_to_create_a_table_create_it_once(any_store: Path) -> None:
    tables, root = 12, store_root(any_store)
    context = multiprocessing.get_context("spawn")
    start = context.Barrier(4)
    racers = [context.Process(target=make_tables, args=(root, tables, start)) for _ in range(4)]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join(120)
    assert [racer.exitcode for racer in racers] == [0] * 4
    for number in range(tables):
        table = root / f"table-{number}"
        assert sorted(blobs.list_names(table)) == ["_acked", "_delta_log"]
        assert (check_log(table), OpenTable(table).version, OpenTable(table).value("upper")) == (1, 0, 0)


@pytest.mark.sweep
@pytest.mark.parametrize("workers", [2, 8])
@pytest.mark.parametrize("seed", seeds())
def test_a_thousand_commits_of_racing_processes_form_one_chain(any_store: Path, seed: int, workers: int) -> None:
    check_race(any_store, seed, workers, operations=1000)


@pytest.mark.spark
@pytest.mark.sweep
@pytest.mark.usefixtures("any_store")
@pytest.mark.parametrize("processes", [2, 8])
@pytest.mark.parametrize("seed", seeds())
def test_processes_that_run_all_jobs_on_the_same_lake_end_like_a_single_process(
    tmp_path: Path, spark: SparkSession, nursery: Nursery, seed: int, processes: int
) -> None:
    raced, whole = (Lake(tmp_path / name, spark, keep=KEEP, messages_per_tick_max=5) for name in ("raced", "whole"))
    *words, last = [tmp_path / f"{number}.jsonl" for number in range(processes + 1)]
    orders = [{"config": str(raced.file), "said": str(path), "steps": CYCLE[:-1], "rounds": 2} for path in words]
    alone = {"config": str(whole.file), "said": str(last), "steps": CYCLE}
    for piece in pieces_of(seed):
        raced.send(*piece)
        racers = [nursery.start(order) for order in orders]
        assert [nursery.wait(racer) for racer in racers] == [0] * processes
        whole.send(*piece)
        assert nursery.run(alone) == 0
    check_steps([message for path in (*words, last) for message in said(path)])
    check_acknowledged(raced, [message for path in words for message in said(path)])
    # Which copies came late depends on which ingest happened to come after a seal. Nothing else may differ.
    states = [state_of(lake) for lake in (raced, whole)]
    for state in states:
        del state["late"]
    assert states[0] == states[1]
