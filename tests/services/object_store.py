"""S3 servers on 127.0.0.1: moto's, in memory, with or without TLS; and MinIO, if it was built."""

from __future__ import annotations

import os
import secrets
import shutil
import ssl
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import boto3
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from tests.services.process import Server, free_ports
from tidelake.settings.object_store import bucket_and_prefix
from tidelake.spark.jars import SERVICES_FOLDER

ENVIRONMENT = {"AWS_ACCESS_KEY_ID": "tests", "AWS_SECRET_ACCESS_KEY": "a/secret+of=tests", "AWS_REGION": "us-east-1"}
SECRETS = ("access_key_id", "secret_access_key")
_BUILT = SERVICES_FOLDER.parent / "minio"
"""The folder into which `make minio` puts MinIO."""
_OF_MINIO = {
    "MINIO_ROOT_USER": ENVIRONMENT["AWS_ACCESS_KEY_ID"],
    "MINIO_ROOT_PASSWORD": ENVIRONMENT["AWS_SECRET_ACCESS_KEY"],
    "MINIO_BROWSER": "off",
    "MINIO_UPDATE": "off",
}


@dataclass
class ObjectStore:
    """A running server."""

    endpoint: str
    server: Server
    secrets: Path
    """The folder with the credentials in files, for processes that started before the server."""
    ca_file: Path | None = None
    """The certificate of the authority that signed the server's, if the server uses TLS."""
    clock: Path | None = None
    """The file that moves the server's clock; None if the clock cannot be moved."""

    def create_bucket(self, name: str | None = None) -> str:
        """Create a bucket, and return its name, which is random by default."""
        bucket = name or f"lake-{secrets.token_hex(6)}"
        with self._client() as client:
            client.create_bucket(Bucket=bucket)
        return bucket

    def keys(self, uri: str) -> list[str]:
        """The names of all objects below a URI, including those that obstore cannot name."""
        bucket, prefix = bucket_and_prefix(uri)
        with self._client() as client:
            pages = client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=f"{prefix}/")
            return [item["Key"] for page in pages for item in page.get("Contents", ())]

    @contextmanager
    def _client(self) -> Iterator[Any]:
        client = boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            region_name=ENVIRONMENT["AWS_REGION"],
            aws_access_key_id=ENVIRONMENT["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=ENVIRONMENT["AWS_SECRET_ACCESS_KEY"],
            verify=None if self.ca_file is None else str(self.ca_file),
        )
        try:
            yield client
        finally:
            client.close()

    def settings(self, folder: str = "store", endpoint: str | None = None, **more: Any) -> dict[str, Any]:
        """The settings of a store in a bucket of its own; requests may go to another endpoint, such as a proxy's."""
        return self.settings_of(f"s3://{self.create_bucket()}/{folder}", endpoint, **more)

    def settings_of(self, uri: str, endpoint: str | None = None, **more: Any) -> dict[str, Any]:
        """The settings of a store at a URI; requests may go to another endpoint, such as a proxy's."""
        secret = {name: {"file": str(self.secrets / name)} for name in SECRETS}
        block = {"endpoint": endpoint or self.endpoint, "region": ENVIRONMENT["AWS_REGION"], **secret, **more}
        if self.ca_file is not None:
            block["ca_file"] = str(self.ca_file)
        return {"store": uri, "s3": block}

    @contextmanager
    def clock_moved(self, by_s: float) -> Iterator[None]:
        """Inside the `with` block, move the server's clock relative to this machine's."""
        if self.clock is None:
            pytest.skip("the clock of this S3 server cannot be moved")
        before = self.clock.read_text(encoding="ascii")
        self._set_clock(f"{by_s}")
        try:
            yield
        finally:
            self._set_clock(before)

    def _set_clock(self, by_s: str) -> None:
        assert self.clock is not None
        new = self.clock.with_name("clock.new")
        new.write_text(by_s, encoding="ascii")
        os.replace(new, self.clock)


