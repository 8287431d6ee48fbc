"""The text of a log entry, as a commit puts it into the log: what it states about itself, its files and its values."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from deltalake import CommitProperties, Transaction

from tidelake.store.files import RunFile
from tidelake.store.layout import RUN
from tidelake.store.table_log import BEFORE, LAST

_ENGINE = "tidelake"
_SAFE = "/=!$&'()+,:;@"
"""The characters that delta-rs does not encode in paths, besides letters, digits and `_.-~`."""


@dataclass(frozen=True)
class Stated:
    """What an entry states besides its files."""

    nonce: str
    """The random name of the commit."""
    before: str
    """The SHA-256 of the previous entry; empty in the first entry."""
    values: Mapping[str, int]
    """The values that it sets, in this order: `seq` is the last one."""

    @property
    def fields(self) -> dict[str, str]:
        """The fields of `commitInfo`."""
        return {"nonce": self.nonce, BEFORE: self.before} | LAST

    def properties(self) -> CommitProperties:
        """Return the properties with which delta-rs writes such an entry."""
        transactions = [Transaction(name, value) for name, value in self.values.items()]
        return CommitProperties(custom_metadata=self.fields, max_commit_retries=0, app_transactions=transactions)


def entry_of_files(stated: Stated, adds: Sequence[RunFile], removes: Sequence[RunFile]) -> bytes:
    """Return the entry that adds and removes files: what `DeltaTable.create_write_transaction` would write.

    Args:
        stated: what the entry states besides its files.
        adds: files that are not live yet.
        removes: live files.

    Source: the Delta protocol, "Add File and Remove File", "Transaction Identifiers" and "Commit Provenance
    Information".
    """
    now_ms = int(time.time() * 1000)
    actions: list[dict[str, Any]] = [
        {
            "commitInfo": {
                "timestamp": now_ms,
                "operation": "WRITE",
                "operationParameters": {
                    "mode": "Overwrite" if removes else "Append",
                    "partitionBy": json.dumps([RUN]),
                },
                "engineInfo": _ENGINE,
                **stated.fields,
            }
        }
    ]
    for file in adds:
        added = _name_of(file) | {"modificationTime": now_ms, "dataChange": True, "stats": file.statistics()}
        actions.append({"add": added})
    for file in removes:
        removed = _name_of(file) | {"deletionTimestamp": now_ms, "dataChange": True, "extendedFileMetadata": True}
        actions.append({"remove": removed})
    actions += [{"txn": {"appId": name, "version": int(value)}} for name, value in stated.values.items()]
    return "\n".join(json.dumps(action, ensure_ascii=False, separators=(",", ":")) for action in actions).encode()


def _name_of(file: RunFile) -> dict[str, Any]:
    """Return the fields that name a file. Delta encodes paths as in URLs."""
    return {"path": quote(file.path, safe=_SAFE), "partitionValues": {RUN: file.run}, "size": file.bytes}
