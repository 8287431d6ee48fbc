"""Places in object stores, and how to reach an object store."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from pydantic import Field

from tidelake.settings.block import Block, Frozen
from tidelake.settings.clear_text import Consent, host_of
from tidelake.settings.place import folder_of, scheme_of
from tidelake.settings.secret import Secret, read_secret_place

UNTESTED = ("gs", "az", "abfss")
"""Schemes of object stores that the tests have never run on."""
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,253}[A-Za-z0-9]")
_SEGMENT = re.compile(r"[A-Za-z0-9._=+-]+")
_SECRETS = ("access_key_id", "secret_access_key", "session_token")
_CLEAR_DATA = Consent(
    setting="allow_http",
    place="endpoint",
    sends="data would go to {host} over http",
    nothing="no data is sent over http",
)


class S3Settings(Frozen):
    """How to reach buckets."""

    endpoint: str | None = Field(default=None, pattern=r"^https?://[^@/\s?#]+/?$")
    """The URL of the service, such as `https://minio.example:9000`; by default AWS_ENDPOINT_URL, else Amazon S3."""
    region: str | None = Field(default=None, pattern=r"^[A-Za-z0-9-]+$")
    """The region of the bucket; by default AWS_REGION or AWS_DEFAULT_REGION, else `us-east-1`."""
    path_style: bool | None = None
    """Whether requests name the bucket in the path, not in the host; by default, only if `endpoint` is set."""
    ca_file: Path | None = None
    """Additional certificate authorities to trust, in PEM."""
    allow_http: bool = False
    """Whether data may be sent over `http://` to another machine, where anyone in between can read it."""
    access_key_id: Secret | None = None
    """Where the access key's id is kept; without it, credentials come from the environment or the machine's role."""
    secret_access_key: Secret | None = None
    """Where the secret access key is kept."""
    session_token: Secret | None = None
    """Where the token of temporary credentials is kept."""
    request_timeout_s: int = Field(default=30, ge=1)
    """Maximum time to wait for a response; a request is retried for at most that long."""


class ObjectStorePlace(Frozen):
    """A folder in an object store: its canonical URI, and how the object store is reached."""

    uri: str
    s3: S3Settings = S3Settings()

    @property
    def scheme(self) -> str:
        """The scheme of the URI."""
        return self.uri.partition("://")[0]

    @property
    def bucket(self) -> str:
        """The name of the bucket."""
        return bucket_and_prefix(self.uri)[0]

    @property
    def prefix(self) -> str:
        """The prefix of the names of all objects, without a slash at either end; empty for the whole bucket."""
        return bucket_and_prefix(self.uri)[1]

    def overlaps(self, other: ObjectStorePlace) -> bool:
        """Whether the two folders are the same, or one is inside the other.

        >>> shop, shops = ObjectStorePlace(uri="s3://lake/shop"), ObjectStorePlace(uri="s3://lake/shops")
        >>> shop.overlaps(shops), shop.overlaps(ObjectStorePlace(uri="s3://lake"))
        (False, True)
        """
        return f"{self.uri}/".startswith(f"{other.uri}/") or f"{other.uri}/".startswith(f"{self.uri}/")

    def __str__(self) -> str:
        """The URI."""
        return self.uri


FolderPlace = Path | ObjectStorePlace
"""A folder on this machine or in an object store, as settings name it."""


def bucket_and_prefix(uri: str) -> tuple[str, str]:
    """Return the bucket and the prefix of a canonical URI.

    >>> bucket_and_prefix("s3://lake/shop/eu"), bucket_and_prefix("s3://lake")
    (('lake', 'shop/eu'), ('lake', ''))
    """
    bucket, _, prefix = uri.partition("://")[2].partition("/")
    return bucket, prefix


def canonical_uri(text: str) -> str:
    """Return the canonical URI of an object store's folder: its scheme in lower case, and no empty segments.

    Raises:
        ValueError: the text does not name a bucket, or a segment is `.` or `..` or has characters that are written in
            different ways in a URI and in a path.

    >>> canonical_uri("S3://lake//shop/"), canonical_uri("s3://lake")
    ('s3://lake/shop', 's3://lake')
    """
    scheme, _, rest = text.partition("://")
    bucket, *segments = rest.split("/")
    if not _BUCKET.fullmatch(bucket) and not (scheme.lower() == "abfss" and "@" in bucket):
        raise ValueError(f"does not name a bucket: {bucket!r}")
    names = [segment for segment in segments if segment]
    for name in names:
        if name in (".", ".."):
            raise ValueError(f"has the name {name!r}, which is not a folder in an object store")
        if not _SEGMENT.fullmatch(name):
            raise ValueError(f"has characters other than letters, digits and `._=+-` in the name {name!r}")
    return "/".join([f"{scheme.lower()}://{bucket}", *names])


class ObjectStores(Frozen):
    """The settings for all object stores."""

    s3: S3Settings = S3Settings()
    allows_untested: bool = False

    def place(
        self, text: str, base: Path, fail: Callable[[str, str], NoReturn], from_settings: bool = True
    ) -> FolderPlace:
        """Return the place that a path or a URI names.

        Args:
            text: a path, which may be relative to `base`, or a URI.
            base: a folder.
            fail: raises the error for a problem and its fix.
            from_settings: whether a file has settings for object stores, so that the fix may be to change them.
        """
        scheme = scheme_of(text)
        if scheme is None or scheme == "file":
            try:
                return folder_of(text, base)
            except ValueError as error:
                fail(str(error), "give a path, or a file: or s3: URI")
        if scheme in UNTESTED and not self.allows_untested:
            fail(
                f"is a URI with the scheme '{scheme}', and Tidelake has never been tested on such stores",
                "use an s3: or file: URI, or a path" + ("; or set `untested_stores: allow`" if from_settings else ""),
            )
        if scheme != "s3" and scheme not in UNTESTED:
            fix = "write `s3://bucket/folder`" if scheme in ("s3a", "s3n") else "give a path, or a file: or s3: URI"
            fail(f"is a URI with the scheme '{scheme}', but only 'file' and 's3' are supported", fix)
        try:
            return ObjectStorePlace(uri=canonical_uri(text), s3=self.s3)
        except ValueError as error:
            rule = "a folder's name has only letters, digits and `._=+-`, and is not `.` or `..`"
            fail(str(error), f"write it as `{scheme}://bucket/folder`; {rule}")


def read_object_stores(document: Block) -> ObjectStores:
    """Read how object stores are reached: the keys `s3` and `untested_stores`.

    The block is valid even if no setting is an s3: URI, because commands such as `topic record` accept URIs, too.

    Raises:
        ConfigurationError: a key is invalid.
    """
    allows_untested = _read_untested(document.child("untested_stores")) if "untested_stores" in document else False
    if "s3" not in document:
        return ObjectStores(allows_untested=allows_untested)
    return ObjectStores(s3=_read_s3(document.child("s3")), allows_untested=allows_untested)


def _read_untested(place: Block) -> bool:
    if place.value != "allow":
        place.fail(f"is not `allow`: {place.value!r}", "write `untested_stores: allow`, or remove it")
    return True


def _read_s3(block: Block) -> S3Settings:
    if not isinstance(block.value, dict):
        block.fail("is not a mapping", "give at least one setting, such as `region: eu-central-1`")
    block.check_keys(S3Settings.model_fields)
    values: dict[str, Any] = dict(block.value)
    if isinstance(values.get("ca_file"), str):
        values["ca_file"] = block.folder / values["ca_file"]
    for name in _SECRETS:
        if name in block:
            values[name] = read_secret_place(block.child(name))
    if (values.get("access_key_id") is None) != (values.get("secret_access_key") is None):
        block.child("secret_access_key").fail(
            "access_key_id and secret_access_key must be set together", "set both, or neither"
        )
    if values.get("session_token") is not None and values.get("access_key_id") is None:
        block.child("session_token").fail("has no effect without access_key_id", "set all three, or remove it")
    # The URL may contain a password, so no error shows it.
    settings = block.validate(S3Settings, values, "see docs/guides/s3.md", shows_value=False)
    host = host_of(block.child("endpoint"), settings.endpoint or "", "a service", "https://host:9000")
    if settings.allow_http and settings.endpoint is None:
        block.child("allow_http").fail(
            "is only for `endpoint`, which is not set",
            "set `endpoint`, or remove it; for an endpoint in AWS_ENDPOINT_URL, set AWS_ALLOW_HTTP=true",
        )
    is_clear = settings.endpoint is not None and settings.endpoint.startswith("http:")
    _CLEAR_DATA.check(block, settings.allow_http, is_clear, [host])
    return settings
