"""The state that a table's log describes by Delta's rules, read from entries and checkpoints that have been verified.

The log is not read by delta-rs, which would read it once more, unverified, and which trusts checkpoints although it
writes them without any checksum. Here, a checkpoint is trusted only if it holds the same state as the entries that it
covers.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

Actions = Iterable[dict[str, dict[str, Any]]]
Step = tuple[str, str, Any]
"""The change that an action makes: the kind of the action, the path or name that it concerns, and the details."""

_CACHED_BYTES_MAX = 1 << 16
"""Entries up to this size are cached once they are parsed. Hardly any are larger."""


@dataclass
class LogState:
    """The live files, values and metadata of a table at a version."""

    files: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By path: size, partition values and statistics."""
    values: dict[str, int] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)
    protocol: dict[str, Any] = field(default_factory=dict)

    def apply(self, steps: Iterable[Step]) -> None:
        """Apply the steps of an entry, or of a checkpoint."""
        for kind, name, body in steps:
            match kind:
                case "remove":
                    self.files.pop(name, None)
                case "add":
                    self.files[name] = body
                case "txn":
                    self.values[name] = body
                case "metaData":
                    self.metadata = body
                case "protocol":
                    self.protocol = body

    def copy(self) -> LogState:
        """Return a copy to which entries can be applied."""
        return replace(self, files=dict(self.files), values=dict(self.values))


def steps_of(actions: Actions) -> list[Step]:
    """Return the changes that actions make.

    Raises:
        ValueError, KeyError, TypeError: they are not Delta actions.
    """
    return [(kind, *_step(kind, body)) for action in actions for kind, body in action.items() if kind in _KINDS]


_KINDS = frozenset({"add", "remove", "txn", "metaData", "protocol"})


def _step(kind: str, body: dict[str, Any]) -> tuple[str, Any]:
    match kind:
        case "remove":
            return unquote(body["path"]), None
        case "add":
            return unquote(body["path"]), {
                "size": body["size"],
                "partition": dict(body["partitionValues"]),
                "statistics": json.loads(body["stats"]) if body.get("stats") else None,
            }
        case "txn":
            return body["appId"], body["version"]
        case "metaData":
            return body["id"], {
                "id": body["id"],
                "schema": json.loads(body["schemaString"]),
                "partitioned by": list(body["partitionColumns"]),
                "configuration": dict(body.get("configuration") or {}),
            }
        case _:
            return "", {name: body[name] for name in ("minReaderVersion", "minWriterVersion")}


def entry_steps(text: bytes) -> list[Step]:
    """Return the changes that an entry makes. Callers must not change the result: the steps of most entries are cached.

    Raises:
        ValueError: the text is not a Delta entry.
    """
    return _cached_entry_steps(text) if len(text) <= _CACHED_BYTES_MAX else _entry_steps(text)


def parsed_entry(text: bytes) -> list[dict[str, dict[str, Any]]]:
    """Return the actions of an entry. Callers must not change the result: small entries are cached.

    Raises:
        ValueError: the text is not JSON lines.
    """
    return _cached_entry(text) if len(text) <= _CACHED_BYTES_MAX else _parsed_entry(text)


def _parsed_entry(text: bytes) -> list[dict[str, dict[str, Any]]]:
    try:  # strings may contain other line separators
        return [json.loads(line) for line in text.split(b"\n") if line.strip()]
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


@lru_cache(maxsize=256)
def _cached_entry(text: bytes) -> list[dict[str, dict[str, Any]]]:
    return _parsed_entry(text)


def _entry_steps(text: bytes) -> list[Step]:
    try:
        return steps_of(parsed_entry(text))
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error


@lru_cache(maxsize=2048)
def _cached_entry_steps(text: bytes) -> list[Step]:
    return _entry_steps(text)


def checkpoint_state(data: bytes) -> LogState:
    """Return the state that a checkpoint holds, as a copy that the caller may change.

    Raises:
        ValueError, KeyError, TypeError, OSError, pa.ArrowException: the checkpoint cannot be read.
    """
    return _checkpoint_state(data).copy()


@lru_cache(maxsize=128)
def _checkpoint_state(data: bytes) -> LogState:
    state = LogState()
    rows = pq.ParquetFile(pa.BufferReader(data)).read(["add", "txn", "metaData", "protocol"])
    rows.validate(full=True)
    for row in rows.to_pylist():
        state.apply(steps_of([{kind: body for kind, body in row.items() if body is not None}]))
    return state
