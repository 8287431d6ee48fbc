"""Validate: recounts what seal has published, independently, at a pinned version, and reports every mismatch.

Seal takes the list of files from the log that its process follows, and counts rows or their fingerprints. Here, Spark's
Delta reader or delta-rs finds the rows, whole rows are grouped, and the result is compared with the announced counts in
`proofs/`. Times that a compaction may have moved cannot be recounted, but the sum of their diffs is still compared.
"""

from __future__ import annotations

import time as clock
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import pyarrow as pa
from deltalake.exceptions import DeltaError
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tidelake.catalog.evolution import with_newest_columns
from tidelake.decode.landing import ROW_TEXT
from tidelake.errors import Conflict, DamagedFiles, DamagedTable, SinceError, UpperError
from tidelake.forms.form import Form
from tidelake.integrity.verification import Share, Verification, verify_table
from tidelake.plugins.envelope import form_of
from tidelake.plugins.framing import framing_of
from tidelake.read.asked import last_time
from tidelake.read.snapshot import snapshot
from tidelake.read.words import counted
from tidelake.spark.engine_errors import engine_fact
from tidelake.spark.row_hash import add_halves
from tidelake.storage import blobs
from tidelake.store.commit import OpenTable
from tidelake.store.entry import Collection
from tidelake.store.failpoints import reach
from tidelake.store.files import write_run
from tidelake.store.layout import DIFF, PROOFS_SCHEMA, TIME
from tidelake.store.proof_log import DAMAGED_FILES, HashNote, ProofLog, read_proof_log
from tidelake.store.quarantine import quarantine_reasons
from tidelake.store.retention import read_departures
from tidelake.store.runs import append_run, mismatched_runs, sum_runs
from tidelake.store.state import CLOSED, SINCE, UPPER, idle_lower
from tidelake.store.table_log import state_at
from tidelake.validate.departures import without_departures
from tidelake.validate.hashes import (
    TimeHash,
    compare_contents,
    compare_times,
    halves_of,
    hash_contents,
    hash_text,
    time_hashes,
)
from tidelake.validate.late import LateReport, compare_late
from tidelake.validate.sealed_rows import SealedRows

_MISMATCHES_NAMED_MAX = 10
_EVIDENCE_MAX = 10


@dataclass
class ValidateReport:
    """The result of one validation."""

    lower: int
    upper: int
    since: int
    closed: bool
    version: int
    times: list[dict[str, Any]] = field(default_factory=list)
    """One row for each time of the range: `time`, `announced`, `counted`, `recounted`, `diff_min` (the minimum sum of a
    row), `diff_sum`, `decision` and, if keys can have two values, `doubled`."""
    mismatches: list[str] = field(default_factory=list)
    contradictions: list[dict[str, Any]] = field(default_factory=list)
    quarantine: dict[str, int] = field(default_factory=dict)
    decided: int = 0
    doubled: int = 0
    """In tables with keys, the number of cases in which a key has two values at one time."""
    diff_sum_recorded: int = 0
    """The sum of all diffs before upper: what the last validation recorded, plus the sum of this range."""
    diff_sum_found: int | None = None
    """The same sum, computed from all rows; None unless all rows were added up."""
    times_hash: str | None = None
    """The hash of the statements of the range; see `validate.hashes`. None if it was not recounted."""
    contents_hash: str | None = None
    """The hash of the contents just before upper; None if diffs are not summed and the validation was not full."""
    contents_as_of: int | None = None
    """The time of the contents, if diffs are not summed."""
    rows_left: int = 0
    """Number of rows removed by recorded retention at the times of the range."""
    hash_mismatches: list[str] = field(default_factory=list)
    """The runs, times and contents whose hash has changed since it was recorded; `mismatches` includes these."""
    readable_beyond_upper: int = 0
    """Number of reads at or after upper that were answered, although they should have been refused."""
    below_zero: int | None = None
    """Number of rows whose accumulated diff is negative; None if they were not counted."""
    below_zero_first: list[str] = field(default_factory=list)
    """The rows with the lowest sums, each with its data as JSON and its sum."""
    proofs_problem: DamagedTable | None = None
    """Why nothing can be compared: a proof or a binding is missing or contradicts another one, or files are damaged."""
    files_verified: int = 0
    """Number of files of which every byte was verified."""
    bytes_verified: int = 0
    """The total size of these files."""
    has_damaged_files: bool = False
    """Whether files are missing or damaged; if so, nothing is recounted."""
    late: LateReport = field(default_factory=LateReport)
    """The late statements since the last validation."""
    late_problem: str | None = None
    """Why late statements could not be compared; None if they were. The published contents may still be right."""

    @property
    def damaged(self) -> bool:
        """Whether anything below upper differs from what was proven."""
        return bool(self.mismatches) or self.readable_beyond_upper > 0

    def as_json(self) -> dict[str, Any]:
        """Return the report with `times` as totals, and the first times at which the numbers differ."""
        counts = ("announced", "counted", "recounted")
        differing = [row for row in self.times if len({row[count] for count in counts}) > 1]
        totals: dict[str, Any] = {count: sum(row[count] for row in self.times) for count in counts}
        first, last = (self.times[0]["time"], self.times[-1]["time"]) if self.times else (None, None)
        report = {item.name: getattr(self, item.name) for item in fields(self)}
        return report | {
            "times": {"number": len(self.times), "first": first, "last": last, **totals, "differing": len(differing)},
            "times_differing": differing[:_MISMATCHES_NAMED_MAX],
        }


