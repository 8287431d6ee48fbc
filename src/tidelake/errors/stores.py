"""Stores that cannot be read or written, and tables that are damaged."""

from __future__ import annotations

from tidelake.errors.base import InvalidUsage, TidelakeError


class NewerFormat(InvalidUsage):
    """A table has a format that only a later version of Tidelake knows."""

    table: str
    format: int
    known: int
    fact = (
        "{table} was written by a later version of Tidelake, in format {format}; this version supports formats up to "
        "{known}"
    )
    hint = "use that version, or a later one; nothing was read or written"


class LakeReadOnly(InvalidUsage):
    """A call tried to write to the store of a lake that was opened read-only; nothing was written."""

    store: str
    """The location that the call tried to write or delete."""
    fact = "the lake was opened read-only, so {store} cannot be written"
    hint = (
        "open the lake without `read_only`; if this store is a copy, open the original instead, because changes to a "
        "copy are lost"
    )


class SparkLacksStore(InvalidUsage):
    """A Spark session was started without the jars that read and write the store."""

    store: str
    detail: str
    fact = "this Spark session cannot read {store}: {detail}"
    hint = (
        "a JVM loads jars only when it starts: start a new process, and call `start_session(jar_sets=['s3'])` in it "
        "before you open a lake (that session also works for lakes on a disk); or give spark-submit the jars in "
        "`.jars/s3`, which `python -m tidelake.spark.jars --set s3` fetches"
    )


class DamagedTable(TidelakeError):
    """The table breaks one of its own invariants: a person should look at it now."""

    table: str
    detail: str
    fact = "{table} is damaged: {detail}"
    hint = (
        "run nothing that writes to it; restore its folder from a copy, or rebuild the collection from its topic "
        "under a new name"
    )


class DamagedPublication(DamagedTable):
    """The log of a published table cannot be read; the collection itself is not affected."""

    hint = "move the table's folder elsewhere: the next run of `current` publishes the contents again"


class DamagedFiles(DamagedTable):
    """Data files are missing or damaged: until they are restored, nothing is written to the collection."""

    hint = (
        "`tidelake repair COLLECTION` says what can be restored, and --apply restores it; restore everything else from "
        "a copy of the store. If a validation found the damage, the collection counts as damaged until a full "
        "validation passes"
    )


FILE_FROM_COPY = "restore the file from a copy of the store, or rebuild the collection from its topic under a new name"
"""What to do about a file that its topic can never recreate."""


class NotRewritable(DamagedTable):
    """A damaged file cannot be recreated from its topic."""

    fix: str
    fact = "the file cannot be recreated from its topic: {detail}"
    hint = "{fix}"


class DamagedLog(DamagedTable):
    """A table's log differs from the acknowledged entries; it may be possible to restore it from copies of them."""

    hint = (
        "run nothing that writes to it; `tidelake repair COLLECTION` shows what can be restored from copies of the "
        "acknowledged entries, and --apply restores it"
    )


class StoreUnreadable(TidelakeError):
    """A file of a store cannot be read, so its contents are unknown."""

    detail: str
    fact = "the store cannot be read: {detail}"
    hint = (
        "fix the problem with the file, or restore the store's folder from a copy; run nothing that writes until then"
    )


class StoreUnwritable(StoreUnreadable):
    """A file of a store cannot be written; earlier commits are not affected."""

    fact = "the store cannot be written: {detail}"
    hint = (
        "grant this user permission to write to the store's folder, or free some space on its disk, and try again; to "
        "follow a collection without writing, use `tidelake subscribe --no-hold`, or a lake opened with `read_only`"
    )


class StoreUnreachable(StoreUnreadable):
    """An object store did not answer in time, or answered with an error of its own, each time it was asked."""

    store: str
    """The URI of the object or the folder."""
    fact = "the object store does not serve {store}: {detail}"
    hint = (
        "nothing is lost, and the next run continues from here; check the network, and `endpoint` and `allow_http` in "
        "the `s3:` block"
    )


class StoreBusy(StoreUnreachable):
    """Other processes changed an object at each attempt to write it; the object store itself answers."""

    fact = "{store} could not be written: {detail}"
    hint = (
        "nothing is lost, and the next run continues from here; if this recurs, find out which processes write to the "
        "store"
    )


class WrittenRowsMissing(StoreUnreadable):
    """A store does not show all rows that Spark has just written to a folder; nothing was committed."""

    store: str
    """The location of the folder."""
    fact = "{store} does not show what was written there: {detail}"
    hint = (
        "nothing is lost, and the next run writes the rows again; if this recurs, use a store, or a gateway to it, "
        "that shows every acknowledged object in every listing and read"
    )


class BucketMissing(StoreUnreadable):
    """The object store has no bucket with this name."""

    store: str
    fact = "the bucket of {store} does not exist: {detail}"
    hint = "create the bucket, correct the URI, or correct `endpoint` in the `s3:` block"


class StoreAccessDenied(StoreUnreadable):
    """An object store refuses a request because of its credentials."""

    store: str
    access: str
    """The refused operation: `read`, `write`, `list` or `delete`."""
    fact = "these credentials are not allowed to {access} {store}: {detail}"
    hint = (
        "grant this permission to the credentials, or renew them if they have expired; a wrong clock on this machine "
        "also makes requests invalid. Nothing is lost, and the next run continues from here"
    )


class WrongRegion(StoreUnreadable):
    """A bucket is in a different region than the one that requests are sent to."""

    store: str
    fact = "the bucket of {store} is in a different region: {detail}"
    hint = "set `region` in the `s3:` block, or AWS_REGION, to the region of the bucket"


class ConditionalWritesMissing(StoreUnreadable):
    """A bucket lets two writers both create the same object, so no commit would be safe; nothing was committed."""

    store: str
    fact = "{store} does not support conditional writes: {detail}"
    hint = "use an object store whose version supports `If-None-Match: *` for puts; docs/guides/s3.md has a list"
