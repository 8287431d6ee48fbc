"""Append-only: rows are added and never removed."""

from __future__ import annotations

from tidelake.forms.form import Form
from tidelake.forms.refusals import Refusal, is_negative
from tidelake.forms.sums import SumForm
from tidelake.ingest.plain_records import PlainRecords, append_only_rows, read_events
from tidelake.plugins.envelope import Envelope, RecordBatch, Records, register_envelope
from tidelake.settings.terms import ENVELOPES
from tidelake.store.commit import OpenTable
from tidelake.store.entry import Entry


class AppendOnly(Envelope):
    """A statement adds its data as many times as its diff says. In a reclocked topic, each record adds a row."""

    terms = ENVELOPES["append_only"]
    refusals = (Refusal("append_only_diff", "an append-only collection takes no negative diff", is_negative),)

    def form(self, entry: Entry, table: OpenTable | None = None) -> Form:
        """Return the form of sums: diffs are summed."""
        return SumForm(entry, table)

    def records(self, batch: RecordBatch) -> Records:
        """Return records, each of which becomes a row if it can be decoded."""
        return PlainRecords(batch, read_events, append_only_rows)


def register() -> None:
    """Register the envelope; `pyproject.toml` names this function as its entry point."""
    register_envelope(AppendOnly())
