"""`tidelake read`: the contents of a collection AS OF a time."""

from __future__ import annotations

import base64
from typing import Annotated

import typer

from tidelake import open_lake
from tidelake.cli.options import CONFIG, ROWS_SHOWN, ConfigOption, JsonOption, NameArgument
from tidelake.cli.render import print_rows, say
from tidelake.cli.rows import ROWS_MAX, rows_of, spark_errors, with_bytes
from tidelake.protocol.order import INT64_MAX, INT64_MIN


def read(
    name: NameArgument,
    as_of: Annotated[
        int | None,
        typer.Option(
            "--as-of", min=INT64_MIN, max=INT64_MAX, help="A time in [since, upper); by default the last one."
        ),
    ] = None,
    columns: Annotated[str | None, typer.Option(help="The columns to read, separated by commas.")] = None,
    where: Annotated[str | None, typer.Option(help="A Spark SQL predicate on the data's columns only.")] = None,
    limit: Annotated[
        int | None,
        typer.Option(min=0, max=ROWS_MAX, help="Maximum number of rows (by default 20, or all with --json)."),
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
    kinds = {column.name: column.type for column in collection.columns}
    wanted = list(dict.fromkeys(filter(None, map(str.strip, columns.split(","))))) if columns else []
    rows_max = limit if limit is not None else (None if as_json else ROWS_SHOWN)
    say(f"starting Spark, which logs to {LOG} …")
    session = start_session()
    with spark_errors("read", name, where):
        snapshot = collection.snapshot(session, as_of, wanted, where, skip_errors)
        rows = rows_of(snapshot.contents, rows_max)
        total = snapshot.contents.count() if rows_max is not None and not as_json else None
        lacking, named = describe_unknown(snapshot)
    about = {
        "name": name,
        "as_of": snapshot.as_of,
        "since": snapshot.since,
        "upper": None if snapshot.closed else snapshot.upper,
    }
    if as_json:
        shown = [with_bytes(row, kinds, lambda text: {"b64": text}) for row in rows]
        typer.echo(to_text(about | {"closed": snapshot.closed, "version": snapshot.version, "rows": shown}))
    else:
        shown = [with_bytes(row, kinds, base64.b64decode) for row in rows]
        print_rows(f"{name} AS OF {snapshot.as_of}", snapshot.contents.columns, shown)
        if total is not None and total > len(rows):
            say(f"{len(rows)} of {total} rows; --limit shows more")
    if lacking:
        rows_lack = "1 row lacks" if lacking == 1 else f"{lacking} rows lack"
        say(f"{rows_lack} values that were never stated; they are null here: {'; '.join(named)}")
