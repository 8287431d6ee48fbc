"""Keeps Great Expectations from writing `index.html`, which is the page of the lake.

The library imports the class by name.
"""

from __future__ import annotations

from typing import Any

from great_expectations.render.renderer.site_builder import DefaultSiteIndexBuilder


class NoIndexBuilder(DefaultSiteIndexBuilder):
    """Builds no index: `expectations.offline` writes one, under a different name."""

    def build(self, skip_and_clean_missing: bool = True, build_index: bool = True) -> tuple[Any, Any]:
        """Return nothing, as there is no page."""
        return None, None
