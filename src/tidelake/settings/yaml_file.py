"""Reads `collections.yaml` as strict YAML: a repeated key or an invalid date is an error that names the line."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from tidelake.settings.block import Block

_DEPTH_MAX = 100
"""Deeper files are read without libyaml, which composes nested values recursively and would overflow the stack."""

_Loader = Any
"""`yaml.SafeLoader`, or libyaml's `yaml.CSafeLoader`, which takes a sixth of the time but has other error texts."""


def _mapping_of_unique_keys(loader: _Loader, node: yaml.MappingNode) -> dict[Any, Any]:
    seen: set[str] = set()
    for key_node, _ in node.value:
        key = str(key_node.value)
        if key in seen:
            raise yaml.constructor.ConstructorError(None, None, f"the key '{key}' is given twice", key_node.start_mark)
        seen.add(key)
    return yaml.SafeLoader.construct_mapping(loader, node, deep=True)


def _construct_scalar(loader: _Loader, node: yaml.Node) -> Any:
    """Read a date, number or boolean. The error names the line of an invalid one (`2020-13-45`)."""
    construct = yaml.SafeLoader.yaml_constructors[node.tag]
    try:
        return construct(loader, node)
    except (ValueError, OverflowError, LookupError, AttributeError) as error:  # PyYAML may raise any of them
        problem = f"{node.value!r} is not a valid {node.tag.rpartition(':')[2]}: {error}"
        raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark) from error


def _with_unique_keys(base: type[_Loader]) -> type[_Loader]:
    """Return a loader for which a repeated key is an error; plain YAML silently takes the last value."""
    loader: type[_Loader] = type("_UniqueKeyLoader", (base,), {})
    for kind in ("timestamp", "int", "float", "bool"):
        loader.add_constructor(f"tag:yaml.org,2002:{kind}", _construct_scalar)
    loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping_of_unique_keys)
    return loader


_LOADER = _with_unique_keys(yaml.SafeLoader)
_FAST_LOADER = _with_unique_keys(yaml.CSafeLoader) if yaml.__with_libyaml__ else None


def _load(text: str) -> tuple[Any, yaml.Node | None]:
    """Return the document in a text, and its node."""
    if _FAST_LOADER is not None:
        try:
            if _depth(text) <= _DEPTH_MAX:
                return _load_by(_FAST_LOADER, text)
        except yaml.YAMLError:
            pass  # read again below, for an error text that does not depend on whether libyaml is installed
    return _load_by(_LOADER, text)


def _load_by(kind: type[_Loader], text: str) -> tuple[Any, yaml.Node | None]:
    loader = kind(text)
    try:
        node = loader.get_single_node()
        return None if node is None else loader.construct_document(node), node
    finally:
        loader.dispose()


def _depth(text: str) -> int:
    """Return the nesting depth of the values in a text; counting stops beyond `_DEPTH_MAX`."""
    depth = deepest = 0
    for event in yaml.parse(text, Loader=yaml.CSafeLoader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            deepest = max(deepest, depth)
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if deepest > _DEPTH_MAX:
            break
    return deepest


def read_yaml(
    file: Path,
    which: str = "your collections.yaml",
    content: str = "start with `store:`, `topics:` and `collections:`",
) -> Block:
    """Read the mapping in a file, with line numbers.

    Args:
        file: the file.
        which: what the file should be, for the hint if it cannot be read.
        content: what to write into it, as the hint if it is not a mapping.

    Raises:
        ConfigurationError: the file cannot be read, or is not a YAML mapping; the error names the line.
    """
    place = Block(file, file.resolve().parent, None)
    try:
        text = file.read_text(encoding="utf-8")
        document, node = _load(text)
    except OSError as error:
        may_not = isinstance(error, PermissionError)
        fix = "give this user permission to read it" if may_not else f"give the path of {which}"
        place.fail(f"cannot be read: {error.strerror}", fix)
    except UnicodeDecodeError:
        place.fail("is not UTF-8 text", "save it as UTF-8")
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        replace(place, field=f"line {line}").fail(
            f"has the character U+{error.character:04X}, which YAML does not allow", "remove the character"
        )
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        field = f"line {mark.line + 1}" if mark is not None else ""
        problem = getattr(error, "problem", None) or str(error)
        replace(place, field=field).fail(str(problem), "correct the YAML at that line")
    except RecursionError:
        place.fail("is nested too deeply", "use less nesting")
    if not isinstance(document, dict):
        place.fail("is not a YAML mapping", content)
    return replace(place, value=document, node=node)