@contextmanager
def s3_server(folder: Path) -> Iterator[ObjectStore]:
    """Start the S3 server that `TIDELAKE_TEST_S3` names: `moto`, by default, or `minio`."""
    kind = os.environ.get("TIDELAKE_TEST_S3", "moto")
    assert kind in ("moto", "minio"), f"TIDELAKE_TEST_S3 is {kind}, but there are only moto and minio"
    with minio_server(folder) if kind == "minio" else object_store_server(folder) as server:
        yield server


def _trusting(ca_file: Path | None) -> ssl.SSLContext | None:
    return None if ca_file is None else ssl.create_default_context(cafile=str(ca_file))


@contextmanager
def object_store_server(folder: Path, uses_tls: bool = False) -> Iterator[ObjectStore]:
    """Start moto, whose contents are lost when the context ends; inside it, the environment has the credentials.

    Cost: two seconds, and 100 MB of memory.
    """
    [port] = free_ports(1)
    endpoint = f"{'https' if uses_tls else 'http'}://127.0.0.1:{port}"
    clock = folder / "clock"
    clock.write_text("0", encoding="ascii")
    command = [sys.executable, "-W", "ignore", "-m", "tests.services.moto_server", str(clock)]
    command += ["-H", "127.0.0.1", "-p", str(port)]
    ca_file = None
    if uses_tls:
        ca_file = write_certificates(folder)
        command += ["-c", str(folder / "server.pem"), "-k", str(folder / "server.key")]
    server = Server("the object store", command, folder / "moto.log")

    def ready() -> bool:
        try:
            with urllib.request.urlopen(f"{endpoint}/moto-api/", timeout=2, context=_trusting(ca_file)) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    with _running(ObjectStore(endpoint, server, folder, ca_file, clock), ready) as running:
        yield running


@contextmanager
def minio_server(folder: Path) -> Iterator[ObjectStore]:
    """Start MinIO on a folder, or skip the test if it was not built; in the context, the environment has credentials.

    Cost: two seconds, and 200 MB of memory.
    """
    minio = shutil.which("minio") or shutil.which("minio", path=str(_BUILT))
    if minio is None:
        pytest.skip("there is no MinIO: `make minio` builds it if Go is on PATH")
    [port] = free_ports(1)
    address = f"127.0.0.1:{port}"
    command = [minio, "server", "--quiet", "--address", address, str(folder / "data")]
    server = Server("MinIO", command, folder / "minio.log")

    def ready() -> bool:
        try:
            with urllib.request.urlopen(f"http://{address}/minio/health/ready", timeout=2) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    (folder / "data").mkdir()
    with _running(ObjectStore(f"http://{address}", server, folder), ready) as running:
        yield running


@contextmanager
def _running(store: ObjectStore, ready: Callable[[], bool]) -> Iterator[ObjectStore]:
    """Start a server, and stop it at the end; inside the context, the environment has its credentials."""
    environment = {**ENVIRONMENT, "AWS_ENDPOINT_URL": store.endpoint}
    before = {name: os.environ.get(name) for name in environment}
    try:
        store.server.start(ready, _OF_MINIO)
        os.environ.update(environment)
        for name in SECRETS:
            (store.secrets / name).write_text(ENVIRONMENT[f"AWS_{name.upper()}"], encoding="utf-8")
        yield store
    finally:
        store.server.stop()
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def write_certificates(folder: Path) -> Path:
    """Write a certificate for 127.0.0.1, signed by a new authority, and its key; return the authority's certificate."""
    authority_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    authority_name, name = (
        x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)]) for text in ("tests' authority", "127.0.0.1")
    )
    now = datetime.now(UTC)

    def signed(subject: x509.Name, public: ec.EllipticCurvePublicKey, extension: x509.ExtensionType) -> bytes:
        builder = (
            x509.CertificateBuilder(issuer_name=authority_name, subject_name=subject, public_key=public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=1))
            .add_extension(extension, critical=False)
        )
        return builder.sign(authority_key, hashes.SHA256()).public_bytes(Encoding.PEM)

    authority = x509.BasicConstraints(ca=True, path_length=None)
    (folder / "ca.pem").write_bytes(signed(authority_name, authority_key.public_key(), authority))
    here = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
    (folder / "server.pem").write_bytes(signed(name, key.public_key(), here))
    (folder / "server.key").write_bytes(
        key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())
    )
    return folder / "ca.pem"
