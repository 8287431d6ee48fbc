"""`current`: publishes the newest sealed contents as a Delta table for any engine, under the collection's name.

The table follows the changes: `following` finds the files that they touch, and one commit swaps these files. If that is
not possible or not cheaper, the whole table is written again, and the report says why.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tidelake.catalog.catalog import Catalog
from tidelake.errors import Conflict, DamagedTable, TidelakeError, WrittenRowsMissing
from tidelake.plugins.envelope import form_of
from tidelake.read.asked import last_time
from tidelake.read.copies import Shape, Shaped, shape_of
from tidelake.read.following import follow
from tidelake.read.published_files import CannotFollow, PublishedTable
from tidelake.read.snapshot import snapshot
from tidelake.read.words import counted
from tidelake.spark.observation import Observed
from tidelake.storage import blobs
from tidelake.store.column_docs import column_docs
from tidelake.store.commit import OpenTable
from tidelake.store.entry import Collection
from tidelake.store.failpoints import reach
from tidelake.store.layout import DIFF
from tidelake.store.proof_log import ProofLog, read_proof_log
from tidelake.store.publication import Publication, folder_of_name
from tidelake.store.published import (
    WRITER,
    Published,
    PublishedFile,
    TableState,
    maintain_published,
    published_table,
    read_table_state,
)
from tidelake.store.retry import LostRace, retry_work
from tidelake.store.staged_rows import StagedRows
from tidelake.store.state import CLOSED, UPPER, idle_lower
from tidelake.store.table_log import LOG

_ATTEMPTS_MAX = 4
_DIFF_COMMENT = "How many times the row occurs; never 0. sum(_diff) counts rows, and sum(x * _diff) adds up x."


@dataclass
class CurrentReport:
    """The state of a collection's publication."""

    as_of: int | None
    """The time that the table records for its contents; None while nothing is sealed."""
    rows: int
    """Number of rows of the table: the distinct rows of the contents, or all rows if the table is a bag."""
    how: Literal["unchanged", "followed", "rebuilt"] = "unchanged"
    """Whether this call changed nothing, applied the changes, or wrote all rows."""
    contents_rows: int = 0
    """Number of rows of the contents; it differs from `rows` if `_diff` states that a row occurs more than once."""
    path: str | None = None
    """The path or URI of the table; None while nothing is sealed."""
    reason: str | None = None
    """Why the table was rebuilt; None if it was not."""
    rows_changed: int = 0
    """Rows added or removed; with a key, keys with a new statement, even if it states the same row; 0 if rebuilt."""
    files_rewritten: int = 0
    """Files of the table that were replaced."""
    rows_rewritten: int = 0
    """Rows that were written, including those that had not changed."""
    together: tuple[str, ...] = ()
    """The collections for which this time was chosen, even if their publication failed; empty if there is no group."""
    unchanged_through: int | None = None
    """The later time AS OF which the contents are still those of the table; None if there is none."""

    @property
    def published(self) -> bool:
        """Whether this call made a commit."""
        return self.how != "unchanged"

    def as_json(self) -> dict[str, Any]:
        """Return the report as JSON values; `rebuilt` is whether all rows were written."""
        return asdict(self) | {"rebuilt": self.how == "rebuilt"}


@dataclass(frozen=True)
class Wanted:
    """The contents that a publication is to show, and how."""

    through: int | None = None
    """The time to publish; by default the last sealed time. A table that shows a later time stays as it is."""
    together: tuple[str, ...] = ()
    """The collections for which this time was chosen, for the note."""
    rebuild: bool = False
    """Whether to write all rows, even if nothing has changed."""
    bag: bool = False
    """Whether rows are repeated instead of having `_diff`; makes no difference if the collection has a key."""
    skip_errors: bool = False
    """Whether keys in error are left out; if not, they stop the publication."""
    refused: TidelakeError | None = None
    """Why there is no time at which the collections of the timeline can be published; the table then stays as it is."""


CONTENTS_AT_UPPER = Wanted()
"""The default: the contents at the last sealed time are published alone, and only changes are written."""


