"""Jobs that spark-submit runs on a cluster of two workers make the same tables as jobs in a single process."""

from __future__ import annotations

import base64
import json
import shutil
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from jobs import compact, current, ingest, seal, validate
from tests.cluster.standalone import Standalone, standalone
from tests.crash.harness import state_of
from tests.docs.blocks import PROJECT, blocks_of
from tests.docs.shell import link_checkout, run_by_bash
from tests.lakes.change_events import EVENT, events
from tests.lakes.kafka_lake import PLAIN, KafkaLake
from tests.lakes.lake import RECORD, progress, updates
from tests.lakes.places import Stores
from tests.lakes.published import rows_of
from tests.services.kafka import Broker
from tidelake.catalog.catalog import Catalog
from tidelake.generator.generate import generate
from tidelake.generator.options import GenerateOptions
from tidelake.read.publication import publication_of
from tidelake.read.snapshot import snapshot
from tidelake.settings.lake import Settings, load_settings
from tidelake.store.commit import OpenTable
from tidelake.store.entry import Collection
from tidelake.store.files import read_rows
from tidelake.store.layout import DIFF, PROOFS_SCHEMA, QUARANTINE_SCHEMA, RUN, Store
from tidelake.store.state import CLOSED, SINCE, UPPER, next_offsets, offset_value
from tidelake.store.table_log import check_log
from tidelake.store.table_schema import late_schema, updates_schema

pytestmark = pytest.mark.spark

STEPS = ("ingest", "seal", "validate", "compact", "current")
CONFIG = "data/tour/collections.yaml"
MASTER = "MASTER=spark://127.0.0.1:7077"
OPTION = "-Dtidelake.example=1"
FIRST_FILES = 3
"""How many of the generated files a first run in local mode reads; the others hold late copies of its updates."""


def make_topics(tour: Path) -> None:
    """Make a topic of mangled orders in Parquet files, and two empty topics: for upserts and for change events."""
    options = GenerateOptions(
        name="orders",
        updates=6000,
        times=40,
        updates_per_message=2,
        messages_per_file=1500,
        writers=2,
        copies=0.3,
        shuffle="window",
        undecodable=8,
        malformed=8,
        conflicting_count_at=(33,),
    )
    generate(options, tour / "topics", tour, None)
    for name in ("stock", "changes"):
        (tour / "topics" / name).mkdir()
    collections = {
        "orders": {"family": "plain", "topic": "orders", "schema": "orders.avsc", "keep": 12},
        "stock": {"family": "upsert", "key": "id", "topic": "stock", "schema": RECORD},
        "changes": {"family": "debezium", "key": "id", "topic": "changes", "schema": EVENT},
    }
    document = {"store": "store", "topics": "topics", "data_docs": "docs", "collections": collections}
    (tour / "collections.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")


def stock() -> list[bytes]:
    """The messages of the upsert topic: values of eight keys, a delete, a copy, and an undecodable message."""
    values = [updates(*(((key, time), time, 1) for key in range(time))) for time in range(1, 9)]
    return [
        *values,
        updates(((1, 8), 9, -1)),
        values[3],
        b"\x07",
        progress([0], [12], {**{time: time for time in range(1, 9)}, 9: 1}),
    ]


def changes() -> list[bytes]:
    """The messages of the event topic: inserts, updates, a delete, a copy, and an undecodable message."""
    values = [events(*((None, (key, 0), 1) for key in range(6)))]
    values += [events(((key, 0), (key, 7), 2 + key)) for key in range(4)] + [events(((5, 0), None, 8))]
    counts = {1: 6, **{2 + key: 1 for key in range(4)}, 8: 1}
    return [*values, values[2], b"\x07", progress([0], [12], counts)]


def lines_of(values: list[bytes]) -> str:
    """A topic's partition as JSON lines."""
    lines = [
        json.dumps({"offset": offset, "timestamp_ms": 0, "value_b64": base64.b64encode(value).decode()})
        for offset, value in enumerate(values)
    ]
    return "\n".join(lines) + "\n"


def run_in_local_mode(spark: SparkSession, settings: Settings, steps: tuple[str, ...]) -> None:
    """Run steps in this process."""
    runs = {"ingest": ingest.run, "seal": seal.run, "validate": validate.run_full}
    runs |= {"compact": compact.run, "current": current.run}
    for step in steps:
        assert runs[step](spark, settings).ok


