"""Fixtures for all tests: one Spark session, broker, database and worker, shared and started on first use."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.sweeps import command, is_over, seconds, sweep_order

if TYPE_CHECKING:
    from dagster import DagsterInstance
    from pyspark.sql import SparkSession

    from tests.lakes.dagster_lakes import Lakes
    from tests.lakes.held import HeldLake
    from tests.lakes.lake import Lake
    from tests.lakes.places import Stores
    from tests.lakes.whole_store import WholeStore
    from tests.services.connect import Connect
    from tests.services.kafka import Broker
    from tests.services.object_store import ObjectStore
    from tests.services.postgres import Postgres
    from tests.services.registry import Registry


# Tests run thousands of small plans, each once. Three options together halve the processor time: only the JVM's first
# compiler, no verification of Spark's own classes, and garbage collection in one thread. With only that compiler, the
# JVM would reserve 48 MB for compiled code: a hundred tests fill it, and methods are then discarded and compiled again,
# several times. The size of the metaspace avoids full collections while classes are loaded. The processes that tests
# start inherit these options.
os.environ.setdefault(
    "JDK_JAVA_OPTIONS",
    "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:MetaspaceSize=256m"
    " -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote -XX:+UseSerialGC",
)
# A query's objects become garbage at once: the larger the space for new objects, the less is copied.
YOUNG = {"spark.driver.defaultJavaOptions": "-Xmn512m"}
# Plans that run once are interpreted: compiling them takes longer than running them. With TIDELAKE_TEST_CODEGEN=1, the
# shared session compiles its plans. The processes that tests start always compile theirs, as the processes of users do.
INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run tests that use `store_kind` on each kind of store: on S3 only in sweeps, unless marked `everywhere`."""
    if "store_kind" in metafunc.fixturenames:
        marks = [pytest.mark.services]
        if metafunc.definition.get_closest_marker("everywhere") is None:
            marks.append(pytest.mark.sweep)
        metafunc.parametrize("store_kind", ["file", pytest.param("s3", marks=marks)], indirect=True, scope="session")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """If a sweep has a time limit, sort its cases by `sweep_order`; other tests are already deselected."""
    if seconds() is not None and all(item.get_closest_marker("sweep") is not None for item in items):
        places = {name: place for place, name in enumerate(sweep_order([item.nodeid for item in items]))}
        items.sort(key=lambda item: places[item.nodeid])


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("sweep") is not None and is_over():
        pytest.skip(f"the {seconds():g} s of this sweep (TIDELAKE_SWEEP_SECONDS) are used up")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Report the command that repeats a failed case of a sweep."""
    report = yield
    seed = item.callspec.params.get("seed") if isinstance(item, pytest.Function) and hasattr(item, "callspec") else None
    if report.failed and seed is not None and item.get_closest_marker("sweep") is not None:
        report.sections.append((f"to repeat this with seed {seed}", command(int(str(seed)), item.nodeid)))
    return report


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The session that every Spark test shares."""
    from tidelake.spark.session import start_session

    settings = {"spark.sql.shuffle.partitions": "2", **YOUNG}
    if not os.environ.get("TIDELAKE_TEST_CODEGEN"):
        settings |= INTERPRETED
    session = start_session("tidelake-tests", "local[2]", settings, jar_sets=["s3"])
    yield session
    session.stop()


@pytest.fixture
def interpreted(spark: SparkSession) -> SparkSession:
    """A second session, which always interprets its plans, because a sweep runs each of them only once.

    Compiling the plans would take up half of the sweep's time. Other tests run in the shared session.
    """
    session = spark.newSession()
    session.conf.set("spark.sql.shuffle.partitions", "1")
    session.conf.set("spark.sql.adaptive.enabled", "false")
    session.conf.set("spark.sql.codegen.wholeStage", "false")
    session.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
    return session


@pytest.fixture
def lake(tmp_path: Path, spark: SparkSession) -> Lake:
    """A plain collection on an empty topic."""
    from tests.lakes.lake import Lake

    return Lake(tmp_path, spark)


