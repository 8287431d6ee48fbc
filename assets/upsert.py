"""Upsert collections: a statement sets or deletes the value of a key, and the newest one counts."""

from __future__ import annotations

from dagster import AssetsDefinition

from assets.family import Family, build_assets
from tidelake.configuration import CollectionSettings

UPSERT = Family(
    name="upsert",
    statement="+1 sets the value of a key from its time on, −1 deletes it, both at one time are a replacement.",
    refusal=(
        "Two values of one key at one time, or another diff than +1 and −1, break the envelope: the time stays "
        "unsealed until somebody decides."
    ),
)

RAW_UPSERT = Family(
    name="upsert",
    statement="The last record of a key sets its value, and a null value deletes it; a tick seals what it reads.",
    refusal=(
        "A record without a key goes to the quarantine; one whose value does not fit puts its key in error, until a "
        "later record heals it."
    ),
)


def upsert_assets(settings: CollectionSettings) -> list[AssetsDefinition]:
    """The assets of one upsert collection."""
    return build_assets(settings, RAW_UPSERT if settings.framing == "reclock" else UPSERT)
