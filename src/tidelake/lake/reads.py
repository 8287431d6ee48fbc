"""Reads of one collection: its contents and changes, by DuckDB and by Spark."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, TypedDict, overload

from tidelake.lake.arguments import check_flag, check_selection, check_session
from tidelake.lake.base import StoredCollection, engine_errors
from tidelake.schema.columns import Column
from tidelake.store.commit import OpenTable
from tidelake.store.holds import check_time

if TYPE_CHECKING:
    from typing import Unpack

    from pyspark.sql import DataFrame, SparkSession

    from tidelake.query.answer import Answer
    from tidelake.query.contents import Contents, Updates
    from tidelake.query.contents import Difference as RowDifference
    from tidelake.read.changes import Changes
    from tidelake.read.diff import Difference
    from tidelake.read.holding import ReadCapability
    from tidelake.read.snapshot import Snapshot
    from tidelake.read.subscription import Subscription

LEASE = timedelta(hours=1)
"""How long a capability lives after each call, by default."""


class Following(TypedDict, total=False):
    """The further arguments of `LakeCollection.subscribe`."""

    wait_s: float | None
    poll_s: float
    until: int | None
    rows_max: int
    lease: timedelta | None
    capability: ReadCapability | None
    purpose: str


class Reads(StoredCollection):
    """Reads of a collection."""

    # --- read in this process ----------------------------------------------------------------------------------------

    def rows(
        self,
        as_of: int | None = None,
        columns: Sequence[str] = (),
        where: str | None = None,
        skip_errors: bool = False,
    ) -> Contents:
        """Read the contents AS OF a time with DuckDB, in this process. Does not start a JVM.

        Args:
            as_of: a time in [since, upper), or at or after `since` if the stream is closed; by default the last one.
            columns: the columns to read; empty means all. Diffs of rows that are equal in these columns are summed.
            where: a condition on the columns of the contents, and nothing else, in DuckDB's SQL.
            skip_errors: leave out keys whose newest value cannot be used.

        Returns:
            Contents: `rows` has the columns and `_diff` bigint: how often a row occurs. `rows.table()` gives an Arrow
            table, `rows.reader()` a stream; the other fields are those of a snapshot.

        Raises:
            SinceError, UpperError: the time can no longer be read, or cannot be read yet.
            KeysInError: there are keys in error at that time, and `skip_errors` is not set.
            UnknownColumn, PredicateRefused: a column does not exist, or the condition is not accepted.
            EngineRefused: the envelope is from another package; use `snapshot`.

        Cost: when the rows are read, the needed columns of the files that have rows at or before the time.
        """
        from tidelake.query.contents import contents

        check_selection(columns, where, skip_errors)
        with engine_errors():
            return contents(self._stored(), as_of, columns, where, skip_errors)

    def rows_between(
        self,
        first: int,
        last: int,
        columns: Sequence[str] = (),
        where: str | None = None,
        skip_errors: bool = False,
    ) -> RowDifference:
        """Read the difference between the contents AS OF two times with DuckDB; see `diff` and `rows`.

        Returns:
            A difference: `rows` has the columns and `_diff` bigint, never 0; `keys` has the number of keys that were
            set, changed and deleted.

        Raises:
            SinceError, UpperError, KeysInError, UnknownColumn, PredicateRefused: as for `rows`, at either time.
        """
        from tidelake.query.contents import difference

        check_time("first", first)
        check_time("last", last)
        check_selection(columns, where, skip_errors)
        with engine_errors():
            return difference(self._stored(), first, last, columns, where, skip_errors)

    def updates(
        self,
        after: int | None,
        through: int | None = None,
        columns: Sequence[str] = (),
        where: str | None = None,
        skip_errors: bool = False,
    ) -> Updates:
        """Read what changed after a time, up to and including another, with DuckDB; see `changes` and `rows`.

        Returns:
            Updates: `rows` has the columns, `_time` bigint and `_diff` bigint, never 0; other fields give the
            maximum number of files that are opened, and the number of rows in these files.

        Raises:
            SinceError, UpperError, ArgumentRefused, KeysInError, UnknownColumn, PredicateRefused: as for `changes`.
        """
        from tidelake.query.contents import updates

        check_selection(columns, where, skip_errors)
        with engine_errors():
            return updates(self._stored(), after, through, columns, where, skip_errors)

    # --- read by Spark -----------------------------------------------------------------------------------------------

    def snapshot(
        self,
        spark: SparkSession,
        as_of: int | None = None,
        columns: Sequence[str] = (),
        where: str | None = None,
        skip_errors: bool = False,
    ) -> Snapshot:
        """Read the contents AS OF a time as a lazy DataFrame.

        Args:
            spark: the session; `tidelake.spark.session.start_session()` starts a suitable one.
            as_of: a time in [since, upper), or at or after `since` if the stream is closed; by default the last one.
            columns: the columns to read; empty means all. Diffs of rows that are equal in these columns are summed.
            where: a Spark SQL predicate on the columns of the contents, and nothing else.
            skip_errors: leave out keys whose newest value cannot be used.

        Returns:
            A snapshot: `contents` has the columns and `_diff` bigint, the multiplicity of a row, never 0; the other
            fields are `as_of`, `since`, `upper`, `closed` and the `version` of the table.

        Raises:
            SinceError, UpperError: the time can no longer be read, or cannot be read yet.
            KeysInError: there are keys in error at that time, and `skip_errors` is not set.
            UnknownColumn, PredicateRefused: a column does not exist, or the predicate is not accepted.
        """
        from tidelake.read.snapshot import snapshot

        check_session(spark)
        check_selection(columns, where, skip_errors)
        return snapshot(spark, self._stored(), as_of, columns, where, skip_errors)

    def diff(
        self,
        spark: SparkSession,
        first: int,
        last: int,
        columns: Sequence[str] = (),
        where: str | None = None,
        skip_errors: bool = False,
    ) -> Difference:
        """Read the difference between the contents AS OF two times as a lazy DataFrame, from one version of the table.

        Args:
            spark: the session, as for `snapshot`.
            first: the time whose contents are subtracted.
            last: the time whose contents are added; it may also be before `first`.
            columns: the columns to compare; empty means all. Diffs of rows that are equal in these columns are summed.
            where: a predicate, as for `snapshot`; other rows are left out on both sides.
            skip_errors: leave out keys whose newest value cannot be used, at either time.

        Returns:
            A difference: `rows` has the columns and `_diff` bigint, never 0: a row's multiplicity at `last` minus its
            multiplicity at `first`.

        Raises:
            SinceError, UpperError, KeysInError, UnknownColumn, PredicateRefused: as for `snapshot`, at either time.
        """
        from tidelake.read.diff import difference

        check_session(spark)
        check_time("first", first)
        check_time("last", last)
        check_selection(columns, where, skip_errors)
        return difference(spark, self._stored(), (first, last), columns, where, skip_errors)

    def changes(
        self,
        spark: SparkSession,
        after: int | None,
        through: int | None = None,
        columns: Sequence[str] = (),
        where: str | None = None,
        skip_errors: bool = False,
    ) -> Changes:
        """Read what changed after a time, up to and including another, as a lazy DataFrame of consolidated updates.

        The contents AS OF `after` and these updates add up to the contents AS OF `through`.

        Args:
            spark: the session, as for `snapshot`.
            after: a time in [since, upper); the range begins after it. None begins with the contents AS OF `since`,
                which then have the time `since`.
            through: a time in [since, upper), at or after `after`; the range includes it. By default the last time.
            columns: the columns to read; empty means all. Diffs of rows that are equal in these columns are summed.
            where: a predicate, as for `snapshot`; other rows are left out.
            skip_errors: treat keys in error as keys without a row: their rows are retracted.

        Returns:
            Changes: `updates` has the columns, `_time` bigint and `_diff` bigint, never 0; other fields give the
            maximum number of files that are opened, and the number of rows in these files.

        Raises:
            SinceError, UpperError: a time can no longer be read, or cannot be read yet.
            ArgumentRefused: `after` is later than `through`.
            KeysInError: there are keys in error at `after` or at a time in the range, and `skip_errors` is not set.
            UnknownColumn, PredicateRefused: as for `snapshot`.

        Cost: the files with rows in the range. If the collection has a key, also one scan of earlier rows, from which
        only those of touched keys are taken.
        """
        from tidelake.read.changes import changes

        check_session(spark)
        check_selection(columns, where, skip_errors)
        return changes(spark, self._stored(), after, through, columns, where, skip_errors)

    # --- followed by either engine -----------------------------------------------------------------------------------

    @overload
    def subscribe(
        self,
        spark: SparkSession,
        as_of: int | None = None,
        snapshot: bool = True,
        columns: Sequence[str] = (),
        where: str | None = None,
        skip_errors: bool = False,
        **more: Unpack[Following],
    ) -> Subscription[DataFrame]: ...

    @overload
    def subscribe(
        self,
        spark: None = None,
        as_of: int | None = None,
        snapshot: bool = True,
        columns: Sequence[str] = (),
        where: str | None = None,
        skip_errors: bool = False,
        **more: Unpack[Following],
    ) -> Subscription[Answer]: ...

    def subscribe(
        self,
        spark: SparkSession | None = None,
        as_of: int | None = None,
        snapshot: bool = True,
        columns: Sequence[str] = (),
        where: str | None = None,
        skip_errors: bool = False,
        *,
        wait_s: float | None = 0.0,
        poll_s: float = 1.0,
        until: int | None = None,
        rows_max: int = 1_000_000,
        lease: timedelta | None = LEASE,
        capability: ReadCapability | None = None,
        purpose: str = "a subscription",
    ) -> Subscription[DataFrame] | Subscription[Answer]:
        """Follow the collection: its contents AS OF a time, then the changes, one complete time after another.

        Each batch is a pair of `updates`, which have the columns, `_time` and `_diff`, and `progress`, whose `through`
        is the token: `subscribe(as_of=token, snapshot=False)` continues after this batch, with either engine. A hold
        follows the subscription, so that compaction does not pass it, and no sweep deletes files that it reads. A
        read-only lake holds nothing.

        Args:
            spark: the session, as for `snapshot`; `updates` are DataFrames. Without one, DuckDB reads, no JVM is
                started, and `updates.table()` gives an Arrow table, `updates.reader()` a stream.
            as_of: the time of the snapshot, or the token; by default the `since` of `capability`, or the last time that
                can be read. If it is not sealed yet, the first batch waits for it, for at most `wait_s`.
            snapshot: whether the first batch is the contents AS OF that time.
            columns: the columns to read; empty means all. Diffs of rows that are equal in these columns are summed.
            where: a predicate, as for `snapshot` or `rows`; other rows are left out.
            skip_errors: treat keys in error as keys without a row: their rows are retracted.
            wait_s: how long to wait for the next batch, in seconds; None means forever.
            poll_s: how often to check for newly sealed times, in seconds.
            until: the last time to deliver.
            rows_max: the maximum number of stored rows whose times are in a batch. A batch with more rows has a single
                time: a time is never split. The contents are one batch, whatever their size.
            lease: how long the hold lives after each call; None holds nothing. If work on a batch can take longer, call
                the subscription's `renew` while it runs.
            capability: a hold of the caller, which moves with the subscription and stays when it ends. A read-only lake
                refuses it, because moving it writes to the store.
            purpose: what the hold is for.

        Raises:
            ArgumentRefused: an argument is out of its range.
            LakeReadOnly: the lake is read-only, and there is a `capability`.
            SinceError: `as_of` is not at or after `since`.
            UpperError: nothing is sealed yet, so there is no last time to begin after.
            EngineRefused: there is no session, and the envelope is from another package.

        Cost: a commit to the collection's handles; for each batch, another one and what `changes` or `updates` costs.
        If its files have more than `rows_max` rows, their column `_time` is read first, without Spark. With a key, each
        batch also looks up its keys in all earlier rows: a smaller `rows_max` needs less memory, but reads more.
        """
        from tidelake.read.source import Selection
        from tidelake.read.subscription import Bounds, subscribe

        if spark is not None:
            check_session(spark)
        check_flag("snapshot", snapshot)
        check_selection(columns, where, skip_errors)
        selection, bounds = Selection(columns, where, skip_errors), Bounds(wait_s, poll_s, until, rows_max)
        held = None if self.lake.read_only else lease
        about = (self._catalog, self.name, as_of, snapshot, selection, bounds, held, capability, purpose)
        with engine_errors():
            if spark is None:
                from tidelake.query.duckdb_source import DuckDBSource

                return subscribe(DuckDBSource.of(self._stored()), *about)
            from tidelake.read.spark_source import SparkSource

            return subscribe(SparkSource(spark), *about)

    # --- what can be read --------------------------------------------------------------------------------------------

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns of the contents, each with its name, its type and whether it may be null."""
        from tidelake.query.forms import contents_types, is_known

        entry = self._stored().entry
        if is_known(entry):
            return contents_types(entry)
        from tidelake.plugins.envelope import envelope_of  # imported late: envelopes import Spark

        return envelope_of(entry.envelope).contents_types(entry)

    @property
    def since(self) -> int | None:
        """The first time that can be read; None if the collection is unreadable."""
        stored = self._stored()
        since, _, _ = stored.readable_range(OpenTable(stored.paths.updates))
        return since[0] if since else None

    @property
    def upper(self) -> int | None:
        """The first time that is not sealed; None if the stream is closed, because every time is then sealed."""
        stored = self._stored()
        _, upper, closed = stored.readable_range(OpenTable(stored.paths.updates))
        return None if closed else upper
