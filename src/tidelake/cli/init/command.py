"""The command `tidelake init`."""

from __future__ import annotations

import json
import os
import re
import shlex
import tempfile
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidelake.cli.options import CONFIG, ConfigOption
from tidelake.cli.places import place_of
from tidelake.cli.progress import working
from tidelake.cli.render import say, shortened
from tidelake.errors import ConfigurationError, OptionRefused, hint_for_name

if TYPE_CHECKING:
    from tidelake.cli.init.draft import Draft, Registry
    from tidelake.cli.init.samples import Sample
    from tidelake.settings.object_store import FolderPlace

_NAME_MAX = 63


def init(
    topic: Annotated[
        str,
        typer.Argument(
            metavar="TOPIC", help="The folder of a file topic: a path, or an s3: URI. With --kafka, a topic's name."
        ),
    ],
    name: Annotated[
        str | None, typer.Option(help="The collection's name; by default, derived from the topic's name.")
    ] = None,
    kafka: Annotated[str | None, typer.Option(metavar="HOST:PORT", help="The brokers that have the topic.")] = None,
    registry: Annotated[
        str | None, typer.Option(metavar="URL", help="The registry that has the topic's schemas.")
    ] = None,
    servers: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A file with the blocks `kafka` and `registry`, as in collections.yaml, for servers that need TLS or "
            "a password.",
        ),
    ] = None,
    schema: Annotated[
        Path | None, typer.Option(help="The Avro schema of the topic's values, for messages without a schema id.")
    ] = None,
    envelope: Annotated[
        str | None, typer.Option(help="What a message means; by default what the first messages suggest.")
    ] = None,
    key: Annotated[str | None, typer.Option(help="The columns of the key, separated by commas.")] = None,
    config: ConfigOption = CONFIG,
) -> None:
    """Write a collections.yaml for a topic, from its first messages: CDCv2, JSON, Avro, or Debezium.

    Does not start a JVM. The settings are checked before they are written, and an existing file is never changed.
    """
    from tidelake.cli.init.draft import Choices, draft_of
    from tidelake.settings.terms import ENVELOPES

    if os.path.lexists(config):
        raise OptionRefused(f"{config} exists, and is not overwritten", "choose another file: --config FILE")
    if not config.absolute().parent.is_dir():
        raise OptionRefused(
            f"{config.absolute().parent} is not a folder", "create it, or choose another: --config FILE"
        )
    if envelope is not None and envelope not in ENVELOPES:
        raise OptionRefused(f"'{envelope}' is not an envelope", hint_for_name(envelope, ENVELOPES))
    if servers is not None and (kafka is not None or registry is not None):
        raise OptionRefused("--servers cannot be combined with --kafka or --registry", "put the address into the file")
    blocks = _server_blocks(servers, kafka, registry)
    is_kafka, place = "kafka" in blocks, servers or Path("the command line")
    folder = None if is_kafka else place_of(topic)
    topic_name = topic if folder is None else PurePosixPath(str(folder)).name
    chosen = Choices(envelope, _columns(key), None if schema is None else _read_schema(schema))
    with working(f"reading {topic}"):
        samples, settings = (
            _kafka_topic(place, topic, blocks["kafka"]) if folder is None else _file_topic(folder, config)
        )
        settings |= blocks
        found = _registry(place, blocks["registry"]) if "registry" in blocks else None
        draft = draft_of(topic_name, samples, chosen, found)
    collection = name or _collection_name(topic_name, draft)
    source = {"source": "kafka"} if is_kafka else {}
    block = {**draft.block, "topic": topic_name, **source}
    if "schema" in block:  # the longest part goes last
        block["schema"] = block.pop("schema")
    _write(config, settings | {"collections": {collection: block}}, draft)
    for remark in draft.remarks:
        say(shortened(f"{collection}: {remark}"))
    option = "" if config == CONFIG else f" --config {config}"
    typer.echo(f"wrote {config}; next:\n  tidelake run{option}\n  tidelake read {collection}{option}")


def _columns(key: str | None) -> tuple[str, ...]:
    return tuple(filter(None, map(str.strip, key.split(",")))) if key else ()


def _read_schema(file: Path) -> Any:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        problem = error.strerror if isinstance(error, OSError) else f"is not JSON: {error}"
        raise OptionRefused(f"the schema {file} cannot be read: {problem}", "give the path of an .avsc file") from error


def _file_topic(folder: FolderPlace, config: Path) -> tuple[list[Sample], dict[str, Any]]:
    """Return the samples of a file topic, and the settings that name the topics and the store."""
    from tidelake.cli.init.samples import samples_of_files
    from tidelake.errors import FolderMissing
    from tidelake.settings.object_store import ObjectStorePlace

    if isinstance(folder, ObjectStorePlace):
        above = folder.uri.rpartition("/")[0]
        if above.endswith("/"):
            raise OptionRefused(f"{folder} is a bucket, not a topic", "give the folder of a topic: `s3://bucket/topic`")
        return samples_of_files(folder), {"store": "data/store", "topics": above}
    if not folder.is_dir():
        raise FolderMissing(folder.name, str(folder))
    samples = samples_of_files(folder)
    base, topics = config.absolute().parent, folder.absolute().parent
    inside = topics.is_relative_to(base) and topics != base
    settings = {"topics": topics.relative_to(base).as_posix() if inside else str(topics)}
    store = next((store for store in ("data/store", "store") if not _overlap(base / store, topics)), None)
    if store is None:
        raise OptionRefused(
            f"the topic is in {topics}, so the store cannot be in {base}, which is that folder or inside it",
            f"move the topic into a folder of topics: `mkdir topics && mv {shlex.quote(str(folder))} topics`",
        )
    return samples, {"store": store, **settings}


