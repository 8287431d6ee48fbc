"""Finds all problems in a `collections.yaml`, where loading it stops at the first."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from tidelake.errors import ConfigurationError
from tidelake.settings.block import Block
from tidelake.settings.lake import KEYS, Settings, check_topics, read_settings
from tidelake.settings.yaml_file import read_yaml


def find_problems(file: Path) -> tuple[Settings | None, list[ConfigurationError]]:
    """Read each part of the settings by itself; nothing is written.

    Returns:
        The settings without the parts that have problems, or None if no settings can be read; and the problems, at most
        one for each key at the top level and each collection.
    """
    try:
        document = read_yaml(file)
    except ConfigurationError as error:
        return None, [error]
    problems: dict[str, ConfigurationError] = {}

    def accepts(part: Block) -> bool:
        try:
            check_topics(read_settings(part))
        except ConfigurationError as error:
            problems.setdefault(str(error), error)
            return False
        return True

    for key in document.value:
        if key not in KEYS:
            accepts(_part(document, [key]))
    shared = [key for key in document.value if key in KEYS and key != "collections"]
    good = [key for key in shared if accepts(_part(document, [key]))]
    if not accepts(_part(document, good)):  # such as a store inside the folder of the topics
        good = []
    blocks = document.get("collections")
    if not isinstance(blocks, dict):
        if accepts(_part(document, ["collections"])):
            return read_settings(_part(document, good)), list(problems.values())
        return None, list(problems.values())
    names = [name for name in blocks if accepts(_part(document, good, [name]))]
    return read_settings(_part(document, good, names)), list(problems.values())


def _part(document: Block, keys: Iterable[str], names: Iterable[str] = ()) -> Block:
    """Return a document with only these keys and, in place of all collections, those with these names."""
    value = {key: document.value[key] for key in keys}
    if chosen := {name: document.value["collections"][name] for name in names}:
        value["collections"] = chosen
    return replace(document, value=value)
