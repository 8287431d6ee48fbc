"""Upsert collections: a statement sets or deletes the value of a key, and only the newest statement takes effect."""

from __future__ import annotations

from dagster import AssetsDefinition

from assets.family import Family, build_assets
from assets.names import Names
from tidelake.settings.collection import CollectionSettings

UPSERT = Family(
    name="upsert",
    statement="At its time, +1 sets the value of a key and −1 deletes it; the two at the same time replace it.",
    refusal=(
        "Two values of one key at one logical time, or a diff other than +1 or −1, violate the envelope's rules: "
        "the time stays unsealed until an operator decides."
    ),
)

RECLOCKED_UPSERT = Family(
    name="upsert",
    statement="The last record of a key sets its value; a null value deletes the key. A tick seals what it reads.",
    refusal=(
        "A record without a key is quarantined. A record whose value cannot be decoded puts its key in error until a "
        "later record clears the error."
    ),
)


def upsert_assets(names: Names, settings: CollectionSettings) -> list[AssetsDefinition]:
    """Return the assets of one upsert collection."""
    return build_assets(names, settings, RECLOCKED_UPSERT if settings.mints_times else UPSERT)
