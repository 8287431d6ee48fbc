"""The Data Docs on disk: the folders of pages, results and notes, and the removal of old results."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

SITE = "tidelake"
INDEX = "validations.html"
"""The index of the results; `index.html` is the page of the lake."""
RUN_NAME = "full"
"""The run name of every result: only full validations are written."""
RESULTS_KEPT = 30
"""Maximum number of results of one collection, including the one that is about to be written."""


@dataclass(frozen=True)
class Notes:
    """The text that a result's page has in addition to the library's."""

    decided: list[str] = field(default_factory=list)
    """A sentence for each time that was sealed by decision."""
    evidence: dict[str, list[str]] = field(default_factory=dict)
    """The evidence by check."""
    headline: list[str] = field(default_factory=list)
    """The page's first lines: whether the table can be used, and what it is waiting for."""
    numbers: dict[str, str] = field(default_factory=dict)
    """The numbers below the headline, by name: since, upper, totals."""


def notes_file(data_docs: Path, result: Path) -> Path:
    """Return the file with the notes of a result, given the result or its page."""
    return (result_file(data_docs, result) or result).with_suffix(".notes")


def result_file(data_docs: Path, page: Path) -> Path | None:
    """Return the stored result that a page shows; None if it is the page of something else."""
    root = data_docs / "validations"
    if not page.is_relative_to(root):
        return None
    return (results_folder(data_docs) / page.relative_to(root)).with_suffix(".json")


def write_notes(data_docs: Path, suite: str, notes: Notes) -> None:
    """Write notes next to the newest result of a suite. They are removed with it."""
    notes_file(data_docs, newest_result(data_docs, suite)).write_text(json.dumps(asdict(notes)), encoding="utf-8")


def newest_result(data_docs: Path, suite: str) -> Path:
    """Return the newest stored result of a suite."""
    return max((results_folder(data_docs) / suite).glob("*/*/*.json"), key=lambda path: path.parent.name)


def suite_file(data_docs: Path, suite: str) -> Path:
    """Return the stored suite."""
    return data_docs / ".results" / "suites" / f"{suite}.json"


def read_notes(data_docs: Path, result: Path) -> Notes:
    """Return the notes of a result or its page; empty if it has none."""
    file = notes_file(data_docs, result)
    return Notes(**json.loads(file.read_text(encoding="utf-8"))) if file.exists() else Notes()


def results_folder(data_docs: Path) -> Path:
    """Return the folder of the results that pages are made from: JSON files by suite, run name and time."""
    return data_docs / ".results" / "validations"


def site_config(data_docs: Path) -> dict[str, Any]:
    """Return Great Expectations' configuration of the site."""
    return {
        "class_name": "SiteBuilder",
        "show_how_to_buttons": False,
        "store_backend": {"class_name": "TupleFilesystemStoreBackend", "base_directory": str(data_docs)},
        "site_index_builder": {"module_name": f"{__package__}.no_index", "class_name": "NoIndexBuilder"},
    }


def store_config(kind: str, folder: Path) -> dict[str, Any]:
    """Return Great Expectations' configuration of a store in a folder."""
    return {
        "class_name": kind,
        "store_backend": {"class_name": "TupleFilesystemStoreBackend", "base_directory": str(folder)},
    }


def remove_old_results(data_docs: Path, suite: str, kept: int) -> None:
    """Remove the oldest results of a suite, with their pages, until at most `kept` results are left."""
    for root in (results_folder(data_docs), data_docs / "validations"):
        folders = sorted((root / suite).glob("*/*"), key=lambda path: path.name)
        for folder in folders[: max(0, len(folders) - kept)]:
            shutil.rmtree(folder)
