"""The headers of a Parquet file's pages, which no Parquet checksum covers: where they are, and their digest.

The checksum of a page covers only what follows its header. A flipped bit in a header can change how many values the
page has or how they are decoded. For a file of more than 1 MiB on a local disk, the log states a digest of all headers,
and readers compare it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from zlib import crc32

import pyarrow as pa
import pyarrow.parquet as pq

_HEADER_BYTES = 256
"""Number of bytes that are read first; a header is longer only if it states long bounds."""
_HEADER_BYTES_MAX = 1 << 24
_COMPRESSED_BYTES, _CHECKSUM = 3, 4
"""The fields of a header that state how many bytes follow it, and their CRC-32."""

# Thrift's compact protocol, in which the headers are written.
_BOOLEANS, _BYTE, _VARINTS, _DOUBLE, _BINARY, _STRUCT = (1, 2), 3, (4, 5, 6), 7, 8, 12
_NESTED_MAX = 8
_NUMBER = rb"[\x80-\xff]{0,9}[\x00-\x7f]"
_USUAL = re.compile(
    rb"\x15%(n)s\x15%(n)s\x15(%(n)s)\x15(%(n)s)"
    rb"(?:\x1c\x15%(n)s\x15%(n)s\x15%(n)s\x15%(n)s(?:\x1c\x00)?|\x3c\x15%(n)s\x15%(n)s[\x11\x12]?)\x00\x00"
    % {b"n": _NUMBER}
)
"""A header with a checksum and without bounds, as Spark writes it; a single match saves two thirds of the time."""


def digest_of_headers(source: pa.NativeFile) -> str:
    """Return the SHA-256 of the headers of all pages, each preceded by its position in the file.

    Args:
        source: a Parquet file whose footer can be trusted.

    Raises:
        ValueError: there is no valid header where one should be.

    Cost: the footer, and 256 bytes for each page, which has up to 20,000 values.
    """
    digest = sha256()
    for chunk in chunks_of(source):
        digest.update(headers_in(source, chunk))
    return digest.hexdigest()


@dataclass(frozen=True)
class Chunk:
    """The pages of one column in one row group: where they are in the file."""

    column: str
    start: int
    size: int


def chunks_of(source: pa.NativeFile) -> list[Chunk]:
    """Return the chunks of a file whose footer can be trusted, in the order of row groups and columns."""
    metadata = pq.read_metadata(source)
    groups = [metadata.row_group(group) for group in range(metadata.num_row_groups)]
    chunks = [group.column(column) for group in groups for column in range(metadata.num_columns)]
    return [Chunk(chunk.path_in_schema, _start_of(chunk), chunk.total_compressed_size) for chunk in chunks]


def headers_of(source: pa.NativeFile, chunk: Chunk) -> Iterator[tuple[int, bytes]]:
    """Yield the position and the bytes of the header of each page of a chunk.

    Raises:
        ValueError: there is no valid header where one should be.
    """
    position, end = chunk.start, chunk.start + chunk.size
    while position < end:
        size = _HEADER_BYTES
        while True:
            data = source.read_at(min(size, end - position), position)
            try:
                length, follows, _ = _measure(data)
            except IndexError:  # the header is longer than the bytes read
                if size >= min(end - position, _HEADER_BYTES_MAX):
                    raise ValueError(f"the page header at byte {position} is cut off") from None
                size *= 16
            else:
                break
        yield position, data[:length]
        position += length + follows
    if position > end:
        raise ValueError(f"the pages that should end at byte {end} end at byte {position}")


def headers_in(source: pa.NativeFile, chunk: Chunk) -> bytes:
    """Return the headers of a chunk's pages, each preceded by its position in the file.

    Raises:
        ValueError: there is no valid header where one should be.
    """
    return b"".join(part for position, header in headers_of(source, chunk) for part in (_placed(position), header))


def checked_headers_in(source: pa.NativeFile, chunk: Chunk) -> bytes:
    """Verify the checksums of a chunk's pages, as Arrow does when it decodes them; return what `headers_in` returns.

    Raises:
        ValueError: a page differs from what was written.

    Cost: reads the compressed bytes of the chunk, all of them into memory.
    """
    data = source.read_at(chunk.size, chunk.start)
    headers: list[bytes] = []
    pages, position = memoryview(data), 0
    while position < len(data):
        length, follows, checksum = _page(data, position)
        body = position + length
        end = body + follows
        if end > len(data) or (checksum is not None and crc32(pages[body:end]) != checksum):
            raise ValueError(f"the page at byte {chunk.start + position} does not match its checksum")
        headers += (_placed(chunk.start + position), data[position:body])
        position = end
    return b"".join(headers)


def _placed(position: int) -> bytes:
    return position.to_bytes(8, "little")


def _page(data: bytes, position: int) -> tuple[int, int, int | None]:
    """Return the length of a page's header, the number of bytes that follow it, and their checksum."""
    for size in (_HEADER_BYTES, _HEADER_BYTES_MAX):
        try:
            return _measure(data[position : position + size])
        except IndexError:  # the header is longer than `size`
            continue
    raise ValueError("a page header is cut off")


