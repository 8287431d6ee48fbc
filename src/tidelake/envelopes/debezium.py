"""Change events: a statement has the row before a change and the row after it."""

from __future__ import annotations

from pyspark.sql import Column as SparkColumn

from tidelake.forms.announced_sums import AnnouncedSumForm
from tidelake.forms.events import EventForm
from tidelake.forms.form import Form
from tidelake.forms.positioned import PositionedForm
from tidelake.forms.refusals import Refusal, is_negative
from tidelake.ingest.debezium import ChangeRecords
from tidelake.plugins.envelope import Envelope, RecordBatch, Records, register_envelope
from tidelake.schema.change_events import AFTER, BEFORE, row_record_of
from tidelake.schema.columns import Column, column_types
from tidelake.settings.terms import ENVELOPES
from tidelake.store.commit import OpenTable
from tidelake.store.entry import Entry

_REPEATED_WITHIN_MS = 7 * 24 * 3600 * 1000
"""For this long after an event was first read, a restarted connector may repeat it, at its old position."""


def _is_without_rows(statement: SparkColumn) -> SparkColumn:
    return statement["data"][BEFORE].isNull() & statement["data"][AFTER].isNull()


class Debezium(Envelope):
    """An event removes its row `before` and adds its row `after`; the contents are rows."""

    terms = ENVELOPES["debezium"]
    refusals = (
        Refusal("event_diff", "a change event must have a positive diff", is_negative),
        Refusal(
            "event_without_rows",
            "an event with neither before nor after, such as a truncate, does not say what changes",
            _is_without_rows,
        ),
    )

    def form(self, entry: Entry, table: OpenTable | None = None) -> Form:
        """Return the form of the events as stated (CDCv2) or of the rows that result from them (other framings)."""
        if entry.counts_positions and not entry.key:
            return AnnouncedSumForm(entry, table)
        if entry.positioned:
            # Only sealed rows are merged, and a repeated event of a sealed transaction is late: it is not stored.
            resent_within_ms = 0 if entry.counts_positions else _REPEATED_WITHIN_MS
            return PositionedForm(entry, table, resent_within_ms)
        return EventForm(entry, table)

    def records(self, batch: RecordBatch) -> Records:
        """Return the records of a batch, which turns change events into rows with their positions in the source."""
        return ChangeRecords(batch)

    def contents_types(self, entry: Entry) -> tuple[Column, ...]:
        """Return the columns of the rows in `before` and `after`."""
        return column_types(entry.record_schema if entry.positioned else row_record_of(entry.record_schema))


def register() -> None:
    """Register the envelope; `pyproject.toml` names this function as its entry point."""
    register_envelope(Debezium())
