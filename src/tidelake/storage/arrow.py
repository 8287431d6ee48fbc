"""Arrow without pandas: PyArrow imports pandas to convert a Python value, which takes longer than a whole `status`."""

from __future__ import annotations

from array import array
from typing import Any

import numpy as np
import pyarrow as pa


def repeated(text: str, count: int) -> pa.Array:
    """Return a column that repeats a string, like `pa.repeat`."""
    data = text.encode()
    ends = array("i", (index * len(data) for index in range(count + 1)))
    return pa.StringArray.from_buffers(count, pa.py_buffer(ends), pa.py_buffer(data * count))


def integers(column: pa.ChunkedArray) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return a column of integers without nulls, like `to_numpy`."""
    return np.concatenate([np.zeros(0, np.int64), *(np.from_dlpack(chunk) for chunk in column.chunks)])