def _start_of(chunk: pq.ColumnChunkMetaData) -> int:
    start: int = chunk.data_page_offset
    return min(start, chunk.dictionary_page_offset) if chunk.dictionary_page_offset else start


def _measure(data: bytes) -> tuple[int, int, int | None]:
    """Return the length of the header that these bytes begin with, the number of bytes after it, and their CRC-32.

    Raises:
        IndexError: the header continues after these bytes.
        ValueError: they are not a header.
    """
    usual = _USUAL.match(data)
    if usual is not None:
        number, _ = _varint(usual[1], 0)
        if number & 1 == 0:
            return usual.end(), number >> 1, _signed(_varint(usual[2], 0)[0])
    at, field, follows, checksum = 0, 0, -1, None
    while data[at]:
        at, field, kind = _field(data, at, field)
        if field in (_COMPRESSED_BYTES, _CHECKSUM) and kind in _VARINTS:
            number, at = _varint(data, at)
            if field == _CHECKSUM:
                checksum = _signed(number)
            else:
                follows = number >> 1 if number & 1 == 0 else -1
        else:
            at = _skip(data, at, kind, 0)
    if follows < 0:
        raise ValueError("a page header does not state the size of its page")
    return at + 1, follows, checksum


def _signed(zigzag: int) -> int:
    """Return a CRC-32 as an unsigned number; a header states it as a signed one."""
    return ((zigzag >> 1) ^ -(zigzag & 1)) & 0xFFFF_FFFF


def _field(data: bytes, at: int, before: int) -> tuple[int, int, int]:
    """Return the position of a field's value, the field's number and the kind of the value."""
    byte = data[at]
    if byte >> 4:
        return at + 1, before + (byte >> 4), byte & 15
    number, at = _varint(data, at + 1)
    return at, (number >> 1) ^ -(number & 1), byte & 15


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("a page header has a number of more than 64 bits")


def _skip(data: bytes, at: int, kind: int, depth: int) -> int:
    """Return the position after a value."""
    if kind in _VARINTS:
        return _varint(data, at)[1]
    if kind in _BOOLEANS:
        return at
    if kind == _BINARY:
        length, at = _varint(data, at)
        return at + length
    if depth > _NESTED_MAX:
        raise ValueError("a page header is nested too deeply")
    if kind == _STRUCT:
        field = 0
        while data[at]:
            at, field, inner = _field(data, at, field)
            at = _skip(data, at, inner, depth + 1)
        return at + 1
    if kind in (_BYTE, _DOUBLE):
        return at + (1 if kind == _BYTE else 8)
    raise ValueError(f"a page header has a value of kind {kind}, which no page header has")
