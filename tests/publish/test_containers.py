"""The blocks of Avro files are messages of the protocol."""

from __future__ import annotations

import io
import json

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.lakes.lake import RECORD
from tidelake.codec.avro import AvroCodec
from tidelake.errors import CodecError
from tidelake.protocol.message import Update, Updates
from tidelake.publish.containers import blocks_in
from tidelake.publish.schema import update_schema

int64 = st.integers(-(2**63), 2**63 - 1)
prices = st.none() | st.integers(-(2**31), 2**31 - 1)
statements = st.lists(st.tuples(int64, prices, st.integers(0, 2**63 - 1), int64.filter(bool)), max_size=40)


def container(updates: list[Update], block_bytes: int) -> memoryview:
    """The bytes of an Avro file, in the form in which Arrow gives those of a mapped file."""
    out = io.BytesIO()
    records = [{"data": data, "time": time, "diff": diff} for data, time, diff in updates]
    schema = fastavro.parse_schema(json.loads(json.dumps(update_schema(RECORD))))
    fastavro.writer(out, schema, records, sync_interval=block_bytes, metadata={"made.by": "x" * 200})
    return memoryview(pa.py_buffer(out.getvalue())).cast("B")


@given(statements, st.integers(1, 400))
def test_the_messages_of_a_file_state_its_records(rows: list[tuple[int, int | None, int, int]], block: int) -> None:
    updates = [Update({"id": id, "price": price}, time, diff) for id, price, time, diff in rows]
    codec = AvroCodec(RECORD)
    found: list[Update] = []
    for each in blocks_in(container(updates, block)):
        assert each.number > 0
        message = each.message(b"head")
        assert message[:4] == b"head"
        decoded = codec.decode(message[4:])
        assert isinstance(decoded, Updates)
        assert len(decoded.batch) == each.number
        found += decoded.batch
    assert found == updates


def test_a_file_that_was_cut_or_damaged_is_refused() -> None:
    whole = container([Update({"id": id, "price": 1}, 3, 1) for id in range(50)], 100)
    assert sum(block.number for block in blocks_in(whole)) == 50
    for end in (0, 3, 100, len(whole) - 17, len(whole) - 1):
        with pytest.raises(CodecError):
            list(blocks_in(whole[:end]))
    for at in range(len(whole) - 16, len(whole)):
        damaged = bytearray(whole)
        damaged[at] ^= 1
        with pytest.raises(CodecError):
            list(blocks_in(memoryview(damaged)))
