"""Append-only collections: data is only ever added, so every diff is positive."""

from __future__ import annotations

from dagster import AssetsDefinition

from assets.family import Family, build_assets
from assets.names import Names
from tidelake.settings.collection import CollectionSettings

APPEND_ONLY = Family(
    name="append_only",
    statement="A statement adds its data `diff` times.",
    refusal=(
        "A statement whose diff is not positive is quarantined, and its time stays unsealed until an operator decides."
    ),
)

RECLOCKED_APPEND_ONLY = Family(
    name="append_only",
    statement="Each record is an event, and two equal records are two events. A tick seals what it reads.",
    refusal="A record whose value is null or cannot be decoded is quarantined.",
)


def append_only_assets(names: Names, settings: CollectionSettings) -> list[AssetsDefinition]:
    """Return the assets of one append-only collection."""
    return build_assets(names, settings, RECLOCKED_APPEND_ONLY if settings.mints_times else APPEND_ONLY)
