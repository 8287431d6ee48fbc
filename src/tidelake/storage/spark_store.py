"""Lets a Spark session read and write an S3 store, through Hadoop's S3A."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelake.errors import SparkLacksStore
from tidelake.settings.object_store import ObjectStorePlace
from tidelake.storage.location import Location
from tidelake.storage.s3 import PROVIDERS, Access, access_of, hadoop_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
_PASSWORD = "changeit"
"""The password of Java's own file of certificate authorities; both are public."""
_prepared: dict[str, tuple[object, ObjectStorePlace]] = {}
"""By URI: the Spark context that was prepared last, and how it reaches the store."""


def prepare(spark: SparkSession, place: ObjectStorePlace) -> None:
    """Give a session the options for a store. They are not part of Spark's own configuration, which its UI shows.

    Raises:
        SparkLacksStore: the session was started without the jars.
    """
    context = spark.sparkContext
    if _prepared.get(place.uri) == (context, place):
        return
    hadoop: Any = context._jsc.hadoopConfiguration()
    for name in (_FILE_SYSTEM, _COMMITTER):
        if hadoop.getClassByNameOrNull(name) is None:
            raise SparkLacksStore(place.uri, f"it has no class {name.rpartition('.')[2]}")
    access = access_of(place)
    configure(hadoop, access)
    if access.ca_file is not None:
        _trust(context._gateway, str(access.ca_file))
    _prepared[place.uri] = context, place


def configure(hadoop: Any, access: Access) -> None:
    """Add the options for a bucket to Hadoop's configuration, which keeps what a platform has chosen for all buckets.

    Args:
        hadoop: an `org.apache.hadoop.conf.Configuration`.
        access: how to reach the bucket.
    """
    for name, value in _ALL_BUCKETS.items():
        hadoop.setIfUnset(name, value)  # a platform may have a file system of its own for S3
    sources = list(hadoop.getPropertySources(f"fs.s3a.{PROVIDERS}") or ())
    has_own_providers = bool(sources) and sources[-1] != "core-default.xml"
    for name, value in hadoop_options(access).items():
        if access.credentials or not has_own_providers or not name.endswith(PROVIDERS):
            hadoop.set(name, value)


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
