"""The findings of `tidelake doctor`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tidelake.errors import TidelakeError

Level = Literal["ok", "warn", "fail"]


@dataclass(frozen=True)
class Finding:
    """One line of the report."""

    check: str
    """The subject of the check, such as `java`, or `topic orders`."""
    level: Level
    fact: str
    hint: str | None = None
    """What to do; None if there is nothing to do."""


def failed(check: str, error: TidelakeError, level: Level = "fail") -> Finding:
    """Turn an error into a finding."""
    return Finding(check, level, error.fact, error.hint)
