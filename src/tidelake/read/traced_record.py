"""Finds what became of the records of reclocked topics, without a JVM: the binding of a record's time, and its row."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from tidelake.forms.key_errors import keys_in_error
from tidelake.protocol.binding import Binding
from tidelake.settings.terms import envelope_terms
from tidelake.store.bindings import read_bindings
from tidelake.store.commit import OpenTable
from tidelake.store.entry import Collection
from tidelake.store.layout import DIFF, ERROR, POSITION, TIME
from tidelake.store.rows_at import rows_at
from tidelake.store.state import SINCE
from tidelake.topic.topic import Record


class TracedRecord:
    """A record that a reclocked collection has read, at one version of its table."""

    def __init__(self, collection: Collection, table: OpenTable, place: tuple[str, int, int]) -> None:
        """Find the binding of the record's time.

        Args:
            collection: the collection.
            table: its updates table.
            place: the topic's name in the tables, a partition, and an offset that has been read.

        Raises:
            DamagedTable: a binding is missing or contradicts other bindings.
        """
        self.collection, self.table, self.place = collection, table, place
        topic, partition, offset = place
        self.binding: Binding | None = next(
            (
                binding
                for binding in read_bindings(collection, table)
                if binding.starts.get((topic, partition), 0) <= offset < binding.ends.get((topic, partition), 0)
            ),
            None,
        )

    @property
    def facts(self) -> dict[str, Any]:
        """The binding: the minted time, when the tick began, and what it read and stored."""
        if self.binding is None:
            return {}
        binding = self.binding
        return {
            "time": binding.time,
            "at_ms": binding.at_ms,
            "records": binding.records,
            "rows": binding.rows,
            "quarantined": binding.quarantined,
        }

    @property
    def forgets_rows(self) -> bool:
        """Whether a merge may have dropped or moved the rows of the record's time."""
        compacted = self.table.value(SINCE) or 0
        return self.binding is not None and bool(compacted) and self.binding.time <= compacted

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows that the record made, as far as their positions show.

        Returns:
            Each row has `means` (`value`, `delete`, `error` or `truncate`), `key` as text, `error`, and
            `is_still_in_error`. An update that changes the key makes two rows. The result is empty if there is no
            key: without one, the rows of a time cannot be told apart.

        Cost: the rows of the record's time, without the columns of the data; if there is an error, all error rows.
        """
        entry = self.collection.entry
        if self.binding is None or not entry.positioned:
            return []
        columns = [TIME, DIFF, POSITION, ERROR, *entry.key]
        stored = rows_at(self.table.path, self.table.files(), [self.binding.time], columns)
        found = [row for row in stored if self._is_position(row[POSITION])]
        in_error = keys_in_error(self.collection).rows if any(row[ERROR] for row in found) else frozenset()
        return [
            {
                "means": _meaning_of(row),
                "key": _shown(row, entry.key),
                "error": row[ERROR],
                "is_still_in_error": row[ERROR] is not None and (row[TIME], *row[POSITION]) in in_error,
            }
            for row in found
        ]

    @property
    def shares_position(self) -> bool:
        """Whether the rows may come from another partition or topic, in which the tick read the same offset."""
        if self.binding is None:
            return False
        binding, (_, partition, offset) = self.binding, self.place
        same = [place for place, end in binding.ends.items() if binding.starts.get(place, 0) <= offset < end]
        return len(same if self._has_changes else [place for place in same if place[1] == partition]) > 1

    def _is_position(self, position: Sequence[int]) -> bool:
        """Return whether a row at this position may be the record's.

        The position of an upsert ends with its partition and offset, that of a change event with its offset. The row
        that completes a snapshot has a position of one number, and belongs to no record.
        """
        _, partition, offset = self.place
        if self._has_changes:
            return len(position) > 1 and position[-1] == offset
        return tuple(position[-2:]) == (partition, offset)

    @property
    def _has_changes(self) -> bool:
        return envelope_terms(self.collection.entry.envelope).of_changes


def is_tombstone(record: Record, format: str) -> bool:
    """Return whether a record has no value, or, in JSON, null with an embedded schema."""
    if record.value is None:
        return True
    if format != "json":
        return False
    try:
        value = json.loads(record.value)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and value.keys() == {"schema", "payload"} and value["payload"] is None


def _meaning_of(row: dict[str, Any]) -> str:
    if row[ERROR] is not None:
        return "error"
    return {1: "value", -1: "delete", 0: "truncate"}[row[DIFF]]


def _shown(row: dict[str, Any], key: Sequence[str]) -> str:
    return json.dumps({name: row[name] for name in key}, default=str, ensure_ascii=False)
