"""No envelope: a statement is data with any diff but 0."""

from __future__ import annotations

from tidelake.forms.form import Form
from tidelake.forms.sums import SumForm
from tidelake.plugins.envelope import Envelope, register_envelope
from tidelake.settings.terms import ENVELOPES
from tidelake.store.commit import OpenTable
from tidelake.store.entry import Entry


class NoEnvelope(Envelope):
    """Statements add and remove data; the contents are the data whose diffs do not add up to 0."""

    terms = ENVELOPES["none"]

    def form(self, entry: Entry, table: OpenTable | None = None) -> Form:
        """Return the form that adds up diffs."""
        return SumForm(entry, table)


def register() -> None:
    """Register the envelope; `pyproject.toml` names this function as its entry point."""
    register_envelope(NoEnvelope())
