"""The demo's output: tables that fit into 80 columns, and a progress bar that reads the collections' own commits."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from examples.demo.comparison import Comparison
from tidelake.catalog.catalog import Catalog
from tidelake.errors import TidelakeError
from tidelake.read.status import read_status
from tidelake.settings.lake import Settings
from tidelake.store.commit import OpenTable
from tidelake.store.state import next_offsets
from tidelake.topic.open import open_topics

_LOOK_EVERY_S = 0.5


def progress_bar(console: Console) -> Progress:
    """Return a bar with its task, its percentage and the elapsed time."""
    return Progress(
        TextColumn("{task.description:<34}"),
        BarColumn(bar_width=24),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeElapsedColumn(),
        console=console,
    )


@contextmanager
def watch_offsets(progress: Progress, task: TaskID, catalog: Catalog, messages: dict[str, int]) -> Iterator[None]:
    """Advance a bar by the messages that the collections have committed.

    Args:
        progress: the display of the bar.
        task: the task of the bar.
        catalog: the catalog of the collections.
        messages: the number of messages in the topic of each collection.
    """
    ended = threading.Event()
    progress.update(task, total=sum(messages.values()))

    def look() -> None:
        while not ended.wait(_LOOK_EVERY_S):
            progress.update(task, completed=sum(map(committed, messages)))

    def committed(name: str) -> int:
        try:
            table = OpenTable(catalog.find(name).paths.updates)
        except (TidelakeError, OSError):  # the collection does not exist yet
            return 0
        return sum(next_offsets(table, name).values())

    watcher = threading.Thread(target=look, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()


def comparison_table(comparisons: Iterable[Comparison]) -> Table:
    """Return a table of the comparisons and their results."""
    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("collection")
    table.add_column("AS OF", justify="right")
    table.add_column("rows", justify="right")
    table.add_column("compared with")
    table.add_column("")
    for comparison in comparisons:
        verdict = "[green]equal[/]" if comparison.equal else "[bold red]DIFFERS[/]"
        table.add_row(comparison.name, f"{comparison.as_of:,}", f"{comparison.rows:,}", comparison.truth, verdict)
    return table


def status_table(settings: Settings, catalog: Catalog) -> Table:
    """Return a line for each collection: how far it is proven, what it stores, and what was set aside."""
    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
    for column in ("collection", "envelope", "upper", "stored", "late", "quarantine"):
        table.add_column(column, justify="left" if column in ("collection", "envelope") else "right")
    for collection in settings.collections:
        status = read_status(catalog.find(collection.name), open_topics(collection))
        upper = "closed" if status.closed else f"{status.upper:,}"
        table.add_row(
            collection.name,
            collection.envelope,
            upper,
            f"{status.rows:,}",
            f"{status.late:,}",
            f"{status.quarantine:,}",
        )
    return table
