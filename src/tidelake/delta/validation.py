"""Validate: recount what seal has published, by another way, at a pinned version, and say where it does not agree.

Seal counts fingerprints of the rows it finds through the log's own file list. Here Spark's Delta reader finds the rows,
whole rows are added up, and the result is compared with what `proofs/` says was announced. Times that compaction may
have moved are past recounting; their sum is still compared.
"""

from __future__ import annotations

import time as clock
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from tidelake.delta.catalog import Collection, Entry
from tidelake.delta.commit import OpenTable
from tidelake.delta.engines import engine_fact
from tidelake.delta.events import keys_touched, row_updates, rows_brought
from tidelake.delta.files import write_run
from tidelake.delta.forms import contents_fields
from tidelake.delta.late import LateReport, compare_late
from tidelake.delta.layout import DIFF, PROOFS_SCHEMA, TIME, new_run
from tidelake.delta.quarantine import quarantine_reasons
from tidelake.delta.runs import append_run
from tidelake.delta.snapshot import snapshot
from tidelake.delta.status import ProofLog, read_proof_log, read_proofs
from tidelake.delta.stops import reach
from tidelake.delta.types import ROW_TEXT, data_fields
from tidelake.delta.values import CLOSED, SINCE, UPPER
from tidelake.errors import Conflict, DamagedTable, UpperError

_MISMATCHES_NAMED_MAX = 10
_EVIDENCE_MAX = 10


@dataclass
class ValidateReport:
    """What one validation compared; `times` has one row a time of the range."""

    lower: int
    upper: int
    since: int
    closed: bool
    version: int
    times: list[dict[str, Any]] = field(default_factory=list)
    """`time`, `announced`, `counted`, `recounted`, `diff_min` (the least sum of one row), `diff_sum`, `decision`."""
    mismatches: list[str] = field(default_factory=list)
    contradictions: list[dict[str, Any]] = field(default_factory=list)
    quarantine: dict[str, int] = field(default_factory=dict)
    decided: int = 0
    doubled: int = 0
    """Keyed form: how often a key has two values at one time."""
    diff_sum_recorded: int = 0
    """The sum of all diffs before upper, by adding this range to what the last validation recorded."""
    diff_sum_found: int | None = None
    """The same by adding everything up; None unless the validation was full."""
    readable_beyond_upper: int = 0
    """How many of the reads at or after upper were answered; each of them must be refused."""
    below_zero: int | None = None
    """How many rows of the contents are there less than not at all; None where that was not looked for."""
    below_zero_first: list[str] = field(default_factory=list)
    """The lowest of them, each with its data as JSON and its sum."""
    proofs_problem: DamagedTable | None = None
    """Why there is nothing to compare with: a proof or a binding is missing, or does not fit the others."""
    late: LateReport = field(default_factory=LateReport)
    """What the late statements are that came since the last validation."""
    late_problem: str | None = None
    """Why they could not be compared; None where they were. It says nothing against what is published."""

    @property
    def damaged(self) -> bool:
        """Whether something below upper is not what was proven."""
        return bool(self.mismatches) or self.readable_beyond_upper > 0


