"""`tidelake sql`: a query over several collections at one time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from tidelake import open_lake
from tidelake.cli.engine import start_spark
from tidelake.cli.options import CONFIG, ROWS_SHOWN, ConfigOption, JsonOption, RowsOption, SkipErrorsOption
from tidelake.cli.progress import working
from tidelake.cli.render import print_rows, say, with_base64
from tidelake.cli.rows import spark_errors
from tidelake.cli.times import check_number, read_time, seconds_of, shown_time

if TYPE_CHECKING:
    import pyarrow as pa

    from tidelake.lake import Lake
    from tidelake.query.spark_sql import SparkAnswer
    from tidelake.query.sql import QueryAnswer


@dataclass(frozen=True)
class _Shown:
    """The answer of an engine, the rows to show, and the number of all rows of the answer."""

    answer: QueryAnswer | SparkAnswer
    rows: pa.Table
    total: int


def sql(
    query: Annotated[
        str, typer.Argument(metavar="QUERY", help="A SELECT over collections, in the dialect of the engine.")
    ],
    as_of: Annotated[
        str | None,
        typer.Option(
            "--as-of",
            metavar="TIME",
            callback=check_number,
            help="A time that all of the collections have; by default the latest. For reclocked collections, also "
            "a timestamp such as 2026-11-23T10:00:00Z.",
        ),
    ] = None,
    not_before: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            callback=check_number,
            help="A time that was read before: fail if the chosen time would be earlier.",
        ),
    ] = None,
    wait: Annotated[
        str | None,
        typer.Option(
            help="How long to wait for a collection that lags: a duration such as 30s; by default, not at all."
        ),
    ] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Also say why this time was chosen.")] = False,
    engine: Annotated[
        Literal["duckdb", "spark"],
        typer.Option(
            help="The engine, which defines the dialect: `duckdb` starts at once, `spark` reads tables of any size."
        ),
    ] = "duckdb",
    limit: RowsOption = None,
    skip_errors: SkipErrorsOption = False,
    config: ConfigOption = CONFIG,
    as_json: JsonOption = False,
) -> None:
    """Run SQL over collections of one timeline, all AS OF one time, which the output states.

    A collection without a key has a column `_diff`: how often a row occurs.
    """
    from tidelake.protocol.json_values import to_text
    from tidelake.query.values import query_rows

    lake = open_lake(config, skip_invalid=True, read_only=True)
    mints_times = any(collection.settings.mints_times for collection in lake.collections())
    asked, earliest = (
        None if text is None else read_time(option, text, None, mints_times)
        for option, text in (("--as-of", as_of), ("--not-before", not_before))
    )
    from tidelake.store.holds import LEASE_MS_MAX  # imported late: this import takes as long as the rest of the command

    wait_s = 0.0 if wait is None else seconds_of("--wait", wait, max_s=LEASE_MS_MAX / 1000)
    at: dict[str, Any] = {
        "as_of": "latest" if asked is None else asked,
        "not_before": earliest,
        "wait_s": wait_s,
        "skip_errors": skip_errors,
    }
    rows_max = limit if limit is not None else (None if as_json else ROWS_SHOWN)
    shown = (_with_spark if engine == "spark" else _with_duckdb)(lake, query, at, rows_max)
    answer, total = shown.answer, shown.total
    rows = query_rows(shown.rows)
    mints = any(lake.collection(name).settings.mints_times for name in answer.collections)
    if as_json:
        about = {
            "as_of": answer.time,
            "timeline": answer.timeline,
            "collections": list(answer.collections),
            "facts": list(answer.facts),
            "columns": shown.rows.column_names,
            "rows": [{name: with_base64(value) for name, value in row.items()} for row in rows],
        }
        typer.echo(to_text(about))
        return
    title = "" if answer.time is None else f"AS OF {shown_time(answer.time, mints)}"
    print_rows(title, shown.rows.column_names, rows)
    if total > len(rows):
        say(f"{len(rows)} of {total} rows; --limit shows more")
    if explain:
        for fact in answer.facts:
            say(fact)


def _with_duckdb(lake: Lake, query: str, at: dict[str, Any], rows_max: int | None) -> _Shown:
    answer = lake.query(query, **at)
    return _Shown(answer, answer.table.slice(0, rows_max), answer.table.num_rows)


def _with_spark(lake: Lake, query: str, at: dict[str, Any], rows_max: int | None) -> _Shown:
    from tidelake.query.spark_sql import failures

    with working("starting Spark") as work, spark_errors("sql", "the query", None), failures(query):
        spark = start_spark(lake.settings)
        work.show("reading")
        answer = lake.sql(spark, query, **at)
        frame = answer.frame
        rows = (frame if rows_max is None else frame.limit(rows_max)).toArrow()
        total = frame.count() if rows.num_rows == rows_max else rows.num_rows
    return _Shown(answer, rows, total)