def update_current(spark: SparkSession, collection: Collection, wanted: Wanted = CONTENTS_AT_UPPER) -> CurrentReport:
    """Publish the newest sealed contents, or those AS OF `wanted.through`; if nothing has changed, do nothing.

    A table that was published before damage was found may contain the damage, so it is rebuilt after a repair.
    The table has the data's columns and, unless the collection has a key or the table is a bag, `_diff`, which says how
    many times a row occurs.
    One commit changes the table's rows, name and comments. If another process publishes first, the attempt is
    repeated, beginning with the table as that process left it.

    Raises:
        DamagedTable: the last validation found that something below upper differs from what was proven.
        BagRefused: a row cannot be repeated as often as it occurs. The table stays as it was.
        KeysInError: keys are in error at the time to publish, and are not left out.
        Fenced: the collection's epoch was raised after it was opened.
        UnknownCollection: the store no longer has this collection under this name.
        WrittenRowsMissing: the store does not show all rows that Spark wrote. The table stays as it was.
        Conflict: at each attempt, another process published first.
        TidelakeError: `wanted.refused`, if it is set.

    Cost: see `following.follow`; a rebuild reads and writes the contents.
    """
    if wanted.refused is not None:
        raise wanted.refused
    proofs = read_proof_log(collection)
    if proofs.damaged is not None:
        raise DamagedTable(str(collection.paths.updates), proofs.damaged)
    table = OpenTable(collection.paths.updates)
    upper, closed = table.value(UPPER) or 0, bool(table.value(CLOSED))
    if upper == 0 and not closed:
        return CurrentReport(None, 0)
    last = max(last_time(upper, closed), 0)
    attempt = _Attempt(spark, collection, wanted, table, proofs, last)
    failure = f"{_ATTEMPTS_MAX} attempts to publish the contents failed"
    published = collection.paths.store.publication(folder_of_name(collection.name))
    return retry_work(attempt.run, collection.paths.updates, failure, named=published, attempts_max=_ATTEMPTS_MAX)


@dataclass(frozen=True)
class _Written:
    """The rows that an attempt has staged."""

    rows: int
    contents_rows: int
    since: int
    upper: int
    replaced: Sequence[PublishedFile] | None
    """The files that the staged rows replace; None means all."""
    rows_changed: int = 0


