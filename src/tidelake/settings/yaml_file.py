"""Reads `collections.yaml` as strict YAML: a repeated key or an invalid date is an error that names the line."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from tidelake.settings.block import Block


class _UniqueKeyLoader(yaml.SafeLoader):
    """YAML in which a repeated key is an error; plain YAML silently takes the last value."""


def _mapping_of_unique_keys(loader: _UniqueKeyLoader, node: yaml.MappingNode) -> dict[Any, Any]:
    seen: set[str] = set()
    for key_node, _ in node.value:
        key = str(key_node.value)
        if key in seen:
            raise yaml.constructor.ConstructorError(None, None, f"the key '{key}' is given twice", key_node.start_mark)
        seen.add(key)
    return yaml.SafeLoader.construct_mapping(loader, node, deep=True)


def _construct_scalar(loader: _UniqueKeyLoader, node: yaml.Node) -> Any:
    """Read a scalar that looks like a date or a number. The error names the line of an invalid one (`2020-13-45`)."""
    construct = yaml.SafeLoader.yaml_constructors[node.tag]
    try:
        return construct(loader, node)
    except (ValueError, OverflowError, LookupError, AttributeError) as error:  # PyYAML may raise any of them
        problem = f"{node.value!r} is not a valid {node.tag.rpartition(':')[2]}: {error}"
        raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark) from error


for _kind in ("timestamp", "int", "float", "bool"):
    _UniqueKeyLoader.add_constructor(f"tag:yaml.org,2002:{_kind}", _construct_scalar)
_UniqueKeyLoader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping_of_unique_keys)


def read_yaml(file: Path) -> Block:
    """Read the mapping in a file, with line numbers.

    Raises:
        ConfigurationError: the file cannot be read, or is not a YAML mapping; the error names the line.
    """
    place = Block(file, file.resolve().parent, None)
    try:
        loader = _UniqueKeyLoader(file.read_text(encoding="utf-8"))
        try:
            node = loader.get_single_node()
            document = None if node is None else loader.construct_document(node)
        finally:
            loader.dispose()
    except OSError as error:
        place.fail(f"cannot be read: {error.strerror}", "give the path of your collections.yaml")
    except UnicodeDecodeError:
        place.fail("is not UTF-8 text", "save it as UTF-8")
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        field = f"line {mark.line + 1}" if mark is not None else ""
        problem = getattr(error, "problem", None) or str(error)
        replace(place, field=field).fail(str(problem), "correct the YAML at that line")
    except RecursionError:
        place.fail("is nested too deeply", "use less nesting")
    if not isinstance(document, dict):
        place.fail("is not a YAML mapping", "start with `store:`, `topics:` and `collections:`")
    return replace(place, value=document, node=node)
