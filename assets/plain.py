"""Plain collections: any diff but 0; the contents are the data whose diffs do not add up to 0."""

from __future__ import annotations

from dagster import AssetsDefinition

from assets.family import Family, build_assets
from assets.names import Names
from tidelake.settings.collection import CollectionSettings

PLAIN = Family(
    name="plain",
    statement="A statement adds its data `diff` times; a negative diff removes it.",
    refusal="A statement whose diff is 0 is quarantined.",
)


def plain_assets(names: Names, settings: CollectionSettings) -> list[AssetsDefinition]:
    """Return the assets of one plain collection."""
    return build_assets(names, settings, PLAIN)