@dataclass(frozen=True)
class _Attempt:
    """An attempt to publish; it can be repeated, and reads the published table anew each time."""

    spark: SparkSession
    collection: Collection
    wanted: Wanted
    table: OpenTable
    proofs: ProofLog
    last: int
    """The last sealed time."""

    @property
    def as_of(self) -> int:
        """The time to publish."""
        return self.last if self.wanted.through is None else self.wanted.through

    @property
    def shape(self) -> Shape:
        """How the table shows multiplicities."""
        return shape_of(self.collection, self.wanted.bag)

    def run(self) -> CurrentReport:
        """Publish once.

        Raises:
            LostRace: another process published first.
        """
        publication = Catalog(self.collection.paths.store).publish(self.collection)
        reach("current.after_catalog")
        # `StagedRows` reads the version first: if the state read next is that of a later version, the commit fails.
        staged = StagedRows(published_table(self.collection, publication))
        state = read_table_state(staged.table)
        shown, path = state.shown, str(staged.table)
        reason = self._reason_to_rebuild(staged, state)
        if shown is not None and reason is None and self._is_up_to_date(shown):
            return CurrentReport(
                shown.as_of,
                shown.rows,
                contents_rows=shown.contents_rows,
                path=path,
                together=shown.together,
                unchanged_through=self.as_of if self.as_of > shown.as_of else None,
            )
        written = None
        if shown is not None and reason is None:
            try:
                written = self._follow(staged, shown)
            except CannotFollow as cannot:
                reason = str(cannot)
        if written is None:
            written = self._rebuild(staged)
        assert shown is not None or reason is not None
        note = self._note(publication, written, reason, None if shown is None else shown.as_of)
        self._commit(staged, publication, note, written)
        return CurrentReport(
            note.as_of,
            note.rows,
            note.how,
            note.contents_rows,
            path,
            reason,
            written.rows_changed,
            staged.replaced,
            staged.rows,
            note.together,
        )

    def _reason_to_rebuild(self, staged: StagedRows, state: TableState) -> str | None:
        """Return why the table has to be rebuilt, or None, as far as this is clear before its files are examined."""
        shown = state.shown
        if self.wanted.rebuild:
            return "it was requested"
        if staged.version < 0:
            return "it was not published before"
        if shown is None and state.changed_by == WRITER:
            return "its rows were removed when its collection was dropped"
        if state.changed_by is not None:
            return f"{state.changed_by} has written to it"
        if shown is None:
            return "its log does not state what it shows"
        if shown.collection_id != self.collection.entry.id:
            return f"it shows the earlier collection {shown.collection_id}"
        if shown.proofs_at_ms < self.proofs.damaged_at_ms:
            return "damage was found after it was published"
        if shown.as_of > self.last and not self._shows_the_end(shown):
            return f"it shows time {shown.as_of}, which is beyond upper"
        wanted = {field.name for field in form_of(self.collection.entry, self.table).fields}
        new = sorted(wanted - set(shown.columns))
        if new:
            return f"the contents have the new column {new[0]}"
        if (DIFF in shown.columns) != (self.shape == "diff"):
            return "the setting `bag` has changed"
        if shown.skip_errors and not self.wanted.skip_errors:
            return "the setting `skip_errors` has changed"
        return None

    def _shows_the_end(self, shown: Published) -> bool:
        """Return whether the table shows the end of this stream, and so also every later time."""
        return bool(self.table.value(CLOSED)) and shown.upper == self.table.value(UPPER)

    def _is_up_to_date(self, shown: Published) -> bool:
        if shown.as_of > self.as_of:  # the table was published alone, and never goes back
            return True
        if shown.skip_errors != self.wanted.skip_errors:  # the table states whether keys in error were left out
            return False
        if self.wanted.together:  # each table of a group shows the time, and names at least the group
            return shown.as_of == self.as_of and set(shown.together) >= set(self.wanted.together)
        return shown.as_of >= min(self.as_of, self._unchanged_since())

    def _unchanged_since(self) -> int:
        """Return the time since which the contents have not changed: idle ticks change nothing."""
        idle = idle_lower(self.table)
        return self.last if idle is None else idle - 1

    def _follow(self, staged: StagedRows, shown: Published) -> _Written:
        """Stage the rows that have changed since the last publication.

        Raises:
            CannotFollow: the table has to be rebuilt; nothing is staged.
            LostRace: another process published first.
        """
        base = PublishedTable.load(self.spark, staged, shown)
        if min(self.as_of, self._unchanged_since()) <= shown.as_of:
            since, upper, _ = self.collection.readable_range(self.table)
            return _Written(shown.rows, shown.contents_rows, since[0] if since else upper, upper, ())
        with follow(base, self.collection, self.as_of, self.shape, self.wanted.skip_errors) as found:
            contents_rows = shown.contents_rows + found.contents_added
            if found.rows is not None:
                rows = self._write(staged, found.rows)
                if found.expected_rows not in (None, rows):
                    staged.discard()
                    raise CannotFollow(f"{counted(rows, 'row')} would be written instead of {found.expected_rows:,}")
                if found.shaped is not None:
                    with staged.discarded_on_error():
                        found.shaped.total(self.collection, self.as_of)
            rows = shown.rows - sum(file.rows or 0 for file in found.replaced) + staged.rows
            if self.shape != "diff" and rows != contents_rows:
                staged.discard()
                raise CannotFollow(f"it would have {counted(rows, 'row')} instead of {contents_rows:,}")
            return _Written(rows, contents_rows, found.since, found.upper, found.replaced, found.rows_changed)

    def _rebuild(self, staged: StagedRows) -> _Written:
        """Stage all rows of the contents."""
        latest = snapshot(self.spark, self.collection, self.as_of, skip_errors=self.wanted.skip_errors)
        contents = Shaped(latest.contents, self.shape)
        staged.restart()
        rows = self._write(staged, contents.rows)
        with staged.discarded_on_error():
            contents_rows = contents.total(self.collection, self.as_of)
            if self.shape == "key" and contents_rows != rows:
                keys, found = counted(rows, "key has", "keys have"), counted(contents_rows, "row")
                fact = f"{keys} {found} AS OF {self.as_of}, but each key must have at most one"
                raise DamagedTable(str(self.collection.paths.updates), fact)
        return _Written(rows, contents_rows, latest.since, latest.upper, None)

    def _write(self, staged: StagedRows, rows: DataFrame) -> int:
        """Write rows of the table with Spark; return their number.

        Raises:
            WrittenRowsMissing: the store does not show all of them.
        """
        reach("current.before_write")
        blobs.prepare_spark(self.spark, staged.folder)
        seen = Observed(_described(rows, self.collection), F.count(F.lit(1)).alias("rows"))
        seen.frame.write.format("delta").save(str(staged.folder))
        with staged.discarded_on_error():
            number, written = staged.take(), int(seen.values()["rows"])
            if number != written:
                fact = f"Spark wrote {counted(written, 'row')}, but its log states {number:,}"
                raise WrittenRowsMissing(fact, str(staged.folder))
        blobs.delete_what_spark_wrote(self.spark, staged.folder / LOG)  # Delta creates an empty folder there
        reach("current.after_files")
        return number

    def _note(self, publication: Publication, written: _Written, reason: str | None, before: int | None) -> Published:
        names = [field.name for field in form_of(self.collection.entry, self.table).fields]
        return Published(
            collection=self.collection.name,
            collection_id=self.collection.entry.id,
            as_of=self.as_of,
            since=written.since,
            upper=written.upper,
            bound_at_ms=publication.bound_at_ms,
            published_at_ms=int(time.time() * 1000),
            proofs_at_ms=self.proofs.newest_at_ms,
            rows=written.rows,
            contents_rows=written.contents_rows,
            columns=(*names, DIFF) if self.shape == "diff" else tuple(names),
            how="followed" if reason is None else "rebuilt",
            reason=reason,
            followed_from=before if reason is None else None,
            together=self.wanted.together,
            skip_errors=self.wanted.skip_errors,
        )

    def _commit(self, staged: StagedRows, publication: Publication, note: Published, written: _Written) -> None:
        """Commit the staged rows.

        Raises:
            LostRace: another process published first.
        """
        # A collection that lost its name while Spark was writing must not overwrite its successor's table.
        if Catalog(self.collection.paths.store).publish(self.collection) != publication:
            raise LostRace
        try:
            staged.commit(publication.name, _comment(self.collection, note, self.shape), note, written.replaced)
        except Conflict as conflict:
            staged.discard()
            raise LostRace from conflict
        reach("current.after_write")
        maintain_published(staged.table)


