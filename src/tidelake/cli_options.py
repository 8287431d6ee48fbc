"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

CONFIG = Path("collections.yaml")
ConfigOption = Annotated[
    Path, typer.Option("--config", envvar="TIDELAKE_CONFIG", help="The collections.yaml that names store and topics.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON on standard output, for programs.")]