def run_on(cluster: Standalone, folder: Path, steps: tuple[str, ...]) -> None:
    """Run the documented cluster commands on this cluster."""
    (block,) = [
        candidate for candidate in blocks_of(PROJECT / "docs" / "operations.md") if candidate.text.startswith(MASTER)
    ]
    text = block.text
    for documented, ours in (
        (MASTER, f"MASTER={cluster.url}\nexport SPARK_LOCAL_IP=127.0.0.1"),
        (f"in {' '.join(STEPS)};", f"in {' '.join(steps)};"),
        ("jobs/$step.py", f"--conf spark.executor.extraJavaOptions={OPTION} jobs/$step.py"),
    ):
        assert documented in text
        text = text.replace(documented, ours)
    done = run_by_bash(folder, text, timeout_s=900)
    assert done.returncode == 0, done.stdout + done.stderr


def everything(spark: SparkSession, collection: Collection) -> dict[str, Any]:
    """Everything in the tables, except random values and readings of the clock."""
    paths, record = collection.paths, collection.entry.record_schema
    table = OpenTable(paths.updates)
    names = (UPPER, CLOSED, SINCE, *(offset_value(collection.name, partition) for partition in range(2)))
    state: dict[str, Any] = {name: table.value(name) for name in names}
    stored = read_rows(paths.updates, table.files(), updates_schema(record)).drop_columns([RUN]).to_pylist()
    state["updates"] = set(map(text_of, stored)) if collection.entry.key else consolidated(stored)
    small = {"proofs": PROOFS_SCHEMA, "quarantine": QUARANTINE_SCHEMA, "late": late_schema(record)}
    for name, schema in small.items():
        folder = paths.root / name
        rows = read_rows(folder, OpenTable(folder).files(), schema).drop_columns([RUN]).to_pylist()
        state[name] = Counter(text_of({**row, "at_ms": None}) for row in rows)
    published = publication_of(collection)
    if published is not None:
        files = DeltaTable(str(published.table)).file_uris()
        state["current"] = Counter(text_of(row) for file in files for row in pq.read_table(file).to_pylist())
    since = max(*collection.entry.since, state[SINCE] or 0)
    for as_of in (since, state[UPPER] - 1):
        contents = snapshot(spark, collection, as_of).contents.collect()
        state[f"as of {as_of}"] = Counter(text_of(row.asDict(recursive=True)) for row in contents)
    assert check_log(paths.updates) > 1
    return state


def consolidated(rows: list[dict[str, Any]]) -> dict[str, int]:
    """The sum of the diffs of each datum at each time; if these sums are equal, so are the contents at every time."""
    sums: Counter[str] = Counter()
    for row in rows:
        sums[text_of({**row, DIFF: None})] += row[DIFF]
    return {text: diff for text, diff in sums.items() if diff}


def text_of(row: dict[str, Any]) -> str:
    """A row as text, which is equal for equal rows."""
    return json.dumps(row, default=repr, sort_keys=True)


@pytest.mark.parametrize(
    ("submitted", "steps"),
    [pytest.param(STEPS[:1], STEPS[:2], id="ingest"), pytest.param(STEPS, STEPS, id="all")],
)
@pytest.mark.sweep
def test_a_cluster_makes_the_same_tables_as_a_single_process(
    tmp_path: Path, spark: SparkSession, submitted: tuple[str, ...], steps: tuple[str, ...]
) -> None:
    local, cluster = tmp_path / "local", tmp_path / "cluster"
    prepare(spark, tmp_path, local, cluster)
    run_in_local_mode(spark, load_settings(local / CONFIG), steps)
    link_checkout(cluster)
    with standalone(tmp_path, workers=2, memory="600m") as running:
        run_on(running, cluster, submitted)
    check_executors(running, len(submitted))
    run_in_local_mode(spark, load_settings(cluster / CONFIG), steps[len(submitted) :])
    for name in ("orders", "stock", "changes"):
        expected, found = (
            everything(spark, Catalog(Store(load_settings(root / CONFIG).store)).find(name))
            for root in (local, cluster)
        )
        assert found.keys() == expected.keys()
        for what, value in expected.items():
            assert found[what] == value, (name, what)
        assert expected["quarantine"]
        assert expected["proofs"]
        assert bool(expected["late"]) == (name == "orders")


