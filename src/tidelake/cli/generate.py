"""`tidelake generate`: a topic from a seeded history."""

from __future__ import annotations

import inspect
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, get_origin, get_type_hints

import typer

from tidelake.cli.options import JsonOption
from tidelake.cli.places import check_local, place_of
from tidelake.cli.render import print_json, say


def generate(**choices: Any) -> None:
    """Write a CDCv2 file topic, mangled as requested, and its ground truth, both from a seeded history."""
    from tidelake.generator.generate import generate as write_topic
    from tidelake.generator.options import GenerateOptions
    from tidelake.storage import blobs

    place, out, as_json = choices.pop("topics"), choices.pop("out"), choices.pop("as_json")
    check_local("--out", out)
    topics = blobs.root_of(place_of(place))
    chosen: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in choices.items()
    }
    written = write_topic(
        GenerateOptions(**chosen),
        topics,
        Path(out),
        None if as_json else lambda step, done, total: say(f"{step}: {done:,} of {total:,}"),
    )
    if as_json:
        print_json(written.as_json())
    else:
        typer.echo(f"{written.topic}: written; its schema and ground truth are in {out}")


def add_generate(app: typer.Typer) -> None:
    """Register `generate` as a command. Each field of `GenerateOptions` becomes an option with its help and default."""
    from tidelake.generator.options import GenerateOptions

    hints = get_type_hints(GenerateOptions)
    parameters = [
        inspect.Parameter(
            "topics",
            inspect.Parameter.KEYWORD_ONLY,
            annotation=Annotated[
                str, typer.Option("--topics", metavar="FOLDER", help="The folder of topics: a path, or an s3: URI.")
            ],
            default="data/topics",
        ),
        inspect.Parameter(
            "out",
            inspect.Parameter.KEYWORD_ONLY,
            annotation=Annotated[
                str,
                typer.Option(
                    "--out", metavar="FOLDER", help="The folder for the record schema and the ground truth: a path."
                ),
            ],
            default="data",
        ),
        inspect.Parameter("as_json", inspect.Parameter.KEYWORD_ONLY, annotation=JsonOption, default=False),
    ]
    for field in fields(GenerateOptions):
        kind = list[int] if get_origin(hints[field.name]) is tuple else hints[field.name]
        flag = f"--{field.name.replace('_', '-')}"
        option = (
            typer.Argument(metavar="NAME", help=field.metadata["help"])
            if field.name == "name"
            else typer.Option(flag, help=field.metadata["help"])
        )
        default = inspect.Parameter.empty if field.name == "name" else [] if kind == list[int] else field.default
        parameters.append(
            inspect.Parameter(
                field.name, inspect.Parameter.KEYWORD_ONLY, annotation=Annotated[kind, option], default=default
            )
        )
    generate.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    generate.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    app.command()(generate)
