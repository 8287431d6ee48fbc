"""`tidelake changes`: the consolidated updates of a range of times."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidelake import open_lake
from tidelake.cli.engine import chosen_engine, starting_spark
from tidelake.cli.options import (
    CONFIG,
    ROWS_SHOWN,
    ConfigOption,
    EngineOption,
    JsonOption,
    NameArgument,
    RowsOption,
    SkipErrorsOption,
    WhereOption,
)
from tidelake.cli.render import print_rows, say
from tidelake.cli.rows import names_in, rows_from, rows_of, spark_errors, with_bytes
from tidelake.cli.times import check_number, read_time, shown_time
from tidelake.protocol.iso_times import iso_of
from tidelake.read.words import counted

if TYPE_CHECKING:
    from tidelake.lake import LakeCollection


@dataclass(frozen=True)
class _Shown:
    """The changes as an engine has read them."""

    after: int | None
    through: int
    since: int
    upper: int
    closed: bool
    version: int
    files_read: int
    rows_read: int
    columns: list[str]
    rows: list[dict[str, Any]]
    total: int | None


def changes(
    name: NameArgument,
    after: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            callback=check_number,
            help="The last time before the range; by default, the updates begin with the contents AS OF since. For "
            "reclocked collections, also a timestamp such as 2026-11-23T10:00:00Z.",
        ),
    ] = None,
    through: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            callback=check_number,
            help="The last time of the range; by default the last sealed one. For reclocked collections, also "
            "a timestamp such as 2026-11-23T10:00:00Z.",
        ),
    ] = None,
    columns: Annotated[str | None, typer.Option(help="The columns to read, separated by commas.")] = None,
    where: WhereOption = None,
    limit: RowsOption = None,
    skip_errors: SkipErrorsOption = False,
    engine: EngineOption = None,
    config: ConfigOption = CONFIG,
    as_json: JsonOption = False,
) -> None:
    """Show what changed in a range of times: at `_time`, the multiplicity of a row changes by `_diff`."""
    from tidelake.protocol.json_values import to_text

    collection = open_lake(config, skip_invalid=True, read_only=True).collection(name)
    mints_times = collection.settings.mints_times
    first, last = (
        None if text is None else read_time(option, text, name, mints_times)
        for option, text in (("--after", after), ("--through", through))
    )
    kinds = {column.name: column.type for column in collection.columns}
    wanted = names_in(columns)
    rows_max = limit if limit is not None else (None if as_json else ROWS_SHOWN)
    read_with = _with_duckdb if chosen_engine(collection, engine) == "duckdb" else _with_spark
    found = read_with(collection, first, last, wanted, where, skip_errors, rows_max, counts=not as_json)
    rows, total = found.rows, found.total
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
    print_rows(f"{name}{begin} through {shown_time(found.through, mints_times)}", found.columns, shown)
    if total is not None and total > len(rows):
        say(f"{len(rows)} of {total} updates; --limit shows more")
    files, stored = counted(found.files_read, "file", "files"), counted(found.rows_read, "row", "rows")
    say(f"read from {files} with {stored}")


def _with_duckdb(
    collection: LakeCollection,
    after: int | None,
    through: int | None,
    columns: list[str],
    where: str | None,
    skip_errors: bool,
    rows_max: int | None,
    counts: bool,
) -> _Shown:
    found = collection.updates(after, through, columns, where, skip_errors)
    rows = rows_from(found.rows, collection.columns, rows_max)
    total = found.rows.count() if counts and rows_max is not None and len(rows) == rows_max else None
    bounds = (found.after, found.through, found.since, found.upper, found.closed, found.version)
    return _Shown(*bounds, found.files_read, found.rows_read, found.rows.columns, rows, total)


def _with_spark(
    collection: LakeCollection,
    after: int | None,
    through: int | None,
    columns: list[str],
    where: str | None,
    skip_errors: bool,
    rows_max: int | None,
    counts: bool,
) -> _Shown:
    from tidelake.store.layout import TIME

    session = starting_spark(collection, columns, lambda times: times.range(after, through))
    with spark_errors("changes", collection.name, where):
        found = collection.changes(session, after, through, columns, where, skip_errors)
        updates = found.updates.persist()
        try:
            names = [TIME, *(name for name in updates.columns if name != TIME)]
            rows = rows_of(updates.select(*(f"`{name}`" for name in names)), rows_max)
            total = updates.count() if counts and rows_max is not None else None
        finally:
            updates.unpersist()
    bounds = (found.after, found.through, found.since, found.upper, found.closed, found.version)
    return _Shown(*bounds, found.files_read, found.rows_read, names, rows, total)
