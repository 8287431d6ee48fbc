"""Reports samples as the table of targets, the table of counters, a JSON file and charts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from rich.console import Console
from rich.table import Table

from benchmarks import many, ticks
from benchmarks.lines import Line, Results, lines_of
from benchmarks.targets import ROWS


def show(results: Results, machine: dict[str, Any], left_out: Mapping[str, str]) -> None:
    """Print every row of the table of targets, and the counters behind it.

    Args:
        results: the measured samples.
        machine: the machine on which they were measured.
        left_out: why a measurement was left out, by name.
    """
    console = Console(width=170)
    table = Table("measurement", "what", "against", "reached", "target", "", title="Targets", show_lines=False)
    filled = lines_of(results)
    for row in ROWS:
        table.add_section()
        lines = [line for line in filled if line.row == row]
        for number, line in enumerate(lines):
            table.add_row("" if number else row.what, *_cells(line))
        if not lines:
            why = row.why_not or left_out.get(row.measurement, "it gave no result")
            table.add_row(row.what, "", row.against, "not measured", row.target, why)
    console.print(table)
    columns = ["seconds", "cpu_s", "jobs", "stages", "tasks", "rows_read", "bytes_read", "bytes_shuffled", "commits"]
    columns += ["bytes_written", "files_written", "peak_mb"]
    counters = Table("measured (medians)", *columns, title="Counters")
    for measurement, by_size in results.items():
        for size, samples in by_size.items():
            for name in filter(samples.of.get, samples.of):
                values = [f"{samples.median(name, column):,.6g}" for column in columns]
                counters.add_row(f"{measurement} {int(size):,}: {name}", *values)
    console.print(counters)
    console.print("  ".join(f"{name}: {value}" for name, value in machine.items()))


def _cells(line: Line) -> tuple[str, ...]:
    """Return a line's cells after the first."""
    target = "" if line.target is None else f"{'at most' if line.at_most else 'at least'} {line.target:g}{line.unit}"
    verdict = {None: "", True: "met", False: "missed"}[line.met]
    reached = "not measured" if line.reached is None else f"{line.reached:.3g}{line.unit}"
    return line.what, line.against, reached, target, "; ".join(text for text in (verdict, line.note) if text)


def write_json(file: Path, results: Results, machine: dict[str, Any]) -> None:
    """Write every sample and the lines of the table."""
    samples = {name: {size: sample.as_json() for size, sample in by_size.items()} for name, by_size in results.items()}
    lines = [{**vars(line), "row": line.row.what, "met": line.met} for line in lines_of(results)]
    file.write_text(json.dumps({"machine": machine, "lines": lines, "samples": samples}, indent=1), encoding="utf-8")


def write_charts(results: Results, folder: Path) -> None:
    """Draw the duration of a tick as the table grows, and tick by tick: each chart as an HTML page and as SVG."""
    import altair

    grown = [
        {"x": int(size), "seconds": samples.median(name), "what": name}
        for size, samples in results.get("ticks uniform", {}).items()
        for name in samples.of
        if not name.endswith((ticks.READS, ticks.CURRENT))
    ]
    in_sequence = [
        {"x": number, "seconds": sample.seconds, "what": name}
        for samples in results.get("many", {}).values()
        for name in (many.TICK, many.COMMIT)
        for number, sample in enumerate(samples.of[name], 1)
    ]
    charts: list[tuple[str, list[dict[str, Any]], str, str, Literal["log", "linear"]]] = [
        ("ticks", grown, "One standard tick, as the table grows", "rows in the table", "log"),
        ("many", in_sequence, "Ticks and commits, one after the other", "number", "linear"),
    ]
    for file, values, title, x, kind in charts:
        if not values:
            continue
        data = altair.Data(values=values)  # type: ignore[no-untyped-call]
        chart = (
            altair.Chart(data, width=560, height=320, title=title)
            .mark_line(point=True)
            .encode(
                x=altair.X("x:Q", title=x).scale(type=kind),
                y=altair.Y("seconds:Q", title="seconds").scale(type="log"),
                color=altair.Color("what:N", title=None),
            )
        )
        chart.save(str(folder / f"{file}.html"), inline=True)
        chart.save(str(folder / f"{file}.svg"))
