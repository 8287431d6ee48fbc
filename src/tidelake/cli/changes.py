"""`tidelake changes`: the consolidated updates of a range of times."""

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
from tidelake.cli.render import print_rows, say
from tidelake.cli.rows import names_in, rows_of, spark_errors, with_bytes
from tidelake.cli.times import check_number, read_time, shown_time
from tidelake.protocol.iso_times import iso_of
from tidelake.read.words import counted


def changes(
    name: NameArgument,
    after: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            callback=check_number,
            help="The last time before the range; by default, the updates begin with the contents AS OF since. For "
            "reclocked collections, also 2026-11-23T10:00:00Z.",
        ),
    ] = None,
    through: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            callback=check_number,
            help="The last time of the range; by default the last one. For reclocked collections, also "
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
    """Show what changed in a range of times: at `_time`, the multiplicity of a row changes by `_diff`."""
    from tidelake.protocol.json_values import to_text
    from tidelake.spark.session import LOG, start_session
    from tidelake.store.layout import TIME

    collection = open_lake(config, skip_invalid=True, read_only=True).collection(name)
    mints_times = collection.settings.mints_times
    first, last = (
        None if text is None else read_time(option, text, name, mints_times)
        for option, text in (("--after", after), ("--through", through))
    )
    kinds = {column.name: column.type for column in collection.columns}
    wanted = names_in(columns)
    rows_max = limit if limit is not None else (None if as_json else ROWS_SHOWN)
    say(f"starting Spark, which logs to {LOG} …")
    session = start_session(jar_sets=collection.lake.settings.jar_sets)
    with spark_errors("changes", name, where):
        found = collection.changes(session, first, last, wanted, where, skip_errors)
        updates = found.updates.persist()
        try:
            rows = rows_of(updates.select(TIME, *(f"`{name}`" for name in updates.columns if name != TIME)), rows_max)
            total = updates.count() if rows_max is not None and not as_json else None
        finally:
            updates.unpersist()
    if as_json:
        about: dict[str, Any] = {
            "name": name,
            "after": found.after,
            "through": found.through,
            "since": found.since,
            "upper": None if found.closed else found.upper,
            "closed": found.closed,
            "version": found.version,
            "files_read": found.files_read,
            "rows_read": found.rows_read,
        }
        if mints_times:
            about["after_iso"] = None if found.after is None else iso_of(found.after)
            about["through_iso"] = iso_of(found.through)
        shown = [with_bytes(row, kinds, lambda text: {"b64": text}) for row in rows]
        typer.echo(to_text(about | {"updates": shown}))
        return
    shown = [with_bytes(row, kinds, base64.b64decode) for row in rows]
    begin = "" if found.after is None else f" after {shown_time(found.after, mints_times)}"
    names = [TIME, *(column for column in updates.columns if column != TIME)]
    print_rows(f"{name}{begin} through {shown_time(found.through, mints_times)}", names, shown)
    if total is not None and total > len(rows):
        say(f"{len(rows)} of {total} updates; --limit shows more")
    files, stored = counted(found.files_read, "file", "files"), counted(found.rows_read, "row", "rows")
    say(f"read from {files} with {stored}")