def prepare(spark: SparkSession, scratch: Path, local: Path, cluster: Path) -> None:
    """Make two identical folders, each with a store that holds part of the orders and with topics that hold more."""
    tour = local / CONFIG.rpartition("/")[0]
    make_topics(tour)
    rest = sorted((tour / "topics" / "orders").iterdir())[FIRST_FILES:]
    for file in rest:
        file.rename(scratch / file.name)
    run_in_local_mode(spark, load_settings(local / CONFIG).only(("orders",)), ("ingest", "seal"))
    for file in rest:
        (scratch / file.name).rename(file)
    for name, values in (("stock", stock()), ("changes", changes())):
        (tour / "topics" / name / "0.jsonl").write_text(lines_of(values), encoding="utf-8")
    shutil.copytree(local, cluster)


def check_executors(cluster: Standalone, applications: int) -> None:
    """Check that every application had an executor on each worker, with the options of spark-submit and of Tidelake."""
    for worker in cluster.workers:
        logs = sorted(worker.glob("app-*/*/stderr"))
        assert len(logs) == applications
        for log in logs:
            command = next(line for line in log.read_text().splitlines() if line.startswith("Spark Executor Command"))
            for option in ("-Xmx512M", OPTION, "-Dorg.apache.avro.limits"):
                assert option in command


@pytest.mark.sweep
def test_a_process_needs_only_the_address_of_the_master_to_use_a_cluster(tmp_path: Path) -> None:
    script = (
        "import sys; from tidelake.spark.session import start_session;"
        " session = start_session(master=sys.argv[1], settings={'spark.executor.memory': '512m'});"
        " print(session.range(1000).count())"
    )
    with standalone(tmp_path, workers=1, memory="600m") as running:
        done = run_by_bash(PROJECT, f'exec {sys.executable} -c "{script}" {running.url}')
    assert (done.returncode, done.stdout.strip()) == (0, "1000"), done.stderr


@pytest.mark.sweep
@pytest.mark.services
def test_machines_that_share_no_disk_make_the_same_tables_over_kafka_and_s3_as_a_single_process(
    tmp_path: Path, spark: SparkSession, broker: Broker, stores_by_kind: dict[str, Stores]
) -> None:
    cluster_root = stores_by_kind["s3"].hold(tmp_path / "driver")
    remote = KafkaLake(cluster_root, spark, broker, {**PLAIN, "keep": 3}, partitions=2)
    local = KafkaLake(tmp_path / "local", spark, broker, {**PLAIN, "keep": 3}, topic=remote.name)
    script = cluster_root / "driver.py"
    script.write_text(ALL_JOBS, encoding="utf-8")
    with standalone(tmp_path, workers=2, memory="600m", hidden=cluster_root) as running:
        for start in (0, 6):
            for partition in range(2):
                keys = range(50 * partition, 50 * partition + 50)
                values = [updates(*((key, time, 1) for key in keys)) for time in range(start, start + 6)]
                remote.send(*values, b"\x07", values[2], partition=partition)
            remote.send(progress([start], [start + 6], dict.fromkeys(range(start, start + 6), 100)))
            if start:
                remote.send(updates((7, 1, 1)), updates((8, 1, 5)))  # a late copy and a late contradiction
            command = f"cd {cluster_root} && PYTHONPATH={PROJECT}:{PROJECT}/src exec {sys.executable} driver.py"
            command += f" {running.url} {remote.file}"
            done = run_by_bash(PROJECT, command, timeout_s=900)
            assert done.returncode == 0, done.stdout + done.stderr
            run_in_local_mode(spark, local.settings, STEPS)
    for worker in running.workers:
        assert len(list(worker.glob("app-*/*/stderr"))) == 2, "each application had an executor on each worker"
    assert not [path for path in cluster_root.iterdir() if path.is_dir()], "everything is in S3"
    assert state_of(remote) == state_of(local)
    assert next_offsets(remote.table, remote.name) == next_offsets(local.table, remote.name)
    shown = [Counter(map(text_of, rows_of(lake.collection))) for lake in (remote, local)]
    assert shown[0] == shown[1] != Counter()
    for as_of in (9, 11):
        assert remote.contents(as_of) == local.contents(as_of) != {}


ALL_JOBS = """
import sys
from pathlib import Path

from jobs import compact, current, ingest, seal, validate
from tidelake.settings.lake import load_settings
from tidelake.spark.session import start_session

settings = load_settings(Path(sys.argv[2]))
chosen = {"spark.executor.memory": "512m", "spark.sql.shuffle.partitions": "4"}
session = start_session(master=sys.argv[1], settings=chosen, jar_sets=settings.jar_sets)
runs = (ingest.run, seal.run, validate.run_full, compact.run, current.run)
reports = [run(session, settings) for run in runs]
assert all(report.ok for report in reports), [report.as_json() for report in reports]
"""
"""The driver's program: the five jobs, in order."""
