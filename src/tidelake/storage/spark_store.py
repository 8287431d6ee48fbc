"""Lets a Spark session read and write an S3 store, through Hadoop's S3A."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tidelake.errors import SparkLacksStore
from tidelake.settings.object_store import ObjectStorePlace
from tidelake.storage.location import Location
from tidelake.storage.s3 import PROVIDERS, SECRETS, Access, access_of, check_endpoint, hadoop_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SYSTEM = "org.apache.hadoop.fs.FileSystem"
_FILE_SYSTEM = "org.apache.hadoop.fs.s3a.S3AFileSystem"
_COMMITTER = "org.apache.spark.internal.io.cloud.BindingParquetOutputCommitter"
WRITE_OPTIONS = {
    "spark.sql.parquet.output.committer.class": _COMMITTER,
    # Only the files of successful tasks appear, each under its final name, once the whole job succeeds. This option
    # belongs to the job: Hadoop's own default, which renames, takes precedence over the options of a bucket.
    # Tracking commits in memory stays off: a file system that was created by a read would not take part in it.
    "fs.s3a.committer.name": "magic",
}
"""The options for writing Parquet files without a rename, which in an object store is a copy."""
_ALL_BUCKETS = {
    "fs.s3.impl": _FILE_SYSTEM,
    "mapreduce.outputcommitter.factory.scheme.s3": "org.apache.hadoop.fs.s3a.commit.S3ACommitterFactory",
}
_DEFAULTS = "core-default.xml"
_SOURCE = "tidelake"
"""How Hadoop's configuration names the source of the options that are set here."""
_PASSWORD = "changeit"
"""The password of Java's own file of certificate authorities; both are public."""


KEPT_OPEN_S = 6 * 3600.0
"""How long a replaced file system stays open, for the queries and writes that began before it was replaced.

This is as long as a log keeps its entries: a write that takes longer may not be able to commit anyway."""


@dataclass(frozen=True)
class _Replaced:
    """A file system that Hadoop no longer gives to queries."""

    access: Access
    """What it was created with."""
    system: Any
    at_s: float
    """When it was replaced, by the monotonic clock."""


@dataclass(frozen=True)
class _Prepared:
    """What a JVM knows of a bucket."""

    gateway: object
    context: object
    access: Access
    replaced: tuple[_Replaced, ...] = ()
    """The former file systems that are still open."""


_prepared: dict[str, _Prepared] = {}
"""By bucket: S3A has one set of options for each."""
_lock = threading.Lock()


def prepare(spark: SparkSession, place: ObjectStorePlace) -> None:
    """Give a session the options for a store. They are not part of Spark's own configuration, which its UI shows.

    Raises:
        ConfigurationError: a secret cannot be read, or the session already reaches the bucket at another endpoint.
        SparkLacksStore: the session was started without the jars.

    Cost: reads the secrets; the first time, and whenever they have changed, a few dozen calls to the JVM.
    """
    context = spark.sparkContext
    prepare_jvm(context._gateway, context._jsc.hadoopConfiguration, place, context)


def prepare_jvm(gateway: Any, configuration: Callable[[], Any], place: ObjectStorePlace, context: object) -> None:
    """Give a JVM the options for a store; see `prepare`.

    Args:
        gateway: the connection to the JVM.
        configuration: returns the `org.apache.hadoop.conf.Configuration` to change.
        place: the store.
        context: what owns the configuration.
    """
    access = replace(access_of(place), prefix="")
    with _lock:
        known = _prepared.get(access.bucket)
        if known is not None and known.context is context:
            if _are_alike(known.access, access):
                return
            check_endpoint(place, f"Spark reaches s3://{access.bucket}", known.access.endpoint)
        hadoop = configuration()
        for name in (_FILE_SYSTEM, _COMMITTER):
            if hadoop.getClassByNameOrNull(name) is None:
                raise SparkLacksStore(place.uri, f"it has no class {name.rpartition('.')[2]}")
        former = known if known is not None and known.gateway is gateway else None
        if former is None or _are_alike(former.access, access):
            _set_options(gateway, hadoop, access)
            replaced = former.replaced if former is not None else ()
        else:
            replaced = _replace_file_system(gateway, hadoop, former, access)
        now_s = time.monotonic()
        still_open = tuple(each for each in replaced if now_s - each.at_s < KEPT_OPEN_S)
        _prepared[access.bucket] = _Prepared(gateway, context, access, still_open)
        for each in replaced:
            if now_s - each.at_s >= KEPT_OPEN_S:
                each.system.close()


def _are_alike(one: Access, other: Access) -> bool:
    """Return whether a file system for one access serves the other, too: at most the timeouts differ."""
    return replace(one, timeout_s=other.timeout_s) == other