def validate(spark: SparkSession, collection: Collection, full: bool = False) -> ValidateReport:
    """Recount what was sealed since the last validation that agreed; everything that compaction has left, if `full`.

    Damage that was found is looked for again in full, or the next range that agrees would hide it.

    Cost: one scan of the range and one exchange of its rows; if `full`, of the whole table.
    """
    table = OpenTable(collection.paths.updates)
    upper, closed = table.value(UPPER) or 0, bool(table.value(CLOSED))
    compacted = table.value(SINCE) or 0
    proofs = read_proof_log(collection)
    full = full or proofs.damaged is not None
    since = collection.entry.since[0] if collection.entry.since else upper
    # Compaction moves times to at most `compacted`: that one and those before it cannot be told apart any more.
    first = compacted + 1 if compacted else 0
    lower = first if full else max(proofs.validated_upper, first)
    report = ValidateReport(lower, upper, since, closed, table.version)
    rows = spark.read.format("delta").option("versionAsOf", table.version).load(str(collection.paths.updates))
    sealed = rows if closed else rows.where(F.col(TIME) < upper)
    try:
        if lower < upper or closed:
            in_range = sealed.where(F.col(TIME) >= lower)
            if collection.entry.framing == "reclock":
                counted = F.lit(1).cast("bigint") if collection.entry.positioned else F.col(DIFF)
                recounted = _recount_rows(in_range.withColumn(DIFF, counted))
            elif collection.entry.envelope == "upsert":
                recounted = _recount_keyed(in_range, collection)
            else:
                recounted = _recount(in_range, collection)
            _compare_times(report, recounted, read_proofs(collection, lower))
        if not collection.entry.key:  # compaction keeps no sum of what it has replaced
            rows_of = sealed.select((F.col(DIFF).cast("decimal(38,0)") * _rows_brought(collection.entry)).alias(DIFF))
            _compare_sums(report, rows_of, proofs, full, unbroken=proofs.validated_upper >= first)
            if full:
                _find_below_zero(spark, collection, report)
    except DamagedTable as error:
        report.proofs_problem = error
        report.mismatches.append(error.fact())
    except (PySparkException, Py4JJavaError) as error:
        # What cannot be read is not what was proven: it is noted as damage, and told as it is.
        report.mismatches.append(f"the table cannot be read at version {table.version}: {engine_fact(error)}")
        _record(collection, report, proofs)
        raise
    _try_beyond_upper(spark, collection, report)
    report.contradictions = [] if closed else [one for one in proofs.blocked if one["time"] >= upper]
    report.quarantine = quarantine_reasons(collection)
    _record(collection, report, proofs)
    reach("validate.after_record")
    _compare_late(spark, collection, report)
    return report


def _compare_late(spark: SparkSession, collection: Collection, report: ValidateReport) -> None:
    """Compare late statements; where they cannot be read, what the recount has found stands all the same."""
    try:
        report.late = compare_late(spark, collection)
    except (PySparkException, Py4JJavaError, pa.ArrowException, OSError, DamagedTable, Conflict) as error:
        report.late_problem = engine_fact(error)


def _recount(sealed: DataFrame, collection: Collection) -> list[dict[str, Any]]:
    """Per time: how many statements have an effect, the least effect, and all effects together."""
    entry = collection.entry
    data = [one.name for one in data_fields(entry.record_schema)]
    effects = (
        sealed.groupBy(*(f"`{name}`" for name in data), TIME)
        .agg(F.sum(F.col(DIFF).cast("decimal(38,0)")).alias("_effect"))
        .where(F.col("_effect") != 0)
    )
    by_time = effects.groupBy(TIME).agg(
        F.count(F.lit(1)).alias("recounted"),
        F.min("_effect").alias("diff_min"),
        F.sum(F.col("_effect") * _rows_brought(entry)).alias("diff_sum"),
    )
    doubled = _doubled_rows(sealed, effects, entry) if entry.envelope == "debezium" and entry.key else None
    found = []
    for one in by_time.toArrow().to_pylist():
        row = {
            "time": one[TIME],
            "recounted": one["recounted"],
            "diff_min": int(one["diff_min"]),
            "diff_sum": int(one["diff_sum"]),
        }
        found.append(row if doubled is None else row | {"doubled": doubled.get(one[TIME], 0)})
    return found


def _recount_rows(sealed: DataFrame) -> list[dict[str, Any]]:
    """Per time: how many rows there are; a merge makes one of equal rows of one time, with the sum of their diffs."""
    by_time = sealed.groupBy(TIME).agg(
        F.sum(DIFF).alias("recounted"), F.min(DIFF).alias("diff_min"), F.sum(DIFF).alias("diff_sum")
    )
    return [
        {"time": one[TIME], **{name: int(one[name]) for name in ("recounted", "diff_min", "diff_sum")}}
        for one in by_time.toArrow().to_pylist()
    ]


