"""A time's schema version is fixed before anybody states that time, whatever order publishers read and commit in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tidelake.codec.avro import AvroCodec, ConfluentCodec
from tidelake.protocol.message import Updates
from tidelake.publish.publishing import claimed_entry
from tidelake.publish.schema import column_names, with_new_columns
from tidelake.store.entry import Capability, Entry, PublishedTopic
from tidelake.store.published_topics import begin, topic_now

FIRST = {"type": "record", "name": "data", "fields": [{"name": "id", "type": "long"}]}
ENTRY = Entry(
    id="7f",
    name="orders",
    framing="reclock",
    envelope="append_only",
    record_schema=FIRST,
    since=(0,),
    capabilities=(Capability(id="own", kind="critical", since=(0,)),),
    created_at_ms=0,
)
TOPIC = PublishedTopic(
    source="files", topic="out", id="a", identity="x", published_from=0, record_schema=FIRST, encoding="confluent"
)


def with_column(entry: Entry) -> Entry:
    """The entry with one more nullable column."""
    fields = entry.record_schema["fields"]
    column = {"name": f"c{len(fields)}", "type": ["null", "long"]}
    return entry.model_copy(update={"record_schema": {**entry.record_schema, "fields": [*fields, column]}})


@dataclass
class Publisher:
    """What one publisher knows: the newest state of the topic that it has seen, an upper, and a new schema, if any."""

    known: PublishedTopic
    until: int = 0
    record: dict[str, Any] | None = None


PARTS = ("look", "prepare", "claim", "state")
numbers = st.integers(0, 2)
steps = st.lists(
    st.one_of(
        st.just((("column",), 0)),
        st.just((("seal",), 0)),
        st.tuples(st.just(PARTS), numbers),
        st.tuples(st.integers(1, 3).map(lambda at: PARTS[:at]), numbers),
        st.tuples(st.integers(1, 3).map(lambda at: PARTS[at:]), numbers),
    ),
    min_size=10,
    max_size=60,
)
"""What happens, in order: a column is added, a time is sealed, or a publisher does parts of its work.

It does all parts, or only the first ones, or only the last ones.
"""


@given(steps)
def test_each_time_has_one_schema_with_every_column_that_has_a_value(
    steps: list[tuple[tuple[str, ...], int]],
) -> None:
    entry, sealed = begin(ENTRY, TOPIC), list[int]()
    publishers = [Publisher(topic_now(entry, TOPIC)) for _ in range(3)]
    stated: dict[int, tuple[str, ...]] = {}
    for step, number in ((step, number) for parts, number in steps for step in parts):
        publisher = publishers[number]
        if step == "column":
            entry = with_column(entry)
        elif step == "seal":  # the rows of this time may have values in all columns that the entry has by now
            sealed.append(len(entry.record_schema["fields"]))
        elif step == "look":
            publisher.until = len(sealed)
        elif step == "prepare":
            publisher.known = topic_now(entry, TOPIC)
            publisher.record = with_new_columns(publisher.known.versions[-1].record_schema, entry)
        elif step == "claim":
            claimed = claimed_entry(entry, publisher.known, publisher.until, publisher.record, 1)
            if claimed is not None:
                entry = claimed
                publisher.known, publisher.record = topic_now(entry, TOPIC), None
        else:
            for time in range(publisher.known.claimed):
                columns = tuple(column_names(publisher.known.version_at(time)[0].record_schema))
                assert len(columns) >= sealed[time], "a value is left out"
                assert stated.setdefault(time, columns) == columns
    assert all(time < len(sealed) for time in stated)


@given(st.integers(-(2**63), 2**63 - 1), st.integers(1, 4), st.integers(0, 4))
def test_an_update_has_the_same_identity_whichever_version_wrote_it(id: int, width: int, more: int) -> None:
    entry = ENTRY
    for _ in range(width):
        entry = with_column(entry)
    older = with_new_columns(FIRST, entry)
    for _ in range(more):
        entry = with_column(entry)
    newer = with_new_columns(FIRST, entry)
    assert older is not None and newer is not None
    codec = ConfluentCodec({1: older, 2: newer}.get, column_names(newer))
    batches = []
    for schema_id, schema in ((1, older), (2, newer)):
        data = {name: id if name == "id" else None for name in column_names(schema)}
        message = codec.decode(codec.encode(Updates([(data, 4, -1)]), schema_id))
        assert isinstance(message, Updates)
        batches.append(message)
    assert batches[0] == batches[1]
    identities = {AvroCodec(newer).identity(update.data) for batch in batches for update in batch.batch}
    assert len(identities) == 1
