"""`tidelake read`: the contents of a collection AS OF a time."""

from __future__ import annotations

import base64
from typing import Annotated, Any

import typer

from tidelake import open_lake
from tidelake.cli.options import (
    CONFIG,
    ROWS_SHOWN,
    ConfigOption,
    JsonOption,
    NameArgument,
    RowsOption,
    SkipErrorsOption,
    WhereOption,
)
from tidelake.cli.progress import shows_progress, working
from tidelake.cli.render import print_rows, say
from tidelake.cli.rows import names_in, rows_of, spark_errors, with_bytes
from tidelake.cli.times import check_number, read_time, shown_time
from tidelake.protocol.iso_times import iso_of
from tidelake.read.words import counted


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
    where: WhereOption = None,
    limit: RowsOption = None,
    skip_errors: SkipErrorsOption = False,
    config: ConfigOption = CONFIG,
    as_json: JsonOption = False,
) -> None:
    """Show the contents of a collection AS OF a time; `_diff` is the multiplicity of a row."""
    from tidelake.protocol.json_values import to_text
    from tidelake.read.snapshot import describe_unknown
    from tidelake.spark.session import LOG, start_session

    collection = open_lake(config, skip_invalid=True, read_only=True).collection(name)
    mints_times = collection.settings.mints_times
    at = None if as_of is None else read_time("--as-of", as_of, name, mints_times)
    kinds = {column.name: column.type for column in collection.columns}
    wanted = names_in(columns)
    rows_max = limit if limit is not None else (None if as_json else ROWS_SHOWN)
    if not shows_progress():
        say(f"starting Spark, which logs to {LOG} …")
    with working("starting Spark") as work, spark_errors("read", name, where):
        session = start_session(jar_sets=collection.lake.settings.jar_sets)
        work.show(f"{name}: reading")
        snapshot = collection.snapshot(session, at, wanted, where, skip_errors)
        rows = rows_of(snapshot.contents, rows_max)
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
        shown = [with_bytes(row, kinds, lambda text: {"b64": text}) for row in rows]
        typer.echo(to_text(about | {"closed": snapshot.closed, "version": snapshot.version, "rows": shown}))
    else:
        shown = [with_bytes(row, kinds, base64.b64decode) for row in rows]
        print_rows(f"{name} AS OF {shown_time(snapshot.as_of, mints_times)}", snapshot.contents.columns, shown)
        if total is not None and total > len(rows):
            say(f"{len(rows)} of {total} rows; --limit shows more")
    if lacking:
        rows_lack = counted(lacking, "row lacks", "rows lack")
        say(f"{rows_lack} values that were never stated; they are null here: {'; '.join(named)}")
