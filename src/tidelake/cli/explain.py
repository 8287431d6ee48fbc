"""`tidelake explain`: who proved a time and how, or what it is waiting for."""

from __future__ import annotations

from typing import Annotated

import typer

from tidelake import open_lake
from tidelake.cli.options import CONFIG, ConfigOption, JsonOption, NameArgument
from tidelake.cli.render import print_json
from tidelake.cli.times import check_number, read_time, shown_time


def explain(
    name: NameArgument,
    time: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            callback=check_number,
            help="The time; by default the first one that is not sealed or, if the stream is closed or the collection "
            "reclocked, the last sealed one. For reclocked collections, also a timestamp such as 2026-11-23T10:00:00Z.",
        ),
    ] = None,
    config: ConfigOption = CONFIG,
    as_json: JsonOption = False,
) -> None:
    """Explain a time: who proved it and how, or which updates it is waiting for. Does not start a JVM."""
    collection = open_lake(config, skip_invalid=True, read_only=True).collection(name)
    mints_times = collection.settings.mints_times
    found = collection.explain(None if time is None else read_time("--time", time, name, mints_times))
    if as_json:
        print_json(found.as_json())
        return
    typer.echo(f"{name}, time {shown_time(found.time, mints_times)}: {found.state}")
    for fact in found.facts:
        typer.echo(f"  {fact}")
    for step in found.next_steps:
        typer.echo(f"  next: {step}")
