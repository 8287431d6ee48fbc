"""Where the engines find credentials for S3, and how they notice new ones."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest
from py4j.java_gateway import JavaGateway

from tests.services.object_store import ObjectStore
from tidelake.settings.object_store import ObjectStorePlace, S3Settings
from tidelake.spark.jars import resolve_sets
from tidelake.storage.s3 import access_of
from tidelake.storage.spark_store import configure

pytestmark = pytest.mark.services


@pytest.fixture
def jvm(tmp_path: Path, object_store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A JVM with Hadoop but without Spark, in an environment that has only a web identity."""
    if object_store.clock is None:
        pytest.skip("of the S3 servers here, only moto accepts any web identity")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    token = tmp_path / "token"
    token.write_text("a token", encoding="ascii")
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(token))
    monkeypatch.setenv("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/lake")
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", object_store.endpoint)
    jars = Path(pyspark.__file__).parent / "jars"
    class_path = [*map(str, resolve_sets(("s3",))), str(jars / "*")]
    gateway = JavaGateway.launch_gateway(
        jarpath=str(next(jars.glob("py4j-*.jar"))), classpath=":".join(class_path), die_on_exit=True
    )
    yield gateway.jvm
    gateway.shutdown()


def test_spark_uses_a_web_identity(jvm: Any, object_store: ObjectStore) -> None:
    place = ObjectStorePlace(uri=f"s3://{object_store.create_bucket()}/store", s3=S3Settings())
    hadoop = jvm.org.apache.hadoop.conf.Configuration()
    configure(hadoop, access_of(place))
    path = jvm.org.apache.hadoop.fs.Path(f"{place.uri}/a")
    files = path.getFileSystem(hadoop)
    files.create(path).close()
    assert files.getFileStatus(path).getLen() == 0
    assert files.shareCredentials("test").resolveCredentials().accessKeyId().startswith("ASIA"), "the role's key"


def test_a_platform_may_choose_its_own_credentials(jvm: Any) -> None:
    hadoop = jvm.org.apache.hadoop.conf.Configuration()
    hadoop.set("fs.s3a.aws.credentials.provider", "com.example.Provider")
    configure(hadoop, access_of(ObjectStorePlace(uri="s3://lake/store")))
    assert hadoop.get("fs.s3a.bucket.lake.aws.credentials.provider") is None
