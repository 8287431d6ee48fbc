"""`tidelake quarantine`, `times` and `late`: lists of what is recorded about a collection."""

from __future__ import annotations

from typing import Annotated

import typer

from tidelake import open_lake
from tidelake.cli.options import CONFIG, ROWS_SHOWN, ConfigOption, JsonOption, NameArgument
from tidelake.cli.render import late_note, print_json, print_rows, say
from tidelake.errors import OptionRefused, hint_for_name
from tidelake.protocol.iso_times import iso_of
from tidelake.read.words import counted


def quarantine(
    name: NameArgument,
    limit: Annotated[int, typer.Option(min=0, help="Maximum number of messages.")] = ROWS_SHOWN,
    reason: Annotated[str | None, typer.Option(help="Only messages with this reason.")] = None,
    config: ConfigOption = CONFIG,
    as_json: JsonOption = False,
) -> None:
    """Show the messages that could not be used, why, and where they are in the topic. Does not start a JVM."""
    rows = open_lake(config, skip_invalid=True, read_only=True).collection(name).quarantine()
    if reason is not None:
        reasons = {str(row["reason"]) for row in rows}
        if not rows:
            raise OptionRefused(f"the quarantine of '{name}' is empty", "leave out --reason")
        if reason not in reasons:
            raise OptionRefused(f"no message of '{name}' has the reason '{reason}'", hint_for_name(reason, reasons))
        rows = [row for row in rows if row["reason"] == reason]
    unexplained = sum(row["explained"] is None for row in rows)
    shown = rows[:limit]
    if as_json:
        print_json({"name": name, "messages": len(rows), "unexplained": unexplained, "rows": shown})
        return
    columns = ["topic", "partition", "offset", "reason", "detail", "times", "value", "explained"]
    print_rows(f"{name}: quarantine", columns, shown)
    if len(rows) > len(shown):
        say(f"{len(shown)} of {len(rows)} messages; --limit shows more")


def times(
    name: NameArgument,
    limit: Annotated[
        int, typer.Option(min=0, help="Maximum length of the list; the newest times are shown.")
    ] = ROWS_SHOWN,
    config: ConfigOption = CONFIG,
    as_json: JsonOption = False,
) -> None:
    """Show a reclocked collection's times with their offsets, or, if the framing is transactions, sealed transactions.

    Does not start a JVM.
    """
    from tidelake.settings.terms import framing_terms  # imported late: it looks for plug-ins

    collection = open_lake(config, skip_invalid=True, read_only=True).collection(name)
    columns = ["time", "iso", "offsets", "records", "rows", "quarantined", "at_ms"]
    if framing_terms(collection.settings.framing).counts_positions:
        every = [transaction.as_json() for transaction in collection.transactions()]
        columns = ["time", "kind", "id", "events", "events_in_all", "ended_at", "offset"]
    else:
        every = [binding.as_json() | {"iso": iso_of(binding.time)} for binding in collection.times()]
    rows = every[len(every) - min(limit, len(every)) :]
    if as_json:
        print_json({"name": name, "times": len(every), "rows": rows})
        return
    print_rows(f"{name}: times", columns, rows)
    if len(every) > len(rows):
        say(f"the newest {len(rows)} of {len(every)} times; --limit shows more")


def late(
    name: NameArgument,
    limit: Annotated[int, typer.Option(min=0, help="Maximum number of contradictions.")] = ROWS_SHOWN,
    config: ConfigOption = CONFIG,
    as_json: JsonOption = False,
) -> None:
    """Show late statements that contradict sealed times. Does not start a JVM."""
    from tidelake.protocol.json_values import to_text

    report = open_lake(config, skip_invalid=True, read_only=True).collection(name).late(limit + 1)
    found = [contradiction.as_json() for contradiction in report.first]
    rows = found[:limit]
    if as_json:
        about = {"name": name, "statements": report.verdicts, "contradictions": report.contradictions, "rows": rows}
        typer.echo(to_text(about))
        return
    columns = ["kind", "time", "data", "stated", "published", "more", "topic", "partition", "offset", "decision"]
    print_rows(f"{name}: late contradictions", columns, rows)
    say(late_note(report.verdicts))
    if len(found) > len(rows):
        say(f"the first {counted(len(rows), 'contradiction is', 'contradictions are')} shown; --limit shows more")
