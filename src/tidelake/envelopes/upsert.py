"""Upserts: a statement sets the value of a key, or deletes it."""

from __future__ import annotations

from tidelake.forms.form import Form
from tidelake.forms.keyed import KeyedForm
from tidelake.forms.positioned import PositionedForm
from tidelake.ingest.plain_records import PlainRecords, read_upserts, upsert_rows
from tidelake.plugins.envelope import Envelope, RecordBatch, Records, register_envelope
from tidelake.settings.terms import ENVELOPES
from tidelake.store.commit import OpenTable
from tidelake.store.entry import Entry


class Upsert(Envelope):
    """A diff of +1 sets the key's value from its time onwards; a diff of −1 deletes the key."""

    terms = ENVELOPES["upsert"]

    def form(self, entry: Entry, table: OpenTable | None = None) -> Form:
        """Return a form in which only the newest statement of each key, by time or by position, takes effect."""
        # The tick assigns the positions, so a repeated record counts as new.
        return PositionedForm(entry, table, resent_within_ms=0) if entry.positioned else KeyedForm(entry, table)

    def records(self, batch: RecordBatch) -> Records:
        """Return records; the last record of each key becomes a row."""
        return PlainRecords(batch, read_upserts, upsert_rows)


def register() -> None:
    """Register the envelope; `pyproject.toml` names this function as its entry point."""
    register_envelope(Upsert())