def _overlap(one: Path, other: Path) -> bool:
    """Return whether two folders are the same, or one is inside the other."""
    first, second = Path(os.path.realpath(one)), Path(os.path.realpath(other))
    return first.is_relative_to(second) or second.is_relative_to(first)


def _server_blocks(servers: Path | None, kafka: str | None, registry: str | None) -> dict[str, Any]:
    """Return the blocks `kafka` and `registry` for the settings; paths in them are absolute."""
    if servers is None:
        blocks = {"kafka": {"bootstrap_servers": kafka}, "registry": {"url": registry}}
        return {name: block for name, block in blocks.items() if None not in block.values()}
    from tidelake.settings.yaml_file import read_yaml

    block = "a `kafka:` or a `registry:` block"
    document = read_yaml(servers, which=f"a file with {block}", content=f"write {block}")
    found = {name: document.value[name] for name in ("kafka", "registry") if document.value.get(name) is not None}
    if not found:
        raise OptionRefused(f"{servers} has neither a `kafka` block nor a `registry` block", "see docs/kafka.md")
    return {name: _with_absolute_paths(block, document.folder) for name, block in found.items()}


def _with_absolute_paths(block: Any, folder: Path) -> Any:
    """Return a block with absolute paths, so that it means the same in any folder."""
    if not isinstance(block, dict):
        return block
    return {
        key: str(folder / value)
        if isinstance(value, str) and (key in ("file", "cache") or str(key).endswith("_file"))
        else _with_absolute_paths(value, folder)
        for key, value in block.items()
    }


def _kafka_topic(place: Path, topic: str, block: dict[str, Any]) -> tuple[list[Sample], dict[str, Any]]:
    """Return the samples of a Kafka topic, and the setting of the store; `place` is for errors about the block."""
    from tidelake.cli.init.samples import samples_of_kafka
    from tidelake.settings.block import Block
    from tidelake.settings.kafka import read_kafka

    samples = samples_of_kafka(read_kafka(Block(place, Path(), block, "kafka")), topic)
    return samples, {"store": "data/store"}


def _registry(place: Path, block: dict[str, Any]) -> Registry:
    """Return the registry; its responses are not cached beyond this command."""
    from tidelake.cli.init.draft import Registry
    from tidelake.settings.block import Block
    from tidelake.settings.registry import read_registry
    from tidelake.topic.schema_registry import SchemaRegistry

    settings = read_registry(Block(place, Path(), block, "registry"))

    def schemas_of(subject: str) -> dict[int, Any]:
        with tempfile.TemporaryDirectory(prefix="tidelake-init-") as cache:
            return SchemaRegistry(settings.model_copy(update={"cache": Path(cache)})).schemas_of(subject)

    return Registry(schemas_of)


def _collection_name(topic: str, draft: Draft) -> str:
    """Return a name for the collection: for change events, the name of the table."""
    own = topic.rpartition(".")[2] if draft.block["envelope"] == "debezium" else topic
    letters = re.sub(r"[^a-z0-9_]", "_", own.lower())
    return (letters if re.match(r"[a-z]", letters) else f"topic_{letters}")[:_NAME_MAX]


def _write(config: Path, document: dict[str, Any], draft: Draft) -> None:
    """Check the settings, and write them.

    Raises:
        OptionRefused: the file was created in the meantime, or the settings would be refused; nothing was written.
    """
    from tidelake.settings.lake import check_topics, load_settings

    text = _text_of(document, draft)
    unfinished = config.absolute().with_name(f".{config.name}.{os.getpid()}")
    try:
        unfinished.write_text(text, encoding="utf-8")
        check_topics(load_settings(unfinished))
    except ConfigurationError as error:
        problem = f"these settings are refused: {error.field}: {error.problem}"
        raise OptionRefused(problem, error.fix) from error
    finally:
        unfinished.unlink(missing_ok=True)
    try:
        with config.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise OptionRefused(f"{config} exists, and is not overwritten", "choose another: --config FILE") from None


def _text_of(document: dict[str, Any], draft: Draft) -> str:
    """Return the text of the file: the remarks as comments, then the settings, with one line per column."""
    import yaml

    class Dumper(yaml.SafeDumper):
        """Repeats values instead of referring to them, and writes columns and keys on one line."""

        def ignore_aliases(self, data: Any) -> bool:
            return True

    def mapping(dumper: Dumper, data: dict[str, Any]) -> yaml.Node:
        is_column = set(data) <= {"name", "type", "default"} and "name" in data
        return dumper.represent_mapping("tag:yaml.org,2002:map", data.items(), flow_style=is_column)

    def sequence(dumper: Dumper, data: list[Any]) -> yaml.Node:
        is_short = all(isinstance(item, str) for item in data)
        return dumper.represent_sequence("tag:yaml.org,2002:seq", data, flow_style=is_short)

    Dumper.add_representer(dict, mapping)
    Dumper.add_representer(list, sequence)
    settings = yaml.dump(document, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=110)
    comments = ["Written by `tidelake init`; docs/reference/configuration.md describes every key.", *draft.remarks]
    return "".join(f"# {shortened(comment)}\n" for comment in comments) + settings
