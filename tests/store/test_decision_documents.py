"""Decisions on disk: documents of every release are read, and written back unchanged."""

from __future__ import annotations

from typing import get_args

import pytest
from pydantic import ValidationError

from tidelake.store.decision import (
    AcceptGap,
    AcceptTopic,
    Acknowledge,
    Count,
    Decision,
    Discard,
    Offsets,
    Park,
    replaces,
)
from tidelake.store.entry import Entry

REST = '"reason":"r","at_ms":7}'
STORED: list[tuple[str, Decision]] = [
    (
        '{"time":3,"count":2,"discard":null,"accept_gap":null,"accept_topic":null,"quarantined":null,',
        Count(time=3, count=2, reason="r", at_ms=7),
    ),
    (
        '{"time":3,"count":null,"discard":{"data":{"id":1,"dec":"0.10","by":{"b64":"AP8="}},"diff":-1},"accept_gap":null,'
        '"accept_topic":null,"quarantined":null,',
        Discard(
            time=3, statement={"data": {"id": 1, "dec": "0.10", "by": {"b64": "AP8="}}, "diff": -1}, reason="r", at_ms=7
        ),
    ),
    (
        '{"time":null,"count":null,"discard":null,"accept_gap":["eu:orders#1",0,100,200],"accept_topic":null,'
        '"quarantined":null,',
        AcceptGap(offsets=Offsets("eu:orders#1", 0, 100, 200), reason="r", at_ms=7),
    ),
    (
        '{"time":null,"count":null,"discard":null,"accept_gap":null,"accept_topic":["orders",77,{"0":3,"1":0}],'
        '"quarantined":null,',
        AcceptTopic(topic="orders", identity=77, starts={0: 3, 1: 0}, reason="r", at_ms=7),
    ),
    (
        '{"time":null,"count":null,"discard":null,"accept_gap":null,"accept_topic":null,"quarantined":["orders",0,7,8],',
        Acknowledge(offsets=Offsets("orders", 0, 7, 8), reason="r", at_ms=7),
    ),
    (
        '{"time":null,"count":null,"discard":null,"accept_gap":null,"accept_topic":null,"quarantined":null,"park":"7",',
        Park(transaction="7", reason="r", at_ms=7),
    ),
]
ENTRY = (
    '{"id":"1","name":"orders","framing":"cdcv2","envelope":"none","format":"avro","record_schema":{},'
    '"value_schema":{},"added":[],"key":[],"before":"whole","epoch":0,"since":[0],"capabilities":[],"decisions":['
)
END = '],"created_at_ms":0,"tables_made":true}'


@pytest.mark.parametrize(("head", "decision"), STORED, ids=lambda value: type(value).__name__)
def test_a_stored_entry_is_read_and_written_back_byte_for_byte(head: str, decision: Decision) -> None:
    text = f"{ENTRY}{head}{REST}{END}"
    entry = Entry.model_validate_json(text)
    assert entry.decisions == (decision,)
    assert type(entry.decisions[0]) is type(decision)
    assert entry.model_dump_json() == text


def test_the_stored_documents_are_of_every_kind() -> None:
    assert {type(decision) for _, decision in STORED} == set(get_args(Decision))


def test_a_document_of_an_old_release_may_lack_fields_that_were_added_later() -> None:
    text = f'{ENTRY}{{"time":3,"count":2,{REST}{END}'
    assert Entry.model_validate_json(text).decisions == (Count(time=3, count=2, reason="r", at_ms=7),)


@pytest.mark.parametrize(
    "head",
    [
        "{",
        '{"time":3,',
        '{"count":3,',
        '{"time":3,"count":1,"discard":{},',
        '{"time":3,"accept_gap":["orders",0,1,2],',
        '{"time":3,"count":1,"more":1,',
        '{"accept_gap":["orders",0,1],',
    ],
)
def test_a_document_that_is_not_one_decision_is_refused(head: str) -> None:
    with pytest.raises(ValidationError):
        Entry.model_validate_json(f"{ENTRY}{head}{REST}{END}")


def test_a_count_replaces_any_count_of_its_time_but_another_decision_replaces_only_an_equal_one() -> None:
    count = Count(time=3, count=2, reason="r", at_ms=0)
    discard = Discard(time=3, statement={"data": {"id": 1}, "diff": 1}, reason="r", at_ms=0)
    gap = AcceptGap(offsets=Offsets("orders", 0, 1, 2), reason="r", at_ms=0)
    topic = AcceptTopic(topic="orders", reason="r", at_ms=0)
    assert replaces(count, Count(time=3, count=9, reason="s", at_ms=5))
    assert not replaces(count, Count(time=4, count=2, reason="r", at_ms=0))
    assert not replaces(count, discard)
    assert replaces(discard, discard.model_copy(update={"reason": "s", "at_ms": 5}))
    assert not replaces(discard, discard.model_copy(update={"time": 4}))
    assert replaces(gap, gap.model_copy(update={"at_ms": 5}))
    assert not replaces(gap, Acknowledge(offsets=gap.offsets, reason="r", at_ms=0))
    assert not replaces(topic, topic)  # a topic may be recreated several times, and each time needs a decision
