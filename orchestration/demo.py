"""The demo: two mangled topics and the published example, through the scheduled job, compared with their own truth.

`make run` starts it. Everything it makes lies in `data/demo`, which it empties first.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from dagster import DagsterInstance
from rich.console import Console
from rich.table import Table

from orchestration.run_once import run_current_job, run_nightly_job, run_tick_job
from orchestration.settings import PROJECT
from tidelake.codec import AvroCodec
from tidelake.codec_json import AvroJsonCodec
from tidelake.configuration import load_settings
from tidelake.delta.catalog import Catalog
from tidelake.delta.layout import Store
from tidelake.delta.session import start_session
from tidelake.delta.snapshot import snapshot
from tidelake.delta.status import read_status
from tidelake.delta.topic import open_topics
from tidelake.generator.generate import generate
from tidelake.generator.options import GenerateOptions
from tidelake.generator.truth import contents_at, read_truth
from tidelake.replay import split_lines

DEMO = PROJECT / "data" / "demo"
PUBLISHED = PROJECT / "examples" / "published" / "stream.avro.jsonl"
PUBLISHED_RECORD: dict[str, Any] = {
    "type": "record",
    "name": "data",
    "fields": [{"name": "id", "type": "long"}, {"name": "price", "type": ["null", "int"]}],
}
PUBLISHED_CONTENTS: dict[int, list[dict[str, Any]]] = {
    4: [{"id": 5, "price": 12, "_diff": 1}],
    5: [{"id": 5, "price": 10, "_diff": 1}],
    6: [],
}
"""What the protocol's documentation says of its example, by time."""

MANGLED: dict[str, Any] = {
    "updates": 200_000,
    "times": 1_000,
    "writers": 2,
    "copies": 0.3,
    "shuffle": "full",
    "split": 0.3,
    "undecodable": 24,
    "nulls": 6,
    "partitions": 2,
    "keys": 50_000,
    "empty_times": 0.0,
}
"""Two redundant writers with batches of their own, 30 % of the messages repeated, in any order, some of them torn."""

console = Console() if sys.stdout.isatty() else Console(width=140)


@dataclass(frozen=True)
class Compared:
    """One collection's contents at one time, beside the truth."""

    name: str
    as_of: int
    rows: int
    equal: bool


def main() -> int:
    """Make the data, run the scheduled job, compare; 0 when everything is as it should be."""
    started = time.monotonic()
    console.rule("[bold]1. three topics")
    shutil.rmtree(DEMO, ignore_errors=True)
    write_published(DEMO / "topics")
    for name, family, seed in (("orders", "plain", 1), ("visits", "append_only", 2)):
        write_mangled(name, family, seed)
    config = write_config()

    console.rule("[bold]2. the scheduled jobs: ingest, seal, validate, merge; then `current`; then the nightly one")
    instance = DagsterInstance.from_config(str(dagster_home()))
    with instance:
        ran = [job(config, instance) for job in (run_tick_job, run_current_job, run_nightly_job)]
    succeeded = all(one.success for one in ran)

    console.rule("[bold]3. contents at three times, beside the generator's own truth")
    compared = compare(config)
    console.print(comparison_table(compared))
    console.print(status_table(config))
    took = time.monotonic() - started
    equal = all(one.equal for one in compared)
    verdict = "[bold green]all equal[/]" if equal and succeeded else "[bold red]NOT as it should be[/]"
    console.print(f"{verdict}, {took:.0f} s. Go on with:")
    shown = config.relative_to(PROJECT)
    console.print(f"  .venv/bin/tidelake status --config {shown}")
    console.print(f"  .venv/bin/tidelake read prices --as-of 4 --config {shown}")
    console.print(f"  {(DEMO / 'data_docs' / 'index.html').relative_to(PROJECT)}          the data-quality report")
    console.print("  make ui                              the same runs, checks and plots in Dagster")
    return 0 if equal and succeeded else 1


def write_published(topics: Path) -> None:
    """The published example as a file topic of bare Avro."""
    reader, writer = AvroJsonCodec(PUBLISHED_RECORD), AvroCodec(PUBLISHED_RECORD)
    values = [writer.encode(reader.decode(line)) for line in split_lines(PUBLISHED.read_bytes())]
    folder = topics / "prices"
    folder.mkdir(parents=True)
    columns = {
        "key": pa.array([None] * len(values), pa.binary()),
        "value": pa.array(values, pa.binary()),
        "topic": pa.array(["prices"] * len(values)),
        "partition": pa.array([0] * len(values), pa.int32()),
        "offset": pa.array(range(len(values)), pa.int64()),
        "timestamp": pa.array([0] * len(values), pa.timestamp("us", "UTC")),
    }
    pq.write_table(pa.table(columns), folder / "part-0.parquet")
    console.print(f"prices: {len(values)} messages of the protocol's published example")


