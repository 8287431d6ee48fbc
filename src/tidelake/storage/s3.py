"""Gives three engines access to S3: obstore, delta-rs, and Spark's S3A.

All three get the same endpoint, region and credentials. The environment supplies what the settings leave out. The
values that this module returns contain secrets: they must not be logged, put into an error, or stored.
"""

from __future__ import annotations

import atexit
import os
import ssl
import tempfile
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidelake.errors import ConfigurationError
from tidelake.settings.loopback import is_loopback
from tidelake.settings.object_store import ObjectStorePlace, S3Settings
from tidelake.settings.secret import read_secret

if TYPE_CHECKING:
    from obstore.store import S3Credential, S3Store

_CONNECT_TIMEOUT_S = 5
_SOCKET_TIMEOUT_S_MIN = 15
"""The shortest timeout that S3A accepts without a warning."""
_RETRIES_MAX = 5
_REGION = "us-east-1"
PROVIDERS = "aws.credentials.provider"
"""S3A's option for the sources of credentials, in order."""
_CREDENTIALS = ("access_key_id", "secret_access_key", "session_token")


@dataclass(frozen=True)
class Access:
    """How to reach a bucket, from the settings and the environment together."""

    bucket: str
    prefix: str
    endpoint: str | None
    region: str
    path_style: bool
    allow_http: bool
    timeout_s: int
    credentials: dict[str, str] = field(repr=False)
    """By the names in `S3Settings`; empty if the settings give none, so that each engine looks in its environment."""
    has_web_identity: bool = False
    """Whether the environment names a role for a web identity."""
    ca_file: Path | None = None

    @property
    def host_endpoint(self) -> str | None:
        """The endpoint that requests go to: the bucket is part of its host unless it is part of the path."""
        if self.endpoint is None or self.path_style:
            return self.endpoint
        scheme, _, host = self.endpoint.partition("://")
        return f"{scheme}://{self.bucket}.{host}"


def access_of(place: ObjectStorePlace) -> Access:
    """Read the settings and, for what they leave out, the environment.

    Raises:
        ConfigurationError: a secret or the file with the certificate authorities cannot be read.
    """
    settings, environment, endpoint = place.s3, os.environ, endpoint_of(place)
    path_style = settings.path_style
    if path_style is None:  # if the bucket's name has a dot, the host would not match its certificate
        path_style = endpoint is not None or "." in place.bucket
    return Access(
        bucket=place.bucket,
        prefix=place.prefix,
        endpoint=endpoint,
        region=settings.region or environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION") or _REGION,
        path_style=path_style,
        allow_http=settings.allow_http or _is_of_this_machine(endpoint) or environment.get("AWS_ALLOW_HTTP") == "true",
        timeout_s=settings.request_timeout_s,
        credentials=_read_credentials(settings),
        has_web_identity=all(environment.get(name) for name in ("AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_ROLE_ARN")),
        ca_file=settings.ca_file,
    )


def endpoint_of(place: ObjectStorePlace) -> str | None:
    """Return the URL of the service, from the settings or the environment; None for Amazon S3."""
    endpoint = place.s3.endpoint or os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    return endpoint.rstrip("/") if endpoint else None


def check_endpoint(place: ObjectStorePlace, used: str, endpoint: str | None) -> None:
    """Refuse to reach a place at another endpoint: two lakes with one URI would be mistaken for each other.

    Args:
        place: the place.
        used: what already uses an endpoint, such as `Spark reaches s3://lake`.
        endpoint: that endpoint.

    Raises:
        ConfigurationError: the place has another endpoint.
    """
    if (asked := endpoint_of(place)) != endpoint:
        raise ConfigurationError(
            place.uri,
            "s3.endpoint",
            f"is {asked or 'that of Amazon S3'}, "
            f"but {used} at {endpoint or 'the endpoint of Amazon S3'} in this process",
            "open the other lake in a process of its own; if the endpoint has changed, restart this one",
        )


def _read_credentials(settings: S3Settings) -> dict[str, str]:
    secrets = {name: secret for name in _CREDENTIALS if (secret := getattr(settings, name)) is not None}
    return {name: read_secret(secret, f"s3.{name}") for name, secret in secrets.items()}


def open_store(place: ObjectStorePlace) -> S3Store:
    """Open the bucket for obstore; nothing is sent yet.

    Raises:
        ConfigurationError: see `access_of`.
    """
    from obstore.store import S3Store

    access = access_of(place)
    config: dict[str, Any] = {
        "region": access.region,
        "virtual_hosted_style_request": not access.path_style,
        "conditional_put": "etag",
    }
    if access.host_endpoint is not None:
        config["endpoint"] = access.host_endpoint
    options: dict[str, Any] = {
        "allow_http": access.allow_http,
        "timeout": timedelta(seconds=access.timeout_s),
        "connect_timeout": timedelta(seconds=min(_CONNECT_TIMEOUT_S, access.timeout_s)),
    }
    if access.ca_file is not None:
        options["root_certificate"] = _read_ca(access.ca_file)
    return S3Store(
        access.bucket,
        prefix=access.prefix or None,
        config=config,  # type: ignore[arg-type]
        client_options=options,  # type: ignore[arg-type]
        credential_provider=partial(_present_credentials, place.s3) if access.credentials else None,
        retry_config={
            "max_retries": _RETRIES_MAX,
            "retry_timeout": timedelta(seconds=access.timeout_s),
            "backoff": {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=2), "base": 2},
        },
    )


