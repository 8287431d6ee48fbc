"""`tidelake path`: where the published contents of a collection are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from tidelake import open_lake
from tidelake.cli.options import CONFIG, ConfigOption, JsonOption, NameArgument
from tidelake.cli.render import print_json, say
from tidelake.errors import NotPublished

if TYPE_CHECKING:
    from tidelake.lake import Places


def path(name: NameArgument, config: ConfigOption = CONFIG, as_json: JsonOption = False) -> None:
    """Print where the published contents are: a Delta table that any engine can read. Does not start a JVM.

    The exit status is 1 if they cannot be read there.
    """
    places = open_lake(config, skip_invalid=True, read_only=True).collection(name).places()
    published = places.published
    problem = None if published is None else published.problem
    if as_json:
        print_json({"name": name, **places.as_json()})
    elif published is not None and problem is not None:
        typer.echo(str(published.table))
        say(f"error: {problem}")
    else:
        _print_path(name, places)
    if problem is not None:
        raise typer.Exit(1)


def _print_path(name: str, places: Places) -> None:
    published = places.published
    older = None if places.older is None else str(places.older)
    if published is not None and published.shown is not None:
        typer.echo(str(published.table))
        if older is not None:
            say(f"note: {older} is from an earlier version and is no longer rebuilt; delete it if nobody reads it")
    elif older is not None:
        typer.echo(older)
        say("note: an earlier version published this table; the next run of `current` publishes the contents elsewhere")
    else:
        raise NotPublished(name)