def _rows_brought(entry: Entry) -> Column:
    """By how much one effect of a statement changes the number of rows in the contents."""
    return rows_brought() if entry.envelope == "debezium" else F.lit(1).cast("bigint")


def _doubled_rows(sealed: DataFrame, effects: DataFrame, entry: Entry) -> dict[int, int]:
    """By time, how many keys are left with more than one row; with more than one event, where those have no order."""
    key = [f"`{name}`" for name in entry.key]
    if entry.before == "key":
        touched = keys_touched(effects.withColumn(DIFF, F.lit(1)), entry.key).groupBy(*key, TIME)
        by_key = touched.agg(F.count(F.lit(1)).alias("_rows"))
    else:
        by_key = _rows_left(sealed, entry)
    found = by_key.where(F.col("_rows") > 1).groupBy(TIME).agg(F.count(F.lit(1)).alias("doubled"))
    return {one[TIME]: one["doubled"] for one in found.toArrow().to_pylist()}


def _rows_left(sealed: DataFrame, entry: Entry) -> DataFrame:
    """By key and time, how many rows the events leave."""
    row, key = [f"`{one.name}`" for one in contents_fields(entry)], [f"`{name}`" for name in entry.key]
    nets = row_updates(sealed).groupBy(*row, TIME).agg(F.sum(F.col(DIFF).cast("decimal(38,0)")).alias("_net"))
    return nets.groupBy(*key, TIME).agg(F.count_if(F.col("_net") > 0).alias("_rows"))


def _recount_keyed(sealed: DataFrame, collection: Collection) -> list[dict[str, Any]]:
    """Per time: how many distinct data are stated, and the keys that two values are stated for."""
    data = [one.name for one in data_fields(collection.entry.record_schema)]
    key = [f"`{name}`" for name in collection.entry.key]
    distinct = sealed.groupBy(*(f"`{name}`" for name in data), TIME).agg(F.max(DIFF).alias("_effect"))
    by_key = distinct.groupBy(*key, TIME).agg(
        F.count(F.lit(1)).alias("_stated"), F.count_if(F.col("_effect") > 0).alias("_values")
    )
    by_time = by_key.groupBy(TIME).agg(
        F.sum("_stated").alias("recounted"), F.count_if(F.col("_values") > 1).alias("doubled")
    )
    return [
        {"time": one[TIME], "recounted": one["recounted"], "diff_min": 0, "diff_sum": 0, "doubled": one["doubled"]}
        for one in by_time.toArrow().to_pylist()
    ]


def _compare_times(report: ValidateReport, recounted: list[dict[str, Any]], proofs: dict[int, Any]) -> None:
    by_time = {one["time"]: one for one in recounted}
    proven = {time for time in proofs if report.closed or time < report.upper}
    for time in sorted(by_time.keys() | proven):
        proof = proofs.get(time, {"announced": 0, "counted": 0, "decision": None})
        found = by_time.get(time, {"recounted": 0, "diff_min": 0, "diff_sum": 0})
        row = {
            "time": time,
            "announced": proof["announced"],
            "counted": proof["counted"],
            "recounted": found["recounted"],
            "diff_min": found["diff_min"],
            "diff_sum": found["diff_sum"],
            "decision": proof["decision"],
        }
        if "doubled" in found:
            row["doubled"] = found["doubled"]
            report.doubled += found["doubled"]
            if found["doubled"] and len(report.mismatches) < _MISMATCHES_NAMED_MAX:
                report.mismatches.append(f"time {time}: {found['doubled']} keys have two values")
        report.times.append(row)
        report.decided += row["decision"] is not None
        if (
            not row["announced"] == row["counted"] == row["recounted"]
            and len(report.mismatches) < _MISMATCHES_NAMED_MAX
        ):
            report.mismatches.append(
                f"time {time}: {row['announced']} distinct updates were announced and {row['counted']} counted, "
                f"{row['recounted']} are in the table"
            )


