"""`tidelake hold`, `holds` and `release`: times that stay readable because somebody needs them."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

import typer

from tidelake import open_lake
from tidelake.cli.names import complete_name
from tidelake.cli.options import CONFIG, ConfigOption, JsonOption, StoredNameArgument
from tidelake.cli.render import print_json, print_rows, say
from tidelake.cli.times import check_number, read_time, seconds_of, shown_time
from tidelake.errors import OptionRefused
from tidelake.protocol.iso_times import iso_to_the_second


def hold(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="The collection's name; with --renew, its name in the store.",
            autocompletion=complete_name,
        ),
    ],
    at: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            callback=check_number,
            help="The earliest time that stays readable; by default, the last one that can be read now. For a "
            "reclocked collection, it can be a timestamp such as 2026-11-23T10:00:00Z.",
        ),
    ] = None,
    lease: Annotated[
        str, typer.Option(help="How long the hold lasts without a renewal, such as 90s, 4m, 1h or 7d.")
    ] = "1h",
    purpose: Annotated[str, typer.Option(help="Why the time is held; `tidelake holds` shows it.")] = "",
    renew: Annotated[
        str | None, typer.Option("--renew", metavar="TOKEN", help="Renew the lease of this hold, and do nothing else.")
    ] = None,
    config: ConfigOption = CONFIG,
    as_json: JsonOption = False,
) -> None:
    """Hold a time: compaction keeps it readable until the hold is released with the printed token or expires.

    Does not start a JVM.
    """
    if renew is not None:
        if at is not None or purpose:
            raise OptionRefused("--renew changes neither the time nor the purpose", "leave out --at and --purpose")
        open_lake(config, skip_invalid=True).renew(name, renew)
        say(f"{name}: the lease is renewed")
        return
    collection = open_lake(config).collection(name)
    mints_times = collection.settings.mints_times
    from tidelake.store.holds import LEASE_MS_MAX  # imported late: this import takes as long as the rest of the command

    duration = timedelta(seconds=seconds_of("--lease", lease, max_s=LEASE_MS_MAX / 1000))
    time = None if at is None else read_time("--at", at, name, mints_times)
    held = collection.acquire(time, duration, purpose)
    if as_json:
        seconds = held.lease / timedelta(seconds=1)
        print_json({"name": name, "id": held.id, "since": held.since, "lease_s": seconds, "token": held.token})
        return
    typer.echo(held.token)
    say(
        f"{name}: every time at or after {shown_time(held.since, mints_times)} stays readable until the hold is "
        f"released, or for {lease} after its last renewal"
    )


def holds(name: StoredNameArgument, config: ConfigOption = CONFIG, as_json: JsonOption = False) -> None:
    """Show the holds: id, purpose, time, start, end, cost, and the size of the pinned files. Does not start a JVM."""
    from tidelake.lake.base import engine_errors  # imported late, as in `hold`
    from tidelake.read.holding import held_times

    stored = open_lake(config, skip_invalid=True, read_only=True).stored(name)
    with engine_errors():
        found = held_times(stored)
    if as_json:
        print_json({"name": name, "holds": [held.as_json() for held in found]})
        return
    mints_times = stored.entry.mints_times
    rows = [
        {
            "id": held.id,
            "purpose": held.purpose,
            "since": shown_time(held.since, mints_times),
            "acquired": iso_to_the_second(held.acquired_at_ms),
            "until": "released" if held.until_ms is None else iso_to_the_second(held.until_ms),
            "rows": f"{held.rows:,}",
            "bytes": f"{held.bytes:,}",
            "pinned": "" if held.pinned_seq is None else f"{held.pinned_bytes:,} bytes",
        }
        for held in found
    ]
    print_rows(f"{name}: holds", ["id", "purpose", "since", "acquired", "until", "rows", "bytes", "pinned"], rows)
    if not found:
        say(f"nobody holds a time of '{name}'")


def release(
    name: StoredNameArgument,
    token: Annotated[str, typer.Argument(metavar="TOKEN", help="The token that `tidelake hold` printed.")],
    config: ConfigOption = CONFIG,
) -> None:
    """Release a hold: compaction may then forget the times that the hold kept. Does not start a JVM."""
    is_of_dropped = open_lake(config, skip_invalid=True).release(name, token)
    say(
        f"{name}: the hold is released{'; it was held on the dropped collection of this name' if is_of_dropped else ''}"
    )
