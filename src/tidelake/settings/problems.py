"""Finds the problems in all parts of a `collections.yaml`, whereas loading it stops at the first problem."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from pathlib import Path

from tidelake.errors import ConfigurationError
from tidelake.settings.block import Block
from tidelake.settings.collection import CollectionSettings
from tidelake.settings.lake import KEYS, STORE_KEYS, Settings, check_topics, read_settings, read_valid_settings
from tidelake.settings.yaml_file import read_yaml

_STAND_INS = {"kafka": {"bootstrap_servers": "localhost:9092"}, "registry": {"url": "http://localhost:8081"}}
"""Valid blocks that stand in for refused ones while collections are read."""


def find_problems(file: Path) -> tuple[Settings | None, list[ConfigurationError]]:
    """Read each part of the settings separately; nothing is written.

    Returns:
        First, the settings without the parts that have problems, and without the collections that use such a part; None
        if the file is not a YAML mapping. Second, the problems: at most one for each key at the top level and each
        collection. A problem at the top level is not repeated as a problem of the collections that use the key.
    """
    try:
        document = read_yaml(file)
    except ConfigurationError as error:
        return None, [error]
    problems: dict[str, ConfigurationError] = {}
    good: list[str] = []
    refused: set[str] = set()

    def read(part: Block) -> Settings | None:
        try:
            settings = read_settings(part)
            if refused.isdisjoint(STORE_KEYS):  # otherwise, the folder of the topics is not known
                check_topics(settings)
        except ConfigurationError as error:
            problems.setdefault(str(error), error)
            return None
        return settings

    for key in document.value:
        if key not in KEYS:
            read(_part(document, [key]))
    for group in (STORE_KEYS, *((key,) for key in KEYS if key not in (*STORE_KEYS, "collections"))):
        keys = [key for key in group if key in document]
        if read(_part(document, keys)) is not None:
            good += keys
        else:
            refused |= set(keys)
    blocks = document.get("collections") or {}
    if not isinstance(blocks, dict):
        read(_part(document, ["collections"]))
        blocks = {}
    stand_ins = {key: block for key, block in _STAND_INS.items() if key in refused}
    complete = replace(document, value=document.value | stand_ins)
    names = []
    for name in blocks:
        settings = read(_part(complete, [*good, *stand_ins], [name]))
        if settings is not None and not _uses(settings.collections[0], refused):
            names.append(name)
    loaded = read_valid_settings(_part(document, good, names))  # it refuses collections that do not fit together
    return loaded.settings, [*problems.values(), *loaded.refused.values()]


def _uses(collection: CollectionSettings, refused: Collection[str]) -> bool:
    """Return whether a collection uses a part that is refused."""
    if collection.source == "files" and not set(STORE_KEYS).isdisjoint(refused):
        return True
    return ("kafka" in refused and collection.kafka is not None) or (
        "registry" in refused and collection.registry is not None
    )


def _part(document: Block, keys: Iterable[str], names: Iterable[str] = ()) -> Block:
    """Return a document with only these keys and, in place of all collections, those with these names."""
    value = {key: document.value[key] for key in keys}
    if chosen := {name: document.value["collections"][name] for name in names}:
        value["collections"] = chosen
    return replace(document, value=value)
