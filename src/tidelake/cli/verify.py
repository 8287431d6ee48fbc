"""`tidelake verify` and `tidelake repair`: whether the files still match what was committed."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from tidelake import open_lake
from tidelake.cli.options import CONFIG, ConfigOption, JsonOption, NameArgument
from tidelake.cli.progress import shows_progress, working
from tidelake.cli.render import print_json, print_rows, say
from tidelake.read.words import counted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidelake.integrity.verification import Damage, Verification
    from tidelake.lake import LakeCollection
    from tidelake.settings.lake import Settings

_COLUMNS = ["table", "file", "problem", "lost", "remedy"]


def verify(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="The collection; by default, all collections.")
    ] = None,
    deep: Annotated[bool, typer.Option("--deep", help="Read every page of every file as well.")] = False,
    config: ConfigOption = CONFIG,
    as_json: JsonOption = False,
) -> None:
    """Verify that log entries and files match what was committed. The exit status is 1 if not. Does not start a JVM.

    If the settings of a collection are invalid, it is not verified, and the exit status is 1; all others are verified.
    """
    lake = open_lake(config, skip_invalid=True, read_only=True)
    chosen = [lake.collection(name)] if name is not None else lake.collections()
    results = {}
    with working("verifying", len(chosen)) as work:
        for number, collection in enumerate(chosen):
            work.show(f"{collection.name}: verifying", number)
            if _is_ingested(collection):
                results[collection.name] = collection.verify(deep)
    refused = lake.refused if name is None else {}
    if as_json:
        verified = {name: asdict(result) for name, result in results.items()}
        print_json(verified | {name: {"error": str(error)} for name, error in refused.items()})
    else:
        for ingested, result in results.items():
            _show(ingested, result)
        for invalid, error in refused.items():
            say(f"error: {invalid}: {error}")
    if refused or any(result.damages for result in results.values()):
        raise typer.Exit(1)


def repair(
    name: NameArgument,
    apply: Annotated[
        bool, typer.Option("--apply", help="Restore what can be restored; without this option, only show the damage.")
    ] = False,
    accept_newest_entry: Annotated[
        bool,
        typer.Option(
            "--accept-newest-entry",
            help="With --apply, also write markers for a log that has lost all of its markers. Its newest entry is "
            "trusted: if later commits were lost, nothing can show that.",
        ),
    ] = False,
    config: ConfigOption = CONFIG,
    as_json: JsonOption = False,
) -> None:
    """Restore log entries from their copies, and data files from the topic. The exit status is 1 if any damage remains.

    Every page is read to find damage. Starts a JVM only to restore data files.
    """
    from tidelake.telemetry.logs import configure_logs

    collection = open_lake(config, read_only=not apply).collection(name)
    with working(f"{name}: reading every page") as work:
        restored = collection.repair(accept_newest_entry) if apply else []
        left = collection.verify(deep=True).damages
        if apply and any(damage.is_in_data and damage.is_restorable for damage in left):
            work.show(f"{name}: recreating files")
            configure_logs(os.environ)  # standard output is for the result
            files, left = collection.repair_files(_session(collection.lake.settings))
            restored += files
    if as_json:
        print_json({"name": name, "restored": _rows(restored), "left": _rows(left)})
    else:
        if restored:
            print_rows(f"{name}: restored", _COLUMNS, _rows(restored))
        if left:
            print_rows(f"{name}: damaged", _COLUMNS, _rows(left))
        restorable = sum(damage.is_restorable for damage in left)
        if restorable:
            say(f"{restorable} of {len(left)} damaged files can be restored: tidelake repair {name} --apply")
        elif not left:
            say(f"{name}: nothing is damaged")
    if left:
        raise typer.Exit(1)


def _session(settings: Settings) -> SparkSession:
    from tidelake.spark.session import LOG, start_session

    if not shows_progress():
        say(f"starting Spark, which logs to {LOG} …")
    return start_session(jar_sets=settings.jar_sets)


def _show(name: str, result: Verification) -> None:
    if result.damages:
        print_rows(f"{name}: damaged", _COLUMNS, _rows(result.damages))
    say(
        f"{name}: {counted(result.tables, 'table')}, {counted(result.files, 'file')} with "
        f"{counted(result.bytes, 'byte')} in total, "
        f"{len(result.damages) or 'none'} damaged"
    )


def _rows(damages: list[Damage]) -> list[dict[str, object]]:
    return [asdict(damage) for damage in damages]


def _is_ingested(collection: LakeCollection) -> bool:
    """Whether the store has the collection; true if the catalog is damaged, so that `verify` names the damage."""
    from tidelake.errors import DamagedTable, UnknownCollection

    try:
        return bool(collection.path)
    except UnknownCollection:
        return False
    except DamagedTable:
        return True
