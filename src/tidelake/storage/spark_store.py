"""Lets a Spark session read and write an S3 store, through Hadoop's S3A."""

from __future__ import annotations

import threading
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
    "fs.s3a.committer.name": "magic",
    "fs.s3a.committer.magic.track.commits.in.memory.enabled": "true",
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


@dataclass(frozen=True)
class _Prepared:
    """What a JVM knows of a bucket."""

    gateway: object
    context: object
    access: Access
    replaced: Any = None
    """The file system before the present one; queries that began with it may still be running."""


_prepared: dict[str, _Prepared] = {}
"""By bucket: S3A has one set of options for each."""
_lock = threading.Lock()


def prepare(spark: SparkSession, place: ObjectStorePlace) -> None:
    """Give a session the options for a store. They are not part of Spark's own configuration, which its UI shows.

    Raises:
        ConfigurationError: a secret cannot be read, or the session already reaches the bucket at another endpoint.
        SparkLacksStore: the session was started without the jars.

    Cost: reads the secrets; the first time, and whenever they have changed, a few calls of the JVM.
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
            if known.access == access:
                return
            check_endpoint(place, f"Spark reaches s3://{access.bucket}", known.access.endpoint)
        hadoop = configuration()
        for name in (_FILE_SYSTEM, _COMMITTER):
            if hadoop.getClassByNameOrNull(name) is None:
                raise SparkLacksStore(place.uri, f"it has no class {name.rpartition('.')[2]}")
        configure(hadoop, access)
        if access.ca_file is not None:
            _trust(gateway, str(access.ca_file))
        replaced = None
        if known is not None and known.gateway is gateway:
            is_outdated = known.access != access
            replaced = _replace_file_system(gateway, hadoop, known) if is_outdated else known.replaced
        _prepared[access.bucket] = _Prepared(gateway, context, access, replaced)


def _replace_file_system(gateway: Any, hadoop: Any, known: _Prepared) -> Any:
    """Make Hadoop use a file system with the present options for a bucket, and return the one that it used until now.

    Hadoop caches a file system for as long as the JVM runs, and its only public way to forget one is to close it, which
    would break the queries that read with it. So its cache is changed by the method that its own tests use, and a file
    system is closed when the next but one replaces it.
    """
    jvm = gateway.jvm
    system, uri = jvm.org.apache.hadoop.fs.FileSystem, jvm.java.net.URI.create(f"s3://{known.access.bucket}")
    present, new = system.get(uri, hadoop), system.newInstance(uri, hadoop)
    arguments = {"java.net.URI": uri, "org.apache.hadoop.conf.Configuration": hadoop, _SYSTEM: new}
    kinds, values = gateway.new_array(jvm.java.lang.Class, 3), gateway.new_array(jvm.java.lang.Object, 3)
    for number, (kind, value) in enumerate(arguments.items()):
        kinds[number], values[number] = jvm.java.lang.Class.forName(kind), value
    put = kinds[2].getDeclaredMethod("addFileSystemForTesting", kinds)
    put.setAccessible(True)
    put.invoke(None, values)
    if known.replaced is not None:
        known.replaced.close()
    return present


def configure(hadoop: Any, access: Access) -> None:
    """Add the options for a bucket to Hadoop's configuration.

    If the settings give no credentials, those that Spark was started with stay, for all buckets or for this one.

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
            hadoop.unset(option)  # an earlier access had it


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
