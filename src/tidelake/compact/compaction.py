"""Compaction: fewer runs, and no history before `since`.

First `since` moves in the handles, in a commit that conflicts with any concurrent acquisition of a capability. Only
then are runs merged, and the commit that swaps them records the new `since`. How a merge combines sealed rows depends
on the form (`forms.form`). Rows at or after upper are copied unchanged, into a run of their own.
"""

from __future__ import annotations

import time as clock
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tidelake.catalog.catalog import Catalog
from tidelake.catalog.evolution import open_newest
from tidelake.catalog.handles import read_handles
from tidelake.errors import Conflict, DamagedTable, Fenced
from tidelake.forms.form import takes_all
from tidelake.plugins.envelope import form_of
from tidelake.protocol.antichain import Antichain
from tidelake.schema.change_events import Interval
from tidelake.spark.row_hash import add_halves
from tidelake.storage import blobs
from tidelake.store.base import BASE
from tidelake.store.commit import OpenTable, maintain
from tidelake.store.entry import Collection, Entry
from tidelake.store.failpoints import reach
from tidelake.store.files import RunFile, discard_run
from tidelake.store.holds import beats_of, clock_slack_ms, observe
from tidelake.store.layout import MERGE_RUN, TIME, new_run
from tidelake.store.retry import ATTEMPTS_MAX, LostRace, retry_commit
from tidelake.store.runs import read_files, verify_runs, write_updates
from tidelake.store.sealed_at import last_sealed_by
from tidelake.store.state import CLOSED, SINCE, UPPER, idle_lower

FAN_IN = 8
_SMALLEST_TIER_ROWS = 4_096
_LOST_MERGES_MAX = 16


@dataclass
class CompactReport:
    """The result of a compaction."""

    since: tuple[int, ...] = ()
    held: str | None = None
    """Which hold keeps `since` from moving, as a sentence; None if no hold does."""
    merges: int = 0
    runs_before: int = 0
    runs_after: int = 0
    rows_before: int = 0
    rows_after: int = 0
    bytes_written: int = 0
    folders_removed: int = 0
    merged_runs: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Run:
    """The live files of one run."""

    name: str
    files: tuple[RunFile, ...]

    @property
    def rows(self) -> int:
        """The number of rows in the run."""
        return sum(file.rows for file in self.files)

    @property
    def tier(self) -> int:
        """The size tier of the run; the maximum number of rows rises by the factor `FAN_IN` from tier to tier."""
        tier, size = 0, _SMALLEST_TIER_ROWS
        while self.rows > size:
            tier, size = tier + 1, size * FAN_IN
        return tier


def move_since(catalog: Catalog, collection: Collection, keep: str | int | timedelta) -> Entry:
    """Move the critical capability as the retention rule says, and `since` to the meet of all capabilities.

    Leases that nobody has renewed end in the same commit; see `store.holds`.

    If ingest mints the times, they are milliseconds since 1970. A distance then counts back from upper or from now,
    whichever is earlier, so that recent history is not forgotten if upper is in the future.

    A duration counts back from the earlier of two clocks, the store's and this machine's. Whatever could be read at the
    resulting moment stays readable; see `sealed_at`.

    Args:
        catalog: the catalog.
        collection: the collection; its handles hold `since` and the capabilities, which move in one commit.
        keep: `all`; the distance before upper within which times stay readable; or the duration before now.

    Raises:
        Fenced: the epoch was raised in the meantime; `since` did not move.
    """
    table = OpenTable(collection.paths.updates)
    upper = table.value(UPPER) or 0
    beats = beats_of(read_handles(collection.paths))
    bounds_by_clock = isinstance(keep, timedelta) or (keep != "all" and collection.entry.mints_times)
    # Read the clock after the beats, so that no beat is later than the time read.
    store_ms = int(blobs.now_s(collection.paths.root) * 1000) if beats or bounds_by_clock else 0
    target = _target(collection, upper, keep, min(int(clock.time() * 1000), store_ms))

    def follow(entry: Entry) -> Entry:
        if entry.epoch != collection.entry.epoch:  # without this, the caller would get an entry with the new epoch
            raise Fenced(str(collection.paths.handles), collection.entry.epoch, entry.epoch)
        entry = observe(entry, beats, store_ms, clock_slack_ms(collection.paths.root))
        capabilities = []
        for capability in entry.capabilities:
            if capability.kind == "critical" and keep != "all" and capability.since:
                capability = capability.model_copy(update={"since": (max(capability.since[0], target),)})
            capabilities.append(capability)
        meet = Antichain()
        for capability in capabilities:
            meet = meet.meet(Antichain(capability.since))
        since = entry.since_frontier.join(meet)
        return entry.model_copy(
            update={"capabilities": tuple(capabilities), "since": tuple(int(str(time)) for time in since)}
        )

    entry = catalog.update(collection.name, follow)
    reach("compact.after_since")
    return entry


