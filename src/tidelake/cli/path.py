"""`tidelake path`: where the published contents of a collection are."""

from __future__ import annotations

import typer

from tidelake import open_lake
from tidelake.cli.options import CONFIG, ConfigOption, JsonOption, NameArgument
from tidelake.cli.render import print_json, say
from tidelake.errors import NotPublished


def path(name: NameArgument, config: ConfigOption = CONFIG, as_json: JsonOption = False) -> None:
    """Print where the published contents are: a Delta table for every engine. Starts no JVM."""
    places = open_lake(config).collection(name).places()
    if as_json:
        print_json({"name": name, **places.as_json()})
        return
    published = places.published
    older = None if places.older is None else str(places.older)
    if published is not None and published.shown is not None:
        typer.echo(str(published.table))
        if older is not None:
            say(f"note: {older} is from an earlier version and is not rebuilt any more; delete it if nobody reads it")
    elif older is not None:
        typer.echo(older)
        say("note: an earlier version published this table; the next run of `current` publishes the contents elsewhere")
    else:
        raise NotPublished(name)
