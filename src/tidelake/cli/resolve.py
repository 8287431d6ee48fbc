"""`tidelake resolve`: decides what a stream cannot decide, with a sub-command for each kind of decision."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from tidelake import open_lake
from tidelake.cli.options import CONFIG, ConfigOption, JsonOption, NameArgument
from tidelake.cli.render import print_json, print_rows, say
from tidelake.errors import OptionRefused
from tidelake.protocol.iso_times import iso_to_the_second
from tidelake.protocol.order import INT64_MAX
from tidelake.read.words import counted

if TYPE_CHECKING:
    from collections.abc import Iterable

    import click

    from tidelake.decisions import Decision, Offsets
    from tidelake.lake import LakeCollection

_BY_OPTIONS = "by-options"
"""The hidden sub-command behind `tidelake resolve NAME --time …`, which used to be the only form."""
_DECIDING = {"--count", "--discard", "--accept-gap", "--accept-topic", "--quarantined", "--withdraw"}
"""The options that say what to decide if there is no sub-command."""


class _Resolve(TyperGroup):
    """The sub-commands, and the form without a sub-command."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and self._is_by_options(args):
            args = [_BY_OPTIONS, *args]
        return super().parse_args(ctx, args)

    def _is_by_options(self, args: list[str]) -> bool:
        """Return whether the first argument is a collection's name, which may also be the name of a sub-command."""
        if args[0] not in self.commands or args[0] == _BY_OPTIONS:
            return args[0] != "--help"
        flags = {word.partition("=")[0] for word in args}
        return "--help" not in flags and bool(flags & _DECIDING) and len(list(self._names(args))) == 1

    def _names(self, args: list[str]) -> Iterable[str]:
        """Return the arguments that are neither options nor their values."""
        options = [option for command in self.commands.values() for option in command.params]
        valued = {flag for option in options if not getattr(option, "is_flag", False) for flag in option.opts}
        words = iter(args)
        for word in words:
            if word in valued:
                next(words, None)
            elif not word.startswith("-"):
                yield word


app = typer.Typer(
    name="resolve",
    cls=_Resolve,
    help="Decide what a stream cannot decide, by a rule that stays in force. Does not start a JVM.",
    no_args_is_help=True,
)

TimeOption = Annotated[
    int,
    typer.Option("--time", min=0, max=INT64_MAX, help="An unsealed time, or a sealed time that `tidelake late` shows."),
]
CountOption = Annotated[int, typer.Option("--count", min=0, max=INT64_MAX, help="The number of distinct updates.")]
ReasonOption = Annotated[
    str, typer.Option("--reason", help="The reason; every report that shows the decision repeats it.")
]


@app.command()
def count(
    name: NameArgument,
    time: TimeOption,
    count: CountOption,
    reason: ReasonOption,
    config: ConfigOption = CONFIG,
    as_json: JsonOption = False,
) -> None:
    """Decide the number of distinct updates at a time, whatever was announced."""
    from tidelake.decisions import Count

    _decide(config, name, Count(time=time, count=count, reason=reason), as_json)


@app.command()
def discard(
    name: NameArgument,
    time: TimeOption,
    statement: Annotated[str, typer.Option("--statement", help='The statement, as JSON: {"data": {…}, "diff": 1}.')],
    reason: ReasonOption,
    config: ConfigOption = CONFIG,
    as_json: JsonOption = False,
) -> None:
    """Discard one of the statements about a time, with every copy of it."""
    from tidelake.decisions import Discard, parse_statement

    _decide(config, name, Discard(time=time, statement=parse_statement(statement), reason=reason), as_json)


@app.command()
def gap(
    name: NameArgument,
    offsets: Annotated[
        str, typer.Option("--offsets", help="Offsets that will not come back: TOPIC:PARTITION:FROM-TO (TO excluded).")
    ],
    reason: ReasonOption,
    config: ConfigOption = CONFIG,
    as_json: JsonOption = False,
) -> None:
    """Continue after offsets that are missing in a topic, or after some of them."""
    from tidelake.decisions import AcceptGap, Offsets

    _decide(config, name, AcceptGap(offsets=Offsets.parse(offsets), reason=reason), as_json)


@app.command()
def topic(
    name: NameArgument,
    topic: Annotated[str, typer.Option("--topic", help="The topic's name.")],
    reason: ReasonOption,
    config: ConfigOption = CONFIG,
    as_json: JsonOption = False,
) -> None:
    """Continue with a topic that was recreated or truncated, as it is now."""
    from tidelake.decisions import AcceptTopic

    _decide(config, name, AcceptTopic(topic=topic, reason=reason), as_json)


@app.command()
def quarantine(
    name: NameArgument,
    offsets: Annotated[
        str,
        typer.Option(
            "--offsets", help="The messages: TOPIC:PARTITION:OFFSET, or TOPIC:PARTITION:FROM-TO (TO excluded)."
        ),
    ],
    reason: ReasonOption,
    config: ConfigOption = CONFIG,
    as_json: JsonOption = False,
) -> None:
    """Acknowledge quarantined messages: the quarantine keeps them, and no check reports them again."""
    from tidelake.decisions import Acknowledge, Offsets

    _decide(config, name, Acknowledge(offsets=Offsets.parse(offsets), reason=reason), as_json)


@app.command()
def transaction(
    name: NameArgument,
    transaction: Annotated[
        str, typer.Option("--transaction", help="The transaction's id, as `tidelake status` shows it.")
    ],
    reason: ReasonOption,
    config: ConfigOption = CONFIG,
    as_json: JsonOption = False,
) -> None:
    """Park a transaction whose END will not come: its events go to the quarantine, and ingest continues."""
    from tidelake.decisions import Park

    _decide(config, name, Park(transaction=transaction, reason=reason), as_json)


