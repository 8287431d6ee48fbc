"""The Data Docs: where their pages lie, how many results stay, and that they can be read without the internet."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

SITE = "tidelake"
_RESULTS_KEPT = 30
"""How many results of one collection stay in the Data Docs, the one to come included."""


def site_config(data_docs: Path) -> dict[str, Any]:
    """How Great Expectations builds the site."""
    return {
        "class_name": "SiteBuilder",
        "show_how_to_buttons": False,
        "store_backend": {"class_name": "TupleFilesystemStoreBackend", "base_directory": str(data_docs.resolve())},
        "site_index_builder": {"class_name": "DefaultSiteIndexBuilder"},
    }


def forget_old_results(data_docs: Path, suite: str) -> None:
    """Remove the oldest pages of a suite, so that a new one finds a place."""
    results = sorted((data_docs / "validations" / suite).glob("*/*"), key=lambda path: path.name)
    for folder in results[: max(0, len(results) - _RESULTS_KEPT + 1)]:
        shutil.rmtree(folder)