def write_mangled(name: str, family: str, seed: int) -> None:
    """A generated topic, and its truth beside it."""
    with console.status(f"{name}: writing …") as status:
        options = GenerateOptions(name=name, family=family, seed=seed, **MANGLED)  # type: ignore[arg-type]
        written = generate(
            options, DEMO / "topics", DEMO, lambda step, done, of: status.update(f"{name}: {step} {done:,} of {of:,}")
        )
    truth = written.truth
    stated = f"stated {truth.updates_stated:,} times in {truth.messages:,} messages"
    console.print(f"{name}: {truth.updates:,} distinct updates, {stated}")


def write_config() -> Path:
    """The demo's collections.yaml."""
    bound = {"messages_per_tick_max": 3_000}
    document = {
        "store": "store",
        "topics": "topics",
        "data_docs": "data_docs",
        "collections": {
            "prices": {"family": "plain", "topic": "prices", "schema": PUBLISHED_RECORD},
            "orders": {"family": "plain", "topic": "orders", "schema": "orders.avsc", **bound},
            "visits": {"family": "append_only", "topic": "visits", "schema": "visits.avsc", **bound},
        },
    }
    path = DEMO / "collections.yaml"
    path.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
    return path


def dagster_home() -> Path:
    """The folder of the SQLite-backed instance that `make ui` shows."""
    home = PROJECT / ".dagster_home"
    home.mkdir(exist_ok=True)
    shutil.copy(PROJECT / "orchestration" / "dagster.yaml", home / "dagster.yaml")
    return home


def compare(config: Path) -> list[Compared]:
    """Each collection at three times; rows are compared as multisets of whole rows."""
    settings = load_settings(config)
    catalog, spark = Catalog(Store(settings.store)), start_session()
    compared = []
    for as_of, expected in PUBLISHED_CONTENTS.items():
        found = snapshot(spark, catalog.find("prices"), as_of).contents.toArrow()
        compared.append(Compared("prices", as_of, found.num_rows, counted(found.to_pylist()) == counted(expected)))
    for name in ("orders", "visits"):
        upper = read_truth(DEMO / f"{name}.truth.json").upper
        for as_of in (upper // 3, 2 * upper // 3, upper - 1):
            found = snapshot(spark, catalog.find(name), as_of).contents.toArrow()
            truth = contents_at(DEMO / f"{name}.truth.parquet", as_of)
            equal = counted(found.select(truth.schema.names).to_pylist()) == counted(truth.to_pylist())
            compared.append(Compared(name, as_of, found.num_rows, equal))
    return compared


def counted(rows: list[dict[str, Any]]) -> Counter[str]:
    """Rows as a multiset."""
    return Counter(repr(row) for row in rows)


def comparison_table(compared: list[Compared]) -> Table:
    """What was compared, and whether it was equal."""
    table = Table(box=None, header_style="bold", padding=(0, 2))
    for column, justify in (("collection", "left"), ("AS OF", "right"), ("rows", "right"), ("truth", "left")):
        table.add_column(column, justify=justify)  # type: ignore[arg-type]
    for one in compared:
        table.add_row(
            one.name, f"{one.as_of:,}", f"{one.rows:,}", "[green]equal[/]" if one.equal else "[red]DIFFERS[/]"
        )
    return table


def status_table(config: Path) -> Table:
    """One line a collection: what came, what was proven, what was left out and why."""
    settings = load_settings(config)
    catalog = Catalog(Store(settings.store))
    table = Table(box=None, header_style="bold", padding=(0, 2))
    for column in ("collection", "family", "since", "upper", "stored rows", "pending", "late copies", "quarantine"):
        table.add_column(column, justify="left" if column in ("collection", "family") else "right")
    for one in settings.collections:
        status = read_status(catalog.find(one.name), one.family, open_topics(one))
        table.add_row(
            one.name,
            one.family,
            f"{status.since}",
            "closed" if status.closed else f"{status.upper:,}",
            f"{status.rows:,}",
            f"{status.pending:,}",
            f"{status.late:,}",
            f"{status.quarantine:,}",
        )
    return table


if __name__ == "__main__":
    sys.exit(main())
