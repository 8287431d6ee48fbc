"""Where the engines find credentials for S3, and how they notice new ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyspark
import pytest
from py4j.java_gateway import JavaGateway
from py4j.protocol import Py4JJavaError

from tests.services.faulty_proxy import FaultyProxy, faulty_proxy
from tests.services.object_store import ObjectStore
from tidelake.errors import ConfigurationError, StoreAccessDenied
from tidelake.settings.object_store import ObjectStorePlace, S3Settings
from tidelake.settings.secret import Secret
from tidelake.spark.jars import resolve_sets
from tidelake.storage import blobs
from tidelake.storage.s3 import Access, access_of
from tidelake.storage.spark_store import configure, prepare_jvm

pytestmark = pytest.mark.services


@pytest.fixture
def web_identity(tmp_path: Path, object_store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment that has only a web identity."""
    if object_store.clock is None:
        pytest.skip("of the S3 servers here, only moto accepts any web identity")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    token = tmp_path / "token"
    token.write_text("a token", encoding="ascii")
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(token))
    monkeypatch.setenv("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/lake")
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", object_store.endpoint)


@pytest.fixture
def gateway() -> Iterator[JavaGateway]:
    """A JVM with Hadoop, but without Spark, that starts in the environment of the test."""
    jars = Path(pyspark.__file__).parent / "jars"
    class_path = [*map(str, resolve_sets(("s3",))), str(jars / "*")]
    running = JavaGateway.launch_gateway(
        jarpath=str(next(jars.glob("py4j-*.jar"))), classpath=":".join(class_path), die_on_exit=True
    )
    yield running
    running.shutdown()


@dataclass
class Renewed:
    """A store whose access key is in files, and expires."""

    place: ObjectStorePlace
    proxy: FaultyProxy
    folder: Path

    def write(self, key_id: str, *names: str) -> None:
        """Write another access key into the files, or only into those with these names."""
        for name in names or ("access_key_id", "secret_access_key", "session_token"):
            (self.folder / name).write_text(f"{key_id}\n", encoding="ascii")


@pytest.fixture
def renewed(tmp_path: Path, object_store: ObjectStore) -> Iterator[Renewed]:
    if object_store.clock is None:
        pytest.skip("of the S3 servers here, only moto accepts any access key")
    with faulty_proxy(object_store.endpoint) as proxy:
        settings = S3Settings(
            endpoint=proxy.endpoint,
            access_key_id=Secret(file=tmp_path / "access_key_id"),
            secret_access_key=Secret(file=tmp_path / "secret_access_key"),
            session_token=Secret(file=tmp_path / "session_token"),
        )
        place = ObjectStorePlace(uri=f"s3://{object_store.create_bucket()}/store", s3=settings)
        store = Renewed(place, proxy, tmp_path)
        store.write("FIRST")
        proxy.key_id = "FIRST"
        yield store


# --- sources


@pytest.mark.usefixtures("web_identity")
def test_spark_uses_a_web_identity(gateway: JavaGateway, object_store: ObjectStore) -> None:
    place = ObjectStorePlace(uri=f"s3://{object_store.create_bucket()}/store", s3=S3Settings())
    hadoop = gateway.jvm.org.apache.hadoop.conf.Configuration()
    configure(hadoop, access_of(place))
    path = gateway.jvm.org.apache.hadoop.fs.Path(f"{place.uri}/a")
    files = path.getFileSystem(hadoop)
    files.create(path).close()
    assert files.getFileStatus(path).getLen() == 0
    assert files.shareCredentials("test").resolveCredentials().accessKeyId().startswith("ASIA"), "the role's key"


def test_a_platform_may_choose_its_own_credentials(gateway: JavaGateway) -> None:
    hadoop = gateway.jvm.org.apache.hadoop.conf.Configuration()
    hadoop.set("fs.s3a.aws.credentials.provider", "com.example.Provider")
    configure(hadoop, access_of(ObjectStorePlace(uri="s3://lake/store")))
    assert hadoop.get("fs.s3a.bucket.lake.aws.credentials.provider") is None


def test_what_spark_was_given_for_a_bucket_stays_unless_the_settings_have_credentials(
    gateway: JavaGateway, tmp_path: Path
) -> None:
    for name in ("id", "secret"):
        (tmp_path / name).write_text(f"lake's {name}", encoding="ascii")
    keys = {name: Secret(file=tmp_path / name) for name in ("id", "secret")}
    settings = S3Settings(access_key_id=keys["id"], secret_access_key=keys["secret"])
    without, named = (access_of(ObjectStorePlace(uri="s3://lake/store", s3=s3)) for s3 in (S3Settings(), settings))
    names = ("access.key", "secret.key", "session.token", "aws.credentials.provider")

    def configured(given: dict[str, str], *accesses: Access) -> list[str | None]:
        hadoop = gateway.jvm.org.apache.hadoop.conf.Configuration()
        for name, value in given.items():
            hadoop.set(f"fs.s3a.bucket.lake.{name}", value)
        for access in accesses:
            configure(hadoop, access)
        return [hadoop.get(f"fs.s3a.bucket.lake.{name}") for name in names]

    own = configured({}, without)
    assert own[:3] == [None] * 3 and own[3]
    given = {"access.key": "a", "secret.key": "b", "session.token": "c", "aws.credentials.provider": "com.example.Own"}
    assert configured(given, without, without) == [*given.values()]
    assert configured(dict(list(given.items())[:3]), without) == ["a", "b", "c", own[3]]
    stated = configured({}, named)
    assert stated[:3] == ["lake's id", "lake's secret", None]
    assert configured(given, named)[:2] == stated[:2] and configured(given, named)[3] == stated[3]
    assert configured({}, named, without) == own, "what the settings no longer have is removed"