def _present_credentials(settings: S3Settings) -> S3Credential:
    """Return the credentials for one request. The files with the secrets can change while a process runs."""
    present = _read_credentials(settings)
    return {
        "access_key_id": present["access_key_id"],
        "secret_access_key": present["secret_access_key"],
        "token": present.get("session_token"),
        "expires_at": datetime.now(UTC),  # the next request asks again
    }


def delta_options(access: Access) -> dict[str, str]:
    """Return the storage options for delta-rs."""
    options = {
        "aws_conditional_put": "etag",
        "aws_region": access.region,
        "aws_virtual_hosted_style_request": str(not access.path_style).lower(),
        "aws_allow_http": str(access.allow_http).lower(),
        "timeout": f"{access.timeout_s}s",
        "connect_timeout": f"{min(_CONNECT_TIMEOUT_S, access.timeout_s)}s",
        "max_retries": str(_RETRIES_MAX),
        "retry_timeout": f"{access.timeout_s}s",
        **{f"aws_{name}": value for name, value in access.credentials.items()},
    }
    if access.host_endpoint is not None:
        options["aws_endpoint_url"] = access.host_endpoint
    if access.ca_file is not None:
        _trust(access.ca_file)
    return options


def hadoop_options(access: Access) -> dict[str, str]:
    """Return the S3A options for the bucket. Spark must not get them on a command line, which anybody could read."""
    options = {
        "endpoint.region": access.region,
        "path.style.access": str(access.path_style).lower(),
        "connection.ssl.enabled": str(not (access.endpoint or "").startswith("http:")).lower(),
        "connection.timeout": f"{max(_SOCKET_TIMEOUT_S_MIN, access.timeout_s)}s",
        "attempts.maximum": str(_RETRIES_MAX),
        "retry.limit": str(_RETRIES_MAX),
        "committer.magic.enabled": "true",
        "directory.marker.retention": "delete",
    }
    if access.endpoint is not None:
        options["endpoint"] = access.endpoint
    for name, value in access.credentials.items():
        options[_HADOOP_NAMES[name]] = value
    if access.credentials:
        providers = [_TEMPORARY if "session_token" in access.credentials else _SIMPLE]
    else:
        providers = [_TEMPORARY, _SIMPLE, _OF_ENVIRONMENT, _OF_WEB_IDENTITY]
        if not access.has_web_identity:  # a refused web identity must not fall back to the machine's role
            providers.append(_OF_MACHINE)
    options[PROVIDERS] = ",".join(providers)
    return {f"fs.s3a.bucket.{access.bucket}.{name}": value for name, value in options.items()}


# S3A's own list has no web identity. The order is that of obstore. Spark copies the driver's environment into the
# options, from which executors get it.
_TEMPORARY = "org.apache.hadoop.fs.s3a.TemporaryAWSCredentialsProvider"
_SIMPLE = "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider"
_OF_ENVIRONMENT = "software.amazon.awssdk.auth.credentials.EnvironmentVariableCredentialsProvider"
_OF_WEB_IDENTITY = "software.amazon.awssdk.auth.credentials.WebIdentityTokenFileCredentialsProvider"
_OF_MACHINE = "org.apache.hadoop.fs.s3a.auth.IAMInstanceCredentialsProvider"
_HADOOP_NAMES = {"access_key_id": "access.key", "secret_access_key": "secret.key", "session_token": "session.token"}
SECRETS = frozenset(_HADOOP_NAMES.values())
"""S3A's options that hold secrets."""


def _is_of_this_machine(endpoint: str | None) -> bool:
    host = (endpoint or "").partition("://")[2]
    return bool(host) and is_loopback(host.rpartition(":")[0] or host)


def _read_ca(file: Path) -> str:
    try:
        return file.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        problem = error.strerror if isinstance(error, OSError) else "not PEM"
        raise ConfigurationError(str(file), "s3.ca_file", f"cannot be read: {problem}", "correct the path") from None


_trusted: set[Path] = set()


def _trust(ca_file: Path) -> None:
    """Make delta-rs trust these authorities as well as the machine's: it reads only the variable `SSL_CERT_FILE`."""
    if ca_file in _trusted:
        return
    known = os.environ.get("SSL_CERT_FILE") or ssl.get_default_verify_paths().cafile
    parts = [Path(known).read_text(encoding="utf-8")] if known and Path(known).is_file() else []
    with tempfile.NamedTemporaryFile("w", prefix="tidelake-ca-", suffix=".pem", delete=False) as bundle:
        bundle.write("\n".join([*parts, _read_ca(ca_file)]))
    atexit.register(Path(bundle.name).unlink, missing_ok=True)
    os.environ["SSL_CERT_FILE"] = bundle.name
    _trusted.add(ca_file)
