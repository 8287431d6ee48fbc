"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from tidelake.cli.names import complete_name

CONFIG = Path("collections.yaml")
ConfigOption = Annotated[
    Path,
    typer.Option(
        "--config", envvar="TIDELAKE_CONFIG", help="The collections.yaml that names the store and the topics."
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON on standard output, for programs.")]
NameArgument = Annotated[
    str, typer.Argument(metavar="NAME", help="The collection's name.", autocompletion=complete_name)
]
StoredNameArgument = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="The collection's name in the store; the settings do not have to name it.",
        autocompletion=complete_name,
    ),
]
NamesArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="[NAME]...", help="Only these collections.", autocompletion=complete_name),
]
ROWS_SHOWN = 20
"""Number of rows that a list shows unless `--limit` says otherwise."""
ROWS_MAX = 2**31 - 1
"""The greatest limit that Spark accepts."""
WhereOption = Annotated[
    str | None,
    typer.Option(help="A condition on the data's columns only, in the SQL of the engine: DuckDB's, or Spark's."),
]
EngineOption = Annotated[
    Literal["duckdb", "spark"] | None,
    typer.Option(
        help="The engine: `duckdb` starts at once, `spark` reads tables of any size. By default DuckDB, unless the "
        "collection has more than 8 GiB of files, or an envelope from another package.",
    ),
]
RowsOption = Annotated[
    int | None, typer.Option(min=0, max=ROWS_MAX, help="Maximum number of rows (by default 20, or all with --json).")
]
SkipErrorsOption = Annotated[
    bool, typer.Option("--skip-errors", help="Leave out keys whose newest value cannot be used.")
]
