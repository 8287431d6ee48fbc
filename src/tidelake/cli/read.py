"""`tidelake read`: the contents of a collection AS OF a time."""

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
from tidelake.cli.progress import working
from tidelake.cli.render import print_rows, say
from tidelake.cli.rows import names_in, rows_from, rows_of, spark_errors, with_bytes
from tidelake.cli.times import check_number, read_time, shown_time
from tidelake.protocol.iso_times import iso_of
from tidelake.read.words import counted

if TYPE_CHECKING:
    from tidelake.lake import LakeCollection


@dataclass(frozen=True)
class _Shown:
    """The contents as an engine has read them."""

    as_of: int
    since: int
    upper: int
    closed: bool
    version: int
    columns: list[str]
    rows: list[dict[str, Any]]
    total: int | None
    lacking: int
    named: list[str]


def read(
    name: NameArgument,
    as_of: Annotated[
        str | None,
        typer.Option(
            "--as-of",
            metavar="TIME",
            callback=check_number,
            help="A time in [since, upper); by default the last one. For reclocked collections, also "
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
    """Show the contents of a collection AS OF a time; `_diff` is the multiplicity of a row."""
    from tidelake.protocol.json_values import to_text

    collection = open_lake(config, skip_invalid=True, read_only=True).collection(name)
    mints_times = collection.settings.mints_times
    at = None if as_of is None else read_time("--as-of", as_of, name, mints_times)
    wanted = names_in(columns)
    rows_max = limit if limit is not None else (None if as_json else ROWS_SHOWN)
    kinds = {column.name: column.type for column in collection.columns}
    read_with = _with_duckdb if chosen_engine(collection, engine) == "duckdb" else _with_spark
    snapshot = read_with(collection, at, wanted, where, skip_errors, rows_max, counts=not as_json)
    rows, total, lacking, named = snapshot.rows, snapshot.total, snapshot.lacking, snapshot.named
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
        print_rows(f"{name} AS OF {shown_time(snapshot.as_of, mints_times)}", snapshot.columns, shown)
        if total is not None and total > len(rows):
            say(f"{len(rows)} of {total} rows; --limit shows more")
    if lacking:
        rows_have = counted(lacking, "row has", "rows have")
        say(f"{rows_have} columns whose values the source never stated, shown as null: {'; '.join(named)}")


def _with_duckdb(
    collection: LakeCollection,
    at: int | None,
    columns: list[str],
    where: str | None,
    skip_errors: bool,
    rows_max: int | None,
    counts: bool,
) -> _Shown:
    found = collection.rows(at, columns, where, skip_errors)
    rows = rows_from(found.rows, collection.columns, rows_max)
    total = found.rows.count() if counts and rows_max is not None and len(rows) == rows_max else None
    bounds = (found.as_of, found.since, found.upper, found.closed, found.version)
    return _Shown(*bounds, found.rows.columns, rows, total, found.lacking, list(found.lacking_named))


def _with_spark(
    collection: LakeCollection,
    at: int | None,
    columns: list[str],
    where: str | None,
    skip_errors: bool,
    rows_max: int | None,
    counts: bool,
) -> _Shown:
    from tidelake.read.snapshot import describe_unknown

    with working("starting Spark") as work, spark_errors("read", collection.name, where):
        session = starting_spark(collection, columns, lambda times: times.time(at))
        work.show(f"{collection.name}: reading")
        found = collection.snapshot(session, at, columns, where, skip_errors)
        rows = rows_of(found.contents, rows_max)
        total = found.contents.count() if counts and rows_max is not None else None
        lacking, named = describe_unknown(found)
    bounds = (found.as_of, found.since, found.upper, found.closed, found.version)
    return _Shown(*bounds, found.contents.columns, rows, total, lacking, named)
