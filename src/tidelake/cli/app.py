"""The command line: its commands, and how their errors are reported."""

from __future__ import annotations

import sys

import typer

from tidelake.cli.fence import fence
from tidelake.cli.generate import add_generate
from tidelake.cli.lists import late, quarantine, times
from tidelake.cli.path import path
from tidelake.cli.read import read
from tidelake.cli.replay import replay
from tidelake.cli.resolve import app as resolve_app
from tidelake.cli.status import status
from tidelake.cli.topic import app as topic_app
from tidelake.cli.verify import repair, verify
from tidelake.errors import CapabilityError, CommitError, DamagedTable, TidelakeError
from tidelake.spark.jar_error import JarError

app = typer.Typer(
    name="tidelake",
    help="Change-data topics become definite Delta tables: exact AS OF every time in [since, upper).",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

for _command in (status, read, path, quarantine, times, late, fence, verify, repair):
    app.command()(_command)
add_generate(app)
app.command()(replay)
app.add_typer(resolve_app)
app.add_typer(topic_app)


def main() -> None:
    """Run the command line. A known error prints its text on standard error, without a traceback."""
    try:
        app()
    except (CommitError, CapabilityError, DamagedTable) as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(1)
    except (TidelakeError, JarError) as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(2)
    except BrokenPipeError:  # the reader of our output has closed it, as `head` does
        sys.stderr.close()
        sys.exit(0)
    except OSError as error:
        typer.echo(f"error: {error}\nhint: check that the file exists and can be read and written", err=True)
        sys.exit(1)
