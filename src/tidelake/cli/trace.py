"""`tidelake trace`: what became of a message."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidelake import open_lake
from tidelake.cli.options import CONFIG, ROWS_SHOWN, ConfigOption, JsonOption
from tidelake.cli.render import print_rows, say
from tidelake.errors import TidelakeError
from tidelake.protocol.iso_times import iso_to_the_second

if TYPE_CHECKING:
    from tidelake.read.fates import Fate


def trace(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic's name.")],
    partition: Annotated[int, typer.Argument(metavar="PARTITION", min=0, help="The partition of the message.")],
    offset: Annotated[int, typer.Argument(metavar="OFFSET", min=0, help="The offset of the message.")],
    limit: Annotated[
        int | None,
        typer.Option(min=0, help="Maximum number of statements or counts (by default 20, or all with --json)."),
    ] = None,
    config: ConfigOption = CONFIG,
    as_json: JsonOption = False,
) -> None:
    """Show what became of a message in each collection that reads its topic. Does not start a JVM.

    The exit status is 1 if the message needs attention, and 2 if no collection reads the topic.
    """
    from tidelake.protocol.json_values import to_text

    found = open_lake(config, skip_invalid=True, read_only=True).trace(topic, partition, offset)
    shown = limit if limit is not None else (None if as_json else ROWS_SHOWN)
    if as_json:
        collections = {name: _as_json(fates, shown) for name, fates in found.items()}
        typer.echo(to_text({"topic": topic, "partition": partition, "offset": offset, "collections": collections}))
    else:
        for name, fates in found.items():
            if isinstance(fates, TidelakeError):
                say(f"error: {name}: {fates}")
                continue
            for fate in fates:
                _show(fate, shown)
    if any(isinstance(fates, TidelakeError) or any(fate.needs_somebody for fate in fates) for fates in found.values()):
        raise typer.Exit(1)


def _as_json(fates: list[Fate] | TidelakeError, limit: int | None) -> Any:
    if isinstance(fates, TidelakeError):
        return {"error": str(fates)}
    documents = [fate.as_json() for fate in fates]
    return [document | {name: document[name][:limit] for name in ("statements", "counts")} for document in documents]


def _show(fate: Fate, limit: int | None) -> None:
    typer.echo(f"{fate.collection}: {fate.topic}:{fate.partition}:{fate.offset}: {fate.summary}")
    if (at_ms := fate.facts.get("at_ms")) is not None:
        typer.echo(f"  read at: {iso_to_the_second(at_ms)}")
    if fate.unknown is not None:
        typer.echo(f"  not known: {fate.unknown}")
    for needed in fate.todo():
        typer.echo(f"  to do: {needed}")
    for title, columns, parts in (
        ("statements", ["number", "time", "diff", "data", "fate", "detail"], fate.statements),
        ("counts", ["time", "count", "fate", "detail"], fate.counts),
    ):
        rows = [{name: getattr(part, name) for name in columns} for part in parts[:limit]]
        if rows:
            print_rows(title, columns, rows)
        if len(rows) < len(parts):
            say(f"{len(rows)} of {len(parts)} {title}; --limit shows more")