@pytest.fixture
def lakes(tmp_path: Path) -> Lakes:
    """A plain and an append-only collection on empty topics, for Dagster."""
    from tests.lakes.dagster_lakes import Lakes

    return Lakes(tmp_path / "lakes", {"prices": "plain", "visits": "append_only"})


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[DagsterInstance]:
    """A real Dagster instance on SQLite, with the project's own settings."""
    from dagster import DagsterInstance

    from orchestration.settings import PROJECT

    home = tmp_path / "home"
    home.mkdir()
    shutil.copy(PROJECT / "orchestration" / "dagster.yaml", home / "dagster.yaml")
    with DagsterInstance.from_config(str(home)) as real:
        yield real


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    """The Kafka broker that all tests share; each test creates its own topics."""
    from tests.services.kafka import kafka_broker

    with _service_folder("kafka") as folder, kafka_broker(folder) as running:
        yield running


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """The PostgreSQL server that all tests share; each test creates its own database."""
    from tests.services.postgres import postgres_server

    with _service_folder("postgres") as folder, postgres_server(folder) as running:
        yield running


@pytest.fixture(scope="session")
def connect(broker: Broker) -> Iterator[Connect]:
    """The Kafka Connect worker that all tests share; each test adds its own connectors."""
    from tests.services.connect import connect_worker

    with _service_folder("connect") as folder, connect_worker(folder, broker) as running:
        yield running


@pytest.fixture(scope="session")
def registry() -> Iterator[Registry]:
    """The schema registry that all tests share; each test has its own subjects."""
    from tests.services.registry import schema_registry

    with _service_folder("registry") as folder, schema_registry(folder) as running:
        yield running


@pytest.fixture(scope="session")
def object_store() -> Iterator[ObjectStore]:
    """The S3 server that all tests share; each test creates its own bucket."""
    from tests.services.object_store import s3_server

    with _service_folder("object-store") as folder, s3_server(folder) as running:
        yield running


@pytest.fixture(scope="session")
def store_kind(request: pytest.FixtureRequest) -> str:
    """Where this test's stores are: `file` or `s3`."""
    return str(request.param)


@pytest.fixture(scope="session")
def stores_by_kind(request: pytest.FixtureRequest) -> dict[str, Stores]:
    """The stores of each kind; the S3 server is started when the stores in S3 are first asked for."""
    from tests.lakes.places import Bucket, Stores

    class ByKind(dict[str, Stores]):
        def __missing__(self, kind: str) -> Stores:
            if kind == "file":
                self[kind] = Stores()
            else:
                server = request.getfixturevalue("object_store")
                self[kind] = Stores(Bucket(server, server.create_bucket()))
            return self[kind]

    return ByKind()


@pytest.fixture(scope="session")
def stores(store_kind: str, stores_by_kind: dict[str, Stores]) -> Stores:
    """The stores of the kind that a test runs on."""
    return stores_by_kind[store_kind]


@pytest.fixture
def any_store(stores: Stores, tmp_path: Path) -> Path:
    """The test's own folder: lakes below it have their stores in the folder, or in S3."""
    return stores.hold(tmp_path)


@contextmanager
def _service_folder(name: str) -> Iterator[Path]:
    """A folder for a server's data, removed afterwards.

    It is not one of pytest's own folders: those are kept, and other users cannot read them.
    """
    folder = Path(tempfile.mkdtemp(prefix=f"tidelake-{name}-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


@pytest.fixture(scope="session")
def held_template(tmp_path_factory: pytest.TempPathFactory) -> HeldLake:
    """A collection without rows, sealed up to 10, which tests copy before they change it."""
    from tests.lakes.held import HeldLake

    return HeldLake.create(tmp_path_factory.mktemp("held") / "lake", upper=10)


@pytest.fixture
def held_lake(held_template: HeldLake, tmp_path: Path) -> HeldLake:
    """A collection without rows, sealed up to 10."""
    return held_template.copy(tmp_path / "lake")


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> WholeStore:
    """A store of every family and framing, which tests copy before they change anything."""
    from tests.lakes.whole_store import make_whole_store

    return make_whole_store(tmp_path_factory.mktemp("whole"))
