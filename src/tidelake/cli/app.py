"""The command line: its commands, and how their errors are reported."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from copy import copy
from typing import Annotated, Any

import typer

from tidelake import __version__
from tidelake.cli import jobs
from tidelake.cli.at import at
from tidelake.cli.changes import changes
from tidelake.cli.compare import compare
from tidelake.cli.debug import debug
from tidelake.cli.diff import diff
from tidelake.cli.doctor import doctor
from tidelake.cli.errors import errors
from tidelake.cli.explain import explain
from tidelake.cli.failure import report
from tidelake.cli.fence import fence
from tidelake.cli.generate import add_generate
from tidelake.cli.history import history
from tidelake.cli.holds import hold, holds, release
from tidelake.cli.init import init
from tidelake.cli.life import drop, gc, rename
from tidelake.cli.lists import late, quarantine, times
from tidelake.cli.metrics import metrics
from tidelake.cli.path import path
from tidelake.cli.publish import publish
from tidelake.cli.read import read
from tidelake.cli.replay import replay
from tidelake.cli.resolve import app as resolve_app
from tidelake.cli.sql import sql
from tidelake.cli.status import status
from tidelake.cli.subscribe import subscribe
from tidelake.cli.topic import app as topic_app
from tidelake.cli.trace import trace
from tidelake.cli.upgrade import upgrade
from tidelake.cli.verify import repair, verify
from tidelake.cli.view import view
from tidelake.spark.interrupt import interruptible, is_interrupted

app = typer.Typer(
    name="tidelake",
    help="Change-data topics become definite Delta tables: exact AS OF every time in [since, upper).",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    suggest_commands=False,  # click itself suggests the nearest command
)


def _print_version(requested: bool) -> None:
    if requested:
        typer.echo(f"tidelake {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version and exit.")
    ] = False,
    with_tracebacks: Annotated[
        bool, typer.Option("--debug", envvar="TIDELAKE_DEBUG", help="Show errors with tracebacks.")
    ] = False,
) -> None:
    """Apply the options that come before the command."""
    debug(with_tracebacks)


for _job in (jobs.run, jobs.ingest, jobs.seal, jobs.validate, jobs.compact, jobs.current):
    app.command()(_job)
for _command in (
    status, explain, trace, history, path, view, read, sql, at, diff, compare, changes, subscribe, publish, quarantine,
    times, late, hold, holds, release, fence, verify, repair, upgrade, rename, drop, gc, doctor, init, metrics, errors,
):  # fmt: skip
    app.command()(_command)
add_generate(app)
app.command()(replay)
app.add_typer(resolve_app)
app.add_typer(topic_app)


def main() -> None:
    """Run the command line. An error is printed on standard error, without a traceback unless `--debug` is given.

    The exit status is 1 or 2 after an error, as the reference says, and 130 after Ctrl-C.
    """
    with interruptible():
        try:
            _app_for(sys.argv[1:])()
        except BrokenPipeError:  # the reader of our output closed the pipe, as `head` does
            sys.stderr.close()
            sys.exit(0)
        except Exception as error:
            if is_interrupted():
                raise KeyboardInterrupt from error
            sys.exit(report(error))


def _app_for(arguments: Sequence[str]) -> typer.Typer:
    """Return the application with only the command that the arguments name; the whole application if they name none.

    Typer inspects the options of each command that it has, which takes as long as a small command itself.
    """
    name = next((argument for argument in arguments if not argument.startswith("-")), None)
    commands = [each for each in app.registered_commands if name == (each.name or _name_of(each.callback))]
    groups = [each for each in app.registered_groups if name == (each.typer_instance or app).info.name]
    if len(commands) + len(groups) != 1:
        return app
    chosen = copy(app)
    chosen.registered_commands, chosen.registered_groups = commands, groups
    return chosen


def _name_of(function: Callable[..., Any] | None) -> str:
    return "" if function is None else function.__name__.replace("_", "-")
