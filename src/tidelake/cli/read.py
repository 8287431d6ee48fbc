"""`tidelake read`: the contents of a collection AS OF a time."""

from __future__ import annotations

import base64
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidelake import open_lake
from tidelake.cli.options import CONFIG, ROWS_SHOWN, ConfigOption, JsonOption, NameArgument
from tidelake.cli.progress import shows_progress, working
from tidelake.cli.render import print_rows, say
from tidelake.cli.times import check_number, read_time, with_iso
from tidelake.protocol.iso_times import iso_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tidelake.read.snapshot import Snapshot
    from tidelake.schema.columns import ColumnType

_ROWS_MAX = 2**31 - 1


def read(
    name: NameArgument,
    as_of: Annotated[
        str | None,
        typer.Option(
            "--as-of",
            metavar="TIME",
            callback=check_number,
            help="A time in [since, upper); by default the last one. For reclocked collections, also "
            "2026-11-23T10:00:00Z.",
        ),
    ] = None,
    columns: Annotated[str | None, typer.Option(help="The columns to read, separated by commas.")] = None,
    where: Annotated[str | None, typer.Option(help="A Spark SQL predicate on the data's columns only.")] = None,
    limit: Annotated[
        int | None,
        typer.Option(min=0, max=_ROWS_MAX, help="Maximum number of rows (by default 20, or all with --json)."),
    ] = None,
    skip_errors: Annotated[
        bool, typer.Option("--skip-errors", help="Leave out keys whose newest value could not be decoded.")
    ] = False,
    config: ConfigOption = CONFIG,
    as_json: JsonOption = False,
) -> None:
    """Show the contents of a collection AS OF a time; `_diff` is the multiplicity of a row."""
    from tidelake.protocol.json_values import to_text
    from tidelake.read.snapshot import describe_unknown
    from tidelake.spark.session import LOG, start_session

    collection = open_lake(config).collection(name)
    mints_times = collection.settings.mints_times
    at = None if as_of is None else read_time("--as-of", as_of, name, mints_times)
    kinds = {column.name: column.type for column in collection.columns}
    wanted = list(dict.fromkeys(filter(None, map(str.strip, columns.split(","))))) if columns else []
    rows_max = limit if limit is not None else (None if as_json else ROWS_SHOWN)
    if not shows_progress():
        say(f"starting Spark, which logs to {LOG} …")
    with working("starting Spark") as work, _spark_errors(name, where):
        session = start_session()
        work.show(f"{name}: reading")
        snapshot = collection.snapshot(session, at, wanted, where, skip_errors)
        rows = _rows_of(snapshot, rows_max)
        total = snapshot.contents.count() if rows_max is not None and not as_json else None
        lacking, named = describe_unknown(snapshot)
    about: dict[str, Any] = {
        "name": name,
        "as_of": snapshot.as_of,
        "since": snapshot.since,
        "upper": None if snapshot.closed else snapshot.upper,
    }
    if mints_times:
        about["as_of_iso"] = iso_of(snapshot.as_of)
    if as_json:
        shown = [_with_bytes(row, kinds, lambda text: {"b64": text}) for row in rows]
        typer.echo(to_text(about | {"closed": snapshot.closed, "version": snapshot.version, "rows": shown}))
    else:
        shown = [_with_bytes(row, kinds, base64.b64decode) for row in rows]
        shown_at = with_iso(snapshot.as_of) if mints_times else str(snapshot.as_of)
        print_rows(f"{name} AS OF {shown_at}", snapshot.contents.columns, shown)
        if total is not None and total > len(rows):
            say(f"{len(rows)} of {total} rows; --limit shows more")
    if lacking:
        rows_lack = "1 row lacks" if lacking == 1 else f"{lacking} rows lack"
        say(f"{rows_lack} values that were never stated; they are null here: {'; '.join(named)}")


@contextmanager
def _spark_errors(name: str, where: str | None) -> Iterator[None]:
    """Turn an error of Spark into an error of the predicate, or otherwise of the read."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    from tidelake.errors import PredicateRefused, StepFailed

    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        java = getattr(error, "java_exception", None)
        fact = str(error if java is None else java.toString()).split("\n", maxsplit=1)[0]
        state = (error.getSqlState() or "") if isinstance(error, PySparkException) else ""
        if where is not None and state.startswith(("22", "P0")):  # an error in the data, or `raise_error`
            raise PredicateRefused(
                where, f"fails: {fact}", "write a predicate that is true or false for every row"
            ) from error
        raise StepFailed("read", name, type(error).__name__, fact) from error


def _rows_of(snapshot: Snapshot, rows_max: int | None) -> list[dict[str, Any]]:
    """Return the rows in order, read as JSON from the JVM: Python has no year 10000, and `parse` keeps 38 digits."""
    from pyspark.sql import functions as F

    from tidelake.decode.landing import ROW_TEXT
    from tidelake.protocol.json_values import parse

    names = [f"`{name}`" for name in snapshot.contents.columns]
    rows = snapshot.contents.orderBy(*names)
    rows = rows if rows_max is None else rows.limit(rows_max)
    return [parse(row[0]) for row in rows.select(F.to_json(F.struct(*names), ROW_TEXT)).collect()]


def _with_bytes(row: dict[str, Any], kinds: dict[str, ColumnType], convert: Callable[[str], Any]) -> dict[str, Any]:
    """Return the same row with `convert(base64 text)` wherever a column, or a part of it, is bytes."""
    from tidelake.schema.columns import map_bytes

    return {name: map_bytes(kinds[name], value, convert) if name in kinds else value for name, value in row.items()}
