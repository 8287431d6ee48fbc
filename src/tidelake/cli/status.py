"""`tidelake status`: the state of each collection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidelake import open_lake
from tidelake.cli.options import CONFIG, ConfigOption, JsonOption
from tidelake.cli.render import console, late_note, print_json, say
from tidelake.errors import TidelakeError

if TYPE_CHECKING:
    from tidelake.read.status import CollectionStatus

_TIMES_SHOWN = 5


def status(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="Only these collections.")] = None,
    config: ConfigOption = CONFIG,
    as_json: JsonOption = False,
) -> None:
    """Show since, upper, rows, pending rows, lag and quarantine of each collection. Starts no JVM."""
    statuses = open_lake(config).status(*(names or ()))
    if as_json:
        print_json({"collections": {name: _as_json(value) for name, value in statuses.items()}})
    else:
        _print_status(statuses)
    if any(isinstance(value, TidelakeError) for value in statuses.values()):
        raise typer.Exit(1)


def _as_json(value: CollectionStatus | TidelakeError | None) -> dict[str, Any] | None:
    if isinstance(value, TidelakeError):
        return {"error": str(value)}
    return None if value is None else value.as_json()


def _print_status(statuses: dict[str, CollectionStatus | TidelakeError | None]) -> None:
    from rich import box
    from rich.table import Table

    table = Table(title="collections", box=box.SIMPLE_HEAD)
    for column in ("name", "family", "since", "upper", "rows", "pending", "lag", "late", "quarantine", "state"):
        table.add_column(column, justify="left" if column in {"name", "family", "state"} else "right")
    notes: list[str] = []
    unreadable: dict[str, TidelakeError] = {}
    for name, value in statuses.items():
        if value is None:
            table.add_row(name, *[""] * 8, "not ingested yet")
            continue
        if isinstance(value, TidelakeError):
            unreadable[name] = value
            continue
        table.add_row(
            name,
            value.family,
            "unreadable" if value.since is None else str(value.since),
            "closed" if value.closed else str(value.upper),
            f"{value.rows:,}",
            f"{value.pending:,}",
            "?" if value.lag_messages is None else f"{value.lag_messages:,} messages",
            f"{value.late:,}",
            f"{value.quarantine:,}",
            value.state,
        )
        notes += [f"{name}: {text}" for text in _notes(value)]
    for name in unreadable:
        table.add_row(name, *[""] * 8, "UNREADABLE")
    console().print(table)
    for note in notes:
        typer.echo(note)
    for name, error in unreadable.items():
        say(f"error: {name}: {error}")


def _notes(status: CollectionStatus) -> list[str]:
    notes = [f"damaged: {status.damaged}"] if status.damaged else []
    notes += [status.topic_problem] if status.topic_problem else []
    notes += status.topic_gaps
    notes += [status.late_problem] if status.late_problem else []
    notes += [
        f"{noted['detail']}{' (decided)' if noted['decided'] else ''}" for noted in status.contradictions[:_TIMES_SHOWN]
    ]
    notes += [
        f"time {time}: a statement is left out; if the rest differs from the announced number, decide the number: "
        f"`tidelake resolve count {status.name} --time {time} --count N --reason …`"
        for time in sorted({c["time"] for c in status.contradictions if c["decided"]} - set(status.decided_counts))
    ]
    if status.late:
        notes.append(late_note(status.late_verdicts))
    if status.late_contradicted:
        decided = status.late_contradicted - status.late_undecided
        settled = f", {decided} of them settled by decision" if decided else ""
        notes.append(
            f"late contradictions: {status.late_contradicted}{settled}; what was published does not change; "
            f"see `tidelake late {status.name}`"
        )
    notes += [f"key in error: {text}" for text in status.keys_in_error_first[:_TIMES_SHOWN]]
    if status.keys_in_error > _TIMES_SHOWN:
        notes.append(
            f"keys in error: {status.keys_in_error} in all; reads refuse them, or leave them out with --skip-errors"
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
