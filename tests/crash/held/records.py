"""The calls that processes have recorded, as the validator reads them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOR_EVER = 1 << 62
"""The end of a call whose process was killed."""


@dataclass
class Call:
    """A call of a process: what it asked, when, and the answer or the error; neither if the process was killed."""

    process: str
    name: str
    asked: dict[str, Any]
    begun: int
    ended: int = FOR_EVER
    answer: dict[str, Any] | None = None
    error: dict[str, Any] | None = None

    def __str__(self) -> str:
        return f"{self.process} {self.name} {self.asked}: {self.answer or self.error or 'killed'}"


def calls_in(lines: Iterable[str], process: str) -> Iterator[Call]:
    """Read the records of a process; the last line may be torn."""
    open_call: Call | None = None
    for line in lines:
        if not line.endswith("\n"):
            break
        record = json.loads(line)
        if "name" in record:
            if open_call is not None:
                yield open_call
            open_call = Call(process, record["name"], record["asked"], record["at"])
            continue
        assert open_call is not None
        open_call.ended, open_call.answer, open_call.error = record["at"], record.get("answer"), record.get("error")
        yield open_call
        open_call = None
    if open_call is not None:
        yield open_call


def read_calls(folder: Path) -> list[Call]:
    """The calls of all processes, in the order in which they began."""
    calls: list[Call] = []
    for path in sorted(folder.glob("*.jsonl")):
        with path.open(encoding="utf-8") as lines:
            calls += calls_in(lines, path.stem)
    return sorted(calls, key=lambda call: call.begun)
