"""`make run`: first a proven table, then a Debezium capture, then large mangled topics through the scheduled jobs.

All files are in `data/demo`, which is emptied first. The runs are in Dagster's instance, which `make ui` shows.
"""

from __future__ import annotations

import argparse
import logging
import os
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import structlog
from dagster import DagsterInstance
from pyspark.sql import SparkSession
from rich.console import Console

from examples.demo.comparison import Comparison, compare_capture, compare_large, compare_published
from examples.demo.screen import comparison_table, progress_bar, status_table, watch_offsets
from examples.demo.topics import LARGE, moments, write_capture_until, write_config, write_large, write_published
from jobs import ingest, seal
from orchestration.run_once import run_current_job, run_nightly_job, run_tick_job
from orchestration.settings import PROJECT
from tidelake.catalog.catalog import Catalog
from tidelake.settings.lake import Settings, load_settings
from tidelake.spark.session import start_session
from tidelake.store.commit import OpenTable
from tidelake.store.layout import Store
from tidelake.store.state import UPPER

FOLDER = PROJECT / "data" / "demo"
UPDATES = 100_000


class Demo:
    """A run of the demo; `comparisons` collects what was compared."""

    def __init__(self, folder: Path, home: Path, updates: int, console: Console) -> None:
        self.folder, self.home, self.updates, self.console = folder, home, updates, console
        self.comparisons: list[Comparison] = []
        self.failed_jobs: list[str] = []

    def run(self) -> bool:
        """Run all parts; True if all comparisons are equal and no job failed."""
        started = time.monotonic()
        shutil.rmtree(self.folder, ignore_errors=True)
        (self.folder / "topics").mkdir(parents=True)
        self.config = write_config(self.folder)
        settings = load_settings(self.config)
        self.catalog = Catalog(Store(settings.store))
        with self.console.status("starting Spark …"):
            spark = start_session()

        self._heading("1. The protocol's published example")
        self._published(spark, settings)
        self.console.print(f"A proven table, {time.monotonic() - started:.0f} s after the start.", style="dim")
        self._heading("2. A Debezium capture of a PostgreSQL table")
        self._capture(spark, settings)
        self._heading("3. Four large topics through the scheduled jobs")
        self._large(spark)
        self.console.print(status_table(load_settings(self.config), self.catalog))

        equal = all(comparison.equal for comparison in self.comparisons)
        return equal and not self.failed_jobs

    def _published(self, spark: SparkSession, settings: Settings) -> None:
        messages = write_published(self.folder / "topics")
        only = settings.only(("prices",))
        with self.console.status("ingest, then seal …"):
            ingest.run(spark, only)
            report = seal.run(spark, only).results["prices"]
        self.console.print(f"{messages} messages; sealed up to time {report.upper}.")
        self._show(list(compare_published(spark, self.catalog)))

    def _capture(self, spark: SparkSession, settings: Settings) -> None:
        only = settings.only(("people",))
        messages, expected = 0, []
        with self.console.status("ingest at three moments …"):
            for number, moment in enumerate(moments()):
                messages += write_capture_until(self.folder / "topics", number)
                ingest.run(spark, only)
                upper = OpenTable(self.catalog.find("people").paths.updates).value(UPPER) or 0
                expected.append((upper - 1, moment["rows"]))
            comparisons = [compare_capture(spark, self.catalog, as_of, rows) for as_of, rows in expected]
        self.console.print(
            f"{messages} events of concurrent sessions; the connector forgot its offset and took a second snapshot."
        )
        self._show(comparisons)

    def _large(self, spark: SparkSession) -> None:
        messages: dict[str, int] = {}
        distinct = stated = 0
        with progress_bar(self.console) as progress:
            task = progress.add_task("")
            for name in LARGE:

                def move(step: str, done: int, of: int, name: str = name) -> None:
                    progress.update(task, description=f"generate {name}: {step}", completed=done, total=of)

                truth = write_large(self.folder, name, self.updates, move)
                messages[name] = truth.messages
                distinct, stated = distinct + truth.updates, stated + truth.updates_stated
            progress.update(task, description="generate topics", completed=1, total=1)
            write_config(self.folder, LARGE)
            with DagsterInstance.from_config(str(self.home)) as instance:
                task = progress.add_task("tick: ingest, seal, validate, merge")
                with watch_offsets(progress, task, self.catalog, messages):
                    self._note("tick", run_tick_job(self.config, instance).success)
                progress.update(task, completed=sum(messages.values()))
                for name, job in (("current: plain tables", run_current_job), ("nightly: recount", run_nightly_job)):
                    task = progress.add_task(name, total=None)
                    self._note(name.partition(":")[0], job(self.config, instance).success)
                    progress.update(task, total=1, completed=1)
            task = progress.add_task("compare with the ground truth", total=3 * len(LARGE))
            comparisons = []
            for comparison in compare_large(spark, self.catalog, self.folder):
                comparisons.append(comparison)
                progress.advance(task)
        self.console.print(
            f"{distinct:,} distinct updates, stated {stated:,} times in {sum(messages.values()):,} shuffled messages."
        )
        self._show(comparisons)

    def _note(self, job: str, succeeded: bool) -> None:
        if not succeeded:
            self.failed_jobs.append(job)

    def _show(self, comparisons: list[Comparison]) -> None:
        self.comparisons += comparisons
        self.console.print(comparison_table(comparisons))

    def _heading(self, text: str) -> None:
        self.console.print()
        self.console.print(text, style="bold")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demo; 0 if every comparison is equal and every job succeeded."""
    parser = argparse.ArgumentParser(description="The demo: topics of every family, compared with the ground truth.")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="the folder for all output; emptied first")
    parser.add_argument("--home", type=Path, default=PROJECT / ".dagster_home", help="the folder of Dagster's instance")
    parser.add_argument("--updates", type=int, default=UPDATES, help="number of distinct updates in each large topic")
    chosen = parser.parse_args(argv)
    chosen.home.mkdir(parents=True, exist_ok=True)
    shutil.copy(PROJECT / "orchestration" / "dagster.yaml", chosen.home / "dagster.yaml")
    # The reports and Dagster's runs show what the jobs log; on this screen, the log would hide the result.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    started = time.monotonic()
    # Dagster redirects the process's output to catch what a step prints, so the bar needs a file descriptor of its own.
    console = Console(file=os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8"), highlight=False)
    demo = Demo(chosen.folder.absolute(), chosen.home.absolute(), chosen.updates, console)
    good = demo.run()
    console.print()
    verdict = "[bold green]all equal[/]" if good else "[bold red]NOT all equal, or a job failed[/]"
    console.print(f"{verdict}: {len(demo.comparisons)} comparisons, {time.monotonic() - started:.0f} s. Next steps:")
    if demo.failed_jobs:
        console.print(f"Failed jobs: {', '.join(demo.failed_jobs)}. Dagster has the reasons: make ui")
    config = demo.config.relative_to(PROJECT) if demo.config.is_relative_to(PROJECT) else demo.config
    console.print(f"  export TIDELAKE_CONFIG={config}", soft_wrap=True)
    console.print("  .venv/bin/tidelake status")
    console.print("  .venv/bin/tidelake read people --columns id,name,price,day")
    console.print("  make ui                     the runs, checks and plots in Dagster")
    report = config.parent / "data_docs" / "index.html"
    console.print(f"  {report}   the data-quality report", soft_wrap=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
