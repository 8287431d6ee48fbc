"""`tidelake explain`: who proved a time and how, or what it waits for."""

from __future__ import annotations

from typing import Annotated

import typer

from tidelake import open_lake
from tidelake.cli.options import CONFIG, ConfigOption, JsonOption, NameArgument
from tidelake.cli.render import print_json
from tidelake.protocol.order import INT64_MAX


def explain(
    name: NameArgument,
    time: Annotated[
        int | None,
        typer.Option(min=0, max=INT64_MAX, help="The time; by default the first one that is not sealed."),
    ] = None,
    config: ConfigOption = CONFIG,
    as_json: JsonOption = False,
) -> None:
    """Explain a time: who proved it and how, or which updates it waits for. Starts no JVM."""
    found = open_lake(config).collection(name).explain(time)
    if as_json:
        print_json(found.as_json())
        return
    typer.echo(f"{name}, time {found.time}: {found.state}")
    for fact in found.facts:
        typer.echo(f"  {fact}")
    for step in found.next_steps:
        typer.echo(f"  next: {step}")
