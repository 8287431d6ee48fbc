"""A place in `collections.yaml`: its file, line and field, and the value there."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn, TypeVar
from weakref import WeakKeyDictionary

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from tidelake.errors import ConfigurationError, SchemaRefused, hint_for_name

_Settings = TypeVar("_Settings", bound=BaseModel)

REFERENCE = "see docs/reference/configuration.md for every key"


class Frozen(BaseModel):
    """Immutable settings. Unknown keys and values of the wrong type are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, arbitrary_types_allowed=True)


@dataclass(frozen=True)
class Block:
    """A cursor into the settings: `child` moves to a key, and `fail` raises an error that names the place.

    Args:
        file: the file that contains the value; a schema may be in a file of its own.
        folder: the folder that paths are relative to.
        value: the value in the file; None if there is none.
        field: the path of keys, with dots; empty for the whole file.
        line: the first line, counted from 1; None if unknown.
        node: the YAML node, which has the lines of its children.
    """

    file: Path
    folder: Path
    value: Any
    field: str = ""
    line: int | None = None
    node: yaml.Node | None = None

    def child(self, key: Any) -> Block:
        """Return the block at a key or list index, whether or not the file has it."""
        line, node = self.line, None
        if isinstance(self.node, yaml.SequenceNode) and isinstance(key, int) and key < len(self.node.value):
            node = self.node.value[key]
            line = node.start_mark.line + 1
        if isinstance(self.node, yaml.MappingNode):
            line, node = _children_of(self.node).get(str(key), (line, node))
        field = f"{self.field}.{key}" if self.field else str(key)
        return replace(self, value=self.get(key), field=field, line=line, node=node)

    def __contains__(self, key: Any) -> bool:
        """Return whether the block is a mapping that has this key."""
        return isinstance(self.value, dict) and key in self.value

    def get(self, key: Any, default: Any = None) -> Any:
        """Return the value at a key or list index."""
        if isinstance(self.value, list) and isinstance(key, int) and key < len(self.value):
            return self.value[key]
        return self.value.get(key, default) if isinstance(self.value, dict) else default

    def elsewhere(self, file: Path, value: Any) -> Block:
        """Return the same field with its value in a different file."""
        return replace(self, file=file, value=value, line=None, node=None)

    def fail(self, problem: str, fix: str) -> NoReturn:
        """Refuse this value.

        Raises:
            ConfigurationError: always.
        """
        place = str(self.file) if self.line is None else f"{self.file}, line {self.line}"
        raise ConfigurationError(place, self.field, problem, fix)

    @contextmanager
    def refusing(self, fix: str) -> Iterator[None]:
        """Fail at this place if a schema is refused; `fix` is the hint unless the refusal has its own."""
        try:
            yield
        except SchemaRefused as error:
            self.fail(str(error).splitlines()[0], error.hint or fix)

    def check_keys(self, known: Collection[str]) -> None:
        """Refuse unknown keys, so that a typo does not silently drop a setting."""
        for key in self.value:
            if key not in known:
                self.child(key).fail("is not a known key", hint_for_name(str(key), known, REFERENCE))

    def validate(self, kind: type[_Settings], values: dict[str, Any], fix: str, shows_value: bool = True) -> _Settings:
        """Build settings from values; refuse the first invalid value, and name its place.

        Args:
            kind: the settings' type.
            values: the values by field. An error is placed at the key with the field's name, so a field whose key has
                another name must have been checked already.
            fix: the hint.
            shows_value: whether the error may repeat the value; False if the value may contain a secret.
        """
        try:
            return kind(**values)
        except ValidationError as error:
            first = error.errors()[0]
            place = self
            for part in first["loc"]:
                place = place.child(part)
            if first["type"] == "missing":
                place.fail("is missing", fix)
            shown = f", not {first.get('input')!r}" if shows_value else ""
            place.fail(_problem_of(first["msg"]) + shown, fix)


_children: WeakKeyDictionary[yaml.MappingNode, dict[str, tuple[int, yaml.Node]]] = WeakKeyDictionary()


def _children_of(node: yaml.MappingNode) -> dict[str, tuple[int, yaml.Node]]:
    """Return the line and the node of each child, by key; kept, because a file may have thousands of collections."""
    if node not in _children:
        _children[node] = {
            at.value: (at.start_mark.line + 1, below) for at, below in node.value if isinstance(at.value, str)
        }
    return _children[node]


def _problem_of(message: str) -> str:
    """Turn a validator's message into the problem that an error states; accepted names keep their case.

    >>> _problem_of("Input should be 'PLAIN'"), _problem_of("Value error, is empty")
    ("input should be 'PLAIN'", 'is empty')
    """
    fact = message.removeprefix("Value error, ")
    return fact[:1].lower() + fact[1:]
