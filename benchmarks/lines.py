"""Computes the lines of the table of targets from samples."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from benchmarks import (
    announced,
    bulk,
    catalogs,
    elsewhere,
    following,
    held,
    lingering,
    many,
    publications,
    publishing,
    raw,
    reads,
    requests,
    small,
    tables,
    targets,
    ticks,
    verified,
    written,
)
from benchmarks.measure import Samples
from benchmarks.peers import differential
from benchmarks.targets import Row

TICK_FACTORS = {1_000_000: 5, 10_000_000: 15, 100_000_000: 75}
DELTA_RS_FACTORS = {1_000_000: 0.5, 10_000_000: 3, 100_000_000: 30}
READ_FACTORS = {1_000_000: 1, 10_000_000: 2, 100_000_000: 2}
LEDGER_FACTORS = {40_000: 5, 100_000: 30}
HEAP_MB = 2048


@dataclass(frozen=True)
class Line:
    """One line below a row of the table; if it was not measured, `reached` is None and `note` says why."""

    row: Row
    what: str
    against: str
    reached: float | None
    target: float | None
    unit: str = "×"
    at_most: bool = False
    """Whether the target is an upper bound."""
    note: str = ""

    @property
    def met(self) -> bool | None:
        """Whether the target is reached; None if there is no target or no measurement."""
        if self.target is None or self.reached is None or math.isnan(self.reached):
            return None
        return self.reached <= self.target if self.at_most else self.reached >= self.target


Results = dict[str, dict[str, Samples]]
"""Samples by measurement and size."""


def lines_of(results: Results) -> list[Line]:
    """Return every line for which there are results, and a line for each contestant that was not measured."""
    filled: list[Line] = []
    for measurement, by_size in results.items():
        kind = measurement.partition(" ")[0]
        row = next(row for row in targets.ROWS if row.measurement == kind)
        for size, samples in by_size.items():
            lines = list(_LINES[kind](int(size), samples, measurement))
            filled += [line for line in lines if line.reached is None or not math.isnan(line.reached)]
            filled += [
                Line(row, f"{measurement} {int(size):,}", name, None, None, note=why)
                for name, why in samples.absent.items()
            ]
    growth = [
        *_growth(targets.GROWTH, results.get("ticks uniform", {}), (ticks.UPSERT, ticks.PLAIN)),
        *_growth(targets.RAW_GROWTH, results.get(raw.GROWTH, {}), (raw.TICK,)),
    ]
    return filled + [line for line in growth if line.reached is not None and not math.isnan(line.reached)]


def _tick_lines(rows: int, samples: Samples, measurement: str) -> Iterator[Line]:
    state = f"{rows / 1e6:g} M rows, {measurement.partition(' ')[2]}"
    for name in (ticks.UPSERT, ticks.PLAIN):
        merges = [
            contestant
            for contestant in samples.of
            if contestant.startswith("MERGE tuned") and not contestant.endswith(ticks.READS)
        ]
        if name == ticks.PLAIN:
            merges = [ticks.MERGE_PLAIN] if ticks.MERGE_PLAIN in samples.of else []
        if not merges:
            continue
        best = min(merges, key=samples.median)
        reached = samples.ratio(name, best)
        yield Line(targets.TICK, f"{name}, {state}", best, reached, TICK_FACTORS.get(rows), note=samples.cut)
        for added, factors in ((ticks.READS, READ_FACTORS), (ticks.CURRENT, {})):
            if name + added not in samples.of:
                continue
            ours = _added(samples, name, name + added)
            theirs = _added(samples, best, best + ticks.READS)
            what = f"{name} +{added}, {state}"
            yield Line(targets.TICK_READ, what, f"{best} + read", theirs / ours, factors.get(rows))
    if ticks.MERGE_DEFAULTS in samples.of:
        ratio = samples.ratio(ticks.UPSERT, ticks.MERGE_DEFAULTS)
        yield Line(targets.TICK, f"{ticks.UPSERT}, {state}", ticks.MERGE_DEFAULTS, ratio, None)
    if ticks.DELTA_RS in samples.of:
        ratio = samples.ratio(ticks.UPSERT, ticks.DELTA_RS)
        yield Line(targets.TICK_DELTA_RS, f"{ticks.UPSERT}, {state}", ticks.DELTA_RS, ratio, DELTA_RS_FACTORS.get(rows))
        memory = samples.median(ticks.UPSERT, "peak_mb") / samples.median(ticks.DELTA_RS, "peak_mb")
        yield Line(targets.TICK_DELTA_RS, f"heap, {state}", "memory of delta-rs", memory, 0.5, at_most=True)
    names = [name for name in samples.of if name.startswith("tidelake ")]
    heap = max((sample.peak_mb for name in names for sample in samples.of[name]), default=math.nan)
    what = f"peak heap usage, ticks, reads and `current`, {state}"
    yield Line(targets.MEMORY, what, f"{samples.facts.get('heap_mb', HEAP_MB):.0f} MB", heap, HEAP_MB, " MB", True)


def _added(samples: Samples, *names: str) -> float:
    return sum(samples.median(name) for name in names)


def _growth(row: Row, by_size: dict[str, Samples], names: Sequence[str]) -> Iterator[Line]:
    sizes = sorted(by_size, key=int)
    for before, after in pairwise(sizes):
        step = f"{int(before) / 1e6:g} M to {int(after) / 1e6:g} M rows"
        for name in names:
            for what, column in (("seconds", "seconds"), ("processor time", "cpu_s")):
                growth = by_size[after].median(name, column) / by_size[before].median(name, column)
                yield Line(row, f"{name}, {what}, {step}", "itself", growth, 1.1, at_most=True)


def _bulk_lines(rows: int, samples: Samples, measurement: str) -> Iterator[Line]:
    what = f"{rows / 1e6:g} M updates"
    ratio = samples.ratio(bulk.TIDELAKE, bulk.UNCHECKED)
    yield Line(targets.BULK, what, bulk.UNCHECKED, ratio, 0.6, note=samples.cut)
    yield Line(targets.BULK_COPY, what, bulk.COPY, samples.ratio(bulk.TIDELAKE, bulk.COPY), None)
    ratio = samples.ratio(bulk.UNCHECKED, bulk.COPY)
    yield Line(targets.BULK_COPY, f"{bulk.UNCHECKED}, {what}", bulk.COPY, ratio, None)
    rate = rows / samples.median(bulk.TIDELAKE)
    fastavro_rate = samples.median(bulk.FASTAVRO, "rows_read") / samples.median(bulk.FASTAVRO, "cpu_s")
    yield Line(targets.BULK_FASTAVRO, what, bulk.FASTAVRO, rate / fastavro_rate, 1)
    bytes_written = samples.median(bulk.TIDELAKE, "bytes_written") / samples.median(bulk.UNCHECKED, "bytes_written")
    yield Line(targets.WRITTEN, f"bulk ingest, {what}", bulk.UNCHECKED, bytes_written, 1.1, at_most=True)
    heap = max((sample.peak_mb for sample in samples.of.get(bulk.TIDELAKE, [])), default=math.nan)
    yield Line(targets.MEMORY, f"peak heap usage, bulk ingest, {what}", "", heap, HEAP_MB, " MB", True)


def _raw_lines(records: int, samples: Samples, measurement: str) -> Iterator[Line]:
    for what, column in (("seconds", "seconds"), ("processor time", "cpu_s")):
        reached = samples.ratio(raw.TIDELAKE, raw.PARSED, column)
        yield Line(targets.RAW, f"{records / 1e6:g} M events, {what}", raw.PARSED, reached, 0.5, note=samples.cut)


def _announced_lines(records: int, samples: Samples, measurement: str) -> Iterator[Line]:
    row, what = targets.ANNOUNCED, f"{records:,} events"
    for name, column in (("seconds", "seconds"), ("processor time", "cpu_s")):
        ratio = 1 / samples.ratio(announced.ANNOUNCED, announced.RECLOCKED, column)
        yield Line(row, f"{what}, {name}", announced.RECLOCKED, ratio, 1.3, at_most=True, note=samples.cut)
    yield Line(row, f"{what}, Spark jobs", "", samples.median(announced.ANNOUNCED, "jobs"), None, " jobs", True)
    ratio = 1 / samples.ratio(announced.SEAL, announced.RECLOCKED)
    yield Line(row, f"{announced.SEAL}, {what}", announced.RECLOCKED, ratio, None, at_most=True)


def _no_lines(rows: int, samples: Samples, measurement: str) -> Iterator[Line]:
    """Yield nothing: the measurement only matters in comparison with another size; see `_growth`."""
    yield from ()


def _ledger_lines(times: int, samples: Samples, measurement: str) -> Iterator[Line]:
    what = f"{times:,} times"
    if differential.READER in samples.of:
        theirs = samples.median(differential.READER, "cpu_s") / samples.median(small.REVERSED, "cpu_s")
        factor = LEDGER_FACTORS.get(times)
        yield Line(targets.LEDGER, what, differential.READER, theirs, factor, note=samples.cut)
    if samples.facts:
        held = samples.facts["open_bytes"] / times
        yield Line(targets.MEMORY, f"ledger with {times:,} open times, memory per time", "", held, None, " B")
        left = samples.facts["settled_bytes"] / samples.facts["open_bytes"] * 100
        yield Line(targets.MEMORY, f"ledger with {what}, memory once settled", "memory while open", left, 5, " %", True)
    reached = 1 / samples.ratio(small.REVERSED, small.IN_ORDER, "cpu_s")
    yield Line(targets.LEDGER, what, "the same, with progress in order", reached, 1.25, at_most=True)


def _seal_lines(size: int, samples: Samples, measurement: str) -> Iterator[Line]:
    row = targets.SEAL
    yield Line(row, "Spark jobs", "", samples.median(small.SEAL, "jobs"), 1, " jobs", True)
    yield Line(row, "time", small.APPEND, samples.ratio(small.SEAL, small.APPEND), None)
    yield Line(row, "commit", "", samples.median(small.COMMIT) * 1000, 20, " ms", True)


def _start_lines(size: int, samples: Samples, measurement: str) -> Iterator[Line]:
    row = targets.START
    yield Line(row, "cold start", small.BARE, 1 / samples.ratio(small.COLD, small.BARE), 1.3, at_most=True)
    yield Line(row, "import tidelake, with its command line", "", samples.median(small.IMPORT) * 1000, 150, " ms", True)
    yield Line(row, "tidelake status", "", samples.median(small.STATUS), 1, " s", True)
    yield Line(row, "tidelake read", "", samples.median(small.READ), 1.5, " s", True)


def _many_lines(count: int, samples: Samples, measurement: str) -> Iterator[Line]:
    row, median = targets.MANY, samples.median(many.TICK)
    durations = [sample.seconds for sample in samples.of[many.TICK]]
    done = f"{samples.facts['ticks']:,.0f} ticks of {samples.facts['updates']:,.0f} updates"
    yield Line(row, f"longest of {done}", "median tick", max(durations) / median, 2, at_most=True, note=samples.cut)
    over = sum(seconds > 2 * median for seconds in durations)
    yield Line(row, "ticks over twice the median", "", over, 0, " ticks", True)
    edge = max(1, min(100, len(durations) // 4))
    for what, name, size in (("tick", many.TICK, edge), ("commit", many.COMMIT, max(1, edge // 5))):
        column = [sample.cpu_s if name == many.TICK else sample.seconds for sample in samples.of[name]]
        if len(column) >= 2:
            grown = sorted(column[-size:])[size // 2] / max(sorted(column[:size])[size // 2], 1e-9)
            unit = "processor time" if name == many.TICK else "seconds"
            yield Line(row, f"{what}, {unit}, the last {size}", f"the first {size}", grown, None)
    for name, bound in ((many.RUNS, 64.0), (many.ENTRIES, 64.0)):
        yield Line(row, f"maximum of {name}", "", max(samples.series[name]), bound, "", True)
    if samples.of[many.COMPACTION]:
        compaction = samples.median(many.COMPACTION)
        yield Line(row, "median bounded compaction", "median tick", compaction / median, None)
        longest = max(sample.seconds for sample in samples.of[many.COMPACTION])
        yield Line(row, "longest bounded compaction", "median tick", longest / median, None)
    ratio = samples.facts["written"] / samples.facts["minimal"]
    yield Line(targets.WRITTEN, f"over {done}", "minimal Parquet", ratio, 5, at_most=True)


def _tables_lines(count: int, samples: Samples, measurement: str) -> Iterator[Line]:
    row, what = targets.TABLES, f"{samples.facts['parallel']:.0f} of {count:,} collections at a time"
    yield Line(row, what, tables.ONE, samples.ratio(tables.SEVERAL, tables.ONE), 1.6, note=samples.cut)
    yield Line(row, f"processor time, {what}", tables.ONE, samples.ratio(tables.SEVERAL, tables.ONE, "cpu_s"), None)
    if tables.MERGE in samples.of:
        per_table = samples.ratio(tables.SEVERAL, tables.MERGE) * count / samples.facts["merged"]
        yield Line(row, f"per table, {what}", f"MERGE on {samples.facts['merged']:.0f} tables", per_table, 4)
    yield Line(row, "heap", "", max(sample.peak_mb for sample in samples.of[tables.SEVERAL]), HEAP_MB, " MB", True)


def _linger_lines(seconds: int, samples: Samples, measurement: str) -> Iterator[Line]:
    row, stays = targets.LINGER, f"{seconds:,} s"
    arrivals = f"{len(samples.of[lingering.ARRIVAL])} arrivals in {stays}"
    yield Line(row, f"{arrivals}, median", "", samples.median(lingering.ARRIVAL), 3, " s", True)
    yield Line(row, f"{arrivals}, 99th percentile", "", lingering.slowest(samples, 0.01), None, " s")
    for what in (lingering.PROCESS, lingering.LIVE):
        grown = lingering.growth(samples, what)
        yield Line(row, f"{what}, the last quarter of {stays}", "the second quarter", grown, 1.1, at_most=True)


def _reads_lines(rows: int, samples: Samples, measurement: str) -> Iterator[Line]:
    state = f"{rows / 1e6:g} M rows"
    for at in (reads.AT_SINCE, reads.AT_MIDDLE, reads.AT_LAST):
        ratio = 1 / samples.ratio(reads.STEADY + at, reads.PLAIN_TABLE)
        what = f"{reads.STEADY}{at}, {state}"
        yield Line(targets.AS_OF, what, reads.PLAIN_TABLE, ratio, 1.5, at_most=True, note=samples.cut)
    ratio = 1 / samples.ratio(reads.COMPACTED, reads.PLAIN_TABLE)
    yield Line(targets.AS_OF, f"{reads.COMPACTED}, {state}", reads.PLAIN_TABLE, ratio, 1.1, at_most=True)
    for kind in (reads.DUCKDB_STEADY, reads.DUCKDB_SUMS):
        for at in (reads.AT_SINCE, reads.AT_MIDDLE, reads.AT_LAST):
            ratio = 1 / samples.ratio(kind + at, reads.DUCKDB_PLAIN)
            what = f"{kind}{at}, {state}"
            yield Line(targets.DUCKDB, what, reads.DUCKDB_PLAIN, ratio, 1.5, at_most=True, note=samples.cut)
    for what, column in (("bytes read", "bytes_read"), ("processor time", "cpu_s")):
        history = 1 / samples.ratio(reads.OLD, reads.YOUNG, column)
        yield Line(targets.AS_OF, f"{reads.OLD}, {what}", reads.YOUNG, history, None)
    for part, scan, bound in (
        (reads.PART_MERGED, reads.SCAN_MERGED, 0.03),
        (reads.PART_FRESH, reads.SCAN_FRESH, None),
    ):
        share = samples.median(part, "bytes_read") / samples.median(scan, "bytes_read")
        bound = None if bound is None else bound * 100
        yield Line(targets.OF_TIME, f"{part}, {state}", scan, share * 100, bound, " %", True)


def _changes_lines(rows: int, samples: Samples, measurement: str) -> Iterator[Line]:
    row, state = targets.CHANGES, f"{rows / 1e6:g} M rows"
    tick = samples.median(following.DUCKDB_TICK)
    yield Line(row, f"{following.DUCKDB_TICK}, {state}", "", tick, 1.5, " s", True, samples.cut)
    for other in (following.DUCKDB_TIME, following.TICK, following.TIME):
        yield Line(row, f"{other}, {state}", "", samples.median(other), None, " s")
    ratio = samples.ratio(following.TICK, following.TWO_READS)
    yield Line(row, f"{following.TICK}, {state}", following.TWO_READS, ratio, None)


def _publications_lines(rows: int, samples: Samples, measurement: str) -> Iterator[Line]:
    row, state = targets.PUBLICATIONS, f"{rows / 1e6:g} M rows"
    bound = 1.5 if rows >= 10_000_000 else None
    for name in (publications.BOTH, publications.PUBLICATION):
        ratio = 1 / samples.ratio(name, publications.MERGE)
        target = bound if name == publications.BOTH else None
        yield Line(row, f"{name}, {state}", publications.MERGE, ratio, target, at_most=True, note=samples.cut)
    yield Line(row, f"{publications.PUBLICATION}, {state}", "", samples.median(publications.PUBLICATION), None, " s")
    rebuilt = samples.ratio(publications.PUBLICATION, publications.REBUILD)
    yield Line(row, f"{publications.PUBLICATION}, {state}", publications.REBUILD, rebuilt, None)


def _publish_lines(rows: int, samples: Samples, measurement: str) -> Iterator[Line]:
    row, what = targets.PUBLISH, f"{rows / 1e6:g} M updates"
    for other, bound in ((publishing.AVRO, 2.0), (publishing.CHANGES, None)):
        ratio = 1 / samples.ratio(publishing.PUBLISHED, other)
        yield Line(row, what, other, ratio, bound, at_most=True, note=samples.cut)


def _bytes_lines(updates: int, samples: Samples, measurement: str) -> Iterator[Line]:
    bounds = {written.CLEAN: 1.1, written.STANDARD: 1.3}
    bounds |= dict.fromkeys((written.IN_STEP, written.IN_TURN, written.APART), 2.5)
    for name, bound in bounds.items():
        ratio = samples.median(name, "bytes_written") / samples.median(written.MINIMAL, "bytes_written")
        yield Line(targets.WRITTEN, f"{name}, {updates:,} updates", written.MINIMAL, ratio, bound, at_most=True)


def _pathway_lines(rows: int, samples: Samples, measurement: str) -> Iterator[Line]:
    if elsewhere.PATHWAY in samples.of:
        ratio = samples.ratio(elsewhere.TIDELAKE, elsewhere.PATHWAY)
        yield Line(targets.PATHWAY, f"{rows:,} updates", elsewhere.PATHWAY, ratio, 1.5, note=samples.cut)


def _cluster_lines(rows: int, samples: Samples, measurement: str) -> Iterator[Line]:
    ratio = 1 / samples.ratio(elsewhere.CLUSTER, elsewhere.LOCAL)
    yield Line(targets.CLUSTER, f"upsert, {rows / 1e6:g} M rows", elsewhere.LOCAL, ratio, None, note=samples.cut)


def _verify_lines(rows: int, samples: Samples, measurement: str) -> Iterator[Line]:
    what = f"{rows / 1e6:g} M rows, {samples.facts['megabytes']:.0f} MB"
    yield Line(targets.VERIFY, what, verified.READ, samples.ratio(verified.VERIFIED, verified.READ), 0.5)


def _catalog_lines(number: int, samples: Samples, measurement: str) -> Iterator[Line]:
    row, store = targets.CATALOG, f"{number:,} collections"
    for what in (catalogs.FIND, catalogs.CHANGE):
        few = catalogs.few(what)
        yield Line(row, f"{what}, {store}", few, samples.ratio(few, what), 1.5, at_most=True, note=samples.cut)
    seconds, target = samples.median(catalogs.STATUS), 30 if number >= 10_000 else None
    yield Line(row, f"{catalogs.STATUS}, {store}", "", seconds, target, " s", True)
    yield Line(row, f"{catalogs.STATUS}, per collection", "", seconds / number * 1000, None, " ms", True)


def _holds_lines(commits: int, samples: Samples, measurement: str) -> Iterator[Line]:
    row, after = targets.HOLDS, f"after {commits:,} commits"
    for what in held.CALLS:
        yield Line(row, f"{what}, {after}", "", samples.median(what) * 1000, 20, " ms", True, note=samples.cut)
        new = held.new(what)
        yield Line(row, f"{what}, {after}", new, samples.ratio(new, what), 1.5, at_most=True, note=samples.cut)


def _requests_lines(ticks: int, samples: Samples, measurement: str) -> Iterator[Line]:
    budgets = {requests.TICK: 40, requests.SEAL: 20, requests.STATUS: 6}
    for step in requests.STEPS:
        counts = samples.series[requests.series_of(step, requests.REQUESTS)]
        shown = (f"{max(samples.series[requests.series_of(step, verb)]):.0f} {verb}" for verb in requests.VERBS)
        size = max(samples.series[requests.series_of(step, requests.BYTES)]) / 1000
        note = f"{', '.join(shown)}; {size:.0f} kB"
        usual = sorted(counts)[len(counts) // 2]
        yield Line(targets.REQUESTS, step, "", usual, budgets.get(step), "", True, note)
        if max(counts) > usual:
            yield Line(targets.REQUESTS, f"{step} with checkpoints", "", max(counts), None, "", True)


_LINES = {
    "ticks": _tick_lines,
    "bulk": _bulk_lines,
    "raw": _raw_lines,
    "growth": _no_lines,
    "announced": _announced_lines,
    "ledger": _ledger_lines,
    "seal": _seal_lines,
    "start": _start_lines,
    "many": _many_lines,
    "reads": _reads_lines,
    "changes": _changes_lines,
    "publications": _publications_lines,
    "publish": _publish_lines,
    "bytes": _bytes_lines,
    "pathway": _pathway_lines,
    "cluster": _cluster_lines,
    "verify": _verify_lines,
    "tables": _tables_lines,
    "linger": _linger_lines,
    "catalog": _catalog_lines,
    "holds": _holds_lines,
    "requests": _requests_lines,
}
