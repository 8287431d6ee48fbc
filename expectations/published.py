"""Data Docs in an object store: the library writes into a temporary folder, whose files are then copied."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory

from expectations.data_docs import INDEX, RUN_NAME, remove_old_results
from expectations.offline import LISTED_MAX, Result, list_results, render_index
from tidelake.report.files import ReportPlace, media_type, replace_text
from tidelake.storage import blobs
from tidelake.storage.location import Location

_RESULTS = ".results/results.json"
"""The file with the results in the index. Without it, each new result would take a request for every stored one."""
_WRITERS = 8
"""Maximum number of files that are copied at a time."""
_ATTEMPTS_MAX = 16


@contextmanager
def local_docs(place: ReportPlace, suite: str, results_kept: int) -> Iterator[Path]:
    """Yield a folder on this machine for the Data Docs, and publish it at the end of the block.

    A folder on a disk is used as it is. If the block raises, nothing is published.

    Args:
        place: the folder of the reports.
        suite: the suite whose results are written.
        results_kept: maximum number of results of this suite, including the one that the block writes.

    Raises:
        OSError, StoreUnreadable: the Data Docs cannot be written.
    """
    root = blobs.root_of(place)
    if root.is_local:
        folder = root.local.resolve()
        remove_old_results(folder, suite, results_kept - 1)
        yield folder
        return
    with TemporaryDirectory(prefix="tidelake-data-docs-") as scratch:
        yield Path(scratch)
        _publish(Path(scratch), root, suite, results_kept)


def published_results(place: ReportPlace) -> list[Result]:
    """Return the results in the index, newest first."""
    root = blobs.root_of(place)
    if root.is_local:
        return list_results(root.local)
    try:
        return _parsed(blobs.read(root / _RESULTS))
    except FileNotFoundError:
        return []


def _publish(folder: Path, root: Location, suite: str, results_kept: int) -> None:
    """Copy all files but static ones that are there already; then rewrite the index, and delete the oldest results."""
    there = {blob.location.path: blob.size for blob in blobs.list_blobs(root / "static")}

    def copy(file: Path) -> None:
        target = root / file.relative_to(folder).as_posix()
        data = file.read_bytes()
        if there.get(target.path) != len(data):
            blobs.replace(target, data, media_type(target.name))

    files = [file for file in sorted(folder.rglob("*")) if file.is_file() and file.name != INDEX]
    with ThreadPoolExecutor(_WRITERS) as pool:
        for _ in pool.map(copy, files):
            pass
    _write_index(root, list_results(folder), suite, results_kept)
    for above in (".results/validations", "validations"):
        results = sorted(blobs.list_folder(root / above / suite / RUN_NAME).folders, key=lambda result: result.name)
        for result in results[:-results_kept]:
            blobs.delete_folder(result)


def _write_index(root: Location, new: list[Result], suite: str, results_kept: int) -> None:
    """Add results to the index; other processes may be doing the same."""
    results: list[Result] = []

    def change(present: bytes | None) -> bytes:
        known = {result.page: result for result in [*(_parsed(present) if present else ()), *new]}
        newest_first = sorted(
            known.values(), key=lambda result: (result.page.split("/")[-2], result.page), reverse=True
        )
        dropped = [result for result in newest_first if result.suite == suite][results_kept:]
        results[:] = [result for result in newest_first if result not in dropped][:LISTED_MAX]
        return json.dumps([asdict(result) for result in results]).encode()

    for _ in range(_ATTEMPTS_MAX):
        stamp = blobs.update(root / _RESULTS, change, media_type(_RESULTS))
        replace_text(root / INDEX, render_index(results))
        if blobs.stamp(root / _RESULTS) == stamp:
            break


def _order(result: Result) -> tuple[str, str]:
    """Return the time of a result, with microseconds, and its page."""
    return result.page.split("/")[-2], result.page


def _parsed(data: bytes) -> list[Result]:
    return [Result(**{**row, "failed": tuple(row["failed"])}) for row in json.loads(data)]
