"""How the command line reports that a command has failed."""

from __future__ import annotations

import typer

from tidelake.cli.debug import is_debugging
from tidelake.cli.render import printable
from tidelake.errors import TidelakeError
from tidelake.spark.jar_error import JarError

_UNKNOWN = "this is a bug in Tidelake or in a library; `tidelake --debug …` shows where it happens"


def report(error: Exception) -> int:
    """Print an error, and return the exit status."""
    if is_debugging():
        import traceback

        traceback.print_exception(error)
    match error:
        case TidelakeError() | JarError():
            from tidelake.runbook.page import EXIT_ONE, with_reference

            text, status = with_reference(error), 1 if isinstance(error, EXIT_ONE) else 2
        case OSError():
            text, status = f"{error}\nhint: check that the file exists and can be read and written", 1
        case _:
            from tidelake.spark.engine_errors import engine_fact

            text, status = f"{type(error).__name__}: {engine_fact(error)}\nhint: {_UNKNOWN}", 1
    typer.echo(f"error: {printable(text)}", err=True)
    return status