# --- renewal


def test_credentials_that_were_renewed_in_files_are_used_for_the_next_request(renewed: Renewed) -> None:
    blob = blobs.remember(renewed.place) / "a"
    blobs.write(blob, b"1")
    opened = blobs.open_file(blob)
    renewed.proxy.key_id = "SECOND"
    with pytest.raises(StoreAccessDenied, match="ExpiredToken"):
        blobs.read(blob)
    renewed.write("SECOND")
    assert (blobs.read(blob), opened.read()) == (b"1", b"1"), "a file that was already open can be read, too"
    (renewed.folder / "session_token").unlink()
    with pytest.raises(StoreAccessDenied, match=r"session_token: .*cannot be read: No such file"):
        blobs.read(blob)


def opener(gateway: JavaGateway, path: Any) -> Callable[[ObjectStorePlace], Any]:
    """Return a function that prepares a place, and returns the file system that Hadoop then gives to queries."""
    hadoop, context = gateway.jvm.org.apache.hadoop.conf.Configuration(), object()

    def opened(place: ObjectStorePlace) -> Any:
        prepare_jvm(gateway, lambda: hadoop, place, context)
        return path.getFileSystem(hadoop)

    return opened


def test_spark_uses_renewed_credentials_and_what_runs_is_not_disturbed(
    gateway: JavaGateway, renewed: Renewed, monkeypatch: pytest.MonkeyPatch
) -> None:
    blobs.write(blobs.remember(renewed.place) / "a", b"1")
    path = gateway.jvm.org.apache.hadoop.fs.Path(f"{renewed.place.uri}/a")
    open_for = opener(gateway, path)

    def opened() -> Any:
        return open_for(renewed.place)

    first = opened()
    assert first.getFileStatus(path).getLen() == 1
    assert opened().equals(first), "nothing has changed"
    renewed.proxy.key_id = "SECOND"
    with pytest.raises(Py4JJavaError, match="AWSBadRequestException"):
        opened().getFileStatus(path)
    renewed.write("SECOND", "access_key_id")
    assert not opened().equals(first), "a new file system, although only one of the two credentials is new"
    renewed.write("SECOND")
    second = opened()
    assert second.getFileStatus(path).getLen() == 1
    renewed.proxy.key_id = "FIRST"
    assert first.getFileStatus(path).getLen() == 1, "a query that has begun can finish with the earlier credentials"
    monkeypatch.setattr("tidelake.storage.spark_store.KEPT_OPEN_S", 0)
    renewed.write("THIRD")
    renewed.proxy.key_id = "THIRD"
    assert opened().getFileStatus(path).getLen() == 1
    for replaced in (first, second):
        with pytest.raises(Py4JJavaError, match="is closed"):
            replaced.getFileStatus(path)


# --- two lakes in one process


def test_one_uri_at_two_endpoints_is_refused(gateway: JavaGateway) -> None:
    here, there = (S3Settings(endpoint=f"https://{host}.example") for host in ("staging", "production"))
    blobs.remember(ObjectStorePlace(uri="s3://two-endpoints/shop", s3=here))
    with pytest.raises(
        ConfigurationError, match=r"is https://production.example, but s3://two-endpoints/shop is reached"
    ):
        blobs.remember(ObjectStorePlace(uri="s3://two-endpoints/shop", s3=there))
    hadoop, context = gateway.jvm.org.apache.hadoop.conf.Configuration(), object()
    prepare_jvm(gateway, lambda: hadoop, ObjectStorePlace(uri="s3://two-endpoints/shop", s3=here), context)
    with pytest.raises(ConfigurationError, match=r"but Spark reaches s3://two-endpoints at https://staging.example"):
        prepare_jvm(gateway, lambda: hadoop, ObjectStorePlace(uri="s3://two-endpoints/web", s3=there), context)


def test_lakes_that_share_a_bucket_take_turns_and_close_no_file_system(
    gateway: JavaGateway, renewed: Renewed, tmp_path: Path
) -> None:
    blobs.write(blobs.remember(renewed.place) / "a", b"1")
    path = gateway.jvm.org.apache.hadoop.fs.Path(f"{renewed.place.uri}/a")
    open_for = opener(gateway, path)
    renewed.proxy.key_id = None
    (tmp_path / "other").write_text("OTHER", encoding="ascii")
    slow, other = (
        ObjectStorePlace(uri=renewed.place.uri, s3=renewed.place.s3.model_copy(update=changed))
        for changed in ({"request_timeout_s": 60}, {"access_key_id": Secret(file=tmp_path / "other")})
    )
    first, second = open_for(renewed.place), open_for(other)
    assert not second.equals(first)
    for _ in range(3):
        assert open_for(renewed.place).equals(first)
        assert open_for(slow).equals(first), "a timeout is no reason to replace a file system"
        assert open_for(other).equals(second)
    assert [system.getFileStatus(path).getLen() for system in (first, second)] == [1, 1], "both are open"
