"""`current`: publishes the contents at upper as a plain Delta table for every engine, under the collection's name."""

from __future__ import annotations

import time
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tidelake.errors import Conflict, DamagedTable
from tidelake.plugins.envelope import form_of
from tidelake.read.snapshot import Snapshot, last_time, snapshot
from tidelake.spark.observation import Observed
from tidelake.storage import blobs
from tidelake.store.catalog import Catalog
from tidelake.store.column_docs import column_docs
from tidelake.store.commit import OpenTable
from tidelake.store.entry import Collection
from tidelake.store.failpoints import reach
from tidelake.store.layout import DIFF
from tidelake.store.proof_log import ProofLog, read_proof_log
from tidelake.store.publication import Publication
from tidelake.store.published import Published, StagedRows, maintain_published, published_table, read_published
from tidelake.store.retry import LostRace, retry_work
from tidelake.store.state import CLOSED, UPPER, idle_lower
from tidelake.store.table_log import LOG

_ATTEMPTS_MAX = 4
_DIFF_COMMENT = "How many times the row occurs; never 0. sum(_diff) counts rows, and sum(x * _diff) adds up x."


@dataclass
class CurrentReport:
    """What the publication of a collection shows now."""

    as_of: int | None
    """The last sealed time when the contents were published; None while nothing is sealed."""
    rows: int
    """Number of rows of the table: distinct rows of the contents."""
    rebuilt: bool
    contents_rows: int = 0
    """Number of rows of the contents; it differs from `rows` if a row occurs more than once."""
    path: str | None = None
    """The table; None while nothing is sealed."""


def rebuild_current(spark: SparkSession, collection: Collection) -> CurrentReport:
    """Publish the contents before upper; leave the table unchanged if upper has not moved.

    A table that was built before damage was found may contain the damage, so it is rebuilt after a repair.
    The table has the data's columns and, unless the collection has a key, `_diff`, which says how many times a row
    occurs.
    One commit replaces its rows, its name and its comments. If another process publishes first, the contents are read
    once more.

    Raises:
        DamagedTable: the last validation found that something below upper is not what was proven.
        Fenced: the collection's epoch was raised after it was opened.
        UnknownCollection: the store does not have this collection under this name any more.
        Conflict: other processes published first, each time.
    """
    proofs = read_proof_log(collection)
    if proofs.damaged is not None:
        raise DamagedTable(str(collection.paths.updates), proofs.damaged)
    table = OpenTable(collection.paths.updates)
    upper, closed = table.value(UPPER) or 0, bool(table.value(CLOSED))
    if upper == 0 and not closed:
        return CurrentReport(None, 0, False)
    at = max(last_time(upper, closed), 0)

    def work() -> CurrentReport:
        publication = Catalog(collection.paths.store).publish(collection)
        reach("current.after_catalog")
        path = published_table(collection, publication)
        shown = read_published(path)
        if shown is not None and _is_up_to_date(shown, collection, table, proofs, at):
            return CurrentReport(at, shown.rows, False, shown.contents_rows, str(path))
        note = _publish(spark, collection, publication, proofs, at)
        return CurrentReport(note.as_of, note.rows, True, note.contents_rows, str(path))

    failure = f"{_ATTEMPTS_MAX} attempts to publish the contents failed"
    return retry_work(work, collection.paths.updates, failure, attempts_max=_ATTEMPTS_MAX)


def _is_up_to_date(shown: Published, collection: Collection, table: OpenTable, proofs: ProofLog, at: int) -> bool:
    unchanged = idle_lower(table)  # the contents of idle ticks are those of the time before them
    return (
        shown.collection_id == collection.entry.id
        and (at if unchanged is None else unchanged - 1) <= shown.as_of <= at
        and shown.proofs_at_ms >= proofs.damaged_at_ms
        and {field.name for field in form_of(collection.entry).fields} <= set(shown.columns)
    )


def _publish(
    spark: SparkSession, collection: Collection, publication: Publication, proofs: ProofLog, at: int
) -> Published:
    """Write the contents AS OF a time, and commit them.

    Raises:
        LostRace: another process has published first.
    """
    staged = StagedRows(published_table(collection, publication))
    latest = snapshot(spark, collection, at)
    contents = Observed(latest.contents, F.sum(F.col(DIFF).cast("decimal(38,0)")).alias("contents_rows"))
    table = _described(contents.frame, collection)
    reach("current.before_write")
    blobs.prepare_spark(spark, staged.folder)
    table.write.format("delta").save(str(staged.folder))
    rows = staged.take()
    blobs.delete_what_spark_wrote(spark, staged.folder / LOG)  # Delta creates an empty folder there
    reach("current.after_files")
    contents_rows = int(contents.values()["contents_rows"] or 0) if rows else 0
    if collection.entry.key and contents_rows != rows:
        staged.discard()
        fact = f"{rows} keys have {contents_rows} rows AS OF {at}, although each key has at most one"
        raise DamagedTable(str(collection.paths.updates), fact)
    note = Published(
        collection=collection.name,
        collection_id=collection.entry.id,
        as_of=latest.as_of,
        since=latest.since,
        upper=latest.upper,
        bound_at_ms=publication.bound_at_ms,
        published_at_ms=int(time.time() * 1000),
        proofs_at_ms=proofs.newest_at_ms,
        rows=rows,
        contents_rows=contents_rows,
        columns=tuple(table.columns),
    )
    # A collection that lost its name while Spark was writing must not overwrite its successor's table.
    if Catalog(collection.paths.store).publish(collection) != publication:
        raise LostRace
    try:
        staged.commit(publication.name, _comment(collection, latest), note)
    except Conflict as conflict:
        staged.discard()
        raise LostRace from conflict
    reach("current.after_write")
    maintain_published(staged.table)
    return note


def _described(contents: DataFrame, collection: Collection) -> DataFrame:
    """Return the columns of the published table, each with its comment."""
    docs = column_docs(collection.entry) | {DIFF: _DIFF_COMMENT}
    names = [name for name in contents.columns if name != DIFF or not collection.entry.key]
    return contents.select(
        *(F.col(f"`{name}`").alias(name, metadata={"comment": docs[name]} if name in docs else {}) for name in names)
    )


def _comment(collection: Collection, latest: Snapshot) -> str:
    """Return the comment of a published table."""
    entry = collection.entry
    times = f"Contents of the Tidelake collection '{entry.name}' (id {entry.id}) as of time {latest.as_of}"
    since = f"times from {latest.since} on can be read with `tidelake read {entry.name} --as-of TIME`"
    if entry.key:
        reads = f"One row for each key ({', '.join(entry.key)}), so count(*) counts rows."
    else:
        reads = "`_diff` says how many times a row occurs: sum(_diff) counts rows, and count(*) counts distinct rows."
    return f"{times}; {since}. {reads}"