def _compare_sums(report: ValidateReport, sealed: DataFrame, proofs: ProofLog, full: bool, unbroken: bool) -> None:
    """Compare the sum of all diffs with what the last validation recorded and this range adds to it.

    Args:
        report: takes the sums, and a mismatch.
        sealed: `_diff` of all sealed rows, each as the number of rows that it brings.
        proofs: what was recorded.
        full: whether to add everything up.
        unbroken: no time between what was recorded and this range was compacted before it was recounted. Where one was,
            everything is added up, and that is what later validations start from.
    """
    known = proofs.validated_closed
    fresh = [row["diff_sum"] for row in report.times if not known and row["time"] >= proofs.validated_upper]
    report.diff_sum_recorded = proofs.validated_sum + sum(fresh)
    if full or not unbroken:
        total = sealed.agg(F.sum(DIFF).alias("total")).first()
        report.diff_sum_found = int(total["total"] or 0) if total is not None else 0
        if not unbroken:
            report.diff_sum_recorded = report.diff_sum_found
        elif report.diff_sum_found != report.diff_sum_recorded:
            report.mismatches.append(
                f"all diffs before {report.upper} add up to {report.diff_sum_found}, not to {report.diff_sum_recorded}"
            )


def _find_below_zero(spark: SparkSession, collection: Collection, report: ValidateReport) -> None:
    """Look for rows that were taken away more often than they came, in the contents just before upper.

    Cost: one scan of the table and one exchange of its rows; where there are such rows, the same again.
    """
    if not collection.entry.since or not (report.upper or report.closed):
        return
    contents = snapshot(spark, collection).contents
    below = contents.where(F.col(DIFF) < 0)
    report.below_zero = below.count()
    if report.below_zero:
        data = F.to_json(F.struct(*(f"`{name}`" for name in contents.columns if name != DIFF)), ROW_TEXT)
        lowest = below.select(DIFF, data.alias("_data")).orderBy(DIFF, "_data").limit(_EVIDENCE_MAX).toArrow()
        report.below_zero_first = [f"{one['_data']}: {one[DIFF]}" for one in lowest.to_pylist()]


def _try_beyond_upper(spark: SparkSession, collection: Collection, report: ValidateReport) -> None:
    if report.closed:
        return
    for as_of in (report.upper, 2**63 - 1):
        try:
            taken = snapshot(spark, collection, as_of)
        except UpperError:
            continue
        if taken.closed or as_of < taken.upper:  # a seal has moved upper since
            continue
        report.readable_beyond_upper += 1
        report.mismatches.append(f"a read as of {as_of} was answered, and upper is {report.upper}")


def _record(collection: Collection, report: ValidateReport, proofs: ProofLog) -> None:
    """Note that the range agreed, or that it did not; a range that has not grown is noted once."""
    known = proofs.validations and (proofs.validated_upper, proofs.validated_closed) == (report.upper, report.closed)
    if known and not report.damaged and not proofs.damaged:
        return
    row = {
        "lower": report.lower,
        "upper": report.upper,
        "closed": report.closed,
        "kind": "damaged" if report.damaged else "validated",
        "diff_sum": report.diff_sum_recorded,
        "detail": "; ".join(report.mismatches) or None,
        # A clock may go back; the order of notes may not, or this one would be hidden by one before it.
        "at_ms": max(int(clock.time() * 1000), proofs.newest_at_ms + 1),
    }
    rows = pa.Table.from_pylist([row], schema=PROOFS_SCHEMA)
    files = write_run(collection.paths.proofs, new_run("validation"), rows)
    append_run(collection.paths.proofs, files, collection.entry.epoch)
