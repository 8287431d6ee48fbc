"""The reads of a subscription, with either engine: contents AS OF a time, and the changes of a range of times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from tidelake.store.commit import OpenTable
from tidelake.store.entry import Collection

T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True)
class Selection:
    """The columns and rows that a subscription reads; see `snapshot`."""

    columns: Sequence[str] = ()
    where: str | None = None
    skip_errors: bool = False

    def as_arguments(self) -> dict[str, Any]:
        """Return the arguments of `snapshot` and `changes`."""
        return {"columns": self.columns, "where": self.where, "skip_errors": self.skip_errors}


class Source(Protocol[T_co]):
    """Reads the updates of a collection with one engine.

    The methods raise what `snapshot` and `changes` raise. Their results have the requested columns, `_time` and
    `_diff`, and can be evaluated only until the next call.
    """

    def contents(self, collection: Collection, at: int, selection: Selection) -> T_co:
        """Return the contents AS OF a time, as updates of that time."""

    def changes(
        self, collection: Collection, table: OpenTable, after: int, through: int, selection: Selection, in_order: bool
    ) -> T_co:
        """Return the consolidated changes of a range of times.

        Args:
            collection: the collection.
            table: the version to read.
            after: the last time before the range.
            through: the last time of the range.
            selection: the columns and rows.
            in_order: whether to sort the updates by time.
        """

    def release(self) -> None:
        """Free what the last call returned."""
