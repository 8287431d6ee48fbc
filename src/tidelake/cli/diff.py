"""`tidelake diff`: the difference between the contents of a collection AS OF two times."""

from __future__ import annotations

import base64
from typing import Annotated, Any

import click
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
from tidelake.cli.render import print_rows, say
from tidelake.cli.rows import names_in, rows_of, spark_errors, with_bytes
from tidelake.protocol.order import INT64_MAX, INT64_MIN


class TimeType(click.ParamType[int]):
    """A time, as `--from` and `--to` accept it: an int64."""

    name = "integer"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the time; any other value is an error of the command line."""
        return int(click.IntRange(INT64_MIN, INT64_MAX).convert(value, param, ctx))


def diff(
    name: NameArgument,
    first: Annotated[
        int, typer.Option("--from", metavar="TIME", click_type=TimeType(), help="A time in [since, upper).")
    ],
    last: Annotated[int, typer.Option("--to", metavar="TIME", click_type=TimeType(), help="A time in [since, upper).")],
    columns: Annotated[str | None, typer.Option(help="The columns to compare, separated by commas.")] = None,
    where: WhereOption = None,
    limit: RowsOption = None,
    skip_errors: SkipErrorsOption = False,
    config: ConfigOption = CONFIG,
    as_json: JsonOption = False,
) -> None:
    """Show how the contents differ between two times: how many more of a row there are at the second one."""
    from tidelake.protocol.json_values import to_text
    from tidelake.read.diff import count_keys
    from tidelake.spark.session import LOG, start_session

    collection = open_lake(config).collection(name)
    kinds = {column.name: column.type for column in collection.columns}
    wanted = names_in(columns)
    rows_max = limit if limit is not None else (None if as_json else ROWS_SHOWN)
    say(f"starting Spark, which logs to {LOG} …")
    session = start_session(jar_sets=collection.lake.settings.jar_sets)
    with spark_errors("diff", name, where):
        difference = collection.diff(session, first, last, wanted, where, skip_errors)
        found = difference.rows.persist()
        try:
            rows, keys = rows_of(found, rows_max), count_keys(difference)
            total = found.count() if rows_max is not None and not as_json else None
        finally:
            found.unpersist()
    if as_json:
        about = {
            "name": name,
            "from": first,
            "to": last,
            "since": difference.since,
            "upper": None if difference.closed else difference.upper,
            "closed": difference.closed,
            "version": difference.version,
            "keys": None if keys is None else {"set": keys.set, "changed": keys.changed, "deleted": keys.deleted},
        }
        shown = [with_bytes(row, kinds, lambda text: {"b64": text}) for row in rows]
        typer.echo(to_text(about | {"rows": shown}))
        return
    shown = [with_bytes(row, kinds, base64.b64decode) for row in rows]
    print_rows(f"{name} from {first} to {last}", difference.rows.columns, shown)
    if total is not None and total > len(rows):
        say(f"{len(rows)} of {total} rows; --limit shows more")
    if keys is not None:
        say(f"keys: {keys.set:,} set, {keys.changed:,} changed, {keys.deleted:,} deleted")
