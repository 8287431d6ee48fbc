"""The base of a table: the rows left after merging everything up to some time; see docs/decisions/base.md.

No two of its rows have the same key (or the same data, if diffs are summed), and it holds no deletes. Which files form
the base depends only on their descriptions in the log, so every engine finds the same base.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelake.store.files import RunFile

BASE = "_base"
"""A merge splits its rows by this boolean; the files of the base are in the folder for `true`."""
_FOLDER = f"/{BASE}=true/"
LATER_ROWS_MAX = 1_000_000
"""Maximum number of rows outside the base: every task holds them (in keyed forms, only their keys) in memory."""
_LATER_BYTES_MAX = 64 << 20
"""Maximum size of these rows on disk; in memory, they may take ten times as much, or more."""


def split_base(files: Sequence[RunFile]) -> tuple[list[RunFile], list[RunFile]]:
    """Split files into those of the base and all others.

    The first list is empty unless the base files belong to one run, all other files are later, and these others
    are few and small enough for every task to hold.
    """
    base = [file for file in files if _FOLDER in f"/{file.path}"]
    later = [file for file in files if _FOLDER not in f"/{file.path}"]
    is_one_run = len({file.run for file in base}) == 1
    are_few = (
        sum(file.rows for file in later) <= LATER_ROWS_MAX and sum(file.bytes for file in later) <= _LATER_BYTES_MAX
    )
    last = max((file.reach[1] for file in base), default=-1)
    if is_one_run and are_few and all(last < file.reach[0] for file in later):
        return base, later
    return [], list(files)
