"""Reads `collections.yaml` as YAML, strictly: a key given twice, or a date that is none, is an error with its line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from tidelake.errors import ConfigurationError


class _UniqueKeyLoader(yaml.SafeLoader):
    """YAML in which a key given twice is an error; plain YAML silently keeps the last one."""


def _mapping_of_unique_keys(loader: _UniqueKeyLoader, node: yaml.MappingNode) -> dict[Any, Any]:
    seen: set[str] = set()
    for key_node, _ in node.value:
        key = str(key_node.value)
        if key in seen:
            raise yaml.constructor.ConstructorError(None, None, f"the key '{key}' is given twice", key_node.start_mark)
        seen.add(key)
    return yaml.SafeLoader.construct_mapping(loader, node, deep=True)


def _construct_or_say_where(loader: _UniqueKeyLoader, node: yaml.Node) -> Any:
    """Read a scalar that looks like a date or a number and may be none, such as `2020-13-45`."""
    construct = yaml.SafeLoader.yaml_constructors[node.tag]
    try:
        return construct(loader, node)
    except (ValueError, OverflowError, LookupError, AttributeError) as error:  # all of them from within PyYAML
        problem = f"{node.value!r} is no {node.tag.rpartition(':')[2]}: {error}"
        raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark) from error


for _kind in ("timestamp", "int", "float", "bool"):
    _UniqueKeyLoader.add_constructor(f"tag:yaml.org,2002:{_kind}", _construct_or_say_where)
_UniqueKeyLoader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping_of_unique_keys)


def read_yaml(file: Path) -> dict[str, Any]:
    """The mapping that a file holds.

    Raises:
        ConfigurationError: it cannot be read, or is no YAML mapping; with the line where it breaks off.
    """
    try:
        document = yaml.load(file.read_text(encoding="utf-8"), Loader=_UniqueKeyLoader)
    except OSError as error:
        raise ConfigurationError(
            str(file), "", f"cannot be read: {error.strerror}", "give the path of your collections.yaml"
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(str(file), "", "is not UTF-8 text", "save it as UTF-8") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f"line {mark.line + 1}" if mark is not None else ""
        problem = getattr(error, "problem", None) or str(error)
        raise ConfigurationError(str(file), line, str(problem), "mend the YAML at that line") from error
    except RecursionError as error:
        raise ConfigurationError(str(file), "", "is nested too deep", "write it flat") from error
    if not isinstance(document, dict):
        raise ConfigurationError(
            str(file), "", "is not a YAML mapping", "start with `store:`, `topics:` and `collections:`"
        )
    return document
