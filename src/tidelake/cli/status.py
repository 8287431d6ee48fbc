"""`tidelake status`: the state of each collection."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidelake import open_lake
from tidelake.cli.options import CONFIG, ConfigOption, JsonOption
from tidelake.cli.render import console, late_note, print_json, say
from tidelake.errors import CollectionDropped, CollectionRenamed, ConfigurationError, OptionRefused, TidelakeError
from tidelake.read.words import counted

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from tidelake.lake import Lake
    from tidelake.read.orphaned import Orphaned
    from tidelake.read.status import CollectionStatus

    Status = CollectionStatus | TidelakeError | None

_TIMES_SHOWN = 5
_COLORS = {"fine": "green", "warning": "yellow", "problem": "bold red"}


def status(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="Only these collections.")] = None,
    check: Annotated[
        bool, typer.Option("--check", help="For monitoring: print only the collections that need attention.")
    ] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Repeat until Ctrl-C.")] = False,
    every_s: Annotated[float, typer.Option("--every", min=0.1, help="With --watch: seconds between updates.")] = 2.0,
    config: ConfigOption = CONFIG,
    as_json: JsonOption = False,
) -> None:
    """Show how far each collection is proven, what it is waiting for, and whether it needs attention.

    Does not start a JVM. The exit status is 1 if a collection needs attention: until an operator acts, it does not
    continue, or cannot be trusted.
    """
    if watch:
        if as_json or check:
            option = "--json" if as_json else "--check"
            raise OptionRefused(f"--watch and {option} cannot be combined", "repeat the command without --watch")
        _watch(config, names or (), every_s)
        return
    lake = open_lake(config, skip_invalid=True, read_only=True)
    statuses = lake.status(*(names or ()))
    orphaned = () if names else lake.orphaned()
    if as_json:
        collections = {name: _as_json(value) for name, value in statuses.items()}
        others = {} if names else {"orphaned": [each.as_json() for each in orphaned]}
        print_json({"collections": collections} | others)
    elif check:
        _print_check(statuses)
    else:
        _print_status(lake, statuses, orphaned)
    if any(map(_needs_somebody, statuses.values())):
        raise typer.Exit(1)


def _needs_somebody(value: Status) -> bool:
    return isinstance(value, TidelakeError) or (value is not None and value.needs_somebody)


def _as_json(value: Status) -> dict[str, Any] | None:
    if isinstance(value, TidelakeError):
        return {"error": str(value)}
    return None if value is None else value.as_json()


def _sentence(value: CollectionStatus | TidelakeError) -> str:
    if isinstance(value, ConfigurationError):
        return f"its settings are invalid: {value.fact}"
    if isinstance(value, TidelakeError):
        return f"UNREADABLE: {value.fact}"
    return value.sentence


def _absence(lake: Lake, name: str) -> tuple[str, str]:
    """Return why the store has no collection with this name, as a severity and a sentence."""
    error = lake.catalog.absence(name)
    if isinstance(error, CollectionRenamed):
        return "warning", f"renamed to '{error.name}'; until the settings use this name, jobs refuse '{name}'"
    if isinstance(error, CollectionDropped):
        return "fine", f"dropped at {error.at}; the next ingest creates a new collection"
    return "fine", "not ingested yet"


def _watch(config: Path, names: Sequence[str], every_s: float) -> None:
    """Show the table repeatedly. If the output is not a terminal, print each table below the previous one."""
    from rich.console import Group
    from rich.live import Live

    screen = console()
    with Live(console=screen, auto_refresh=False, screen=screen.is_terminal) as live:
        while True:
            lake = open_lake(config, skip_invalid=True, read_only=True)
            statuses = lake.status(*names)
            lines = [_line(lake, name, value) for name, value in statuses.items()]
            live.update(Group(_table(statuses), *lines), refresh=True)
            time.sleep(every_s)


def _print_check(statuses: dict[str, Status]) -> None:
    """Print a line for each collection that needs attention, and a last line with the number of these collections."""
    needing = {name: value for name, value in statuses.items() if value is not None and _needs_somebody(value)}
    for name, value in needing.items():
        typer.echo(f"{name}: {_sentence(value)}")
    typer.echo(f"collections that need attention: {len(needing)} of {len(statuses)}")


def _print_status(lake: Lake, statuses: dict[str, Status], orphaned: Sequence[Orphaned]) -> None:
    screen = console()
    screen.print(_table(statuses))
    for name, value in statuses.items():
        screen.print(_line(lake, name, value), soft_wrap=not screen.is_terminal)
    for each in orphaned:
        screen.print(_marked("warning", each.name, each.sentence), soft_wrap=not screen.is_terminal)
    for name, value in statuses.items():
        if value is not None and not isinstance(value, TidelakeError):
            for text in _notes(value):
                typer.echo(f"{name}: {text}")
    for name, value in statuses.items():
        if isinstance(value, TidelakeError):
            say(f"error: {name}: {value}")


def _table(statuses: dict[str, Status]) -> Table:
    """Return the numbers of each collection. The table fits a terminal of 80 columns."""
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for column in ("name", "family", "since", "upper", "statements", "unsealed", "unread"):
        table.add_column(column, justify="left" if column in {"name", "family"} else "right", overflow="fold")
    for name, value in statuses.items():
        if value is None or isinstance(value, TidelakeError):
            table.add_row(escape(name), *[""] * 6)
            continue
        table.add_row(
            escape(name),
            value.family,
            "unreadable" if value.since is None else str(value.since),
            "closed" if value.closed else str(value.upper),
            f"{value.rows:,}",
            f"{value.pending:,}",
            "?" if value.lag_messages is None else f"{value.lag_messages:,}",
        )
    return table


def _line(lake: Lake, name: str, value: Status) -> Text:
    """Return the state of a collection in a sentence."""
    if value is None:
        severity, sentence = _absence(lake, name)
        return _marked(severity, name, sentence)
    severity = "problem" if isinstance(value, TidelakeError) else value.verdict.severity
    return _marked(severity, name, _sentence(value))


def _marked(severity: str, name: str, sentence: str) -> Text:
    from rich.text import Text

    return Text.assemble(("● ", _COLORS[severity]), (name, "bold"), f": {sentence}")


def _notes(status: CollectionStatus) -> list[str]:
    """Return the facts that the sentence leaves out."""
    notes = [f"damaged: {status.damaged}"] if status.damaged else []
    notes += [status.topic_problem] if status.topic_problem else []
    notes += status.topic_gaps
    notes += [status.late_problem] if status.late_problem else []
    if status.published_problem is not None:
        notes.append(f"published table: {status.published_problem}")
    notes += [
        f"{noted['detail']}{' (decided)' if noted['decided'] else ''}" for noted in status.contradictions[:_TIMES_SHOWN]
    ]
    # Leave out the problem that the sentence states. Of a contradiction, it states the fact without the kind.
    notes = [note for note in notes if (note.partition(": ")[2] or note) not in status.sentence]
    if status.published_problem is not None and not status.published_is_changed:
        notes.append(f"move the folder of the published table away, then run `tidelake current {status.name}`")
    if status.waiting is not None and status.waiting.first_missing is not None:
        notes.append(f"`tidelake explain {status.name}` shows which statement announced the missing updates")
    notes += [
        f"time {time}: a statement is discarded; if the number of remaining updates differs from the announced count, "
        f"decide on the count: `tidelake resolve count {status.name} --time {time} --count N --reason …`"
        for time in sorted({c["time"] for c in status.contradictions if c["decided"]} - set(status.decided_counts))
    ]
    if status.late:
        notes.append(late_note(status.late_verdicts))
    if status.late_contradicted:
        decided = status.late_contradicted - status.late_undecided
        settled = f", {decided} of them settled by decision" if decided else ""
        notes.append(
            f"late contradictions: {status.late_contradicted}{settled}; the published contents do not change; "
            f"see `tidelake late {status.name}`"
        )
    if status.held is not None:
        notes.append(f"{status.held}; see `tidelake holds {status.name}`")
    for topic, offsets in status.retired_topics.items():
        ends = ", ".join(f"{partition}:{offset}" for partition, offset in sorted(offsets.items()))
        notes.append(f"retired: the settings no longer name the topic {topic}, which was read up to {ends}")
    if status.rows_left:
        notes.append(
            f"recorded retention removed {counted(status.rows_left, 'row')} from the contents, most recently at time "
            f"{status.left_at}; see `tidelake history {status.name} --kind retention`"
        )
    notes += [f"key in error: {text}" for text in status.keys_in_error_first[:_TIMES_SHOWN]]
    if status.keys_in_error > _TIMES_SHOWN:
        notes.append(
            f"keys in error: {status.keys_in_error} in total; reads fail because of them, or leave them out with "
            "--skip-errors"
        )
    if status.quarantine:
        reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(status.quarantine_reasons.items()))
        explained = status.quarantine - sum(status.quarantine_unexplained.values())
        seen = f", {explained} of them explained" if explained else ""
        notes.append(f"quarantine: {reasons}{seen}; see `tidelake quarantine {status.name}`")
    if status.sealed_by_decision:
        times = "; ".join(f"time {row['time']}: {row['reason']}" for row in status.sealed_by_decision[:_TIMES_SHOWN])
        further = len(status.sealed_by_decision) - _TIMES_SHOWN
        notes.append(f"sealed by decision: {times}{f'; and {further} more' if further > 0 else ''}")
    return notes
