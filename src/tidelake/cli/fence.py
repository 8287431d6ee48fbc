"""`tidelake fence`: which writer may write to a collection."""

from __future__ import annotations

from typing import Annotated

import typer

from tidelake import open_lake
from tidelake.cli.options import CONFIG, ConfigOption, JsonOption, NameArgument
from tidelake.cli.render import print_json, say
from tidelake.errors import OptionRefused


def fence(
    name: NameArgument,
    writer: Annotated[
        str | None,
        typer.Option("--writer", help="The name of the only writer to let in: the value of `writer` in its settings."),
    ] = None,
    anyone: Annotated[bool, typer.Option("--anyone", help="Let in any writer, with or without a name.")] = False,
    config: ConfigOption = CONFIG,
    as_json: JsonOption = False,
) -> None:
    """Make running processes unable to commit, and choose which writer may start again. Does not start a JVM."""
    if (writer is None) == (not anyone):
        raise OptionRefused("it is not clear whom to let in", "give --writer NAME or --anyone")
    epoch = open_lake(config).collection(name).fence(writer)
    if as_json:
        print_json({"name": name, "epoch": epoch, "writer": writer})
    else:
        allowed = "any writer" if writer is None else f"only the writer '{writer}'"
        say(f"{name}: {allowed} may write; running processes can no longer commit, and have to be restarted")
