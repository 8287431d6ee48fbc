"""`tidelake compare`: whether two collections, perhaps of two lakes, are equal AS OF a time."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Annotated

import typer

from tidelake import open_lake
from tidelake.cli.failure import report
from tidelake.cli.options import ROWS_SHOWN, JsonOption, RowsOption, SkipErrorsOption
from tidelake.cli.render import print_rows, printable, say
from tidelake.cli.rows import rows_of, spark_errors, with_bytes
from tidelake.cli.times import check_number, read_time, shown_time
from tidelake.read.words import counted
from tidelake.spark.interrupt import is_interrupted

_DIFFERENT = 1
_FAILED = 2


def compare(
    lake: Annotated[Path, typer.Argument(metavar="LAKE", help="The collections.yaml of the first lake.")],
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of the first collection.")],
    other_lake: Annotated[Path, typer.Argument(metavar="OTHER_LAKE", help="The collections.yaml of the second lake.")],
    other_name: Annotated[str, typer.Argument(metavar="OTHER_NAME", help="The name of the second collection.")],
    as_of: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            callback=check_number,
            help="A time that both collections have; by default the latest. For reclocked collections, also "
            "a timestamp such as 2026-11-23T10:00:00Z.",
        ),
    ] = None,
    limit: RowsOption = None,
    skip_errors: SkipErrorsOption = False,
    as_json: JsonOption = False,
) -> None:
    """Compare the contents and the columns of two collections AS OF one time.

    The exit status is 0 if they are equal, 1 if they differ, and 2 if they could not be compared.
    """
    try:
        are_equal = _compare((lake, name), (other_lake, other_name), as_of, limit, skip_errors, as_json)
    except BrokenPipeError as error:  # nobody reads the result; Typer would exit with 1
        raise typer.Exit(_FAILED) from error
    except Exception as error:
        if is_interrupted():
            raise
        report(error)
        raise typer.Exit(_FAILED) from error
    if not are_equal:
        raise typer.Exit(_DIFFERENT)


def _compare(
    one: tuple[Path, str],
    other: tuple[Path, str],
    as_of: str | None,
    limit: int | None,
    skip_errors: bool,
    as_json: bool,
) -> bool:
    """Print the comparison; return whether the collections are equal."""
    from tidelake.protocol.json_values import to_text
    from tidelake.read.asked import readable
    from tidelake.read.compare import common_time, count
    from tidelake.read.compare import compare as compare_collections
    from tidelake.spark.session import LOG, start_session
    from tidelake.store.commit import OpenTable

    lakes = [open_lake(file, skip_invalid=True, read_only=True) for file, _ in (one, other)]
    first, second = (lake.collection(name) for lake, (_, name) in zip(lakes, (one, other), strict=True))
    mints_times = first.settings.mints_times
    time = None if as_of is None else read_time("--as-of", as_of, first.name, mints_times)
    stored = first.lake.catalog.find(first.name), second.lake.catalog.find(second.name)
    for each in stored:
        readable(each, OpenTable(each.paths.updates)).time(common_time(*stored) if time is None else time)
    say(f"starting Spark, which logs to {LOG} …")
    jar_sets = tuple(dict.fromkeys((*lakes[0].settings.jar_sets, *lakes[1].settings.jar_sets)))
    session = start_session(jar_sets=jar_sets)
    rows_max = limit if limit is not None else ROWS_SHOWN
    with spark_errors("compare", first.name, None):
        found = compare_collections(session, *stored, time, skip_errors)
        rows, counts, names = [], None, []
        if found.rows is not None:
            differing, names = found.rows.persist(), found.rows.columns
            try:
                counts = count(found, differing)
                rows = [] if counts.are_equal else rows_of(differing, rows_max)
            finally:
                differing.unpersist()
    are_equal = counts is not None and counts.are_equal
    kinds = {column.name: column.type for column in first.columns}
    if as_json:
        about = {"equal": are_equal, "as_of": found.as_of, "columns": list(found.columns)}
        numbers = None if counts is None else vars(counts)
        shown = [with_bytes(row, kinds, lambda text: {"b64": text}) for row in rows]
        typer.echo(to_text(about | {"rows": numbers, "differences": shown}))
        return are_equal
    at = f"AS OF {shown_time(found.as_of, mints_times)}"
    for problem in found.columns:
        typer.echo(printable(problem))
    if rows:
        shown = [with_bytes(row, kinds, base64.b64decode) for row in rows]
        print_rows(f"{first.name} minus {second.name}, {at}", names, shown)
    if counts is None:
        typer.echo(f"different: the columns differ, so the rows were not compared ({at})")
    elif counts.are_equal:
        typer.echo(f"equal: {counted(counts.first, 'row')}, {at}")
    else:
        typer.echo(
            f"different: {counted(counts.first, 'row')} and {counted(counts.second, 'row')}; only in the first: "
            f"{counts.only_first:,}; only in the second: {counts.only_second:,}, {at}"
        )
    return are_equal
