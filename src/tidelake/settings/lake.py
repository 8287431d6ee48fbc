"""Reads `collections.yaml` into frozen, validated settings, before anything is written.

Each error names the file, the line, the field, the problem and the fix.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tidelake.errors import ConfigurationError, hint_for_name
from tidelake.settings.block import Block, Frozen
from tidelake.settings.collection import CollectionSettings
from tidelake.settings.framings import Sources, read_collection
from tidelake.settings.kafka import KafkaSettings, read_kafka
from tidelake.settings.object_store import FolderPlace, ObjectStorePlace, ObjectStores, read_object_stores
from tidelake.settings.registry import RegistrySettings, read_registry
from tidelake.settings.secret import Secret, read_secret_place
from tidelake.settings.source import is_path_text
from tidelake.settings.yaml_file import read_yaml

KEYS = (
    *("alerts", "collection_limit_s", "collections", "data_docs", "kafka", "lake", "parallel", "registry", "s3"),
    *("store", "topics", "untested_stores", "writer"),
)
PLACES = ("store", "topics", "data_docs")
"""Keys whose values name folders."""
STORE_KEYS = ("s3", *PLACES, "untested_stores")
"""Keys that are checked together: places may be in object stores, and some must not be inside others."""
PARALLEL_MAX = 64
INT32_MAX = 2**31 - 1
_DEFAULT_STEM = "collections"
_LAKE_LENGTH_MAX = 63
_LAKE = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,62}")
_WRITER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
WRITER_RULE = "at most 63 letters, digits, `.`, `_` and `-`, beginning with a letter or a digit"


class Settings(Frozen):
    """All settings of a job: the store, the folders, the servers, and the collections."""

    file: Path
    lake: str
    """The name of the lake; the names of its assets in Dagster begin with it."""
    store: FolderPlace
    topics: FolderPlace
    collections: tuple[CollectionSettings, ...]
    data_docs: FolderPlace
    """The folder of the reports."""
    object_stores: ObjectStores = ObjectStores()
    """How to reach the object stores that are named in these settings or on a command line."""
    kafka: KafkaSettings | None = None
    registry: RegistrySettings | None = None
    writer: str | None = None
    """The name of the processes that write with these settings; None if they have none."""
    names: tuple[str, ...] = ()
    """The names of all collections in the file, even if only some were chosen with `only`."""
    all_collections: tuple[CollectionSettings, ...] = ()
    """All valid collections in the file, even if only some were chosen with `only`."""
    alerts: Secret | None = None
    """Where the URL of the webhook for alerts is kept; if None, no alerts are sent."""
    parallel: int = 1
    """Maximum number of collections that the jobs work on at a time."""
    collection_limit_s: int | None = None
    """How long the jobs may work on one collection in a run; None means that there is no limit, or, with `--linger`,
    that the limit is five minutes."""

    @property
    def jar_sets(self) -> tuple[str, ...]:
        """The sets of jars that Spark needs for the store and the topics, besides those that it always needs."""
        places = (self.store, self.topics)
        is_s3 = any(isinstance(place, ObjectStorePlace) and place.scheme == "s3" for place in places)
        return ("s3",) if is_s3 else ()

    def collection(self, name: str) -> CollectionSettings:
        """Return the settings of one collection.

        Raises:
            ConfigurationError: no collection has this name.
        """
        for collection in self.collections:
            if collection.name == name:
                return collection
        names = self.names or [collection.name for collection in self.collections]
        hint = hint_for_name(name, names) if names else "add a collection below `collections:`"
        raise ConfigurationError(str(self.file), f"collections.{name}", "there is no collection of this name", hint)

    def only(self, names: tuple[str, ...]) -> Settings:
        """Return the same settings with only these collections; an empty tuple means all.

        Raises:
            ConfigurationError: one of these names belongs to no collection.
        """
        if not names:
            return self
        known = {collection.name: collection for collection in self.collections}
        return self.model_copy(
            update={"collections": tuple(known.get(name) or self.collection(name) for name in names)}
        )


def load_settings(file: Path) -> Settings:
    """Read `collections.yaml`; paths in it are relative to its folder.

    Raises:
        ConfigurationError: names the file, the line, the field, the problem and the fix. Nothing was written.
    """
    return read_settings(read_yaml(file))


def read_settings(document: Block) -> Settings:
    """Read the settings in a document; raises the same errors as `load_settings`."""
    loaded = read_valid_settings(document)
    for error in loaded.refused.values():
        raise error
    return loaded.settings


@dataclass(frozen=True)
class LoadedSettings:
    """The settings of all valid collections, and the error of each collection that is refused."""

    settings: Settings
    refused: Mapping[str, ConfigurationError]
    """The error of each refused collection, by name, in the order of the file."""


def load_valid_settings(file: Path) -> LoadedSettings:
    """Read `collections.yaml`, and leave out each collection whose block is invalid.

    Raises:
        ConfigurationError: the file cannot be read, or something outside the blocks of collections is invalid.
    """
    return read_valid_settings(read_yaml(file))


def read_valid_settings(document: Block) -> LoadedSettings:
    """Read the settings in a document; raises the same errors as `load_valid_settings`."""
    document.check_keys(KEYS)
    object_stores = read_object_stores(document)
    store, topics, data_docs = (
        object_stores.place(_read_text(document, name), document.folder, document.child(name).fail) for name in PLACES
    )
    _check_store(document.child("store"), store, topics)
    _check_reports(document.child("data_docs"), data_docs, {"store": store, "topics": topics})
    kafka = read_kafka(document.child("kafka")) if "kafka" in document else None
    registry = read_registry(document.child("registry")) if "registry" in document else None
    blocks = document.child("collections")
    if blocks.value and not isinstance(blocks.value, dict):
        blocks.fail("is not a mapping of names", "write `collections:` and below it one block per name")
    sources = Sources(topics, kafka, registry)
    collections: list[CollectionSettings] = []
    refused: dict[str, ConfigurationError] = {}
    for name in blocks.value or ():
        try:
            collection = read_collection(str(name), blocks.child(name), sources)
            _check_timeline(blocks.child(name).child("timeline"), collection, collections)
            _check_bag(blocks.child(name).child("bag"), collection)
            _check_current(blocks.child(name).child("current").child("skip_errors"), collection)
            collection.check_beside(blocks.child(name), collections)
            _check_publish(blocks.child(name).child("publish").child("to"), collection, collections)
            collections.append(collection)
        except ConfigurationError as error:
            refused[str(name)] = error
    settings = Settings(
        file=document.file,
        lake=_read_lake(document.child("lake")) if "lake" in document else default_lake(document.file),
        store=store,
        topics=topics,
        data_docs=data_docs,
        object_stores=object_stores,
        writer=_read_writer(document.child("writer")) if "writer" in document else None,
        alerts=read_secret_place(document.child("alerts")) if "alerts" in document else None,
        parallel=_read_number(document, "parallel", PARALLEL_MAX) or 1,
        collection_limit_s=_read_number(document, "collection_limit_s", INT32_MAX),
        collections=tuple(collections),
        names=tuple(str(name) for name in blocks.value or ()),
        all_collections=tuple(collections),
        kafka=kafka,
        registry=registry,
    )
    return LoadedSettings(settings, refused)


def _check_timeline(place: Block, collection: CollectionSettings, others: Sequence[CollectionSettings]) -> None:
    """Refuse a timeline that has both minted times and times that a source states."""
    for other in others if collection.timeline is not None else ():
        if other.timeline == collection.timeline and other.mints_times != collection.mints_times:
            place.fail(
                f"is '{collection.timeline}', like that of '{other.name}', but only one of the two collections is "
                "reclocked: their times do not mean the same thing",
                "name another timeline in one of the two collections",
            )


def _check_bag(place: Block, collection: CollectionSettings) -> None:
    """Refuse a bag with a key: each key has one row, so there is nothing to repeat."""
    if collection.bag and collection.key:
        place.fail("is true, but the collection has a key, so no row occurs twice", "leave it out")


def _check_current(place: Block, collection: CollectionSettings) -> None:
    """Refuse `skip_errors` without a key: no key can be in error."""
    if collection.current is not None and collection.current.skip_errors and not collection.key:
        place.fail("is true, but the collection has no key, so no key can be in error", "leave it out")


def _check_publish(place: Block, collection: CollectionSettings, others: Sequence[CollectionSettings]) -> None:
    """Refuse to publish to a topic that the collection reads, or that another collection is published to."""
    to = collection.publish
    if to is None:
        return
    if to.to in collection.topics and to.source == collection.source:
        place.fail(
            f"is '{to.to}', which the collection reads: it would read what it publishes", "publish to another topic"
        )
    for other in others:
        if other.publish is not None and (other.publish.to, other.publish.source) == (to.to, to.source):
            place.fail(
                f"is '{to.to}', to which '{other.name}' is published: only one collection can be published to a topic",
                "give each collection a topic of its own",
            )


def default_lake(file: Path) -> str:
    """Return the name of a lake whose settings give none: the file's name, or its folder's if that says more.

    >>> default_lake(Path("/srv/shop-eu/collections.yaml")), default_lake(Path("/srv/lakes/web.yaml"))
    ('shop_eu', 'web')
    """
    path = file.absolute()
    text = path.resolve().parent.name if path.stem == _DEFAULT_STEM else path.stem
    name = re.sub(r"[^A-Za-z0-9_]", "_", text)[:_LAKE_LENGTH_MAX]
    return name if _LAKE.fullmatch(name) else f"lake_{name}"[:_LAKE_LENGTH_MAX].rstrip("_")


def _read_lake(place: Block) -> str:
    if not isinstance(place.value, str) or not _LAKE.fullmatch(place.value):
        place.fail(
            f"is not the name of a lake: {place.value!r}",
            "give at most 63 letters, digits and `_`, beginning with a letter",
        )
    return place.value


def _check_store(place: Block, store: FolderPlace, topics: FolderPlace) -> None:
    """Refuse a store that cannot be a folder, that contains the topics, or that is inside their folder."""
    if isinstance(store, Path):
        nearest = next(folder for folder in (store, *store.parents) if folder.exists())
        if not nearest.is_dir():
            place.fail(f"{nearest} is a file, not a folder", "give a folder's path")
    if _overlap(store, topics):
        place.fail(
            f"the store {store} and the topics {topics} are the same folder, or one is inside the other",
            "give each a folder of its own",
        )


def _check_reports(place: Block, data_docs: FolderPlace, others: Mapping[str, FolderPlace]) -> None:
    """Refuse reports in an object store if their folder overlaps that of the store or of the topics."""
    for name, other in others.items() if isinstance(data_docs, ObjectStorePlace) else ():
        if _overlap(data_docs, other):
            place.fail(
                f"the reports {data_docs} and the {name} {other} are the same folder, or one is inside the other",
                "give each a folder of its own",
            )


def _overlap(one: FolderPlace, other: FolderPlace) -> bool:
    """Whether two folders are the same, or one is inside the other."""
    if isinstance(one, Path) and isinstance(other, Path):
        # `resolve` would raise if symbolic links form a loop.
        first, second = Path(os.path.realpath(one)), Path(os.path.realpath(other))
        return first.is_relative_to(second) or second.is_relative_to(first)
    return isinstance(one, ObjectStorePlace) and isinstance(other, ObjectStorePlace) and one.overlaps(other)


def check_topics(settings: Settings) -> None:
    """Refuse a collection whose file topic has no folder on this machine. Brokers and object stores are not contacted.

    Raises:
        ConfigurationError: the topic's folder is missing.
    """
    for collection in settings.collections:
        if collection.source != "files" or not isinstance(collection.topics_folder, Path):
            continue
        for topic in collection.topics:
            folder = collection.topics_folder / topic
            if not folder.is_dir():
                raise ConfigurationError(
                    str(settings.file),
                    f"collections.{collection.name}.{collection.key_of(topic)}",
                    f"the topic '{topic}' has no folder {folder}",
                    "create the folder (it may be empty), or correct the topic's name",
                )


def is_writer_name(text: str) -> bool:
    """Whether a writer may have this name; `WRITER_RULE` states the rule.

    >>> is_writer_name("lake-2.eu"), is_writer_name("lake 2")
    (True, False)
    """
    return _WRITER.fullmatch(text) is not None


def _read_writer(place: Block) -> str | None:
    """Return a writer's name, given directly or in an environment variable; None if that variable is not set."""
    name = place.value
    if isinstance(name, dict):
        if set(name) != {"env"} or not isinstance(name["env"], str) or not name["env"]:
            place.fail("does not name an environment variable", "write a name, or `{env: NAME_OF_A_VARIABLE}`")
        variable, name = name["env"], os.environ.get(name["env"]) or None
        if name is not None and not is_writer_name(name):
            place.fail(f"{variable} is {name!r}, which is not a writer's name", f"set {variable} to {WRITER_RULE}")
    if name is not None and not (isinstance(name, str) and is_writer_name(name)):
        place.fail(f"is not a writer's name: {name!r}", f"give {WRITER_RULE}, or `{{env: NAME_OF_A_VARIABLE}}`")
    return name


def _read_number(document: Block, name: str, maximum: int) -> int | None:
    """Read a whole number that is at least 1; None if the file does not have it."""
    value = document.get(name)
    if value is not None and (type(value) is not int or not 1 <= value <= maximum):
        document.child(name).fail(f"is not a whole number from 1 to {maximum}: {value!r}", "write such a number")
    return value


def _read_text(document: Block, name: str) -> str:
    """Read the path of a folder, as text; the default is a folder below `data`."""
    place, value = document.child(name), document.get(name, f"data/{name}")
    if not isinstance(value, str):
        place.fail(f"is not a path: {value!r}", "write it as text")
    if not value or value != value.strip() or not is_path_text(value):
        place.fail(f"is not a path: {value!r}", "write text without control characters or surrounding spaces")
    return value
