"""The Data Docs: where their pages and what they are made of lie, and how many results stay."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

SITE = "tidelake"
RUN_NAME = "full"
"""What every result in the Data Docs comes from: a full validation."""
_RESULTS_KEPT = 30
"""How many results of one collection stay, the one to come included."""


@dataclass(frozen=True)
class Notes:
    """What a result's page says besides what the library writes."""

    decided: list[str] = field(default_factory=list)
    """Every time that was sealed by decision, in a sentence."""
    evidence: dict[str, list[str]] = field(default_factory=dict)
    """By check, what it goes by."""


def notes_file(data_docs: Path, result: Path) -> Path:
    """Where the notes lie beside a result, or beside the result that a page shows."""
    root = data_docs / "validations"
    if result.is_relative_to(root):
        result = results_folder(data_docs) / result.relative_to(root)
    return result.with_suffix(".notes")


def write_notes(data_docs: Path, suite: str, notes: Notes) -> None:
    """Keep notes beside the newest result of a suite; they go when it goes."""
    newest = max((results_folder(data_docs) / suite).glob("*/*/*.json"), key=lambda path: path.parent.name)
    notes_file(data_docs, newest).write_text(json.dumps(asdict(notes)), encoding="utf-8")


def read_notes(data_docs: Path, result: Path) -> Notes:
    """The notes of a result or a page; none where it came before there were any."""
    file = notes_file(data_docs, result)
    return Notes(**json.loads(file.read_text(encoding="utf-8"))) if file.exists() else Notes()


def results_folder(data_docs: Path) -> Path:
    """Where the results lie that the pages are made of: one JSON file each, by suite, run name and time."""
    return data_docs / ".results" / "validations"


def site_config(data_docs: Path) -> dict[str, Any]:
    """How Great Expectations builds the site."""
    return {
        "class_name": "SiteBuilder",
        "show_how_to_buttons": False,
        "store_backend": {"class_name": "TupleFilesystemStoreBackend", "base_directory": str(data_docs)},
        "site_index_builder": {"class_name": "DefaultSiteIndexBuilder"},
    }


def store_config(kind: str, folder: Path) -> dict[str, Any]:
    """A store of Great Expectations in a folder."""
    return {
        "class_name": kind,
        "store_backend": {"class_name": "TupleFilesystemStoreBackend", "base_directory": str(folder)},
    }


def forget_old_results(data_docs: Path, suite: str) -> None:
    """Remove the oldest results of a suite and their pages, so that a new one finds a place."""
    for root in (results_folder(data_docs), data_docs / "validations"):
        found = sorted((root / suite).glob("*/*"), key=lambda path: path.name)
        for folder in found[: max(0, len(found) - _RESULTS_KEPT + 1)]:
            shutil.rmtree(folder)