def _target(collection: Collection, upper: int, keep: str | int | timedelta, now_ms: int) -> int:
    """Return the time that `since` would be at if nobody held an earlier one; it may be before the current `since`."""
    if isinstance(keep, timedelta):
        after = next(iter(collection.entry.since), 0)
        sealed = last_sealed_by(collection, after, now_ms - keep // timedelta(milliseconds=1))
        target = 0 if sealed is None else sealed
    elif keep == "all":
        return 0
    else:
        target = upper - int(keep)
        if collection.entry.mints_times:
            target = min(target, now_ms - int(keep))
    return min(target, upper - 1)  # the last time before upper stays readable, whatever the rule


def merge_runs(spark: SparkSession, collection: Collection, full: bool, rows_max: int) -> CompactReport:
    """Merge runs: by size tiers within a budget, or all of them.

    Nothing at or after the collection's `since` is forgotten. Each merge reads `since` from the handles, and so takes
    into account capabilities that the caller has not seen; `since` only rises, so the value read stays valid.

    Args:
        spark: the session.
        collection: the collection.
        full: whether to merge all sealed rows into one run.
        rows_max: maximum number of rows that merges may read; ignored if `full`.
    """
    report = CompactReport()
    initial: set[str] = set()

    def merge_all() -> None:
        nonlocal initial
        while True:
            # Columns may have been added since the entry was read, and a merge must not lose their values.
            newest, table = open_newest(collection)
            since = report.since = read_handles(collection.paths).since
            runs = live_runs(table.files())
            report.runs_after = len(runs)
            if report.merges == 0:
                report.runs_before = len(runs)
                initial = {run.name for run in runs}
            closed, upper = bool(table.value(CLOSED)), table.value(UPPER) or 0
            fresh = {run.name for run in runs} - initial if report.merges else set()
            left = rows_max - report.rows_before
            chosen = choose_runs(spark, newest, runs, None if closed else upper, full, left, fresh)
            if full and len(chosen) == 1 and (report.merges or not _falls_behind(table, chosen[0], since)):
                chosen = []
            if not chosen:
                return
            _merge(spark, newest, table, chosen, since, report)
            maintain(newest.paths.updates)
            if full:
                report.runs_after = len(live_runs(OpenTable(newest.paths.updates).files()))
                return

    # If other commits replace the runs on every attempt, the next compaction continues the work; finished merges stay.
    for _ in range(_LOST_MERGES_MAX):
        with suppress(LostRace):
            merge_all()
            break
    return report


def live_runs(files: Sequence[RunFile]) -> list[Run]:
    """Group files by run."""
    by_name: dict[str, list[RunFile]] = {}
    for file in files:
        by_name.setdefault(file.run, []).append(file)
    return [Run(name, tuple(group)) for name, group in sorted(by_name.items())]


def choose_runs(
    spark: SparkSession,
    collection: Collection,
    runs: list[Run],
    upper: int | None,
    full: bool,
    rows_max: int,
    fresh: set[str],
) -> list[Run]:
    """Choose the runs to merge next; if `upper` is None, everything is sealed.

    Runs without sealed rows are left alone. If `full`, all others are merged. If not, one tier is merged: the smallest
    that has at least `FAN_IN` runs and at most `rows_max` rows. If there is no such tier, a run that is mostly sealed
    but has a few later rows is split, so that no seal has to open the sealed rows again. Runs in `fresh`, which were
    written after this compaction began, are not split.
    """
    sealed = [run for run in runs if upper is None or any(_starts_before(file, upper) for file in run.files)]
    if full:
        return sealed
    by_tier: dict[int, list[Run]] = {}
    for run in sealed:
        by_tier.setdefault(run.tier, []).append(run)
    for tier in sorted(by_tier):
        group = by_tier[tier]
        if len(group) >= FAN_IN and sum(run.rows for run in group) <= rows_max:
            return group
    if upper is None:
        return []
    for run in sealed:
        straddling = [file for file in run.files if _starts_before(file, upper) and not _ends_before(file, upper)]
        rows = sum(file.rows for file in straddling)
        if rows > _SMALLEST_TIER_ROWS and run.rows <= rows_max and run.name not in fresh:
            split = read_files(spark, collection.paths.updates, straddling, collection.updates_schema())
            later = split.where(F.col(TIME) >= upper).count()
            if later * 4 < rows:
                return [run]
    return []


def _merge(
    spark: SparkSession,
    collection: Collection,
    table: OpenTable,
    chosen: list[Run],
    since: tuple[int, ...],
    report: CompactReport,
) -> None:
    """Write the merged run and swap it in.

    Raises:
        LostRace: another commit replaced the input runs.
    """
    schema = collection.updates_schema()
    closed, upper = bool(table.value(CLOSED)), table.value(UPPER) or 0
    files = [file for run in chosen for file in run.files]
    form = form_of(collection.entry, table)
    data = [field.name for field in form.fields] if form.is_additive else []
    contents = add_halves(run.weighted for run in verify_runs(spark, table.path, files, schema, data).values())
    rows = read_files(spark, collection.paths.updates, files, schema)
    total = sum(file.rows for file in files)
    partitions = max(1, min(spark.sparkContext.defaultParallelism, total // 1_000_000 + 1))
    sealed = rows if closed else rows.where(F.col(TIME) < upper)
    through, others = _last_forgotten(since, closed, upper), _others(table, chosen)
    merged = form.merged(sealed, through, others)
    name = new_run(MERGE_RUN.rstrip("-"), table.seq)
    ordered = merged.repartitionByRange(partitions, TIME).sortWithinPartitions(TIME)
    split_by = []
    if form.makes_base and through >= 0 and takes_all(through, others):
        ordered, split_by = ordered.withColumn(BASE, F.col(TIME) <= through), [BASE]
    runs = [write_updates(ordered, table.path, name, schema, split_by, data)]
    written = [name]
    reach("compact.after_merged_write")
    if not closed and any(not _ends_before(file, upper) for file in files):
        written.append(new_run("rest", table.seq))
        rest = rows.where(F.col(TIME) >= upper).coalesce(partitions)
        runs.append(write_updates(rest, table.path, written[-1], schema, weighted=data))
    reach("compact.after_write")
    added = [file for run in runs for file in run.files]

    def discard() -> None:
        for run in written:
            discard_run(table.path, run)

    if contents != add_halves(run.weighted for run in runs):
        discard()
        names = ", ".join(run.name for run in chosen)
        raise DamagedTable(str(table.path), f"merging the runs {names} would have changed the contents")
    try:
        _swap(collection, table, chosen, added, since)
    except (LostRace, Conflict) as lost:
        discard()
        reach("compact.after_lost_runs")
        raise LostRace from lost
    reach("compact.after_commit")
    report.merges += 1
    report.rows_before += total
    report.rows_after += sum(file.rows for file in added)
    report.bytes_written += sum(file.bytes for file in added)
    report.merged_runs += [run.name for run in chosen]


def _swap(
    collection: Collection, table: OpenTable, chosen: list[Run], added: list[RunFile], since: tuple[int, ...]
) -> None:
    """Commit the swap; after a conflict, commit again if the input runs are still live."""
    names = {run.name for run in chosen}

    def commit(opened: OpenTable) -> None:
        values = {SINCE: max(opened.value(SINCE) or 0, since[0])} if since else {}
        opened.commit(values, added, sorted(names), epoch=collection.entry.epoch)

    def check_still_valid(opened: OpenTable) -> None:
        if not names <= {file.run for file in opened.files()} or opened.schema() != table.schema():
            raise LostRace
        reach("compact.after_conflict")

    retry_commit(table, commit, f"{ATTEMPTS_MAX} attempts to swap runs failed", after_conflict=check_still_valid)


def _last_forgotten(since: tuple[int, ...], closed: bool, upper: int) -> int:
    """Return the last time that no reader can distinguish from earlier times; -1 if there is none."""
    if not since or since[0] == 0:  # no time is before 0
        return -1
    return since[0] if closed else min(since[0], upper - 1)


def _others(table: OpenTable, chosen: list[Run]) -> list[Interval]:
    """Return the first and last time of each file whose run is not merged."""
    names = {run.name for run in chosen}
    return [file.reach for file in table.files() if file.run not in names]


def _falls_behind(table: OpenTable, run: Run, since: tuple[int, ...]) -> bool:
    """Return whether another merge of the only run with sealed rows can combine more rows.

    It can if `since` has moved after the last merge, and not only over idle ticks.
    """
    merged = table.value(SINCE) or 0
    is_only_idle = idle_lower(table) is not None and all(
        file.time_max is not None and file.time_max <= merged for file in run.files
    )
    return bool(since) and merged < since[0] and not is_only_idle


def _starts_before(file: RunFile, upper: int) -> bool:
    return file.time_min is None or file.time_min < upper


def _ends_before(file: RunFile, upper: int) -> bool:
    return file.time_max is not None and file.time_max < upper
