"""Compaction: fewer runs, and times before since that no reader can tell apart any more.

First `since` moves in the catalog, in a commit that conflicts with every acquire; only then runs are merged, and the
swapping commit names that since. What a merge makes of sealed rows is the form's to say (`forms.py`). Rows at or after
upper go through untouched, into a run of their own.
"""

from __future__ import annotations

import shutil
import time as clock
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tidelake.antichain import Antichain
from tidelake.debezium import Interval
from tidelake.delta.base import BASE
from tidelake.delta.catalog import Catalog, Collection, Entry
from tidelake.delta.commit import UNFINISHED, OpenTable, maintain
from tidelake.delta.evolution import open_newest
from tidelake.delta.files import RunFile, discard_run
from tidelake.delta.forms import form_of, takes_all
from tidelake.delta.layout import RUN, TIME, new_run
from tidelake.delta.runs import read_files, write_frame
from tidelake.delta.stops import reach
from tidelake.delta.types import updates_schema
from tidelake.delta.values import CLOSED, SINCE, UPPER
from tidelake.errors import Conflict

FAN_IN = 8
_SMALLEST_TIER_ROWS = 4_096
_ATTEMPTS_MAX = 16
_RETENTION_S = 24 * 3600.0


@dataclass
class CompactReport:
    """What a compaction did."""

    since: tuple[int, ...] = ()
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
    """The live files of one run, together."""

    name: str
    files: tuple[RunFile, ...]

    @property
    def rows(self) -> int:
        """How many rows it has."""
        return sum(file.rows for file in self.files)

    @property
    def tier(self) -> int:
        """Which power of the fan-in its rows have reached."""
        tier, size = 0, _SMALLEST_TIER_ROWS
        while self.rows > size:
            tier, size = tier + 1, size * FAN_IN
        return tier


def move_since(catalog: Catalog, collection: Collection, keep: str | int) -> Entry:
    """Let the collection's critical capability follow its retention rule, and since the meet of all capabilities.

    Args:
        catalog: where both are kept; they move in one commit.
        collection: whose.
        keep: `all`, or how far before upper times stay readable.
    """
    table = OpenTable(collection.paths.updates)
    upper = table.value(UPPER) or 0

    def follow(entry: Entry) -> Entry:
        capabilities = []
        for one in entry.capabilities:
            if one.kind == "critical" and keep != "all" and one.since:
                # The last time before upper stays readable, whatever the rule.
                followed = max(one.since[0], min(upper - int(keep), upper - 1))
                one = one.model_copy(update={"since": (followed,)})
            capabilities.append(one)
        meet = Antichain()
        for one in capabilities:
            meet = meet.meet(Antichain(one.since))
        since = entry.since_frontier.join(meet)
        return entry.model_copy(
            update={"capabilities": tuple(capabilities), "since": tuple(int(str(time)) for time in since)}
        )

    entry = catalog.update(collection.name, follow)
    reach("compact.after_since")
    return entry


def merge_runs(
    spark: SparkSession, collection: Collection, since: tuple[int, ...], full: bool, rows_max: int
) -> CompactReport:
    """Merge runs, geometrically and within a budget, or all of them.

    Args:
        spark: the session.
        collection: whose runs.
        since: the collection's since, as it is committed in the catalog.
        full: merge everything that is sealed into one run.
        rows_max: how many rows a merge that is not full may read.
    """
    report = CompactReport(since=since)
    lost = 0
    first: set[str] = set()
    while lost < _ATTEMPTS_MAX:
        # Columns may have appeared since the entry was read, and a merge must not lose what is in them.
        collection, table = open_newest(collection)
        runs = live_runs(table.files())
        report.runs_after = len(runs)
        if report.merges == 0:
            report.runs_before = len(runs)
            first = {run.name for run in runs}
        closed, upper = bool(table.value(CLOSED)), table.value(UPPER) or 0
        fresh = {run.name for run in runs} - first if report.merges else set()
        left = rows_max - report.rows_before
        chosen = choose_runs(spark, collection, runs, None if closed else upper, full, left, fresh)
        if full and len(chosen) == 1 and (report.merges or not _falls_behind(table, since)):
            chosen = []
        if not chosen:
            return report
        if not _merge(spark, collection, table, chosen, since, report):
            lost += 1
            continue
        maintain(collection.paths.updates)
        if full:
            report.runs_after = len(live_runs(OpenTable(collection.paths.updates).files()))
            return report
    return report


