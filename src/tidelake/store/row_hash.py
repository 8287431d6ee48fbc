"""The hashes of `spark.row_hash` for an Arrow table that the driver holds.

Spark hashes with XXH64. The hash of each value is the seed for the next value, and nulls are skipped. Here, flat
columns are hashed for all rows at once.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.spark.row_hash import as_text, column_id
from tidelake.store.layout import RUN

_SEED = 42
"""Spark's first seed."""
_SHORT_DECIMAL_DIGITS = 18
"""Spark hashes a decimal type of at most this many digits like a long."""
_BITS_PACKED = 62
_MASK = 2**64 - 1
_PRIME_1 = 0x9E3779B185EBCA87
_PRIME_2 = 0xC2B2AE3D27D4EB4F
_PRIME_3 = 0x165667B19E3779F9
_PRIME_4 = 0x85EBCA77C2B2AE63
_PRIME_5 = 0x27D4EB2F165667C5
_EXACT = Context(prec=76)
_EPOCH, _EPOCH_DAY = datetime(1970, 1, 1, tzinfo=UTC), date(1970, 1, 1)
_LANE_OFFSETS = (_PRIME_1 + _PRIME_2 & _MASK, _PRIME_2, 0, -_PRIME_1 & _MASK)

Hashes = np.ndarray[Any, np.dtype[np.uint64]]
Bytes = np.ndarray[Any, np.dtype[np.uint8]]


def sum_of_rows(rows: pa.Table) -> str:
    """Return the sum of all row hashes modulo 2**64, as `spark.row_hash.sum_of_hashes` returns it."""
    hashes = row_hashes(rows)
    low, high = hashes & np.uint64(0xFFFFFFFF), hashes >> np.uint64(32)
    return as_text((int(high.sum()) << 32) + int(low.sum()))


def row_hashes(rows: pa.Table) -> Hashes:
    """Return the hash of each row over all columns except `_run`."""
    mixed = np.zeros(rows.num_rows, np.uint64)
    for field in rows.schema:
        if field.name != RUN:
            mixed ^= _column_hashes(field.name, rows[field.name].combine_chunks())
    return _hash_longs(mixed.view(np.int64), _seeds(rows.num_rows))


