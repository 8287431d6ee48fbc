"""The state that a table's log describes by Delta's rules. A checkpoint is trusted only if it holds the same state.

delta-rs writes checkpoints without any checksum, and trusts what it reads.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

Actions = Iterable[dict[str, dict[str, Any]]]


@dataclass
class LogState:
    """The live files, values and metadata of a table at a version."""

    files: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By path: size, partition values and statistics."""
    values: dict[str, int] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)
    protocol: dict[str, Any] = field(default_factory=dict)

    def apply(self, actions: Actions) -> None:
        """Apply the actions of an entry, or of a checkpoint."""
        for action in actions:
            for kind, body in action.items():
                match kind:
                    case "remove":
                        self.files.pop(body["path"], None)
                    case "add":
                        self.files[body["path"]] = {
                            "size": body["size"],
                            "partition": dict(body["partitionValues"]),
                            "statistics": json.loads(body["stats"]) if body.get("stats") else None,
                        }
                    case "txn":
                        self.values[body["appId"]] = body["version"]
                    case "metaData":
                        self.metadata = {
                            "id": body["id"],
                            "schema": json.loads(body["schemaString"]),
                            "partitioned by": list(body["partitionColumns"]),
                            "configuration": dict(body.get("configuration") or {}),
                        }
                    case "protocol":
                        names = ("minReaderVersion", "minWriterVersion")
                        self.protocol = {name: body[name] for name in names}


def checkpoint_state(data: bytes) -> LogState:
    """Return the state that a checkpoint holds.

    Raises:
        ValueError, OSError, pa.ArrowException: the checkpoint cannot be read.
    """
    state = LogState()
    rows = pq.ParquetFile(pa.BufferReader(data)).read(["add", "txn", "metaData", "protocol"])
    rows.validate(full=True)
    for row in rows.to_pylist():
        state.apply([{kind: body for kind, body in row.items() if body is not None}])
    return state
