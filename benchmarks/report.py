"""From samples to the table of targets, the table of counters, a JSON file and a chart."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks import bulk, small, ticks
from benchmarks.measure import Samples

TICK_FACTORS = {1_000_000: 5, 10_000_000: 15, 100_000_000: 75}
DELTA_RS_FACTORS = {1_000_000: 0.5, 10_000_000: 3, 100_000_000: 30}
READ_FACTORS = {1_000_000: 1, 10_000_000: 2, 100_000_000: 2}
LEDGER_FACTORS = {40_000: 5, 100_000: 30}


@dataclass(frozen=True)
class Line:
    """One line of the table of targets."""

    what: str
    against: str
    reached: float
    target: float | None
    unit: str = "×"
    at_most: bool = False
    """Whether the target is an upper bound."""

    @property
    def met(self) -> bool | None:
        """Whether the target is reached; None where there is none."""
        if self.target is None:
            return None
        return self.reached <= self.target if self.at_most else self.reached >= self.target


Results = dict[str, dict[str, Samples]]
"""By measurement and by size."""


def lines_of(results: Results) -> list[Line]:
    """Every line that these results can fill."""
    found: list[Line] = []
    for measurement, of_size in results.items():
        for size, samples in of_size.items():
            found += list(_LINES[measurement.partition(" ")[0]](int(size), samples, measurement))
    return found + list(_growth(results.get("ticks uniform", {})))


def _tick_lines(rows: int, samples: Samples, measurement: str) -> Iterator[Line]:
    state = f"{rows / 1e6:g} M rows, {measurement.partition(' ')[2]}"
    for name in (ticks.UPSERT, ticks.PLAIN):
        merges = [one for one in samples.of if one.startswith("MERGE tuned") and not one.endswith(ticks.READS)]
        if name == ticks.PLAIN:
            merges = [ticks.MERGE_PLAIN] if ticks.MERGE_PLAIN in samples.of else []
        if not merges:
            continue
        best = min(merges, key=samples.median)
        yield Line(f"tick, {name}, {state}", best, samples.ratio(name, best), TICK_FACTORS.get(rows))
        for added, targets in ((ticks.READS, READ_FACTORS), (ticks.CURRENT, {})):
            if name + added not in samples.of:
                continue
            ours = _added(samples, name, name + added)
            theirs = _added(samples, best, best + ticks.READS)
            yield Line(f"tick +{added}, {name}, {state}", f"{best} + read", theirs / ours, targets.get(rows))
    if ticks.MERGE_USUAL in samples.of:
        ratio = samples.ratio(ticks.UPSERT, ticks.MERGE_USUAL)
        yield Line(f"tick, {ticks.UPSERT}, {state}", ticks.MERGE_USUAL, ratio, None)
    if ticks.DELTA_RS in samples.of:
        ratio = samples.ratio(ticks.UPSERT, ticks.DELTA_RS)
        yield Line(f"tick, {ticks.UPSERT}, {state}", ticks.DELTA_RS, ratio, DELTA_RS_FACTORS.get(rows))
        memory = samples.median(ticks.UPSERT, "peak_mb") / samples.median(ticks.DELTA_RS, "peak_mb")
        yield Line(f"heap of a tick, {state}", "memory of delta-rs merge", memory, 0.5, at_most=True)
    minimal = samples.median(ticks.UPSERT, "bytes_written") / 100_000
    yield Line(f"bytes written per update, {ticks.UPSERT}, {state}", "-", minimal, None, " B")


def _added(samples: Samples, *names: str) -> float:
    return sum(samples.median(name) for name in names)


def _growth(of_size: dict[str, Samples]) -> Iterator[Line]:
    sizes = sorted(of_size, key=int)
    for before, after in pairwise(sizes):
        for name in (ticks.UPSERT, ticks.PLAIN):
            growth = of_size[after].median(name, "cpu_s") / of_size[before].median(name, "cpu_s")
            step = f"{int(before) / 1e6:g} M to {int(after) / 1e6:g} M rows"
            yield Line(f"growth of {name}, processor time", step, growth, 1.1, at_most=True)


def _bulk_lines(rows: int, samples: Samples, measurement: str) -> Iterator[Line]:
    what = f"bulk ingest of {rows / 1e6:g} M"
    yield Line(what, bulk.UNCHECKED, samples.ratio(bulk.TIDELAKE, bulk.UNCHECKED), 0.6)
    yield Line(what, bulk.COPY, samples.ratio(bulk.TIDELAKE, bulk.COPY), None)
    rate = rows / samples.median(bulk.TIDELAKE)
    alone = samples.median(bulk.FASTAVRO, "rows_read") / samples.median(bulk.FASTAVRO, "cpu_s")
    yield Line(what, bulk.FASTAVRO, rate / alone, 1)
    yield Line("decode and write unchecked", bulk.COPY, samples.ratio(bulk.UNCHECKED, bulk.COPY), None)
    written = samples.median(bulk.TIDELAKE, "bytes_written") / samples.median(bulk.UNCHECKED, "bytes_written")
    yield Line(f"bytes written at ingest of {rows / 1e6:g} M", "minimal Parquet", written, 1.1, at_most=True)


def _ledger_lines(times: int, samples: Samples, measurement: str) -> Iterator[Line]:
    reached = 1 / samples.ratio(small.REVERSED, small.IN_ORDER, "cpu_s")
    yield Line(f"ledger reversed, {times:,} times", "its own in-order time", reached, 1.25, at_most=True)


def _seal_lines(size: int, samples: Samples, measurement: str) -> Iterator[Line]:
    yield Line("seal without copies, Spark jobs", "-", samples.median(small.SEAL, "jobs"), 1, " jobs", True)
    yield Line("seal without copies", small.APPEND, samples.ratio(small.SEAL, small.APPEND), None)
    yield Line("commit", "-", samples.median(small.COMMIT) * 1000, 20, " ms", True)


def _start_lines(size: int, samples: Samples, measurement: str) -> Iterator[Line]:
    yield Line("cold start", small.BARE, 1 / samples.ratio(small.COLD, small.BARE), 1.3, at_most=True)
    yield Line("import tidelake.cli", "-", samples.median(small.IMPORT) * 1000, 150, " ms", True)
    yield Line("tidelake status", "-", samples.median(small.STATUS), 1, " s", True)


_LINES = {
    "ticks": _tick_lines,
    "bulk": _bulk_lines,
    "ledger": _ledger_lines,
    "seal": _seal_lines,
    "start": _start_lines,
}


def show(results: Results, machine: dict[str, Any]) -> None:
    """Print the table of targets and the counters behind it."""
    console = Console(width=160)
    table = Table("what", "against", "reached", "target", "", title="Targets")
    for line in lines_of(results):
        sign = "" if line.target is None else f"{'at most' if line.at_most else 'at least'} {line.target:g}{line.unit}"
        verdict = {None: "", True: "met", False: "missed"}[line.met]
        table.add_row(line.what, line.against, f"{line.reached:.3g}{line.unit}", sign, verdict)
    console.print(table)
    columns = ("seconds", "cpu_s", "jobs", "stages", "tasks", "rows_read", "bytes_read", "bytes_shuffled", "commits")
    columns += ("bytes_written", "files_written", "peak_mb")
    counters = Table("measured (medians)", *columns, title="Counters")
    for measurement, of_size in results.items():
        for size, samples in of_size.items():
            for name in samples.of:
                values = [f"{samples.median(name, column):,.6g}" for column in columns]
                counters.add_row(f"{measurement} {int(size):,}: {name}", *values)
    console.print(counters)
    console.print("  ".join(f"{name}: {value}" for name, value in machine.items()))


def write_json(file: Path, results: Results, machine: dict[str, Any]) -> None:
    """Write every sample, and the lines."""
    samples = {name: {size: one.as_json() for size, one in of_size.items()} for name, of_size in results.items()}
    lines = [{**vars(line), "met": line.met} for line in lines_of(results)]
    file.write_text(json.dumps({"machine": machine, "lines": lines, "samples": samples}, indent=1), encoding="utf-8")


def write_chart(results: Results, folder: Path) -> None:
    """Draw what a tick takes as the table grows, as a page of its own and as a picture."""
    import altair

    rows = [
        {"rows": int(size), "seconds": samples.median(name), "what": name}
        for size, samples in results.get("ticks uniform", {}).items()
        for name in samples.of
        if not name.endswith((ticks.READS, ticks.CURRENT))
    ]
    if not rows:
        return
    chart = (
        altair.Chart(altair.Data(values=rows), width=560, height=320, title="One standard tick, as the table grows")
        .mark_line(point=True)
        .encode(
            x=altair.X("rows:Q", title="rows in the table").scale(type="log"),
            y=altair.Y("seconds:Q", title="seconds").scale(type="log"),
            color=altair.Color("what:N", title=None),
        )
    )
    chart.save(str(folder / "ticks.html"), inline=True)
    chart.save(str(folder / "ticks.svg"))
