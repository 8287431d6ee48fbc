"""Joins encoded updates into messages, in Arrow. Executors import this module, so it imports little."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

UPDATES_MAX = 500
"""Maximum number of updates in a message."""
BYTES_MAX = 128 * 1024
"""Maximum size of the updates in a message, unless it has a single update."""
UPDATE, VALUE, COUNTS = "_update", "value", "counts"
MESSAGES = f"{VALUE} binary, {COUNTS} array<struct<time: bigint, count: bigint>>"

_COUNT = pa.struct([("time", pa.int64()), ("count", pa.int64())])
_MESSAGES_ARROW = pa.schema([(VALUE, pa.binary()), (COUNTS, pa.list_(_COUNT))])
_UPDATES_BRANCH, _END_OF_ARRAY = b"\x00", b"\x00"


class Regroup:
    """Turns batches of times and encoded updates into batches of messages; see `messages.messages_of`."""

    def __init__(self, header: bytes) -> None:
        """Take the bytes that come before each message."""
        self.start = header + _UPDATES_BRANCH

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield a batch of messages for each batch that has rows."""
        for batch in batches:
            if batch.num_rows:
                yield self._messages(batch)

    def _messages(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        times, numbers = np.unique(batch.column(0).to_numpy(zero_copy_only=False), return_counts=True)
        mine = batch.column(1).drop_null().cast(pa.large_binary())
        values: list[bytes | None] = list(self._bodies(mine)) or [None]
        # The first row has the counts of the whole batch.
        ends = pa.array([0, *(len(times) for _ in values)], pa.int32())
        parts = pa.StructArray.from_arrays([pa.array(times), pa.array(numbers)], fields=list(_COUNT))
        counts = pa.ListArray.from_arrays(ends, parts, type=_MESSAGES_ARROW.field(COUNTS).type)
        return pa.RecordBatch.from_arrays([pa.array(values, pa.binary()), counts], schema=_MESSAGES_ARROW)

    def _bodies(self, updates: pa.LargeBinaryArray) -> Iterator[bytes]:
        if not len(updates):
            return
        _, ends, data = updates.buffers()
        offsets = np.frombuffer(ends, np.int64)[updates.offset : updates.offset + len(updates) + 1]
        first = 0
        while first < len(updates):
            last = int(np.searchsorted(offsets, offsets[first] + BYTES_MAX, "right")) - 1
            last = min(max(last, first + 1), first + UPDATES_MAX, len(updates))
            body = data[int(offsets[first]) : int(offsets[last])]
            yield b"".join((self.start, long_bytes(last - first), memoryview(body), _END_OF_ARRAY))
            first = last


def long_bytes(value: int) -> bytes:
    """Encode an Avro long that is not negative.

    >>> long_bytes(0).hex(), long_bytes(63).hex(), long_bytes(64).hex()
    ('00', '7e', '8001')
    """
    rest, encoded = value << 1, bytearray()
    while rest > 0x7F:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)
