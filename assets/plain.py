"""Plain collections: any diff but 0; the contents are the data whose diffs do not add up to nothing."""

from __future__ import annotations

from dagster import AssetsDefinition

from assets.family import Family, build_assets
from tidelake.configuration import CollectionSettings

PLAIN = Family(
    name="plain",
    statement="A statement adds its data as often as its diff says, or takes it away.",
    refusal="A diff of 0 is no statement, and goes to the quarantine.",
)


def plain_assets(settings: CollectionSettings) -> list[AssetsDefinition]:
    """The assets of one plain collection."""
    return build_assets(settings, PLAIN)