@app.command()
def withdraw(
    name: NameArgument,
    time: Annotated[
        int | None,
        typer.Option("--time", min=0, max=INT64_MAX, help="An unsealed time; all decisions about it are withdrawn."),
    ] = None,
    offsets: Annotated[
        str | None, typer.Option("--offsets", help="The offsets of an acknowledgement, exactly as they were given.")
    ] = None,
    config: ConfigOption = CONFIG,
    as_json: JsonOption = False,
) -> None:
    """Withdraw the decisions about an unsealed time, or about quarantined messages."""
    from tidelake.decisions import Offsets

    subject: int | Offsets
    if time is not None and offsets is None:
        subject = time
    elif offsets is not None and time is None:
        subject = Offsets.parse(offsets)
    else:
        raise OptionRefused("exactly one option must say what to withdraw", "give --time or --offsets")
    collection = open_lake(config).collection(name)
    collection.withdraw(subject)
    _print_result(collection, "withdrawn", as_json)


@app.command(name="list")
def list_decisions(name: NameArgument, config: ConfigOption = CONFIG, as_json: JsonOption = False) -> None:
    """Show the decisions in force, oldest first."""
    collection = open_lake(config, skip_invalid=True, read_only=True).collection(name)
    if as_json:
        _print_decisions(collection)
    else:
        rows = [_row_of(decision) for decision in collection.decisions]
        print_rows(f"{name}: decisions", ["decision", "about", "reason", "at"], rows)


@app.command(name=_BY_OPTIONS, hidden=True)
def by_options(
    context: typer.Context,
    name: NameArgument,
    reason: Annotated[str, typer.Option(help="The reason. Only --withdraw needs none.")] = "",
    time: Annotated[int | None, typer.Option(min=0, max=INT64_MAX, help="See `count`, `discard`, `withdraw`.")] = None,
    count: Annotated[int | None, typer.Option(min=0, max=INT64_MAX, help="See `count`.")] = None,
    discard: Annotated[str | None, typer.Option(help="See `discard`.")] = None,
    accept_gap: Annotated[str | None, typer.Option(help="See `gap`.")] = None,
    accept_topic: Annotated[str | None, typer.Option(help="See `topic`.")] = None,
    quarantined: Annotated[str | None, typer.Option(help="See `quarantine`.")] = None,
    withdraw: Annotated[bool, typer.Option("--withdraw", help="See `withdraw`.")] = False,
    config: ConfigOption = CONFIG,
    as_json: JsonOption = False,
) -> None:
    """Decide with options and no sub-command, as in earlier versions."""
    acknowledged = None if withdraw else quarantined
    values = {
        "count": ("--count", count),
        "discard": ("--statement", discard),
        "gap": ("--offsets", accept_gap),
        "topic": ("--topic", accept_topic),
        "quarantine": ("--offsets", acknowledged),
        "withdraw": ("--offsets", (quarantined or "") if withdraw else None),
    }
    chosen = [command for command, (_, value) in values.items() if value is not None]
    if len(chosen) != 1:
        raise OptionRefused(
            "exactly one option must say what to decide",
            "give one of --count, --discard, --accept-gap, --accept-topic, --quarantined, --withdraw",
        )
    (command,) = chosen
    if command in ("count", "discard") or (withdraw and quarantined is None):
        if time is None:
            raise OptionRefused("no time is given", "give --time T together with --count, --discard or --withdraw")
    elif time is not None:
        raise OptionRefused("a gap, a topic and a message have no time", "leave out --time")
    flag, value = values[command]
    words = [name, *([] if time is None else ["--time", str(time)]), *([flag, str(value)] if value != "" else [])]
    words += [] if withdraw else ["--reason", reason]
    say(f"note: each kind of decision is a sub-command now: {shlex.join(['tidelake', 'resolve', command, *words])}")
    words += ["--config", str(config), *(["--json"] if as_json else [])]
    assert context.parent is not None
    target = _sibling(context, command)
    with target.make_context(command, words, parent=context.parent) as inner:
        target.invoke(inner)


def _sibling(context: typer.Context, name: str) -> click.Command:
    """Return another sub-command of the same group."""
    assert context.parent is not None
    group = context.parent.command
    assert isinstance(group, TyperGroup)
    return group.commands[name]


def _decide(config: Path, name: str, decision: Decision, as_json: bool) -> None:
    from tidelake.decisions import time_of
    from tidelake.store.decision import Acknowledge

    collection = open_lake(config).collection(name)
    collection.decide(decision)
    time, upper = time_of(decision), collection.upper
    if time is not None and (upper is None or time < upper):
        _print_result(collection, "settled. The published contents stay as they are", as_json)
    elif isinstance(decision, Acknowledge):
        _print_result(collection, "acknowledged. Checks and reports no longer count these messages", as_json)
    else:
        _print_result(collection, "decided. The next ingest or seal applies it", as_json)


def _print_result(collection: LakeCollection, result: str, as_json: bool) -> None:
    if as_json:
        _print_decisions(collection)
    else:
        typer.echo(f"{collection.name}: {result}; the collection has {counted(len(collection.decisions), 'decision')}.")


def _print_decisions(collection: LakeCollection) -> None:
    from tidelake.store.decision import DecisionDocument

    documents = [DecisionDocument.of(decision).model_dump(exclude_none=True) for decision in collection.decisions]
    print_json({"name": collection.name, "decisions": documents})


def _row_of(decision: Decision) -> dict[str, Any]:
    """Return a decision as a row of the list."""
    from tidelake.store.decision import described

    kind, about = described(decision)
    at = iso_to_the_second(decision.at_ms)
    return {"decision": kind, "about": about, "reason": decision.reason, "at": at}
