"""`tidelake at`: the time at which several collections can be read together, and why."""

from __future__ import annotations

from typing import Annotated

import typer

from tidelake import open_lake
from tidelake.cli.options import CONFIG, ConfigOption, JsonOption, NamesArgument
from tidelake.cli.render import print_json
from tidelake.cli.times import check_number, read_time, seconds_of, shown_time


def at(
    names: NamesArgument = None,
    time: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            callback=check_number,
            help="The time to check; by default, the latest time that all the collections have. For reclocked "
            "collections, a timestamp such as 2026-11-23T10:00:00Z also works.",
        ),
    ] = None,
    not_before: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            callback=check_number,
            help="A time that was read before: fail if the chosen time would be earlier.",
        ),
    ] = None,
    wait: Annotated[
        str | None,
        typer.Option(
            help="How long to wait for a collection that lags: a duration such as 30s; by default, not at all."
        ),
    ] = None,
    config: ConfigOption = CONFIG,
    as_json: JsonOption = False,
) -> None:
    """Show the time at which collections of one timeline can be read together, and why. Does not start a JVM."""
    lake = open_lake(config, skip_invalid=True, read_only=True)
    chosen = [lake.collection(name) for name in names] if names else lake.collections()
    mints_times = any(collection.settings.mints_times for collection in chosen)
    asked, earliest = (
        None if text is None else read_time(option, text, chosen[0].name, mints_times)
        for option, text in (("--time", time), ("--not-before", not_before))
    )
    from tidelake.store.holds import LEASE_MS_MAX  # imported late: this import takes as long as the rest of the command

    wait_s = 0.0 if wait is None else seconds_of("--wait", wait, max_s=LEASE_MS_MAX / 1000)
    found = lake.at("latest" if asked is None else asked, *(names or ()), not_before=earliest, wait_s=wait_s)
    if as_json:
        print_json(found.as_json())
        return
    typer.echo(f"time {shown_time(found.time, mints_times)}, on the timeline '{found.timeline}'")
    for fact in found.facts:
        typer.echo(f"  {fact}")
