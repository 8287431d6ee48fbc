"""Tidelake turns change-data topics into definite Delta tables.

    import tidelake

    lake = tidelake.open_lake("collections.yaml")
    orders = lake.collection("orders")
    orders.upper                                     # the first time that is not sealed
    orders.snapshot(spark, as_of=10).contents        # a DataFrame: the contents AS OF 10, and `_diff`

`tidelake.errors` has all errors, and `tidelake.decisions` has the decisions that `LakeCollection.decide` accepts.
Importing the package is fast: settings, tables and Spark are imported when they are first used.
"""

from __future__ import annotations

TYPE_CHECKING = False  # importing `typing` for this would take half of the import time
if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

    from tidelake import errors
    from tidelake.lake import Lake as OpenedLake

__all__ = ["errors", "open_lake"]
__version__ = "0.1.0"


def open_lake(file: str | Path | None = None, *, skip_invalid: bool = False, read_only: bool = False) -> OpenedLake:
    """Open the lake that a `collections.yaml` describes; nothing is written, and no JVM starts.

    Args:
        file: the path; by default the file that TIDELAKE_CONFIG names, or else ./collections.yaml, as on the command
            line.
        skip_invalid: leave out collections whose block is invalid; `status` gives their errors, and `collection` raises
            them.
        read_only: write nothing to the store, whatever is called: every call that would write raises `LakeReadOnly`.
            This needs no permission to write, and also works on a copy of a store.

    Raises:
        ConfigurationError: the file is missing or invalid; the error names the field or line.

    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder, "collections.yaml")
    ...     _ = file.write_text('''
    ... collections:
    ...   orders:
    ...     family: plain
    ...     topic: orders
    ...     schema: {type: record, name: order, fields: [{name: id, type: long}]}
    ... ''')
    ...     lake = open_lake(file)
    ...     lake.collections(), lake.status()
    ([LakeCollection('orders')], {'orders': None})
    """
    from tidelake.lake import Lake

    return Lake.open(file, skip_invalid=skip_invalid, read_only=read_only)


def __getattr__(name: str) -> Any:
    """Return `tidelake.errors`, or the Dagster component `tidelake.Lake`, which are imported when they are first used.

    In a wheel, the application folders are in `tidelake.app`; in a checkout, they are next to `src`.
    """
    from importlib import import_module
    from importlib.util import find_spec

    if name == "errors":
        return import_module("tidelake.errors")
    if name == "Lake":
        module = "tidelake.app.orchestration" if find_spec("tidelake.app") is not None else "orchestration"
        return import_module(f"{module}.component").Lake
    raise AttributeError(f"module 'tidelake' has no attribute {name!r}")