def xxh64(data: Bytes, seeds: Hashes) -> Hashes:
    """Hash byte strings of the same length with XXH64.

    Args:
        data: one byte string in each row, of shape (n, length).
        seeds: one seed for each byte string, of shape (n,).
    """
    length = data.shape[1]
    words = np.ascontiguousarray(data[:, : length // 8 * 8]).view("<u8")
    striped = length // 32 * 4
    if striped:
        lanes = [seeds + np.uint64(offset) for offset in _LANE_OFFSETS]
        for start in range(0, striped, 4):
            lanes = [_round(lane, words[:, start + number]) for number, lane in enumerate(lanes)]
        value = sum((_rotated(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True)), np.zeros_like(seeds))
        for lane in lanes:
            value = (value ^ _round(np.zeros_like(seeds), lane)) * np.uint64(_PRIME_1) + np.uint64(_PRIME_4)
    else:
        value = seeds + np.uint64(_PRIME_5)
    value = value + np.uint64(length)
    for number in range(striped, length // 8):
        mixed = value ^ _round(np.zeros_like(seeds), words[:, number])
        value = _rotated(mixed, 27) * np.uint64(_PRIME_1) + np.uint64(_PRIME_4)
    at = length // 8 * 8
    if length - at >= 4:
        half = np.ascontiguousarray(data[:, at : at + 4]).view("<u4")[:, 0].astype(np.uint64)
        value = _rotated(value ^ (half * np.uint64(_PRIME_1)), 23) * np.uint64(_PRIME_2) + np.uint64(_PRIME_3)
        at += 4
    for number in range(at, length):
        value = _rotated(value ^ (data[:, number].astype(np.uint64) * np.uint64(_PRIME_5)), 11) * np.uint64(_PRIME_1)
    value = (value ^ (value >> np.uint64(33))) * np.uint64(_PRIME_2)
    value = (value ^ (value >> np.uint64(29))) * np.uint64(_PRIME_3)
    return value ^ (value >> np.uint64(32))


def _round(lane: Hashes, word: Hashes) -> Hashes:
    return _rotated(lane + word * np.uint64(_PRIME_2), 31) * np.uint64(_PRIME_1)


def _rotated(value: Hashes, by: int) -> Hashes:
    return (value << np.uint64(by)) | (value >> np.uint64(64 - by))


def _seeds(count: int, seed: int = _SEED) -> Hashes:
    return np.full(count, seed, np.uint64)


def _column_hashes(name: str, values: pa.Array) -> Hashes:
    """Return the hash of each value of a column; 0 for a null."""
    seeds = _hash_longs(np.full(len(values), column_id(name), np.int64), _seeds(len(values)))
    hashes = _value_hashes(values, seeds)
    hashes[np.asarray(values.is_null())] = 0
    return hashes


def _value_hashes(values: pa.Array, seeds: Hashes) -> Hashes:
    kind = values.type
    if pa.types.is_nested(kind):
        pairs = zip(values.to_pylist(), seeds.tolist(), strict=True)
        return np.array([_fold_with_shape(value, kind, seed) for value, seed in pairs], np.uint64)
    if pa.types.is_decimal(kind):
        numbers = _unscaled(values)
        if kind.precision <= _SHORT_DECIMAL_DIGITS:
            return _hash_longs(np.array(numbers, np.int64), seeds)
        return _hash_strings([_big_endian(number) for number in numbers], seeds)
    if _is_bytes(kind):
        return _hash_strings(pc.fill_null(values.cast(pa.large_binary()), b"").to_pylist(), seeds)
    if pa.types.is_floating(kind):
        reals = np.asarray(pc.fill_null(values.cast(pa.float64()), 0.0)) + 0.0  # turns -0.0 into 0.0
        return _hash_longs(np.where(np.isnan(reals), np.nan, reals).view(np.int64), seeds)
    if pa.types.is_date32(kind):
        values = values.cast(pa.int32())
    elif pa.types.is_timestamp(kind):
        values = values.cast(pa.timestamp("us", kind.tz))
    return _hash_longs(np.asarray(pc.fill_null(values.cast(pa.int64()), 0)), seeds)


def _hash_longs(values: np.ndarray[Any, np.dtype[np.int64]], seeds: Hashes) -> Hashes:
    return xxh64(np.ascontiguousarray(values).view(np.uint8).reshape(-1, 8), seeds)


def _hash_strings(values: Sequence[bytes], seeds: Hashes) -> Hashes:
    """Hash byte strings; all strings of the same length are hashed at once."""
    lengths = np.array([len(value) for value in values], np.int64)
    hashes = np.zeros(len(values), np.uint64)
    for length in np.unique(lengths).tolist():
        rows = np.flatnonzero(lengths == length)
        data = np.frombuffer(b"".join(values[row] for row in rows.tolist()), np.uint8)
        hashes[rows] = xxh64(data.reshape(len(rows), length), seeds[rows])
    return hashes


def _unscaled(values: pa.Array) -> list[int]:
    """Return decimals as integers, without their decimal points; 0 for a null."""
    return [0 if value is None else _number_of(value, values.type.scale) for value in values.to_pylist()]


def _number_of(value: Decimal, scale: int) -> int:
    return int(value.scaleb(scale, _EXACT))


def _big_endian(number: int) -> bytes:
    """Return the shortest big-endian two's complement of an integer, as Java's BigInteger writes it."""
    size = (number if number >= 0 else ~number).bit_length() // 8 + 1
    return number.to_bytes(size, "big", signed=True)


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
    )


# --- nested values, one at a time -----------------------------------------------------------------------------------


def _fold_with_shape(value: Any, kind: pa.DataType, seed: int) -> int:
    """Hash a value, then what Spark's hash skips in it; see `spark.equality.shape_of`."""
    for part, part_kind in [(value, kind), *_shape_of(value, kind)]:
        seed = _fold(part, part_kind, seed)
    return seed


def _fold(value: Any, kind: pa.DataType, seed: int) -> int:
    """Hash a value of any type as Spark does: the hash of each part is the seed for the next; a null is skipped."""
    if value is None:
        return seed
    if pa.types.is_struct(kind):
        for field in kind:
            seed = _fold(value[field.name], field.type, seed)
        return seed
    if pa.types.is_list(kind):
        for item in value:
            seed = _fold(item, kind.value_type, seed)
        return seed
    return int(xxh64(np.frombuffer(_encoded(value, kind), np.uint8).reshape(1, -1), _seeds(1, seed))[0])


def _encoded(value: Any, kind: pa.DataType) -> bytes:
    """Return the bytes that Spark hashes. A number has 4 bytes if Java holds its type in an int, and 8 if in a long."""
    if pa.types.is_floating(kind):
        value = math.nan if math.isnan(value) else value + 0.0
        return struct.pack("<f" if pa.types.is_float32(kind) else "<d", value)
    if pa.types.is_decimal(kind):
        number = _number_of(value, kind.scale)
        return struct.pack("<q", number) if kind.precision <= _SHORT_DECIMAL_DIGITS else _big_endian(number)
    if _is_bytes(kind):
        return value.encode() if isinstance(value, str) else bytes(value)
    if pa.types.is_date32(kind):
        return struct.pack("<i", (value - _EPOCH_DAY).days)
    if pa.types.is_timestamp(kind):
        return struct.pack("<q", (value - _EPOCH) // timedelta(microseconds=1))
    return struct.pack("<q" if pa.types.is_int64(kind) else "<i", int(value))


def _shape_of(value: Any, kind: pa.DataType) -> list[tuple[Any, pa.DataType]]:
    """Return which parts of a value are null, packed into longs, then the length and the shape of each list."""
    bits: list[bool] = []
    lists: list[tuple[Any, pa.DataType]] = []
    _add_shape(value, kind, bits, lists)
    packed = [
        sum(flag << bit for bit, flag in enumerate(bits[start : start + _BITS_PACKED]))
        for start in range(0, len(bits), _BITS_PACKED)
    ]
    return [*((number, pa.int64()) for number in packed), *lists]


def _add_shape(value: Any, kind: pa.DataType, bits: list[bool], lists: list[tuple[Any, pa.DataType]]) -> None:
    bits.append(value is None)
    if pa.types.is_struct(kind):
        for field in kind:
            _add_shape(None if value is None else value[field.name], field.type, bits, lists)
    elif pa.types.is_list(kind):
        lists.append((-1 if value is None else len(value), pa.int32()))
        items = [_shape_of(item, kind.value_type) for item in value or ()]
        for part in (part for item in items for part in item):
            lists.append(part)
