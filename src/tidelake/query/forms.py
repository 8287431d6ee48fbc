"""Derives the form of a collection's table, and the columns of its contents, from its entry."""

from __future__ import annotations

from collections.abc import Callable

from tidelake.errors import EngineRefused
from tidelake.query.events import EventForm
from tidelake.query.form import Form
from tidelake.query.keyed import KeyedForm
from tidelake.query.positioned import PositionedForm
from tidelake.query.sums import SumForm
from tidelake.schema.change_events import row_record_of
from tidelake.schema.columns import Column, column_types
from tidelake.store.commit import OpenTable
from tidelake.store.entry import Collection, Entry

_ENVELOPES: dict[str, Callable[[Entry], Form]] = {
    "none": SumForm,
    "append_only": SumForm,
    "upsert": KeyedForm,
    "debezium": EventForm,
}
"""The forms of the built-in envelopes, for collections whose rows have no position."""


def _sums_announced(entry: Entry) -> bool:
    """Return whether rows have no key, but positions, by which copies are recognised; see `forms.announced_sums`."""
    return entry.counts_positions and not entry.key


def is_known(entry: Entry) -> bool:
    """Return whether DuckDB can read a collection; it cannot if the envelope is from another package."""
    return entry.envelope in _ENVELOPES


def form_of(collection: Collection, table: OpenTable) -> Form:
    """Return the form of a collection's table.

    Raises:
        EngineRefused: the envelope is from another package, so only Spark knows what its rows mean.
    """
    entry = collection.entry
    if not is_known(entry):
        fact = f"the envelope '{entry.envelope}' of '{entry.name}' is from another package"
        raise EngineRefused("duckdb", fact, "read it with Spark: --engine spark, or LakeCollection.snapshot")
    if _sums_announced(entry):
        return SumForm(entry)
    return PositionedForm(entry, table) if entry.positioned else _ENVELOPES[entry.envelope](entry)


def contents_types(entry: Entry) -> tuple[Column, ...]:
    """Return the columns of the contents."""
    is_of_rows = entry.positioned or entry.envelope != "debezium"
    return column_types(entry.record_schema if is_of_rows else row_record_of(entry.record_schema))
