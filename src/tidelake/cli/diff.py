"""`tidelake diff`: the difference between the contents of a collection AS OF two times."""

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

if TYPE_CHECKING:
    from tidelake.lake import LakeCollection
    from tidelake.query.contents import KeyCounts
    from tidelake.read.diff import KeyChanges

TIME_HELP = "A time in [since, upper). For reclocked collections, also a timestamp such as 2026-11-23T10:00:00Z."


@dataclass(frozen=True)
class _Shown:
    """The difference as an engine has read it."""

    since: int
    upper: int
    closed: bool
    version: int
    columns: list[str]
    rows: list[dict[str, Any]]
    total: int | None
    keys: KeyChanges | KeyCounts | None


def diff(
    name: NameArgument,
    start: Annotated[str, typer.Option("--from", metavar="TIME", callback=check_number, help=TIME_HELP)],
    end: Annotated[str, typer.Option("--to", metavar="TIME", callback=check_number, help=TIME_HELP)],
    columns: Annotated[str | None, typer.Option(help="The columns to compare, separated by commas.")] = None,
    where: WhereOption = None,
    limit: RowsOption = None,
    skip_errors: SkipErrorsOption = False,
    engine: EngineOption = None,
    config: ConfigOption = CONFIG,
    as_json: JsonOption = False,
) -> None:
    """Show how the contents differ between two times: `_diff` is the change in the number of equal rows."""
    from tidelake.protocol.json_values import to_text

    collection = open_lake(config, skip_invalid=True, read_only=True).collection(name)
    mints_times = collection.settings.mints_times
    first, last = (read_time(option, text, name, mints_times) for option, text in (("--from", start), ("--to", end)))
    kinds = {column.name: column.type for column in collection.columns}
    wanted = names_in(columns)
    rows_max = limit if limit is not None else (None if as_json else ROWS_SHOWN)
    read_with = _with_duckdb if chosen_engine(collection, engine) == "duckdb" else _with_spark
    difference = read_with(collection, first, last, wanted, where, skip_errors, rows_max, counts=not as_json)
    rows, keys, total = difference.rows, difference.keys, difference.total
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
        if mints_times:
            about |= {"from_iso": iso_of(first), "to_iso": iso_of(last)}
        shown = [with_bytes(row, kinds, lambda text: {"b64": text}) for row in rows]
        typer.echo(to_text(about | {"rows": shown}))
        return
    shown = [with_bytes(row, kinds, base64.b64decode) for row in rows]
    shown_from, shown_to = (shown_time(time, mints_times) for time in (first, last))
    print_rows(f"{name} from {shown_from} to {shown_to}", difference.columns, shown)
    if total is not None and total > len(rows):
        say(f"{len(rows)} of {total} rows; --limit shows more")
    if keys is not None:
        say(f"keys: {keys.set:,} set, {keys.changed:,} changed, {keys.deleted:,} deleted")


def _with_duckdb(
    collection: LakeCollection,
    first: int,
    last: int,
    columns: list[str],
    where: str | None,
    skip_errors: bool,
    rows_max: int | None,
    counts: bool,
) -> _Shown:
    found = collection.rows_between(first, last, columns, where, skip_errors)
    rows = rows_from(found.rows, collection.columns, rows_max)
    total = found.rows.count() if counts and rows_max is not None and len(rows) == rows_max else None
    return _Shown(found.since, found.upper, found.closed, found.version, found.rows.columns, rows, total, found.keys)


def _with_spark(
    collection: LakeCollection,
    first: int,
    last: int,
    columns: list[str],
    where: str | None,
    skip_errors: bool,
    rows_max: int | None,
    counts: bool,
) -> _Shown:
    from tidelake.read.diff import count_keys

    session = starting_spark(collection, columns, lambda times: (times.time(first), times.time(last)))
    with spark_errors("diff", collection.name, where):
        found = collection.diff(session, first, last, columns, where, skip_errors)
        changed = found.rows.persist()
        try:
            rows, keys = rows_of(changed, rows_max), count_keys(found)
            total = changed.count() if counts and rows_max is not None else None
        finally:
            changed.unpersist()
    return _Shown(found.since, found.upper, found.closed, found.version, changed.columns, rows, total, keys)
