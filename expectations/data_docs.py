"""The Data Docs: where their pages and what they are made of lie, and how many results stay."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

SITE = "tidelake"
RUN_NAME = "full"
"""What every result in the Data Docs comes from: a full validation."""
_RESULTS_KEPT = 30
"""How many results of one collection stay, the one to come included."""


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