def _described(contents: DataFrame, collection: Collection) -> DataFrame:
    """Return the columns of the published table, each with its comment."""
    docs = column_docs(collection.entry) | {DIFF: _DIFF_COMMENT}
    return contents.select(
        *(
            F.col(f"`{name}`").alias(name, metadata={"comment": docs[name]} if name in docs else {})
            for name in contents.columns
        )
    )


def _comment(collection: Collection, note: Published, shape: Shape) -> str:
    """Return the comment of a published table."""
    entry = collection.entry
    times = f"Contents of the Tidelake collection '{entry.name}' (id {entry.id}) as of time {note.as_of}"
    since = f"times at or after {note.since} can be read with `tidelake read {entry.name} --as-of TIME`"
    if shape == "key":
        reads = f"One row for each key ({', '.join(entry.key)}), so count(*) counts rows."
    elif shape == "bag":
        reads = "A row that occurs several times is repeated, so count(*) counts rows."
    else:
        reads = "`_diff` says how many times a row occurs: sum(_diff) counts rows, and count(*) counts distinct rows."
    if note.skip_errors:
        reads += " Keys in error are left out."
    others = [name for name in note.together if name != entry.name]
    with_others = f" The same time was chosen for {', '.join(others)}." if others else ""
    return f"{times}; {since}. {reads}{with_others}"
