"""The protocol of forms in SQL: the same contents as `tidelake.forms.form`, from the same stored rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import pyarrow as pa

from tidelake.query.names import quoted
from tidelake.query.reads import Reads, Where


class Form(Protocol):
    """The meaning of the rows of one collection's table. Methods that take `reads` return queries, or None."""

    fields: list[pa.Field]
    """The columns of the contents."""
    key: tuple[str, ...]
    """The columns that identify a row; empty if the contents have no key."""
    is_additive: bool = False
    """Whether the contents are the sums of the diffs of equal stored rows."""

    def contents(self, reads: Reads, at: int, columns: Sequence[str], where: Where | None = None) -> str:
        """Compute the contents AS OF a time.

        Out: `columns`, and _diff bigint, how many times a row occurs; never 0. If the contents have a key and `columns`
             lack it, several rows may be equal.

        Args:
            reads: how to read stored rows.
            at: the time.
            columns: some columns of the contents.
            where: which rows to keep.
        """

    def row_updates(self, reads: Reads, after: int, through: int) -> str | None:
        """Compute the updates after a time, up to and including another; None if earlier rows are needed as well.

        Out: the columns of the contents, _time, _diff; not added up.
        """

    def states(self, reads: Reads, after: int, through: int, with_errors: bool) -> str:
        """Compute the states of the keys that the rows of a range affect; see `forms.key_states`.

        Out: the key's columns and _time (unique together), _row struct (null without a row), _error.
        """
        raise AssertionError("the contents of this form have no key")

    def errors(self, reads: Reads, at: int) -> str | None:
        """Find the keys in error at a time: the key's columns, _time, _error. None if no error was ever stored."""
        return None

    def unknown(self, reads: Reads, at: int) -> str | None:
        """Find the rows that lack a value: the key's columns, _unavailable. None if no value was ever missing."""
        return None

    def needed(self, columns: Sequence[str], where: Where | None) -> list[str]:
        """Return the columns to read, each once, in the order of the table."""
        wanted = {*columns, *(where.columns if where is not None else ())}
        return [field.name for field in self.fields if field.name in wanted]

    def chosen(self, columns: Sequence[str]) -> list[pa.Field]:
        """Return the fields of these columns."""
        by_name = {field.name: field for field in self.fields}
        return [by_name[name] for name in columns]


def matched(left: str, right: str, columns: Sequence[str]) -> str:
    """Return the condition that rows of two relations are equal in these columns; null equals null."""
    return " AND ".join(f"{left}.{quoted(name)} IS NOT DISTINCT FROM {right}.{quoted(name)}" for name in columns)
