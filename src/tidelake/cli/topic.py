"""`tidelake topic`: copies topics between Kafka and files. Does not start a JVM."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidelake.cli.options import CONFIG, ConfigOption, JsonOption
from tidelake.cli.places import place_of
from tidelake.cli.progress import working
from tidelake.read.words import counted

if TYPE_CHECKING:
    from tidelake.settings.lake import Settings
    from tidelake.topic.cluster import KafkaCluster
    from tidelake.topic.recording import Copied

app = typer.Typer(name="topic", help="Copy topics between Kafka and files.", no_args_is_help=True)

TopicArgument = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic's name in Kafka.")]
FolderArgument = Annotated[
    str, typer.Argument(metavar="FOLDER", help="The folder of the file topic: a path, or an s3: URI.")
]


class Form(StrEnum):
    """How a recording is written."""

    parquet = "parquet"
    jsonl = "jsonl"


@app.command()
def record(
    topic: TopicArgument,
    folder: FolderArgument,
    form: Annotated[
        Form,
        typer.Option(
            "--format", help="`parquet`, which a later recording can continue, or `jsonl`, for people to read."
        ),
    ] = Form.parquet,
    config: ConfigOption = CONFIG,
    as_json: JsonOption = False,
) -> None:
    """Record the contents of a topic as a file topic: each record unchanged, at its offset. Does not start a JVM."""
    from tidelake.topic.recording import record_topic

    settings = _settings(config)
    place = place_of(folder, settings.object_stores)
    with working(f"recording {topic}"):
        copied = record_topic(_cluster(settings), topic, place, form.value)
    _say(f"recorded from '{topic}'", copied, as_json)


@app.command()
def play(
    folder: FolderArgument,
    topic: TopicArgument,
    renumber: Annotated[
        bool, typer.Option("--renumber", help="Append everything to the existing records, under new offsets.")
    ] = False,
    config: ConfigOption = CONFIG,
    as_json: JsonOption = False,
) -> None:
    """Send those records of a file topic that a Kafka topic lacks, each at its own offset. Does not start a JVM."""
    from tidelake.topic.producing import play_topic

    settings = _settings(config)
    place = place_of(folder, settings.object_stores)
    with working(f"playing {folder}"):
        copied = play_topic(place, _cluster(settings), topic, renumber=renumber)
    _say(f"played to '{topic}'", copied, as_json)


def _settings(config: Path) -> Settings:
    from tidelake.errors import ConfigurationError
    from tidelake.settings.lake import load_settings

    settings = load_settings(config)
    if settings.kafka is None:
        raise ConfigurationError(str(config), "kafka", "is missing", "add a `kafka:` block with `bootstrap_servers`")
    return settings


def _cluster(settings: Settings) -> KafkaCluster:
    from tidelake.topic.cluster import KafkaCluster

    assert settings.kafka is not None
    return KafkaCluster(settings.kafka)


def _say(action: str, copied: Copied, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps({"messages": copied.messages, "offsets": copied.intervals}))
        return
    offsets = ", ".join(
        f"{partition}: {start} to {end}" for partition, (start, end) in sorted(copied.intervals.items())
    )
    typer.echo(f"{counted(copied.messages, 'message')} {action}; offsets by partition: {offsets or 'none'}")
