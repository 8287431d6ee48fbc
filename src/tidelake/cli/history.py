"""`tidelake history`: what was done to a collection."""

from __future__ import annotations

from typing import Annotated

import click
import typer

from tidelake import open_lake
from tidelake.cli.options import CONFIG, ROWS_SHOWN, ConfigOption, JsonOption, NameArgument
from tidelake.cli.render import print_rows, say
from tidelake.read.events import KINDS


def history(
    name: NameArgument,
    limit: Annotated[
        int | None,
        typer.Option(min=0, help="Maximum number of events; the newest are shown (by default 20, or all with --json)."),
    ] = None,
    kind: Annotated[
        list[str] | None, typer.Option(click_type=click.Choice(KINDS), help="Only events of this kind; repeatable.")
    ] = None,
    config: ConfigOption = CONFIG,
    as_json: JsonOption = False,
) -> None:
    """Show what was done to a collection and when, the newest last. Does not start a JVM."""
    from tidelake.protocol.json_values import to_text

    shown = limit if limit is not None else (None if as_json else ROWS_SHOWN)
    found = open_lake(config, skip_invalid=True, read_only=True).history(name, shown, kind or ())
    if as_json:
        typer.echo(to_text(found.as_json()))
        return
    print_rows(f"{name}: history", ["at", "kind", "what"], [event.as_json() for event in found.events])
    if found.total > len(found.events):
        say(f"the newest {len(found.events)} of {found.total} events; --limit shows more")
    if found.complete_from is not None:
        say(
            f"every event since {found.complete_from} is known; the logs have forgotten earlier ticks, merges, "
            "moves of since, withdrawn decisions, fences, and seals of times without updates"
        )
