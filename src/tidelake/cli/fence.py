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
        str | None, typer.Option("--writer", help="The only writer to let in: the `writer` of its settings.")
    ] = None,
    anyone: Annotated[bool, typer.Option("--anyone", help="Let in any writer, with or without a name.")] = False,
    config: ConfigOption = CONFIG,
    as_json: JsonOption = False,
) -> None:
    """Fence a collection: no process that runs can commit to it any more, and only this writer may start. No JVM."""
    if (writer is None) == (not anyone):
        raise OptionRefused("whom to let in is not clear", "give --writer NAME or --anyone")
    epoch = open_lake(config).collection(name).fence(writer)
    if as_json:
        print_json({"name": name, "epoch": epoch, "writer": writer})
    else:
        allowed = "any writer" if writer is None else f"only the writer '{writer}'"
        say(f"{name}: {allowed} may write; what runs now cannot commit any more, and has to be started again")
