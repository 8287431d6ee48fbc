"""moto's S3 server, on 127.0.0.1 and in memory, with or without TLS."""

from __future__ import annotations

import os
import secrets
import ssl
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from tests.services.process import Server, free_ports

ENVIRONMENT = {"AWS_ACCESS_KEY_ID": "tests", "AWS_SECRET_ACCESS_KEY": "a/secret+of=tests", "AWS_REGION": "us-east-1"}
SECRETS = ("access_key_id", "secret_access_key")


@dataclass
class ObjectStore:
    """A running server."""

    endpoint: str
    server: Server
    secrets: Path
    """The folder of the files that hold the credentials: a process may have started before the server."""
    ca_file: Path | None = None
    """The authority that signed its certificate, if it uses TLS."""

    def create_bucket(self, name: str | None = None) -> str:
        """Create a bucket, and return its name, which is random by default."""
        bucket = name or f"lake-{secrets.token_hex(6)}"
        request = urllib.request.Request(f"{self.endpoint}/{bucket}", method="PUT")
        with urllib.request.urlopen(request, timeout=30, context=_trusting(self.ca_file)):
            return bucket

    def settings(self, folder: str = "store", endpoint: str | None = None, **more: Any) -> dict[str, Any]:
        """The settings of a store in a bucket of its own; requests may go to another endpoint, such as a proxy's."""
        secret = {name: {"file": str(self.secrets / name)} for name in SECRETS}
        block = {"endpoint": endpoint or self.endpoint, "region": ENVIRONMENT["AWS_REGION"], **secret, **more}
        if self.ca_file is not None:
            block["ca_file"] = str(self.ca_file)
        return {"store": f"s3://{self.create_bucket()}/{folder}", "s3": block}


def _trusting(ca_file: Path | None) -> ssl.SSLContext | None:
    return None if ca_file is None else ssl.create_default_context(cafile=str(ca_file))


@contextmanager
def object_store_server(folder: Path, uses_tls: bool = False) -> Iterator[ObjectStore]:
    """Start a server, whose contents are gone when the context ends; inside, the environment has its credentials.

    Cost: two seconds, and 100 MB of memory.
    """
    [port] = free_ports(1)
    endpoint = f"{'https' if uses_tls else 'http'}://127.0.0.1:{port}"
    command = [sys.executable, "-W", "ignore", "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
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

    environment = {**ENVIRONMENT, "AWS_ENDPOINT_URL": endpoint}
    before = {name: os.environ.get(name) for name in environment}
    try:
        server.start(ready)
        os.environ.update(environment)
        for name in SECRETS:
            (folder / name).write_text(ENVIRONMENT[f"AWS_{name.upper()}"], encoding="utf-8")
        yield ObjectStore(endpoint, server, folder, ca_file)
    finally:
        server.stop()
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def write_certificates(folder: Path) -> Path:
    """Write a certificate for 127.0.0.1 and its key, signed by an authority of its own; return the authority's."""
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
