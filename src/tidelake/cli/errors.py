"""`tidelake errors`: what each error means, and what to do about it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from tidelake.cli.options import JsonOption
from tidelake.cli.render import print_json


def errors(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="The error's name, as logs and messages show it.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Explain an error: its cause, what to do, and the commands for it. Without a name, list all errors.

    Reads neither settings nor a store.
    """
    from tidelake.runbook.page import find_page, pages

    if name is not None:
        page = find_page(name)
        if as_json:
            print_json(asdict(page))
        else:
            typer.echo(page.as_text(), nl=False)
        return
    if as_json:
        print_json([asdict(page) for page in pages()])
        return
    family = ""
    for page in pages():
        if page.family != family:
            family = page.family
            typer.echo(family)
        typer.echo(f"  {page.name:<20} {page.meaning}")