def validate(
    spark: SparkSession,
    collection: Collection,
    full: bool = False,
    verify_every_days: int = 0,
    again_from: int | None = None,
) -> ValidateReport:
    """Recount the times sealed since the last validation that agreed; if `full`, all that compaction left as they were.

    After damage, every validation is full: a later range that agrees must not hide the damage.

    Args:
        spark: the session.
        collection: the collection.
        full: whether to recount everything, and to verify a share of the files.
        verify_every_days: the number of days within which every file is verified once; 0 verifies no file.
        again_from: a time; everything at or after this time is recounted again, unless compaction has changed it.

    Cost: one scan of the range and one exchange of its rows; if `full`, several scans and exchanges of the whole table,
        and one read of the share.
    """
    table = OpenTable(collection.paths.updates)
    collection = with_newest_columns(collection)  # a hash without a new column would differ from what was stated
    upper, closed = table.value(UPPER) or 0, bool(table.value(CLOSED))
    compacted = table.value(SINCE) or 0
    proofs = read_proof_log(collection)
    full = full or proofs.damaged is not None or proofs.has_damaged_files
    since = collection.entry.since[0] if collection.entry.since else upper
    # Compaction moves times at most up to `compacted`, which no reader can distinguish from the times before it.
    first = compacted + 1 if compacted else 0
    lower = first if full else max(proofs.validated_upper, first)
    if again_from is not None:
        lower = max(first, min(lower, again_from))
    report = ValidateReport(lower, upper, since, closed, table.version)
    if full and (verify_every_days or proofs.has_damaged_files):
        _verify_share(collection, report, 1 if proofs.has_damaged_files else verify_every_days)
        if report.has_damaged_files:
            _record(collection, report, proofs)
            return report
    sealed = SealedRows(spark, collection, table, upper, closed)
    framing, form = framing_of(collection.entry.framing), form_of(collection.entry, table)
    hashes: dict[int, TimeHash] = {}
    idle_from = idle_lower(table)
    # Since the last validation, only upper has moved: there is nothing to recount, and nothing new to note.
    is_idle = not full and idle_from is not None and idle_from <= lower == proofs.validated_upper
    try:
        if lower < upper or closed:
            recounted = []
            if not is_idle:
                in_range = sealed.every.where(F.col(TIME) >= lower) if full else sealed.since(lower)
                recounted = framing.recount(in_range, collection, form)
            departures = read_departures(collection, table)
            left = {each.time: each.rows for each in departures if each.time >= lower}
            recounted = without_departures(report, recounted, left)
            _compare_times(report, recounted, framing.proofs(collection, lower), collection.entry.mints_times)
            hashes = time_hashes(recounted)
            report.times_hash = hash_text(add_halves(time_hash.times for time_hash in hashes.values()))
        _compare_hashes(spark, collection, report, _Hashed(form, sealed, hashes), proofs, full, first)
        if not collection.entry.key:  # with a key, sums would lack the rows that merges have dropped
            _compare_sums(report, sealed, form, proofs, full, unbroken=proofs.validated_upper >= first)
            if full:
                _find_below_zero(spark, collection, report)
    except DamagedTable as error:
        report.proofs_problem = error
        report.mismatches.append(error.fact)
    except (PySparkException, Py4JJavaError, DeltaError) as error:
        # A table that cannot be read is damaged: note the damage, and raise the error unchanged.
        if not collection.paths.updates.is_local and (refused := blobs.spark_error(error)) is not None:
            raise refused from error
        if state_at(table.path, table.version) is None:
            raise  # no damage: the log was cleaned up in the meantime
        report.mismatches.append(f"the table cannot be read at version {table.version}: {engine_fact(error)}")
        _record(collection, report, proofs)
        raise
    _try_beyond_upper(spark, collection, report)
    report.contradictions = [] if closed else [note for note in proofs.blocked if note["time"] >= upper]
    report.quarantine = quarantine_reasons(collection)
    if not is_idle or report.damaged:
        _record(collection, report, proofs)
    reach("validate.after_record")
    _compare_late(spark, collection, report)
    return report


