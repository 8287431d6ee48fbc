"""Every collection has a form, which defines the columns of its contents."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from tidelake.forms.events import EventForm
from tidelake.forms.keyed import KeyedForm
from tidelake.forms.positioned import PositionedForm
from tidelake.forms.sums import SumForm
from tidelake.plugins.envelope import form_of
from tidelake.settings.terms import ENVELOPES, FRAMINGS
from tidelake.store.entry import Entry

ROW: dict[str, Any] = {
    "type": "record",
    "name": "row",
    "fields": [{"name": "id", "type": "long"}, {"name": "price", "type": ["null", "int"]}],
}

EVENT: dict[str, Any] = {
    "type": "record",
    "name": "event",
    "fields": [{"name": "before", "type": ["null", ROW]}, {"name": "after", "type": ["null", "row"]}],
}


def entry(framing: str, envelope: str, record: dict[str, Any] = ROW, **more: Any) -> Entry:
    return Entry(
        id="c",
        name="prices",
        framing=framing,
        envelope=envelope,
        record_schema=record,
        capabilities=(),
        created_at_ms=0,
        **more,
    )


def test_every_framing_has_a_form_for_every_envelope() -> None:
    for framing, envelope in product(FRAMINGS, ENVELOPES):
        record = EVENT if envelope == "debezium" else ROW
        assert form_of(entry(framing, envelope, record, key=("id",))).fields


@pytest.mark.parametrize(
    ("framing", "envelope", "form"),
    [
        ("cdcv2", "append_only", SumForm),
        ("cdcv2", "upsert", KeyedForm),
        ("reclock", "none", SumForm),
        ("reclock", "upsert", PositionedForm),
        ("reclock", "debezium", PositionedForm),
    ],
)
def test_the_contents_have_the_columns_of_the_data(framing: str, envelope: str, form: type) -> None:
    made = form_of(entry(framing, envelope, key=("id",)))
    assert isinstance(made, form)
    assert [field.name for field in made.fields] == ["id", "price"]


def test_the_contents_of_change_events_have_the_columns_of_the_row() -> None:
    made = form_of(entry("cdcv2", "debezium", EVENT))
    assert isinstance(made, EventForm)
    assert [field.name for field in made.event_fields] == ["before", "after"]
    assert [field.name for field in made.fields] == ["id", "price"]


@pytest.mark.parametrize(("before", "stays"), [("whole", False), ("key", True)])
def test_a_breach_by_events_stays_unless_an_event_may_still_cancel_a_row(before: str, stays: bool) -> None:
    assert form_of(entry("cdcv2", "debezium", EVENT, key=("id",), before=before)).breaches_stay == stays


def test_a_connector_may_resend_its_records_but_upserts_are_not_resent() -> None:
    upsert, changes = (form_of(entry("reclock", envelope, key=("id",))) for envelope in ("upsert", "debezium"))
    assert isinstance(upsert, PositionedForm)
    assert isinstance(changes, PositionedForm)
    assert upsert.resent_within_ms == 0 < changes.resent_within_ms


def test_without_a_table_every_kind_of_row_is_possible() -> None:
    made = form_of(entry("reclock", "debezium", key=("id",)))
    assert isinstance(made, PositionedForm)
    assert made.stores_errors
    assert made.shape.barriers
    assert made.shape.unavailable