def live_runs(files: Sequence[RunFile]) -> list[Run]:
    """Files by run."""
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
    """Which runs to merge next; `upper` None means that everything is sealed.

    A run with no sealed row is left alone. The smallest tier with `FAN_IN` runs is merged. Otherwise a run that is
    mostly sealed and still has a few later rows is split, so that no seal has to open it again; not a `fresh` one.
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
            schema = updates_schema(collection.entry.record_schema, collection.entry.positioned)
            later = read_files(spark, collection.paths.updates, straddling, schema).where(F.col(TIME) >= upper).count()
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
) -> bool:
    """Write the merged run and swap it in; False when its input runs went away."""
    schema = updates_schema(collection.entry.record_schema, collection.entry.positioned)
    closed, upper = bool(table.value(CLOSED)), table.value(UPPER) or 0
    files = [file for run in chosen for file in run.files]
    rows = read_files(spark, collection.paths.updates, files, schema)
    total = sum(file.rows for file in files)
    partitions = max(1, min(spark.sparkContext.defaultParallelism, total // 1_000_000 + 1))
    sealed = rows if closed else rows.where(F.col(TIME) < upper)
    form, through, others = form_of(collection), _last_forgotten(since, closed, upper), _others(table, chosen)
    merged = form.merged(sealed, through, others)
    name = new_run("merge")
    ordered = merged.repartitionByRange(partitions, TIME).sortWithinPartitions(TIME)
    split_by = []
    if form.makes_base and through >= 0 and takes_all(through, others):
        ordered, split_by = ordered.withColumn(BASE, F.col(TIME) <= through), [BASE]
    added = write_frame(ordered, table.path, name, schema, split_by)
    written = [name]
    reach("compact.after_merged_write")
    if not closed and any(not _ends_before(file, upper) for file in files):
        written.append(new_run("rest"))
        rest = rows.where(F.col(TIME) >= upper).coalesce(partitions)
        added += write_frame(rest, table.path, written[-1], schema)
    reach("compact.after_write")
    if not _swap(collection, table, chosen, added, since):
        for one in written:
            discard_run(table.path, one)
        reach("compact.after_lost_runs")
        return False
    reach("compact.after_commit")
    report.merges += 1
    report.rows_before += total
    report.rows_after += sum(file.rows for file in added)
    report.bytes_written += sum(file.bytes for file in added)
    report.merged_runs += [run.name for run in chosen]
    return True


def _swap(
    collection: Collection, table: OpenTable, chosen: list[Run], added: list[RunFile], since: tuple[int, ...]
) -> bool:
    """Commit the swap, again after each conflict as long as the input runs are live."""
    names = {run.name for run in chosen}
    for _ in range(_ATTEMPTS_MAX * 4):
        values = {SINCE: max(table.value(SINCE) or 0, since[0])} if since else {}
        try:
            table.commit(values, added, sorted(names), epoch=collection.entry.epoch)
        except Conflict:
            before, table = table.schema(), OpenTable(table.path)
            if not names <= {file.run for file in table.files()} or table.schema() != before:
                return False
            reach("compact.after_conflict")
            continue
        return True
    return False


def sweep(table: Path, report: CompactReport, retention_s: float = _RETENTION_S) -> None:
    """Delete the folders of runs that no log names and that nobody has touched for the retention.

    Such are the runs that a merge replaced, and what processes that died left behind. A reader has `retention_s` to
    finish with the version that it planned on.
    """
    live = {file.run for file in OpenTable(table).files()}
    horizon = clock.time() - retention_s
    for folder in table.glob(f"{RUN}=*"):
        if folder.name.removeprefix(f"{RUN}=") in live:
            continue
        if _last_touched(folder) < horizon:
            discard_run(table, folder.name.removeprefix(f"{RUN}="))
            reach("sweep.after_folder")
            report.folders_removed += 1
    for folder in table.glob(f"{UNFINISHED}*"):
        if _last_touched(folder) < horizon:
            shutil.rmtree(folder)


def _last_touched(folder: Path) -> float:
    """When anything in a folder last changed; now, where something goes away while it is looked at."""
    try:
        return max([folder.stat().st_mtime, *(path.stat().st_mtime for path in folder.rglob("*"))])
    except FileNotFoundError:  # its writer is at work there
        return clock.time()


def _last_forgotten(since: tuple[int, ...], closed: bool, upper: int) -> int:
    """The last time that no reader can tell from the ones before it; -1 where every one can be told."""
    if not since or since[0] == 0:  # before 0 there is none
        return -1
    return since[0] if closed else min(since[0], upper - 1)


def _others(table: OpenTable, chosen: list[Run]) -> list[Interval]:
    """From which time to which the runs that are not merged reach."""
    names = {run.name for run in chosen}
    return [file.reach for file in table.files() if file.run not in names]


def _falls_behind(table: OpenTable, since: tuple[int, ...]) -> bool:
    return bool(since) and (table.value(SINCE) or 0) < since[0]


def _starts_before(file: RunFile, upper: int) -> bool:
    return file.time_min is None or file.time_min < upper


def _ends_before(file: RunFile, upper: int) -> bool:
    return file.time_max is not None and file.time_max < upper