def _replace_file_system(gateway: Any, hadoop: Any, former: _Prepared, access: Access) -> tuple[_Replaced, ...]:
    """Make Hadoop use a file system with other options for a bucket; return the former file systems still open.

    Hadoop caches a file system for as long as the JVM runs, and its only public way to forget one is to close it, which
    would break the queries that read with it. So the cache is changed by the method that Hadoop's own tests use. If two
    lakes reach the bucket in different ways, the same two file systems are swapped whenever the lakes take turns.
    """
    system, uri = gateway.jvm.org.apache.hadoop.fs.FileSystem, gateway.jvm.java.net.URI.create(f"s3://{access.bucket}")
    configure(hadoop, former.access)  # if Hadoop has none for the former access yet, it creates one now
    present = _Replaced(former.access, system.get(uri, hadoop), time.monotonic())
    again = next((each for each in former.replaced if _are_alike(each.access, access)), None)
    if again is None:
        _set_options(gateway, hadoop, access)
        _use(gateway, hadoop, uri, system.newInstance(uri, hadoop))
    else:
        configure(hadoop, access)
        _use(gateway, hadoop, uri, again.system)
    return (*(each for each in former.replaced if each is not again), present)


def _use(gateway: Any, hadoop: Any, uri: Any, system: Any) -> None:
    """Put a file system into Hadoop's cache."""
    jvm = gateway.jvm
    arguments = {"java.net.URI": uri, "org.apache.hadoop.conf.Configuration": hadoop, _SYSTEM: system}
    kinds, values = gateway.new_array(jvm.java.lang.Class, 3), gateway.new_array(jvm.java.lang.Object, 3)
    for number, (kind, value) in enumerate(arguments.items()):
        kinds[number], values[number] = jvm.java.lang.Class.forName(kind), value
    put = kinds[2].getDeclaredMethod("addFileSystemForTesting", kinds)
    put.setAccessible(True)
    put.invoke(None, values)


def _set_options(gateway: Any, hadoop: Any, access: Access) -> None:
    """Give a JVM the options for new file systems of a bucket."""
    configure(hadoop, access)
    if access.ca_file is not None:
        _trust(gateway, str(access.ca_file))


def configure(hadoop: Any, access: Access) -> None:
    """Add the options for a bucket to Hadoop's configuration.

    If the settings give no credentials, Spark keeps those that it was started with, for all buckets or for this one.

    Args:
        hadoop: an `org.apache.hadoop.conf.Configuration`.
        access: how to reach the bucket.
    """
    for name, value in _ALL_BUCKETS.items():
        hadoop.setIfUnset(name, value)  # a platform may have a file system of its own for S3
    options, of_bucket = hadoop_options(access), f"fs.s3a.bucket.{access.bucket}."
    if not access.credentials and any(_is_chosen(hadoop, f"{of}{PROVIDERS}") for of in ("fs.s3a.", of_bucket)):
        del options[f"{of_bucket}{PROVIDERS}"]
    for name, value in options.items():
        hadoop.set(name, value, _SOURCE)
    for name in (PROVIDERS, *SECRETS):
        option = f"{of_bucket}{name}"
        if option not in options and _source_of(hadoop, option) == _SOURCE:
            hadoop.unset(option)  # left by an earlier access


def _is_chosen(hadoop: Any, option: str) -> bool:
    """Return whether a platform or a user has set an option of Hadoop's."""
    return _source_of(hadoop, option) not in (None, _DEFAULTS, _SOURCE)


def _source_of(hadoop: Any, option: str) -> str | None:
    """Return what has set an option of Hadoop's, as Hadoop calls it; None if nothing has."""
    sources = hadoop.getPropertySources(option)
    return str(sources[-1]) if sources else None


def delete(spark: SparkSession, folder: Location) -> None:
    """Delete a folder with all objects below it, including those whose names end with a slash."""
    context: Any = spark.sparkContext
    path = context._jvm.org.apache.hadoop.fs.Path(str(folder))
    path.getFileSystem(context._jsc.hadoopConfiguration()).delete(path, True)


def _trust(gateway: Any, ca_file: str) -> None:
    """Make the driver's JVM trust additional certificate authorities; executors elsewhere need the same setting."""
    jvm = gateway.jvm
    authorities = jvm.java.io.File(jvm.java.lang.System.getProperty("java.home"), "lib/security/cacerts")
    password = gateway.new_array(jvm.char, len(_PASSWORD))
    for number, character in enumerate(_PASSWORD):
        password[number] = character
    store = jvm.java.security.KeyStore.getInstance(authorities, password)
    stream = jvm.java.io.FileInputStream(ca_file)
    try:
        certificates = jvm.java.security.cert.CertificateFactory.getInstance("X.509").generateCertificates(stream)
    finally:
        stream.close()
    for number, certificate in enumerate(certificates):
        store.setCertificateEntry(f"tidelake-{number}", certificate)
    file = jvm.java.io.File.createTempFile("tidelake-trust-", ".store")
    file.deleteOnExit()
    output = jvm.java.io.FileOutputStream(file)
    try:
        store.store(output, password)
    finally:
        output.close()
    for name, value in {"": file.getPath(), "Password": _PASSWORD, "Type": store.getType()}.items():
        jvm.java.lang.System.setProperty(f"javax.net.ssl.trustStore{name}", value)