def _verify_share(collection: Collection, report: ValidateReport, days: int) -> None:
    """Verify the logs of all tables, the existence of all files, and every byte of today's share of them."""
    found, share = Verification(), Share(int(clock.time()) // 86_400, days)
    for table in (collection.paths.handles, *collection.tables):
        verify_table(table, True, found, share)
    report.files_verified, report.bytes_verified = found.files, found.bytes
    if found.damages:
        facts = [f"in {damage.table}, {damage.file or 'the log'}: {damage.problem}" for damage in found.damages]
        report.mismatches += facts[:_MISMATCHES_NAMED_MAX]
        report.has_damaged_files = True
        report.proofs_problem = DamagedFiles(str(collection.paths.root), "; ".join(report.mismatches))


def _compare_late(spark: SparkSession, collection: Collection, report: ValidateReport) -> None:
    """Compare late statements; if they cannot be read, the recount is still valid."""
    try:
        report.late = compare_late(spark, collection)
    except (PySparkException, Py4JJavaError, pa.ArrowException, OSError, DamagedTable, Conflict) as error:
        report.late_problem = engine_fact(error)


def _compare_times(
    report: ValidateReport,
    recounted: list[dict[str, Any]],
    proofs: Mapping[int, Mapping[str, Any]],
    mints_times: bool,
) -> None:
    """Compare the recount of each time with its proof or, if the collection mints its times, with its binding."""
    by_time = {counts["time"]: counts for counts in recounted}
    proven = {time for time in proofs if report.closed or time < report.upper}
    for time in sorted(by_time.keys() | proven):
        proof = proofs.get(time, {"announced": 0, "counted": 0, "decision": None})
        counts = by_time.get(time, {"recounted": 0, "diff_min": 0, "diff_sum": 0})
        row = {
            "time": time,
            "announced": proof["announced"],
            "counted": proof["counted"],
            "recounted": counts["recounted"],
            "diff_min": counts["diff_min"],
            "diff_sum": counts["diff_sum"],
            "decision": proof["decision"],
        }
        if "doubled" in counts:
            row["doubled"] = counts["doubled"]
            report.doubled += counts["doubled"]
            if counts["doubled"] and len(report.mismatches) < _MISMATCHES_NAMED_MAX:
                doubled = counted(counts["doubled"], "key has", "keys have")
                report.mismatches.append(f"time {time}: {doubled} two values")
        report.times.append(row)
        report.decided += row["decision"] is not None
        if (
            not row["announced"] == row["counted"] == row["recounted"]
            and len(report.mismatches) < _MISMATCHES_NAMED_MAX
        ):
            stated = (
                f"rows: {row['counted']} according to its binding"
                if mints_times
                else f"distinct updates: {row['announced']} announced and {row['counted']} counted"
            )
            report.mismatches.append(f"time {time}: {stated}, but {row['recounted']} in the table")


def _compare_sums(
    report: ValidateReport, sealed: SealedRows, form: Form, proofs: ProofLog, full: bool, unbroken: bool
) -> None:
    """Compare the sum of all diffs with the sum that the last validation recorded plus that of this range.

    Each diff counts as the number of rows that it adds to the contents.

    Args:
        report: receives the sums, and any mismatch.
        sealed: the sealed rows.
        form: the form of the table.
        proofs: the recorded proofs.
        full: whether to add up everything.
        unbroken: whether the recorded sum and this range meet. They do not if a time in between was compacted before it
            was recounted; then everything is added up, and later validations start from that sum.
    """
    was_complete = proofs.validated_closed
    fresh = [row["diff_sum"] for row in report.times if not was_complete and row["time"] >= proofs.validated_upper]
    report.diff_sum_recorded = proofs.validated_sum + sum(fresh)
    if full or not unbroken:
        total = sealed.every.agg(F.sum(F.col(DIFF).cast("decimal(38,0)") * form.rows_brought()).alias("total")).first()
        report.diff_sum_found = int(total["total"] or 0) if total is not None else 0
        if not unbroken:
            report.diff_sum_recorded = report.diff_sum_found
        elif report.diff_sum_found != report.diff_sum_recorded:
            report.mismatches.append(
                f"all diffs before {report.upper} add up to {report.diff_sum_found}, not to {report.diff_sum_recorded}"
            )


@dataclass(frozen=True)
class _Hashed:
    """The rows that a validation hashes."""

    form: Form
    sealed: SealedRows
    hashes: dict[int, TimeHash]
    """The hashes of the range that was recounted."""


def _compare_hashes(
    spark: SparkSession,
    collection: Collection,
    report: ValidateReport,
    seen: _Hashed,
    proofs: ProofLog,
    full: bool,
    first: int,
) -> None:
    """If diffs are summed, update the contents hash; if the validation is full, compare all hashes that are comparable.

    Args:
        spark: the session.
        collection: the collection.
        report: receives the hashes, and any mismatch.
        seen: the rows to hash, and the hashes of the range that was recounted.
        proofs: the notes of earlier validations.
        full: whether the validation is full.
        first: the first time that no compaction has changed.

    Cost: if full, one scan of the table, and either a second scan or two reads of the contents; otherwise nothing, or
        one scan if the hashes of the range cannot be added to the contents hash that the last validation noted.
    """
    different: list[str] = []
    if full:
        files = [file for file in seen.sealed.table.files() if file.rows_hash is not None]
        runs = mismatched_runs(files, sum_runs(spark, seen.sealed.table.path, files, collection.updates_schema()))
        different += [f"the rows of the run {run} are not those that were written" for run in runs]
        different += compare_times(seen.hashes, proofs.hashes, first)
    if seen.form.is_additive:
        different += _compare_added_contents(report, seen, proofs, full, unbroken=proofs.validated_upper >= first)
    elif full and collection.entry.since and (report.upper or report.closed):
        report.contents_as_of = last_time(report.upper, report.closed)

        def read(as_of: int) -> str | None:
            try:
                contents = snapshot(spark, collection, as_of, skip_errors=True).contents
            except SinceError:
                return None
            return hash_contents(contents, seen.form.fields)

        report.contents_hash = read(report.contents_as_of)
        different += compare_contents(proofs.hashes, read)
    report.hash_mismatches = different[:_MISMATCHES_NAMED_MAX]
    report.mismatches += report.hash_mismatches


def _compare_added_contents(
    report: ValidateReport, seen: _Hashed, proofs: ProofLog, full: bool, unbroken: bool
) -> list[str]:
    """Compare the contents with what the last validation noted plus what this range adds; see `_compare_sums`."""
    noted = proofs.validated_contents if proofs.validations else hash_text((0, 0))
    fresh = [
        time_hash.contents
        for time, time_hash in seen.hashes.items()
        if time_hash.contents is not None and not proofs.validated_closed and time >= proofs.validated_upper
    ]
    recorded = None if noted is None else hash_text(add_halves([halves_of(noted), *fresh]))
    if not (full or not unbroken or recorded is None):
        report.contents_hash = recorded
        return []
    report.contents_hash = hash_contents(seen.sealed.every, seen.form.fields)
    if recorded is None or not unbroken or report.contents_hash == recorded:
        return []
    return [f"the contents before {report.upper} hash to {report.contents_hash}, not to {recorded}"]


def _find_below_zero(spark: SparkSession, collection: Collection, report: ValidateReport) -> None:
    """Find rows with a negative accumulated diff in the contents just before upper.

    Cost: one scan of the table and one exchange of its rows; twice if there are such rows.
    """
    if not collection.entry.since or not (report.upper or report.closed):
        return
    contents = snapshot(spark, collection).contents
    below = contents.where(F.col(DIFF) < 0)
    report.below_zero = below.count()
    if report.below_zero:
        data = F.to_json(F.struct(*(f"`{name}`" for name in contents.columns if name != DIFF)), ROW_TEXT)
        lowest = below.select(DIFF, data.alias("_data")).orderBy(DIFF, "_data").limit(_EVIDENCE_MAX).toArrow()
        report.below_zero_first = [f"{row['_data']}: {row[DIFF]}" for row in lowest.to_pylist()]


def _try_beyond_upper(spark: SparkSession, collection: Collection, report: ValidateReport) -> None:
    if report.closed:
        return
    for as_of in (report.upper, 2**63 - 1):
        try:
            answered = snapshot(spark, collection, as_of)
        except UpperError:
            continue
        if answered.closed or as_of < answered.upper:  # a seal has moved upper in the meantime
            continue
        report.readable_beyond_upper += 1
        report.mismatches.append(f"a read as of {as_of} was answered, but upper is {report.upper}")


def _record(collection: Collection, report: ValidateReport, proofs: ProofLog) -> None:
    """Note whether the range agreed.

    A range that has not grown is noted again only if that adds a hash, or if damage was found now or the last time.
    """
    noted = proofs.validations and (proofs.validated_upper, proofs.validated_closed) == (report.upper, report.closed)
    hashes = [note for note in proofs.hashes if (note.upper, note.closed) == (report.upper, report.closed)]
    adds_times = report.times_hash is not None and all(note.times is None for note in hashes)
    adds_contents = report.contents_hash is not None and all(note.contents is None for note in hashes)
    is_news = report.damaged or proofs.damaged is not None or report.has_damaged_files != proofs.has_damaged_files
    if noted and not adds_times and not adds_contents and not is_news:
        return
    note = HashNote(
        report.lower, report.upper, report.closed, report.times_hash, report.contents_hash, report.contents_as_of
    )
    row = {
        "lower": report.lower,
        "upper": report.upper,
        "closed": report.closed,
        "kind": "damaged" if report.damaged else "validated",
        "diff_sum": report.diff_sum_recorded,
        "detail": "; ".join(report.mismatches) if report.damaged else note.detail,
        # A clock may run backwards; the order of notes must not change, or an older note would hide this one.
        "at_ms": max(int(clock.time() * 1000), proofs.newest_at_ms + 1),
    }
    rows = pa.Table.from_pylist([row], schema=PROOFS_SCHEMA)
    path = collection.paths.proofs
    values = {}
    if report.has_damaged_files != proofs.has_damaged_files:
        values = {DAMAGED_FILES: (OpenTable(path).value(DAMAGED_FILES) or 0) + 1}
    append_run(path, "validation", lambda run: write_run(path, run, rows), collection.entry.epoch, values)
