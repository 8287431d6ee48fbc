"""`tidelake view`: the contents AS OF the last sealed time as a view in the SQL of another engine."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from tidelake import open_lake
from tidelake.cli.options import CONFIG, ConfigOption, NameArgument


class Dialect(StrEnum):
    """The engines whose SQL is printed."""

    SPARK = "spark"
    DUCKDB = "duckdb"


def view(
    name: NameArgument,
    dialect: Annotated[Dialect, typer.Option(help="The engine that will run the statement.")] = Dialect.DUCKDB,
    config: ConfigOption = CONFIG,
) -> None:
    """Print a statement that creates a view of the newest contents in another engine. Does not start a JVM.

    The view reads the files of one version, so it always shows the same time. For a later time, print the statement
    again. A view for DuckDB can be read for at least a day, and one for Spark until the log forgets the version.
    """
    collection = open_lake(config, skip_invalid=True, read_only=True).collection(name)
    typer.echo(collection.view_sql("spark" if dialect is Dialect.SPARK else "duckdb"))
