"""Finds the problems in all parts of a `collections.yaml`, whereas loading it stops at the first problem."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from tidelake.errors import ConfigurationError
from tidelake.settings.block import Block
from tidelake.settings.lake import KEYS, STORE_KEYS, Settings, check_topics, read_settings
from tidelake.settings.yaml_file import read_yaml


def find_problems(file: Path) -> tuple[Settings | None, list[ConfigurationError]]:
    """Read each part of the settings separately; nothing is written.

    Returns:
        The settings without the parts that have problems, or None if the file is not a YAML mapping; and the problems,
        at most one for each key at the top level and each collection.
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
    good: list[str] = []
    for group in (STORE_KEYS, *((key,) for key in KEYS if key not in (*STORE_KEYS, "collections"))):
        keys = [key for key in group if key in document]
        if accepts(_part(document, keys)):
            good += keys
    blocks = document.get("collections") or {}
    if not isinstance(blocks, dict):
        accepts(_part(document, ["collections"]))
        blocks = {}
    names = [name for name in blocks if accepts(_part(document, good, [name]))]
    return read_settings(_part(document, good, names)), list(problems.values())


def _part(document: Block, keys: Iterable[str], names: Iterable[str] = ()) -> Block:
    """Return a document with only these keys and, in place of all collections, those with these names."""
    value = {key: document.value[key] for key in keys}
    if chosen := {name: document.value["collections"][name] for name in names}:
        value["collections"] = chosen
    return replace(document, value=value)
