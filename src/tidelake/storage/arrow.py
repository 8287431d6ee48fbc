"""Arrow without pandas: to convert a Python value, PyArrow imports pandas, which takes longer than all of `status`."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa


def repeated(text: str, count: int) -> pa.Array:
    """Return a column that repeats a string, like `pa.repeat`."""
    data = text.encode()
    ends = array("i", (index * len(data) for index in range(count + 1)))
    return pa.StringArray.from_buffers(count, pa.py_buffer(ends), pa.py_buffer(data * count))


def integers(column: pa.ChunkedArray) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the values of an integer column that has no nulls, like `to_numpy`."""
    return np.concatenate([np.zeros(0, np.int64), *(np.from_dlpack(chunk) for chunk in column.chunks)])


def int64_array(values: Sequence[int] | np.ndarray[Any, np.dtype[np.int64]]) -> pa.Array:
    """Return integers as a column, like `pa.array`.

    >>> int64_array([3, 2**63 - 1]).to_pylist(), len(int64_array([]))
    ([3, 9223372036854775807], 0)
    """
    numbers = np.ascontiguousarray(values, np.int64)
    return pa.Array.from_buffers(pa.int64(), len(numbers), [None, pa.py_buffer(numbers)])


def text_array(values: Sequence[str]) -> pa.Array:
    """Return strings as a column, like `pa.array`.

    >>> text_array(["a", "", "ü"]).to_pylist(), len(text_array([]))
    (['a', '', 'ü'], 0)
    """
    encoded = [value.encode() for value in values]
    ends = np.zeros(len(encoded) + 1, np.int32)
    ends[1:] = np.cumsum([len(value) for value in encoded])
    return pa.StringArray.from_buffers(len(encoded), pa.py_buffer(ends), pa.py_buffer(b"".join(encoded)))
